/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of libgmsfs share; nobody else includes it
 *
 * Every public call does gfs_enter .. gfs_leave, which serialise the calls on one handle (`op`).
 * What the properties and gmsfs_resolve read is changed under `state` too, which is held for
 * moments only, never over a system call that waits. Lock order: op (of several handles: by
 * address), fork gate, registry, state.
 *
 * The fork gate is held for reading while a descriptor exists that is in no field of the handle
 * yet, and while mappings are made: fork() waits for it, so a child finds every descriptor to
 * close, and no mapping without MADV_DONTFORK. Its holder may enter it again.
 */
#ifndef GMSFS_LIB_INTERNAL_H
#define GMSFS_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "gmsfs.h"
#include "vmap.h"

#define GFS_REPLY_TIMEOUT_MS  30000 /* for an answer on `.fds`, which the daemon gives at once */
#define GFS_LAYOUT_BYTES_MAX  (UINT64_C(1) << 31) /* far above the daemon's bounds */
#define GFS_ENCODED_KEY_BYTES (GMSFS_NAME_MAX + 1)

struct gmsfs {
    pthread_mutex_t op;
    pthread_mutex_t state;
    struct gmsfs *next; /* registry, for fork */
    atomic_int dead;    /* in a forked child */
    char *path;         /* absolute, for gmsfs_reopen */
    int dir_fd;         /* O_PATH: follows the store over renames */
    int ctl_fd;         /* carries the session */
    int fds_fd;         /* connection to `.fds`, or -1 */
    int writable;       /* ctl_fd was opened for writing */
    uint64_t granularity_bytes;

    /* Changed under op and state. */
    enum gmsfs_mode mode;
    uint64_t session;
    uint8_t token[GMSFS_TOKEN_BYTES];
    struct gfs_ident ident; /* of the layout last connected to */
    int ident_broken;       /* a writer's work was dropped: the next session is another epoch */
    int unmapped;
    struct gfs_vmap map;
};

/* ---- handle.c: life of a handle, fork ---------------------------------------------------- */

int gfs_enter(struct gmsfs *handle);
void gfs_leave(struct gmsfs *handle);
void gfs_state_lock(struct gmsfs *handle);
void gfs_state_unlock(struct gmsfs *handle);
void gfs_gate_enter(void);
void gfs_gate_leave(void);
/* Opens `ctl` anew; `need_write`: -EACCES rather than a reader's. -ESTALE: the store is gone. */
int gfs_ctl_open(struct gmsfs *handle, int need_write);
void gfs_fds_close(struct gmsfs *handle);

/* ---- ioctl.c ------------------------------------------------------------------------------ */

/* Retries EINTR. On -ESTALE the session is forgotten. */
int gfs_ioctl(struct gmsfs *handle, unsigned long request, void *argument);
/* ACQUIRE with what is left of the timeout after EINTR or the kernel's own request timeout. */
int gfs_ioctl_acquire(struct gmsfs *handle, struct gmsfs_ioc_acquire *acquire);
uint64_t gfs_clock_ms(void);

/* ---- session.c ---------------------------------------------------------------------------- */

/* acquire: mode, timeout_ms and flags in; everything out. */
int gfs_session_acquire(struct gmsfs *handle, struct gmsfs_ioc_acquire *acquire);
/* Its two halves. The lock is taken, and the handle knows nothing of it: the RELEASE ioctl gives it
 * back without a trace ... */
int gfs_session_take(struct gmsfs *handle, struct gmsfs_ioc_acquire *acquire);
/* ... or this makes it the handle's session. committed: when the grant came, was anything? */
void gfs_session_note(struct gmsfs *handle, const struct gmsfs_ioc_acquire *acquire, int committed);
/* flags: GMSFS_COMMIT_*. -ENOLCK: not the writer. */
int gfs_session_commit(struct gmsfs *handle, unsigned flags, const uint8_t *group);
int gfs_session_release(struct gmsfs *handle);
void gfs_session_forget(struct gmsfs *handle);
int gfs_is_zero(const uint8_t bytes[16]);
void gfs_hex_format(const uint8_t bytes[16], char text[33]);

/* ---- ticket.c: descriptors ---------------------------------------------------------------- */

/* Is given each descriptor in rank order, inside the fork gate. It may keep *fd by setting it to
 * -1, else it is closed. A negative return ends the transfer and is passed on. */
typedef int gfs_take_fn(void *context, const struct gmsfs_fds_item *item, int *fd);

struct gfs_export {
    uint64_t first; /* rank */
    uint64_t count; /* 0: all from first; set when known */
    enum gmsfs_access access;
    int has_ticket; /* from ACQUIRE; with `count` set */
    uint8_t ticket[16];
    uint64_t total_bytes; /* out */
};

/* The EXPORT ioctl alone: fills ticket, count and total_bytes. */
int gfs_export_ticket(struct gmsfs *handle, struct gfs_export *export);
/* Redeems export->ticket, exporting anew once when the way broke. */
int gfs_export_redeem(struct gmsfs *handle, struct gfs_export *export, gfs_take_fn *take,
                      void *context);
/* One descriptor by slot. rank: where it is, or GMSFS_SLOT_NONE when not known. */
int gfs_export_slot(struct gmsfs *handle, uint64_t slot, uint64_t rank, enum gmsfs_access access,
                    gfs_take_fn *take, void *context);
/* -ENOLCK, -EACCES or 0: may this handle have such access now? */
int gfs_export_check(const struct gmsfs *handle, enum gmsfs_access access);

/* ---- alloc.c ------------------------------------------------------------------------------ */

/* alloc: size, count, flags, tag, name in; answers out. */
int gfs_alloc(struct gmsfs *handle, struct gmsfs_ioc_alloc *alloc);
int gfs_alloc_free(struct gmsfs *handle, uint64_t slot);
int gfs_text_copy(char *to, size_t to_bytes, const char *from);

/* ---- files.c: pseudo-files and directories of the store ------------------------------------ */

int gfs_file_read(struct gmsfs *handle, const char *name, uint64_t limit_bytes, uint8_t **bytes,
                  size_t *size_bytes);
/* Calls `each` for every name in a directory of the store; dir_fd serves *at and xattr calls. */
typedef int gfs_name_fn(void *context, int dir_fd, const char *name);
int gfs_dir_walk(struct gmsfs *handle, const char *directory, gfs_name_fn *each, void *context);
/* Extended attributes of a file, by a descriptor of its directory. -ENODATA, -ENOENT. */
int gfs_xattr_u64(int dir_fd, const char *name, const char *attribute, uint64_t *value);
int gfs_xattr_text(int dir_fd, const char *name, const char *attribute, char *text,
                   size_t text_bytes);
int gfs_key_encode(const char *key, char name[GFS_ENCODED_KEY_BYTES]);
/* key: as long as the name at most, plus NUL; NULs of the key count. -EINVAL. */
int gfs_key_decode(const char *name, char *key, size_t *key_bytes);

/* ---- list.c: allocations as the directory shows them ---------------------------------------- */

int gfs_list(struct gmsfs *handle, struct gmsfs_handle_info **list, size_t *count);
int gfs_list_find(struct gmsfs *handle, uint64_t slot, struct gmsfs_handle_info *info);
const struct gmsfs_handle_info *gfs_list_lookup(const struct gmsfs_handle_info *list, size_t count,
                                                uint64_t slot);

/* ---- mapping.c ---------------------------------------------------------------------------- */

int gfs_va_reserve(struct gmsfs *handle, uint64_t size_bytes, uintptr_t *base,
                   uint64_t *reserved_bytes);
/* Inside the gate: maps a descriptor after looking that its memory is there. */
int gfs_va_map(uintptr_t va, uint64_t aligned_bytes, enum gmsfs_access access, int fd);
/* Back to reserved. */
int gfs_va_unmap(uintptr_t va, uint64_t aligned_bytes);
/* Brings ranks and unknown tags of this epoch's mappings up to date; for a writer. */
int gfs_mapping_refresh(struct gmsfs *handle);
/* The unknown tags of this epoch's mappings; for a reader. */
int gfs_mapping_learn_tags(struct gmsfs *handle);

#endif
