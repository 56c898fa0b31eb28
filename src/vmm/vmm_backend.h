/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm_backend - what a kind of memory must be able to do
 *
 * A backend is one table of functions, named by a row of backends.c. vmm.c, its only caller, has
 * checked sizes and bounds,
 * keeps the account and sets a piece's size_bytes, aligned_bytes and sealed after success; the
 * backend makes and moves the bytes. Thread rules are those of vmm.h. A backend never looks at the
 * account and never knows what a piece is for.
 */
#ifndef GMSFS_VMM_VMM_BACKEND_H
#define GMSFS_VMM_VMM_BACKEND_H

#include "vmm/health.h"
#include "vmm/measurement.h"
#include "vmm/vmm.h"

/* Filled by open; constant afterwards. */
struct vmm_device {
    void *state;                     /* the backend's own */
    struct health *health;           /* vmm.c's: where bad news go between open and close */
    struct measurement *measurement; /* vmm.c's: where answers to `measure` go, likewise */
    char name[64];
    uint8_t uuid[16];
    uint64_t granularity_bytes;
    uint64_t total_bytes; /* a multiple of the granularity, not 0 */
    /* GPUs only */
    uint64_t physical_bytes; /* all that the device has, whatever part of it is ours to use */
    char pci_id[16];
    char version_name[16], version[16]; /* as in struct vmm_info, like the next */
    unsigned create_threads, free_threads;
    uint32_t flags; /* the backend's own, and known again when it is reopened */
};

struct vmm_backend {
    /* `root` stands before the paths that describe the machine: "" but in tests. On failure
     * `error` says what is wrong and what to do, in one line without a newline. */
    int (*open)(const char *root, const struct vmm_options *options, struct vmm_device *device,
                char *why, size_t why_bytes);
    /* May be absent: then it is opened once more. `device` is filled as another process had it; the
     * driver is opened on a thread of its own, and whoever needs it waits. */
    int (*reopen)(const char *root, const struct vmm_options *options, struct vmm_device *device,
                  char *why, size_t why_bytes);
    void (*close)(struct vmm_device *device);
    /* Descriptors over `aligned_bytes` of committed zeros; the piece is untouched on failure. */
    int (*create)(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
                  struct vmm_piece *piece);
    /* May be absent, both: then `create` is it. The same, sealed, without its memory; and what of
     * it these bytes need, which may be there already. */
    int (*create_bare)(struct vmm_device *device, uint64_t aligned_bytes, struct vmm_piece *piece);
    int (*populate)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                    uint64_t bytes);
    /* May be absent. A descriptor that was a piece's in another process, and what it lacks to be
     * one here; `fd_readonly` is the same where none was kept. */
    int (*adopt)(struct vmm_device *device, struct vmm_piece *piece);
    /* From piece->aligned_bytes to the greater `aligned_bytes`; all or nothing. */
    int (*grow)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t aligned_bytes);
    /* Zeros from `size_bytes` to `aligned_bytes`, gives back what lies beyond, seals. */
    int (*seal)(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                uint64_t aligned_bytes);
    /* May be absent: a spool's memory is what it will be. */
    int (*settle)(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                  uint64_t aligned_bytes);
    int (*read)(struct vmm_device *device, const struct vmm_piece *piece, void *to, size_t bytes,
                uint64_t offset);
    int (*write)(struct vmm_device *device, struct vmm_piece *piece, const void *from, size_t bytes,
                 uint64_t offset);
    /* May be absent, both: then it is a read or a write. Bytes of a sealed piece to the same place
     * of the file that is another tier's (out), or from there. Also -ENOSPC. And before one of host
     * memory is closed: nothing else holds it when this returns. */
    int (*move)(struct vmm_device *device, const struct vmm_piece *piece,
                const struct vmm_piece *other, bool out, uint64_t offset, uint64_t bytes);
    void (*forget)(struct vmm_device *device, const struct vmm_piece *other);
    /* The next four may be absent: then a loan is a copy that was read. See vmm.h */
    int (*lend)(struct vmm_device *device, const struct vmm_piece *piece,
                const struct vmm_span *span, struct vmm_loan *loan);
    int (*lend_now)(struct vmm_device *device, const struct vmm_piece *piece,
                    const struct vmm_span *span, struct vmm_loan *loan);
    void (*end_loan)(struct vmm_device *device, struct vmm_loan *loan);
    void (*end_reader)(struct vmm_device *device, uint64_t reader);
    /* May be absent: there is nothing that those who have a descriptor could change for each other,
     * and a duplicate will do. A descriptor, see vmm_duplicate. */
    int (*duplicate)(struct vmm_device *device, const struct vmm_piece *piece, bool writable);
    /* May be absent. See vmm_rest */
    void (*rest)(struct vmm_device *device);
    /* May be absent. A descriptor of a sealed piece for moves alone, whose bytes go past the page
     * cache; negative: they have to go through it. */
    int (*open_direct)(struct vmm_device *device, const struct vmm_piece *piece);
    /* May be absent, both. See vmm_sync, vmm_probe */
    int (*sync)(struct vmm_device *device, const struct vmm_piece *piece);
    int (*probe)(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                 uint64_t bytes);
    /* May be absent. Before the piece is closed: nothing else holds it when this returns. */
    void (*release)(struct vmm_device *device, const struct vmm_piece *piece);
    /* May be absent. Asks for the bytes of the device that nobody holds, without waiting: the
     * answer goes to `measurement`, from another thread. Negative: nobody can be asked. */
    int (*measure)(struct vmm_device *device);
    /* May be absent, both. See vmm_wake */
    bool (*is_asleep)(void);
    void (*wake)(void);
};

extern const struct vmm_backend vmm_backend_host;
extern const struct vmm_backend vmm_backend_cuda;

/* As vmm_open, with /proc, /sys and /etc read below `root`: for tests of full machines. */
int vmm_open_under(const char *root, const struct vmm_options *options, struct vmm **vmm, char *why,
                   size_t why_bytes);

#endif
