/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm - physical memory of one device, as descriptors
 *
 * An allocation of memory is a descriptor: whoever holds one keeps the memory alive. This module
 * creates, grows, seals, reads, writes and closes such pieces, and keeps the device's account. It
 * knows nothing of stores, files or requests. Backends: host (memfd) and cuda (the driver's
 * exported handles). A further backend is one table of functions (vmm_backend.h) and a row in the
 * table of backends (backends.h).
 *
 * Threads: vmm_reserve/vmm_unreserve/vmm_get_info from any thread (atomic account), vmm_set_aside
 * and what relies on aside_bytes from one; the piece
 * functions from any thread, but one piece by one thread at a time, except reads and writes of a
 * piece that does not grow meanwhile.
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
#define VMM_MOVE_STEP_BYTES (UINT64_C(64) << 20) /* as much as one vmm_move should be given */

/* Where memory is. Besides the device's own there may be host memory and a disk, each with an
 * account of its own: for what is moved away from the device. */
enum vmm_tier {
    VMM_TIER_DEVICE = 0,
    VMM_TIER_HOST,
    VMM_TIER_DISK, /* files without names */
    VMM_TIER_COUNT,
};

/* What a client does with a descriptor. The numbers are the ABI's (enum gmsfs_memory), which
 * nothing down here knows. */
enum vmm_memory {
    VMM_MEMORY_HOST = 0,
    VMM_MEMORY_CUDA = 1,
};

struct vmm_options {
    const char *backend;           /* its name, one of backends.h; NULL: the default */
    char device[VMM_DEVICE_BYTES]; /* cuda: index, GPU-UUID or PCI id; "": the first */
    uint64_t size_bytes; /* 0: host: half of what the machine (and its cgroup) has, cuda: all */
    uint64_t granularity_bytes;   /* power of two >= page size; 0 = 2 MiB, or the device's own */
    uint64_t hugepage_bytes;      /* host: 0 = ordinary pages; else 2 MiB or 1 GiB (MFD_HUGETLB) */
    uint8_t uuid[16];             /* host: all zeros: derived from the machine id and "host" */
    uint64_t copier_idle_ms;      /* cuda: the copier leaves after so long without transfers */
    uint64_t host_bytes;          /* of the host tier; 0: there is none */
    uint64_t host_hugepage_bytes; /* its pages, as hugepage_bytes */
    char spill[VMM_PATH_BYTES];   /* directory of the disk tier, absolute; "": there is none */
    uint64_t spill_bytes;         /* of the disk tier; not 0 where there is one */
    bool is_tier;                 /* set inside, for memory beside the device */
};

struct vmm_info {
    char backend[16];
    enum vmm_memory memory;
    char name[64];
    uint8_t uuid[16];
    uint64_t granularity_bytes;
    uint64_t total_bytes;
    uint64_t used_bytes;       /* reserved for pieces that exist, are being made, or being freed */
    uint64_t aside_bytes;      /* set aside: vmm_reserve does not give them */
    uint64_t host_total_bytes; /* of the host tier; 0: there is none */
    uint64_t host_used_bytes;
    uint64_t spill_total_bytes; /* the same of the disk tier */
    uint64_t spill_used_bytes;
    unsigned create_threads; /* that together make pieces the quickest; 0: one for each processor */
    unsigned free_threads;   /* likewise of giving them back; 0: some */
    /* GPUs only */
    char pci_id[16];
    char version_name[16]; /* of the driver's version: "cuda_version" */
    char version[16];      /* "13.0" */
    bool knows_others;     /* as of the last measurement: the next two say something */
    uint64_t free_bytes;   /* of the device, for anybody */
    uint64_t other_bytes;  /* held by others: programs, and whoever still maps what was freed */
};

/* What a process has to know of a device that another one had open before it. It is kept by one
 * build for another. */
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

/* Bad news of the device. */
struct vmm_health {
    bool suspect; /* bytes of what exists now may be damaged */
    bool lost;    /* the device is gone */
    char why[VMM_WHY_BYTES];
};

struct vmm_piece {
    int fd;          /* readable and writable; -1: none */
    int fd_readonly; /* for readers, the same one where there is no weaker; -1: none */
    uint64_t size_bytes;
    uint64_t aligned_bytes; /* memory really committed */
    enum vmm_tier tier;
    bool sealed;
    /* Of GPUs, and of host memory beside them: which memory of its tier it is, never
     * another's; 0: nobody has to know. */
    uint64_t serial;
    /* A spool is host memory; `made` is what it will be when it is sealed, if that is there
     * already: so many of its first bytes are in it. */
    struct {
        bool exists;
        int fd;
        uint64_t serial, aligned_bytes, clean_bytes;
    } made;
    /* What it had as a spool, until vmm_drop_former: somebody may be reading there. */
    unsigned former_count;
    int former[2];
};

/* Bytes that somebody wants to read. */
struct vmm_span {
    uint64_t offset;
    size_t bytes;
    /* Who reads: an open file, by a number that is never used again, which goes on from where it
     * was as a rule; then bytes may be fetched before it wants them, up to `end`. 0: nobody in
     * particular, or the bytes may change between two reads. */
    uint64_t reader;
    uint64_t end;
};

#define VMM_LOAN_PARTS 2u

/* Bytes to be looked at until vmm_end_loan. */
struct vmm_loan {
    unsigned count;
    struct {
        const void *at;
        size_t bytes;
        unsigned entry; /* the backend's */
    } parts[VMM_LOAN_PARTS];
    void *buffer; /* vmm's own; NULL: none */
};

/* What vmm_open needs rights for that this process is about to give up. Before there are threads.
 */
void vmm_prepare(const struct vmm_options *options);
/* Nobody has used the device since the machine started, so its driver still has to make device
 * files, which needs rights: vmm_wake has it do so, in a process that ends then. */
bool vmm_is_asleep(const struct vmm_options *options);
void vmm_wake(const struct vmm_options *options);
int vmm_open(const struct vmm_options *options, struct vmm **vmm, char *why, size_t why_bytes);
/* The same device, as another process has described it: it is there at once. Its driver is opened
 * meanwhile; only what makes memory or moves bytes waits for it, half a minute at most (-EIO), and
 * fails with -ENODEV or -EIO where it does not open; then it is tried again later. A description
 * that does not fit `options` is not believed: then this is vmm_open. */
int vmm_reopen(const struct vmm_options *options, const struct vmm_description *description,
               struct vmm **vmm, char *why, size_t why_bytes);
void vmm_describe(const struct vmm *vmm, struct vmm_description *description);
void vmm_close(struct vmm *vmm);
void vmm_get_info(const struct vmm *vmm, struct vmm_info *info);
/* Asks the device what others hold of it, and never waits. True: it is being asked, and the call of
 * vmm_on_measurement comes when that is over; until then vmm_get_info tells what was known before.
 * Who asks while it is being asked shares the answer, which may be of a moment earlier. A library
 * that hangs answers late or never: whoever waits needs a bound. False: nobody can be asked, and no
 * call comes on its account; vmm_get_info tells all that there is. Any thread. */
bool vmm_measure(struct vmm *vmm);
/* The call comes from any thread, once for each measurement that is over, whatever came of it; it
 * must be short and not call back. None comes after a call with NULL, and none that was over before
 * is told. */
void vmm_on_measurement(struct vmm *vmm, void (*call)(void *context), void *context);
/* The call comes from any thread, once for the first news after the last vmm_take_health (also news
 * from before); it must be short and not call back. None comes after a call with NULL. */
void vmm_on_health(struct vmm *vmm, void (*call)(void *context), void *context);
/* False: there is none. Any thread. */
bool vmm_take_health(struct vmm *vmm, struct vmm_health *news);
/* size up to the granularity; 0 if that overflows */
uint64_t vmm_align(const struct vmm *vmm, uint64_t size_bytes);

/* The account: -ENOMEM if it does not fit. Bytes are multiples of the granularity. */
int vmm_reserve(struct vmm *vmm, uint64_t bytes);
void vmm_unreserve(struct vmm *vmm, uint64_t bytes);
/* How much is set aside from now on, more or less than before. -ENOMEM: then it is as it was. */
int vmm_set_aside(struct vmm *vmm, uint64_t bytes);
uint64_t vmm_get_aside(const struct vmm *vmm);
/* Neither in use nor set aside. */
uint64_t vmm_get_free(const struct vmm *vmm);

/* The same of a tier. */
bool vmm_has_tier(const struct vmm *vmm, enum vmm_tier tier);
/* What a piece that has `size_bytes` costs in it. */
uint64_t vmm_align_in(const struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes);
int vmm_reserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes);
void vmm_unreserve_in(struct vmm *vmm, enum vmm_tier tier, uint64_t bytes);
uint64_t vmm_get_total_in(const struct vmm *vmm, enum vmm_tier tier);
uint64_t vmm_get_free_in(const struct vmm *vmm, enum vmm_tier tier); /* by its account */

/* All of these run on helper threads: they may be slow. None touches the account. */

/* Zeroed memory of vmm_align(size) bytes, committed (never a later SIGBUS) and, if `seal`, sealed
 * against resizing, mode 0. size 0 with seal false makes an empty spool. -ENOMEM when machine or
 * cgroup or the device lack it (which has then been measured, if it answers within 50 ms), -EMFILE
 * when descriptors run out, -ENODEV when the device is gone, -EIO when the driver says anything
 * else (logged). */
int vmm_create(struct vmm *vmm, uint64_t size_bytes, bool seal, struct vmm_piece *piece);
/* The same in a tier, sealed. -EOPNOTSUPP: there is none. In the host tier the memory itself is
 * still to be made, by vmm_populate: making it takes longer than filling it, so who fills it by
 * parts on several threads makes it so, too. Before that it must not be written or mapped */
int vmm_create_in(struct vmm *vmm, enum vmm_tier tier, uint64_t size_bytes,
                  struct vmm_piece *piece);
/* Commits what these bytes of a piece of vmm_create_in need; nothing, where that is done. Errors as
 * vmm_create. Any thread, others may make and fill other parts meanwhile */
int vmm_populate(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes);
/* Copies bytes from `offset` on, at the same place, between two sealed pieces of which at least one
 * is in the host tier. Errors as vmm_read and vmm_write. */
int vmm_move(struct vmm *vmm, const struct vmm_piece *from, struct vmm_piece *to, uint64_t offset,
             uint64_t bytes);
/* All bytes of the piece are where they stay: what went wrong with it on the way there is told,
 * once.
 */
int vmm_sync(struct vmm *vmm, const struct vmm_piece *piece);
#define VMM_PROBE_BYTES 4096u /* what `offset` and `bytes` of vmm_probe are multiples of */
/* Is it as long as it was, and can these bytes be read, past any cache? -EIO: no. */
int vmm_probe(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes);
/* What was a piece's in another process. */
struct vmm_kept {
    int fd;
    int fd_readonly; /* -1: none */
};
/* The piece that a process which is gone had under these descriptors, which become the piece's; not
 * `sealed`: a spool, or what it has become in that process's last moment, as the piece then says.
 * After a failure they are the caller's. Without one for readers it is made anew where there has to
 * be one: -EMFILE, -EACCES, …: as open(2) */
int vmm_adopt(struct vmm *vmm, enum vmm_tier tier, const struct vmm_kept *kept, uint64_t size_bytes,
              uint64_t aligned_bytes, bool sealed, struct vmm_piece *piece);
/* Commits a spool's memory up to `aligned_bytes`. */
int vmm_grow(struct vmm *vmm, struct vmm_piece *piece, uint64_t aligned_bytes);
/* Makes sure that a spool could be ended at this size: its memory is there, and its bytes are in
 * it. It stays a spool. False of vmm_can_settle: there is nothing to do. */
int vmm_settle(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes);
bool vmm_can_settle(const struct vmm *vmm);
/* Ends a spool: its descriptors may be other ones then, its size is final, the tail is zero,
 * sealed. */
int vmm_seal(struct vmm *vmm, struct vmm_piece *piece, uint64_t size_bytes);
/* Closes the descriptors that it had before it was sealed, if they were others. */
void vmm_drop_former(struct vmm_piece *piece);
/* Whole transfers or a negative errno; the caller has checked the bounds. */
int vmm_read(struct vmm *vmm, const struct vmm_piece *piece, void *to, size_t bytes,
             uint64_t offset);
int vmm_write(struct vmm *vmm, struct vmm_piece *piece, const void *from, size_t bytes,
              uint64_t offset);
/* A descriptor of a sealed piece for one client, with an open file description that nobody else
 * has: lseek(2), O_APPEND, flock(2) and leases of others do not reach it. Read-only unless
 * `writable`; seals and mode 0 are as they were. Of a GPU, where a descriptor is opaque and such
 * things have no meaning, it is a plain duplicate. The caller's to close; closed on exec. Takes 5
 * us, in an ordinary user's daemon 7 (a duplicate 0.2), so who may share one should: handing out
 * 3,435 of them doubles an attach. Never waits; any thread, whoever else uses the piece. -EINVAL:
 * it is a spool; -EMFILE, -ENFILE, -ENOMEM; -EBUSY: the daemon's own user, or CAP_LEASE, holds a
 * lease on it. */
int vmm_duplicate(struct vmm *vmm, const struct vmm_piece *piece, bool writable, int *fd);
/* The first bytes of a span, at least one of them; they are there until vmm_end_loan. Errors as
 * vmm_read; -ENOMEM. */
int vmm_lend(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
             struct vmm_loan *loan);
/* For the loop's thread: all of the span, if it is there already; never waits. -EAGAIN */
int vmm_lend_now(struct vmm *vmm, const struct vmm_piece *piece, const struct vmm_span *span,
                 struct vmm_loan *loan);
/* Any thread; short. */
void vmm_end_loan(struct vmm *vmm, struct vmm_loan *loan);
/* This reader is gone. Any thread; short. */
void vmm_end_reader(struct vmm *vmm, uint64_t reader);
/* Nothing moves for now: what the device's memory was mapped for is over, and is unmapped, so that
 * giving it back later takes no more than that. Any thread; may be slow. False of vmm_can_rest:
 * there is nothing to do. */
void vmm_rest(struct vmm *vmm);
bool vmm_can_rest(const struct vmm *vmm);
void vmm_destroy(struct vmm *vmm,
                 struct vmm_piece *piece); /* closes; may take long for large memory */

#endif
