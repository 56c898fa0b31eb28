/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_backend - the functions of a kind of memory
 *
 * A backend is one table of functions, named by a row of backends.c. vmm.c, its only caller, has
 * checked sizes and bounds, keeps the account and sets a piece's size_bytes, aligned_bytes and
 * sealed after success; the backend makes and moves the bytes. Thread rules are those of vmm.h. A
 * backend never looks at the account and never knows the use of a piece.
 */
#ifndef GMSFS_VMM_VMM_BACKEND_H
#define GMSFS_VMM_VMM_BACKEND_H

#include "vmm/health.h"
#include "vmm/measurement.h"
#include "vmm/vmm.h"

/* Filled by open; constant afterwards. */
struct vmm_device {
    void *state;                     /* the backend's own */
    struct health *health;           /* vmm.c's: receives failures between open and close */
    struct measurement *measurement; /* vmm.c's: receives answers to `measure`, likewise */
    char name[64];
    uint8_t uuid[16];
    uint64_t granularity_bytes;
    uint64_t total_bytes; /* a multiple of the granularity, not 0 */
    bool ends_anywhere;   /* memory may end within a unit: `trim` exists, `create` takes any size */
    /* GPUs only */
    uint64_t physical_bytes; /* the whole memory of the device, of which total_bytes may be used */
    char pci_id[16];
    char version_name[16], version[16]; /* as in struct vmm_info, like the next */
    unsigned create_threads, free_threads;
    uint32_t flags; /* the backend's own, passed to `reopen` */
};

struct vmm_backend {
    /* `root` stands before the paths that describe the machine: "" except in tests. On failure
     * `why` explains the cause and the remedy, in one line without a newline. */
    int (*open)(const char *root, const struct vmm_options *options, struct vmm_device *device,
                char *why, size_t why_bytes);
    /* Optional: else `open` is called again. `device` is filled as another process had it; a thread
     * of its own opens the driver, and calls that need it wait. */
    int (*reopen)(const char *root, const struct vmm_options *options, struct vmm_device *device,
                  char *why, size_t why_bytes);
    void (*close)(struct vmm_device *device);
    /* Makes descriptors over `aligned_bytes` of committed zeros; the piece is unchanged on
     * failure. */
    int (*create)(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
                  struct vmm_piece *piece);
    /* Optional, both: else `create` is used. Make a sealed piece without its memory; and make the
     * memory of these bytes, which may exist already. */
    int (*create_bare)(struct vmm_device *device, uint64_t aligned_bytes, struct vmm_piece *piece);
    int (*populate)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                    uint64_t bytes);
    /* Optional. Completes a piece from another process's descriptors; `fd_readonly` is the same as
     * `fd` if none was kept. */
    int (*adopt)(struct vmm_device *device, struct vmm_piece *piece);
    /* Grows a spool from piece->aligned_bytes to the greater `aligned_bytes`; all or nothing. */
    int (*grow)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t aligned_bytes);
    /* Writes zeros from `size_bytes` to `aligned_bytes`, frees the memory behind, seals. */
    int (*seal)(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                uint64_t aligned_bytes);
    /* Optional: see ends_anywhere. Frees the memory behind *size_bytes if its bytes are zeros, and
     * seals; *size_bytes: where the memory ends now. */
    int (*trim)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t *size_bytes);
    /* Optional: else no process can seal the memory. See vmm_finish, vmm_make_immutable. */
    int (*finish)(struct vmm_device *device, const struct vmm_piece *piece, bool immutable);
    /* Optional: else a spool's memory is its final memory. */
    int (*settle)(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                  uint64_t aligned_bytes);
    int (*read)(struct vmm_device *device, const struct vmm_piece *piece, void *to, size_t bytes,
                uint64_t offset);
    int (*write)(struct vmm_device *device, struct vmm_piece *piece, const void *from, size_t bytes,
                 uint64_t offset);
    /* Optional, both: else reads and writes are used. Move bytes of a sealed piece to the same
     * place of another tier's file (out), or from there. Also -ENOSPC. `forget` is called before a
     * piece of host memory is closed, and drops all references to it. */
    int (*move)(struct vmm_device *device, const struct vmm_piece *piece,
                const struct vmm_piece *other, bool out, uint64_t offset, uint64_t bytes);
    void (*forget)(struct vmm_device *device, const struct vmm_piece *other);
    /* The next four are optional: else a loan is a copy. See vmm.h. */
    int (*lend)(struct vmm_device *device, const struct vmm_piece *piece,
                const struct vmm_span *span, struct vmm_loan *loan);
    int (*lend_now)(struct vmm_device *device, const struct vmm_piece *piece,
                    const struct vmm_span *span, struct vmm_loan *loan);
    void (*end_loan)(struct vmm_device *device, struct vmm_loan *loan);
    void (*end_reader)(struct vmm_device *device, uint64_t reader);
    /* Optional: else holders of a descriptor share no state that matters, and a duplicate is made.
     * Makes a descriptor, see vmm_duplicate. */
    int (*duplicate)(struct vmm_device *device, const struct vmm_piece *piece, bool writable);
    /* Optional. See vmm_rest. */
    void (*rest)(struct vmm_device *device);
    /* Optional. Opens a descriptor of a sealed piece for moves past the page cache; negative: moves
     * have to go through it. */
    int (*open_direct)(struct vmm_device *device, const struct vmm_piece *piece);
    /* Optional, both. See vmm_sync, vmm_probe. */
    int (*sync)(struct vmm_device *device, const struct vmm_piece *piece);
    int (*probe)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                 uint64_t bytes);
    /* Optional. Called before the piece is closed; drops all other references to it. */
    void (*release)(struct vmm_device *device, const struct vmm_piece *piece);
    /* Optional. Asks for the free bytes of the device, without waiting: the answer goes to
     * `measurement`, from another thread. Negative: the device cannot be asked. */
    int (*measure)(struct vmm_device *device);
    /* Optional, both. See vmm_wake. */
    bool (*is_asleep)(void);
    void (*wake)(void);
};

extern const struct vmm_backend vmm_backend_host;
extern const struct vmm_backend vmm_backend_cuda;

/* As vmm_open, with /proc, /sys and /etc read below `root`: for tests of full machines. */
int vmm_open_under(const char *root, const struct vmm_options *options, struct vmm **vmm, char *why,
                   size_t why_bytes);

#endif
