/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record - one change of the core's state (core.h), and its bytes
 *
 * src/service makes records, core_apply applies them. Each type lists the fields that it reads, the
 * fields of the outcome (→) and its errors.
 */
#ifndef GMSFS_CORE_RECORD_H
#define GMSFS_CORE_RECORD_H

#include "core/event.h"
#include "meta/layout.h"

#include <stddef.h>
#include <stdint.h>

/* Version of an encoded record. Any change of the bytes needs a new one; the frozen records in
 * tests/data show when. */
#define CORE_RECORD_VERSION 2u

enum record_type {
    /* Records of stores: process and uid are those of the client. With CREATE, uid is also the new
     * store's owner; with ATTR, which makes no event, it is only the new owner. */
    RECORD_STORE_CREATE = 1, /* name, bytes16 = uuid, uid, gid, mode → out.id */
    /* store. -EBUSY while it has sessions or waiters; open files outside of sessions fail with
     * -ESTALE afterwards. flags CORE_REMOVE_UNUSED: -EBUSY also while its ctl is open by a file
     * other than `file`; -ENOTEMPTY if a layout is sealed or was ever committed */
    RECORD_STORE_REMOVE,
    RECORD_STORE_RENAME, /* store, name, flags = RENAME_NOREPLACE|RENAME_EXCHANGE (as renameat2) */
    RECORD_STORE_ATTR,   /* store, flags: CORE_ATTR_*, uid, gid, mode */
    RECORD_FILE_OPEN,    /* store (0: top), kind, serial, flags, process, uid, session (0 or one to
                            join) → out.file. Takes no lock. */
    /* file: the last RELEASE. Ends its session if it was the last file, or (an exclusive one) the
     * one that took it. flags CORE_CLOSE_LINGER: such a session is marked `ending`, because its
     * transfers still run */
    RECORD_FILE_CLOSE,
    /* store, kind LOCK|AUTO|DATA|ALLOCATION, serial, flags, wish, process, uid, comm, bytes16 =
     * token, deadline_ms → out.file + out.session, or out.waiter. -EAGAIN if it may not wait
     * (NONBLOCK, ALLOCATION without GRACE; or the deadline has passed). -EDEADLK if it would wait
     * and the process is itself a member (without GRACE or LEAVING), or wishes RW of a session in
     * which it reads. ALLOCATION: serial 0 is an allocation still to be made (then FILE_BIND);
     * -ENOENT if there is none of this serial; -EPERM to write one of an immutable layout. Resumes
     * a kept place of the same process for the same store, kind, serial and wish. At its deadline:
     * GRACE -EAGAIN, else -ETIMEDOUT and its place is kept. */
    RECORD_LOCK_OPEN,
    /* file (ctl), wish, process, comm, bytes16, deadline_ms (now: try once) → out.session or
     * out.waiter. -EDEADLK if the file has a live session, -EBUSY if it already waits, -EBADF if
     * its access mode does not fit the wish, -EAGAIN if the deadline has passed. Resumes a kept
     * place of this file and wish. At its deadline: -ETIMEDOUT; with flags CORE_OPEN_AGAIN its
     * place is kept and counts as waiting meanwhile. size_bytes: to reserve with a grant of RW
     * (see RESERVATIONS); if it may not wait and only memory is missing, -ENOMEM, or -EDQUOT of
     * its pool; also -EDQUOT if the pool could never have as much. -EINVAL with RO. See SEALED
     * LAYOUTS */
    RECORD_ACQUIRE,
    /* file (ctl), bytes16 = token → out.session, mode. -ESTALE: no session of this store has the
     * token; -EDEADLK, -EBUSY as ACQUIRE; -EBADF: RW needs a writable file */
    RECORD_JOIN,
    /* file (ctl): leaves its session (RELEASE ioctl). Ends the session if it was the last file, or
     * the file that took an exclusive session. -ENOLCK, -ESTALE */
    RECORD_DETACH,
    /* waiter, refusal = errno of the reply; flags CORE_WAIT_KEEP keeps the place for a second
     * (EINTR, ETIMEDOUT by the kernel's limit). A kept place has no request to answer: without KEEP
     * it is forgotten. -ENOENT. flags CORE_WAIT_REVOKED: makes an event; process and uid are the
     * revoker's */
    RECORD_WAIT_END,
    /* session, flags CORE_END_REVOKED (process and uid are the revoker's) → out.rolled_back; a
     * writer aborts. CORE_END_LINGER: marks it `ending`, because its transfers still run; the event
     * of the revocation comes now, once */
    RECORD_SESSION_END,
    /* expires deadlines (effects REFUSED), kept places and tickets; grants locks for which patience
     * has run out. flags CORE_TIME_UNREAD: requests wait unread, perhaps for kept places, so no
     * kept place expires for another second */
    RECORD_TIME,
    /* session, flags CORE_COMMIT_STAY|GROUP, bytes16 = group → out.generation. -EINVAL sets
     * last_error and changes nothing else. flags CORE_COMMIT_CHECK: only checks; spools pass,
     * because the caller ends them before a commit. flags CORE_COMMIT_SEAL: seals the layout
     * instead, and the session continues as RW_DATA; -EOPNOTSUPP if a process that the daemon
     * cannot see may write; not with STAY. flags CORE_COMMIT_IMMUTABLE: see IMMUTABLE LAYOUTS; not
     * with SEAL. With name = the reason and refusal = errno the caller refuses it: sets last_error
     */
    RECORD_COMMIT,
    /* session, name (or empty), tag, count (≥ 1), and, if memory_count == count, memories,
     * size_bytes, aligned_bytes → out.serial/slot/rank of the first. making_bytes: those that were
     * being made for it (RESERVE) and are made now; drawn_bytes: of them, the drawn ones. name's
     * trailing digits count up when count > 1 (slots and serials are consecutive; -EINVAL without
     * digits). value (or empty): its wire id, then count must be 1; -EEXIST: another allocation of
     * the layout has it */
    RECORD_ALLOC_ADD,
    /* session, serial, memory (0: takes away), size, aligned, flags: SPOOL. A spool may grow, end,
     * or be replaced; other memory: -EBUSY. making_bytes, drawn_bytes: as in ALLOC_ADD */
    RECORD_ALLOC_MEMORY,
    RECORD_ALLOC_REMOVE, /* session, serial */
    RECORD_ALLOC_RENAME, /* session, serial, name, flags NOREPLACE; replaces an existing name */
    RECORD_ALLOC_TAG,    /* session, serial, tag */
    RECORD_CLEAR,        /* session */
    RECORD_TOUCH,        /* session: committed bytes may have changed */
    RECORD_GIVE_UP,      /* session: drops the committed layout to make room (implies TOUCH) */
    RECORD_ENTRY_PUT,    /* session, key = name, offset, value, slot */
    /* session, puts (their serials are ignored), or the same as msgpack rows in value
     * (record_rows_*): skips unknown slots → out.count: rows put. Fails as a whole; out.count is
     * then the index of the bad row (the number of rows: no single row is bad) */
    RECORD_ENTRY_PUT_MANY,
    RECORD_ENTRY_DELETE, /* session, key = name */
    RECORD_ENTRY_RENAME, /* session, serial, key = name (replaces) */
    /* file (ALLOCATION, opened with serial 0), serial: the allocation that it created */
    RECORD_FILE_BIND,
    /* file (its session), first = offset, count (0: all from first), serial, uid, bytes16 = secret,
     * flags CORE_TICKET_WRITABLE → out.ticket. A writable one of committed memory touches; it needs
     * a writable file (-EBADF) in an RW session (-ENOLCK). -EINVAL: bad range, or no memory. A file
     * that holds a region: for the region's descriptor; -ENODATA if it has none */
    RECORD_TICKET_ADD,
    RECORD_TICKET_USE, /* bytes16, uid → out.ticket. -ESTALE unknown, expired; -EACCES other uid */
    RECORD_OUT_OF_MEMORY, /* session: only makes an event */
    /* session (RW), new values: reserved_bytes, due_bytes, making_bytes (charged and being
     * made), drawn_bytes (the part of them drawn from the reservation). For more than before:
     * -ENOMEM if free_bytes is too small, -EDQUOT if its pool's budget is. flags
     * CORE_RESERVE_AS_ACQUIRE: decides as for an ACQUIRE that may not wait, and ignores due_bytes:
     * also -EAGAIN. With it CORE_RESERVE_REPLACING: the committed bytes are due first, and only the
     * difference is reserved out of the free bytes */
    RECORD_RESERVE,
    /* flags CORE_DRAIN_ON: grants no more sessions (-ENODEV) and refuses all waiters (-ECANCELED).
     * -EBUSY behind a fence, because its checkpoint needs the committed bytes. CORE_DRAIN_DROP:
     * drops the committed layout of every store; -EBUSY while there are sessions, -EINVAL unless
     * draining. CORE_DRAIN_OVER, with the same errors: the drainer has finished, and the mount
     * stays drained without it. 0: serves again. ON: bytes16 = token, process and uid are the
     * drainer's; again: another drainer */
    RECORD_DRAIN,
    /* flags CORE_NOTE_*, name = the reason. SUSPECT: all memory on the device may be damaged; a
     * store is suspect while it holds such memory, and grants no RO (-EIO). LOST: refuses all
     * waiters and grants no more sessions (-ENODEV); empties stores without sessions. TRUST: store
     * (0: all) is no longer suspect; -ENOENT, -ENODEV when lost */
    RECORD_HEALTH,
    /* file, size_bytes: the new number of bytes gathered for it. -EBADF; for more than before
     * -EDQUOT, -ENOMEM: beyond the bound */
    RECORD_GATHER,
    /* store (or 0), uid, name = of the bound, flags CORE_BOUND_SHARE: only makes an event */
    RECORD_BOUND,
    /* session (of a writer), process: gets a writable descriptor of the store's memory → out.count:
     * 1 if the process is a new writer. -ENOSPC; with RW_DATA -EOPNOTSUPP for an invisible process
     * (pid 0) */
    RECORD_LEND,
    RECORD_EXIT, /* process: has exited and no longer writes */
    /* flags CORE_FENCE_ON, name = of a store, tag = another name (or empty), which need not be a
     * store's, bytes16 = token: until the fence is resolved, these stores grant no session
     * (-ENODEV, also to waiting readers), and their names can be neither taken nor given up
     * (-EBUSY). -EBUSY: a store is not idle, or a fence is up. -ENOENT. -EINVAL, -EPERM: invalid or
     * equal names. flags CORE_FENCE_ABORT or _COMPLETE, bytes16: resolves the fence; -EINVAL: it
     * has another token; -ESTALE: no fence is up, unless this token resolved the last one in the
     * same way */
    RECORD_FENCE,
    /* uid = its owner, kind, name, tag = key, offset, size_bytes → out.id. On an object: memory,
     * flags CORE_REGION_WRITABLE; on an allocation: file, a ctl with a reading session, and serial;
     * of CUDA: value = the handle, device_id. -EEXIST: the name is taken; -ENODEV: the
     * mount is drained; -ERANGE: beyond the allocation; -ENOENT: no memory */
    RECORD_REGION_REGISTER,
    /* uid, kind (0: any), name, or flags CORE_REGION_ALL → out.count. A region with references
     * drains until the last one ends. -ENOENT */
    RECORD_REGION_UNREGISTER,
    /* file (REGION): takes a reference, and joins the session of the region's ctl → out.id.
     * -ESTALE: the region is gone */
    RECORD_REGION_REFER,
    /* file: drops its reference, as its close does. -ENOLCK: it has none; -ESTALE */
    RECORD_REGION_RELEASE,
    /* store, bytes16 = token, process, uid, deadline_ms (wall clock; 0: none): grants no more
     * sessions; new requests wait. Again: another deadline and drainer. -ENOENT */
    RECORD_STORE_DRAIN,
    RECORD_STORE_SERVE, /* store: grants sessions again, to its waiters first. -ENOENT */
    /* name; flags CORE_POOL_*: the values to set of min_bytes, max_bytes, slots,
     * class (kind) and sm (mode); makes the pool if there is none → out.id. CORE_POOL_REMOVE alone:
     * removes it; -EBUSY: a store is in it, or it is `default`; -ENOENT. -ENOSPC: there are
     * CORE_MAX_POOLS. -EINVAL: invalid name or budget */
    RECORD_POOL_SET,
    /* store, name: moves the store into that pool. -EDQUOT: the pool has no room for the store's
     * use; -ENOENT */
    RECORD_STORE_POOL,
    RECORD_STORE_PIN,  /* store, flags CORE_PIN_ON or 0. -ENOENT */
    RECORD_OVER_QUOTA, /* store, name = of the pool, process, uid: only makes an event */
    /* store, kind = the tier (enum core_place), flags CORE_MOVE_SPARE → out.id: a move in progress,
     * which MOVE_END or MOVE_FAIL ends; 0: nothing had to be copied, and the move is done. NONE:
     * drops all copies. -EBUSY: another move, a writer, or (to a slower tier) a holder; fenced.
     * -ENODATA: nothing is committed, or no copy is left. -EIO: the source is suspect memory.
     * -ENODEV: the source or the target is a lost device. -EAGAIN: to the device, and an older
     * waiter claims its memory. -ENOENT. CORE_MOVE_EVICT: it makes room for the store `evictor`,
     * and an event tells when it has left; -EBUSY: it is pinned, or of a more important class than
     * that store. CORE_MOVE_VERIFY: to a slower tier with a spare: the spare is read and verified
     * first, so the move is in progress. That also heals a suspect store, which waits for it
     * (core_wants_heal) */
    RECORD_MOVE_BEGIN,
    /* store, move, memories by rank, flags CORE_MOVE_KEEP: the old place becomes a
     * spare. No memories: the spare was read and is sound. -ESTALE: the move is already over;
     * -EINVAL */
    RECORD_MOVE_END,
    /* store, move, or 0: one that could not begin; failure = errno; flags
     * CORE_MOVE_REFUSE: refuses the waiters for the move with that errno; CORE_MOVE_QUIET: makes no
     * further event. -ESTALE */
    RECORD_MOVE_FAIL,
    /* store. -ENODATA: no move is in progress; -EBUSY: it has waiters or heals a suspect store, and
     * would start again */
    RECORD_MOVE_CANCEL,
    /* store, kind: the spare in that tier; failure = errno of the failed read, or 0. -ENODATA:
     * there is none; -EBUSY: a writer, a move, or a reader that was admitted in any tier */
    RECORD_COPY_DROP,
    /* a new worker takes over this state: see RESUMING. flags CORE_RESUME_END: all clients that
     * could come back have done so; grants as TIME does. With name = the cause and took_us = the
     * microseconds since the last worker's end it also makes an event; -EINVAL if nothing was
     * resumed */
    RECORD_RESUME,
    /* session, kind ALLOCATION: serial, or 0: the directory; access_ns and change_ns, times
     * (LAYOUT_NO_TIME: not set), in two's complement. Kind ENTRY: sets only the
     * store's own time. -ENOENT */
    RECORD_TIMES,
    /* store, bytes16 = the contents id of its committed layout, generation and grants_rw,
     * the number of grants to writers, when the sums of its bytes were begun. -ESTALE: these have
     * changed, or the store is not settled (core_is_settled). -ENOSPC */
    RECORD_CONTENTS,
    RECORD_TYPE_COUNT,
};

#define CORE_MOVE_SPARE  (1u << 0)
#define CORE_MOVE_EVICT  (1u << 1)
#define CORE_MOVE_VERIFY (1u << 2)
#define CORE_MOVE_KEEP   (1u << 0)
#define CORE_MOVE_REFUSE (1u << 0)
#define CORE_MOVE_QUIET  (1u << 1)

#define CORE_ATTR_MODE          (1u << 0)
#define CORE_ATTR_UID           (1u << 1)
#define CORE_ATTR_GID           (1u << 2)
#define CORE_WAIT_KEEP          (1u << 0)
#define CORE_WAIT_REVOKED       (1u << 1)
#define CORE_TIME_UNREAD        (1u << 0)
#define CORE_REMOVE_UNUSED      (1u << 0)
#define CORE_CLOSE_LINGER       (1u << 0)
#define CORE_END_REVOKED        (1u << 0)
#define CORE_END_LINGER         (1u << 1)
#define CORE_COMMIT_STAY        (1u << 0) /* the same values as GMSFS_COMMIT_* */
#define CORE_COMMIT_GROUP       (1u << 1)
#define CORE_COMMIT_CHECK       (1u << 2)
#define CORE_COMMIT_SEAL        (1u << 3)
#define CORE_COMMIT_IMMUTABLE   (1u << 4)
#define CORE_RESERVE_AS_ACQUIRE (1u << 0)
#define CORE_RESERVE_REPLACING  (1u << 1)
#define CORE_DRAIN_ON           (1u << 0)
#define CORE_RESUME_END         (1u << 0)
#define CORE_DRAIN_DROP         (1u << 1)
#define CORE_DRAIN_OVER         (1u << 2)
#define CORE_NOTE_SUSPECT       (1u << 0)
#define CORE_NOTE_LOST          (1u << 1)
#define CORE_NOTE_TRUST         (1u << 2)
#define CORE_MEMORY_SPOOL       (1u << 0)
#define CORE_BOUND_SHARE        (1u << 0)
#define CORE_TICKET_WRITABLE    (1u << 0)
#define CORE_FENCE_ON           (1u << 0)
#define CORE_FENCE_ABORT        (1u << 1)
#define CORE_FENCE_COMPLETE     (1u << 2)
#define CORE_REGION_WRITABLE    (1u << 0)
#define CORE_REGION_ALL         (1u << 0)
#define CORE_POOL_MIN           (1u << 0)
#define CORE_POOL_MAX           (1u << 1)
#define CORE_POOL_SLOTS         (1u << 2)
#define CORE_POOL_CLASS         (1u << 3)
#define CORE_POOL_SM            (1u << 4)
#define CORE_POOL_REMOVE        (1u << 5)
#define CORE_PIN_ON             (1u << 0)

struct record {
    enum record_type type;
    uint64_t now_ms;     /* monotonic */
    uint64_t wall_ms;    /* for display only */
    uint64_t free_bytes; /* of the device: neither used nor reserved */
    uint64_t store, file, session, waiter, serial;
    /* The names of one number; the comments above tell which one a type has. */
    union {
        uint64_t slot, drawn_bytes;
    };
    union {
        uint64_t count, due_bytes, slots, generation, move, evictor, device_id, took_us, refusal;
    };
    union {
        uint64_t offset, making_bytes, min_bytes, grants_rw, access_ns, failure;
    };
    union {
        uint64_t size_bytes, reserved_bytes, max_bytes, change_ns;
    };
    uint64_t aligned_bytes, memory, deadline_ms;
    uint32_t flags, kind, wish, uid, gid, mode;
    struct core_process process;
    uint8_t bytes16[16];
    char comm[CORE_COMM_BYTES];
    const char *name; /* or the key of an entry */
    size_t name_bytes;
    const char *tag;
    size_t tag_bytes;
    const uint8_t *value;
    size_t value_bytes;
    const uint64_t *memories;
    size_t memory_count;
    /* Instead of `value`, without encoding and decoding; record_pack writes them as `value`. */
    const struct layout_put *puts;
    size_t put_count;
    /* COMMIT: the precomputed result, used if it is for the layout to be committed. Not part of the
     * record: the outcome is the same without it. */
    const struct core_commit *commit;
};

/* Writes the record as msgpack at `at`; returns the end of the bytes. */
uint8_t *record_pack(uint8_t *at, const struct record *record);
/* Returns an upper bound of the bytes that record_pack writes. */
size_t record_most_bytes(const struct record *record);
/* Decodes such bytes; the record borrows from `bytes` and `arena` (freed by record_decode_free).
 * -EINVAL; -EPROTONOSUPPORT: unknown version or type; -ENOMEM */
struct record_arena;
int record_decode(const void *bytes, size_t size, struct record *record,
                  struct record_arena **arena);
void record_decode_free(struct record_arena *arena);
const char *record_type_name(enum record_type type);
/* Builds the `value` of RECORD_ENTRY_PUT_MANY from puts (key, slot, offset, value). */
int record_rows_encode(const struct layout_put *puts, size_t count, uint8_t **bytes, size_t *size);

#endif
