/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm - physical memory of one device, as descriptors
 *
 * An allocation of memory is a descriptor: each process with one keeps the memory alive. This
 * module creates, grows, seals, reads, writes and closes such pieces, and keeps the device's
 * account. It knows nothing of stores, files or requests. Backends: host (memfd) and cuda (the
 * driver's exported handles). A further backend is one table of functions (vmm_backend.h) and a row
 * in the table of backends (backends.h).
 *
 * Threads: vmm_reserve/vmm_unreserve/vmm_get_info from any thread (atomic account), vmm_set_aside
 * and the functions that rely on aside_bytes from one; the piece functions from any thread, but one
 * piece by one thread at a time, except reads and writes of a piece that does not grow meanwhile.
 */
#ifndef GMSFS_VMM_VMM_H
#define GMSFS_VMM_VMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vmm;

#define VMM_DEVICE_BYTES    64
#define VMM_PATH_BYTES      256
#define VMM_MOVE_STEP_BYTES (UINT64_C(64) << 20) /* largest useful vmm_move */

/* The place of memory. Besides the device there may be tiers of host memory and of a disk for
 * memory that is moved off the device, each with an account of its own. */
enum vmm_tier {
    VMM_TIER_DEVICE = 0,
    VMM_TIER_HOST,
    VMM_TIER_DISK, /* files without names */
    VMM_TIER_COUNT,
};

/* The use that a client makes of a descriptor. The numbers are the ABI's (enum gmsfs_memory), which
 * src/vmm does not know. */
enum vmm_memory {
    VMM_MEMORY_HOST = 0,
    VMM_MEMORY_CUDA = 1,
};

struct vmm_options {
    const char *backend;           /* name in backends.h; NULL: the default */
    char device[VMM_DEVICE_BYTES]; /* cuda: index, GPU-UUID or PCI id; "": the first */
    uint64_t size_bytes; /* 0: host: half of the memory of the machine or its cgroup, cuda: all */
    uint64_t granularity_bytes;   /* power of two >= page size; 0 = 2 MiB, or the device's own */
    uint64_t hugepage_bytes;      /* host: 0 = ordinary pages; else 2 MiB or 1 GiB (MFD_HUGETLB) */
    uint8_t uuid[16];             /* host: all zeros: derived from the machine id and "host" */
    uint64_t copier_idle_ms;      /* cuda: the copier ends after this time without transfers */
    uint64_t host_bytes;          /* of the host tier; 0: no such tier */
    uint64_t host_hugepage_bytes; /* its pages, as hugepage_bytes */
    char spill[VMM_PATH_BYTES];   /* directory of the disk tier, absolute; "": no such tier */
    uint64_t spill_bytes;         /* of the disk tier; not 0 if there is one */
    bool is_tier;                 /* internal, for memory beside the device */
};

struct vmm_info {
    char backend[16];
    enum vmm_memory memory;
    char name[64];
    uint8_t uuid[16];
    uint64_t granularity_bytes;
    uint64_t total_bytes;
    uint64_t used_bytes;       /* reserved for pieces that exist, are being made, or being freed */
    uint64_t aside_bytes;      /* set aside: vmm_reserve does not use them */
    uint64_t host_total_bytes; /* of the host tier; 0: no such tier */
    uint64_t host_used_bytes;
    uint64_t spill_total_bytes; /* the same for the disk tier */
    uint64_t spill_used_bytes;
    unsigned create_threads; /* best number of threads to make pieces; 0: one for each processor */
    unsigned free_threads;   /* likewise to free them; 0: some */
    /* GPUs only */
    char pci_id[16];
    char version_name[16]; /* name of the driver's version: "cuda_version" */
    char version[16];      /* "13.0" */
    bool knows_others;     /* the last measurement set the next two */
    uint64_t free_bytes;   /* of the device, for any process */
    uint64_t other_bytes;  /* held by other programs, or still mapped after they were freed */
};

/* The facts about a device that a process needs if another one had it open before. Builds exchange
 * it. */
struct vmm_description {
    char backend[16];
    char name[64];
    uint8_t uuid[16];
    char pci_id[16];
    char version_name[16], version[16];
    uint64_t granularity_bytes, total_bytes, physical_bytes;
    uint32_t create_threads, free_threads;
    uint32_t flags; /* the backend's own */
    uint32_t reserved[5];
};
_Static_assert(sizeof(struct vmm_description) == 200, "it is kept by one build for another");

#define VMM_WHY_BYTES 128

/* A failure of the device. */
struct vmm_health {
    bool suspect; /* bytes of existing pieces may be damaged */
    bool lost;    /* the device is gone */
    char why[VMM_WHY_BYTES];
};

struct vmm_piece {
    int fd;          /* readable and writable; -1: none */
    int fd_readonly; /* for readers; the same one if there is no weaker one; -1: none */
    uint64_t size_bytes;
    uint64_t
        aligned_bytes; /* committed memory: whole units, or less (vmm_create_exact, vmm_trim) */
    enum vmm_tier tier;
    bool sealed;
    bool final;     /* vmm_finish or vmm_make_immutable has succeeded */
    bool immutable; /* its bytes never change again */
    /* For GPUs, and host memory beside them: number of this memory in its tier, never reused; 0:
     * not needed. */
    uint64_t serial;
    /* A spool is host memory; `made` is the memory that it becomes when sealed, if that exists
     * already: its first clean_bytes are copied. */
    struct {
        bool exists;
        int fd;
        uint64_t serial, aligned_bytes, clean_bytes;
    } made;
    /* Descriptors that the piece had as a spool, until vmm_drop_former: they may still be in use
     * for reads. */
    unsigned former_count;
    int former[2];
};

/* Bytes to be read. */
struct vmm_span {
    uint64_t offset;
    size_t bytes;
    /* Number of the reading open file, never reused, which mostly reads on sequentially; then bytes
     * up to `end` may be fetched in advance. 0: no particular reader, or the bytes may change
     * between two reads. */
    uint64_t reader;
    uint64_t end;
};

#define VMM_LOAN_PARTS 2u

/* Bytes that can be read until vmm_end_loan. */
struct vmm_loan {
    unsigned count;
    struct {
        const void *at;
        size_t bytes;
        unsigned entry; /* number of the backend's own */
    } parts[VMM_LOAN_PARTS];
    void *buffer; /* memory of vmm; NULL: none */
};

/* Prepares the part of vmm_open for which this process has rights that it is about to give up.
 * Called before threads start. */
void vmm_prepare(const struct vmm_options *options);
/* Returns true if no process has used the device since the machine started: then its driver has to
 * make device files first, which needs rights. vmm_wake makes the driver do so, in a process that
 * ends afterwards. */
bool vmm_is_asleep(const struct vmm_options *options);
void vmm_wake(const struct vmm_options *options);
int vmm_open(const struct vmm_options *options, struct vmm **vmm, char *why, size_t why_bytes);
/* Opens the same device as another process has described it, at once. A thread opens the driver
 * meanwhile; only calls that make memory or move bytes wait for it, half a minute at most (-EIO),
 * and fail with -ENODEV or -EIO if it does not open; later calls try again. A description that does
 * not fit `options` is ignored: this is vmm_open then. */
int vmm_reopen(const struct vmm_options *options, const struct vmm_description *description,
               struct vmm **vmm, char *why, size_t why_bytes);
void vmm_describe(const struct vmm *vmm, struct vmm_description *description);
void vmm_close(struct vmm *vmm);
void vmm_get_info(const struct vmm *vmm, struct vmm_info *info);
/* Asks the device how much other processes hold of it, and never waits. True: the question is being
 * asked, and the call of vmm_on_measurement follows; until then vmm_get_info has the previous
 * answer. A caller that asks meanwhile shares the answer, which may be slightly older. A library
 * that hangs answers late or never, so a waiting caller needs a bound. False: this device cannot be
 * asked, no call follows; vmm_get_info has all that is known. Any thread. */
bool vmm_measure(struct vmm *vmm);
/* Sets the function that is called, from any thread, after each measurement, successful or not; it
 * must be short and not call back. Measurements that ended before are not reported; NULL ends the
 * calls. */
void vmm_on_measurement(struct vmm *vmm, void (*call)(void *context), void *context);
/* Sets the function that is called, from any thread, at the first news after the last
 * vmm_take_health (also for earlier news); it must be short and not call back. NULL ends the
 * calls. */
void vmm_on_health(struct vmm *vmm, void (*call)(void *context), void *context);
/* Returns the news about the device's health. False: there are none. Any thread. */
bool vmm_take_health(struct vmm *vmm, struct vmm_health *news);
/* Rounds a size up to the granularity; 0 if that overflows. */
uint64_t vmm_align(const struct vmm *vmm, uint64_t size_bytes);

/* Reserves bytes in the account: -ENOMEM if they do not fit. Bytes are multiples of the
 * granularity. */
int vmm_reserve(struct vmm *vmm, uint64_t bytes);
void vmm_unreserve(struct vmm *vmm, uint64_t bytes);
/* Changes how many bytes are set aside, up or down. -ENOMEM: unchanged. */
int vmm_set_aside(struct vmm *vmm, uint64_t bytes);
uint64_t vmm_get_aside(const struct vmm *vmm);
/* Returns the bytes that are neither in use nor set aside. */
uint64_t vmm_get_free(const struct vmm *vmm);

/* The same functions for a tier. */
bool vmm_has_tier(const struct vmm *vmm, enum vmm_tier tier);
/* Returns the bytes that a piece of `size_bytes` needs in the tier. */
uint64_t vmm_align_in(const struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes);
int vmm_reserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes);
void vmm_unreserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes);
uint64_t vmm_get_total_in(const struct vmm *vmm, enum vmm_tier tier);
uint64_t vmm_get_free_in(const struct vmm *vmm, enum vmm_tier tier); /* by the tier's account */

/* All functions below run on helper threads: they may be slow. None changes the account. */

/* Makes zeroed memory of vmm_align(size) bytes, committed (never a later SIGBUS) and, if `seal`,
 * sealed against resizing, mode 0. size 0 with seal false makes an empty spool. -ENOMEM if machine,
 * cgroup or device have too little memory (the device has then been measured, if it answers within
 * 50 ms), -EMFILE if descriptors run out, -ENODEV if the device is gone, -EIO for any other error
 * of the driver (logged). */
int vmm_create(struct vmm *vmm, uint64_t size_bytes, bool seal, struct vmm_piece *piece);
/* The same, sealed, of memory that ends with its size where it can, which is host memory without
 * huge pages; elsewhere as vmm_create. */
int vmm_create_exact(struct vmm *vmm, uint64_t size_bytes, struct vmm_piece *piece);
/* The same, for a piece whose end vmm_trim fixes before a client gets it. */
int vmm_create_untrimmed(struct vmm *vmm, uint64_t size_bytes, struct vmm_piece *piece);
/* Fixes the end of such a piece: at `size_bytes` if it can end there and all bytes behind are
 * zeros. */
int vmm_trim(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes);
/* The same in a tier, sealed. -EOPNOTSUPP: no such tier. In the host tier the memory itself still
 * has to be made by vmm_populate: making takes longer than filling, so threads that fill parts of
 * it make these parts, too. Until then it must not be written or mapped. */
int vmm_create_in(struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes,
                  struct vmm_piece *piece);
/* Commits the memory of these bytes of a piece of vmm_create_in, if it is not there yet. Errors as
 * vmm_create. Any thread; other threads may make and fill other parts meanwhile. */
int vmm_populate(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes);
/* Copies bytes from `offset` on, to the same place, between two sealed pieces of which at least one
 * is in the host tier. Errors as vmm_read and vmm_write. */
int vmm_move(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to, uint64_t offset,
             uint64_t bytes);
/* Writes all bytes of the piece to their final place, and returns an error of earlier writes,
 * once. */
int vmm_sync(struct vmm *vmm, const struct vmm_piece *piece);
#define VMM_PROBE_BYTES 4096u /* unit of vmm_probe's `offset` and `bytes` */
/* Checks that the piece has its length, and reads these bytes, past any cache. -EIO: one of these
 * failed. */
int vmm_probe(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes);
/* Descriptors that another process had for a piece. */
struct vmm_kept {
    int fd;
    int fd_readonly; /* -1: none */
};
/* Takes over a piece of a process that has gone, by its descriptors, which become the piece's; not
 * `sealed`: a spool, or the memory that it became in that process's last moment, as the piece then
 * says. On failure the descriptors stay the caller's. A missing descriptor for readers is made
 * again if the backend needs one: -EMFILE, -EACCES, …: as open(2). */
int vmm_adopt(struct vmm *vmm, enum vmm_tier tier, const struct vmm_kept *kept, uint64_t size_bytes,
              uint64_t aligned_bytes, bool sealed, struct vmm_piece *piece);
/* Commits a spool's memory up to `aligned_bytes`. */
int vmm_grow(struct vmm *vmm, struct vmm_piece *piece, uint64_t aligned_bytes);
/* Makes sure that a spool could be sealed at this size: its memory exists and has its bytes. It
 * stays a spool. A no-op if vmm_can_settle returns false. */
int vmm_settle(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes);
bool vmm_can_settle(const struct vmm *vmm);
/* Seals a spool: its size is final, the tail is zero; its descriptors may be new ones. */
int vmm_seal(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes);
/* Processes with a writable descriptor of host memory can seal it (fcntl(2), F_ADD_SEALS), until
 * one of these two, which wants a sealed piece of the device. The caller then sets `final`, and
 * `immutable` after the second. Any thread.
 * vmm_finish: no process can seal it any more. -EPERM: one has sealed it against writes.
 * vmm_make_immutable: nor write it. -EBUSY: a process has it mapped for writing; -EOPNOTSUPP: the
 * memory is a GPU's, or vmm_finish came first. May take 0.2 s. */
int vmm_finish(struct vmm *vmm, const struct vmm_piece *piece);
int vmm_make_immutable(struct vmm *vmm, const struct vmm_piece *piece);
/* Returns false if processes can never seal the device's memory: the two calls are not needed. */
bool vmm_can_finish(const struct vmm *vmm);
/* Returns true if a process has an immutable piece open or mapped by an open file description other
 * than the piece's own, which the piece's user shares (vmm_duplicate). Any thread. */
bool vmm_is_held(const struct vmm_piece *piece);
/* Returns true if vmm_is_held can tell; else it is always false. */
bool vmm_tells_holders(const struct vmm *vmm);
/* Closes the descriptors that the piece had before it was sealed, if they differ. */
void vmm_drop_former(struct vmm_piece *piece);
/* Transfer all bytes, or return a negative errno; the caller has checked the bounds. */
int vmm_read(struct vmm *vmm, const struct vmm_piece *piece, void *to, size_t bytes,
             uint64_t offset);
int vmm_write(struct vmm *vmm, struct vmm_piece *piece, const void *from, size_t bytes,
              uint64_t offset);
/* Makes a descriptor of a sealed piece for one client, with an open file description of its own:
 * lseek(2), O_APPEND, flock(2) and leases of other clients do not affect it. Read-only unless
 * `writable`; seals and mode 0 stay. For a GPU, whose descriptors are opaque and have no such
 * state, it is a plain duplicate. The caller closes it; closed on exec. Takes 5 us, in an ordinary
 * user's daemon 7 (a duplicate 0.2), so clients that may share one should: handing out 3,435 of
 * them doubles an attach. Never waits; any thread, also while the piece is in use. -EINVAL: it is a
 * spool; -EMFILE, -ENFILE, -ENOMEM; -EBUSY: the daemon's own user, or a process with CAP_LEASE,
 * holds a lease on it. */
int vmm_duplicate(struct vmm *vmm, const struct vmm_piece *piece, bool writable, int *fd);
/* Lends the first bytes of a span, at least one of them, until vmm_end_loan. Errors as vmm_read;
 * -ENOMEM. */
int vmm_lend(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
             struct vmm_loan *loan);
/* Lends the whole span on the loop's thread, if it is there already; never waits. -EAGAIN */
int vmm_lend_now(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
                 struct vmm_loan *loan);
/* Any thread; short. */
void vmm_end_loan(struct vmm *vmm, struct vmm_loan *loan);
/* Computes the XXH3-128 of these bytes of a sealed piece, big-endian; a megabyte takes some 0.1
 * ms. Errors as vmm_read; -ENOMEM. */
int vmm_sum(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes,
            uint8_t sum[16]);
/* Forgets a reader that is gone. Any thread; short. */
void vmm_end_reader(struct vmm *vmm, uint64_t reader);
/* Unmaps device memory that is mapped for moves, when no move is running, so that freeing it later
 * is quick. Any thread; may be slow. A no-op if vmm_can_rest returns false. */
void vmm_rest(struct vmm *vmm);
bool vmm_can_rest(const struct vmm *vmm);
void vmm_destroy(struct vmm *vmm,
                 struct vmm_piece *piece); /* closes; may take long for large memory */

#endif
