/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_abi.h - the binary interface between a gmsfs mount and its clients
 *
 * Two things cross it: ioctls on files of the mount, and messages on the SOCK_SEQPACKET socket
 * `.fds` at the mount's root, where a ticket is exchanged for descriptors. The daemon and libgmsfs
 * include this header; other languages may transcribe it.
 *
 * Rules: fixed-width fields, host byte order, no pointers, explicit padding (must be zero). The
 * daemon dispatches by _IOC_NR alone: a shorter payload than it knows is extended by zeros, a
 * longer one must end in zeros (else E2BIG), and only the bytes that the caller has room for are
 * answered. New fields are appended; a field's meaning never changes. FUSE bounds a payload at
 * 16,383 bytes (_IOC_SIZEBITS is 14).
 */
#ifndef GMSFS_ABI_H
#define GMSFS_ABI_H

#include <linux/ioctl.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define GMSFS_STATIC_ASSERT(x, m) static_assert(x, m)
#else
#define GMSFS_STATIC_ASSERT(x, m) _Static_assert(x, m)
#endif

#define GMSFS_ABI_VERSION 1u

#define GMSFS_NAME_MAX      255u /* bytes of an encoded file name, and of a tag */
#define GMSFS_KEY_MAX       255u /* bytes of a metadata key; its encoded name is bounded as well */
#define GMSFS_VALUE_MAX     (1u << 20) /* bytes of a metadata value */
#define GMSFS_ENTRIES_MAX   (1u << 20) /* metadata entries of a store, and of one document */
#define GMSFS_PUT_DATA_MAX  15360u     /* key and value together in one METADATA_PUT/GET */
#define GMSFS_LIST_DATA_MAX 16320u     /* items of one LIST */
#define GMSFS_BATCH_MAX     253u       /* descriptors in one message: the kernel's SCM_MAX_FD */

/* An unbound entry that a graph pool (gmsfs_graph.h) keeps in its store while it is awake: a JSON
 * object with the integers chunk_bytes, spaces, address_bytes and high_bytes. The mount shows it in
 * `info` and `metrics`. */
#define GMSFS_GRAPH_KEY "gmsfs.graph"

#define GMSFS_TIMEOUT_FOREVER UINT64_MAX
#define GMSFS_SLOT_NONE       UINT64_MAX /* an unbound metadata entry */

enum gmsfs_mode {
    GMSFS_MODE_NONE = 0,
    GMSFS_MODE_RO = 1,
    GMSFS_MODE_RW = 2,
    GMSFS_MODE_RW_OR_RO = 3,      /* asked for, never granted */
    GMSFS_MODE_RW_DATA = 4,       /* granted: writes the bytes of a sealed layout */
    GMSFS_MODE_RW_DATA_OR_RW = 5, /* asked for, never granted: RW_DATA where a layout is sealed when
                                   * the grant comes, else RW */
};

/*
 * The states of a store: each word as the file `state`, the metric gmsfs_store_state and the
 * commands have it, and its number, from 0 on without a gap. STATE is called for each.
 */
#define GMSFS_STATE_LIST(STATE) \
    STATE(EMPTY, 0)             \
    STATE(RW, 1)                \
    STATE(COMMITTED, 2)         \
    STATE(RO, 3)                \
    STATE(LAYOUT_COMMITTED, 4) /* sealed, and waiting for a writer of its bytes */

#define GMSFS_STATE_ENUMERATOR(word, number) GMSFS_STATE_##word = number,
enum gmsfs_state {
    GMSFS_STATE_LIST(GMSFS_STATE_ENUMERATOR)
};

/* What a descriptor of an allocation is. */
enum gmsfs_memory {
    GMSFS_MEMORY_HOST = 0, /* a memfd, for mmap(2) */
    GMSFS_MEMORY_CUDA = 1, /* for cuMemImportFromShareableHandle */
};

/* INFO: on any open file of a store. Looks, never waits. */
struct gmsfs_ioc_info {
    uint8_t store_id[16];
    uint8_t layout_hash[16]; /* zeros when nothing is committed, and while a writer works */
    uint8_t device_uuid[16];
    uint8_t group[16]; /* of the last commit; zeros if none */
    uint64_t generation;
    uint64_t session;     /* of this file; 0: none */
    uint64_t allocations; /* of what this file may see: working copy in its own RW session */
    uint64_t entries;
    uint64_t total_bytes; /* sum of aligned sizes */
    uint64_t granularity_bytes;
    uint64_t readers;
    uint64_t writers_waiting;
    uint32_t mode;      /* enum gmsfs_mode of this file's session */
    uint32_t state;     /* enum gmsfs_state */
    uint32_t committed; /* not while a layout is only sealed */
    uint32_t abi_version;
    uint8_t token[16];     /* of this file's session, for JOIN and GMSFS_SESSION; zeros if none */
    uint32_t memory;       /* enum gmsfs_memory */
    uint32_t layout_bytes; /* of the file `layout`, where layout_hash is not zeros; else 0 */
    uint32_t sealed;       /* there is a sealed layout, adopted or not */
    uint32_t residency;    /* GMSFS_RESIDENCY_*: the tiers that have the committed bytes */
    uint64_t moves;        /* how often their place has changed: other physical memory each time */
    uint64_t promote_ms;   /* how long the last way to the device took; 0: there was none */
};

#define GMSFS_RESIDENCY_DEVICE (1u << 0)
#define GMSFS_RESIDENCY_HOST   (1u << 1)
#define GMSFS_RESIDENCY_DISK   (1u << 2)

#define GMSFS_ACQUIRE_EXPORT (1u << 0) /* answer also with a ticket for the whole layout */
/* After ETIMEDOUT the caller looks around and asks again: for a second its place is kept, and holds
 * others off as if it waited. */
#define GMSFS_ACQUIRE_AGAIN (1u << 1)
#define GMSFS_ACQUIRE_FRESH (1u << 2) /* RW begins with nothing: what is committed is dropped */
/* RW does not wait until the store is on the device, for the writer replaces all that is committed:
 * until it has, bytes and descriptors of what is elsewhere are EAGAIN, and a commit EINVAL. */
#define GMSFS_ACQUIRE_REPLACE (1u << 3)
/* RO does not wait until the store is on the device: descriptors are of whatever kind its bytes are
 * in (struct gmsfs_fds_header). */
#define GMSFS_ACQUIRE_ANY (1u << 4)
/* It is one of several stores that come to their devices one after the other: what came a moment
 * ago stays there meanwhile, whatever min_stay= is. */
#define GMSFS_ACQUIRE_GROUP (1u << 5)
/* RO: the session is like one that an open of `lock` takes, for opens by this process and its
 * descendants join it, and it lives as long as one of its files is open. */
#define GMSFS_ACQUIRE_BY_PROCESS (1u << 6)

/* ACQUIRE: on a `ctl` opened for reading (RO) or writing (the others). Waits. */
struct gmsfs_ioc_acquire {
    uint32_t mode;           /* in: enum gmsfs_mode, but not RW_DATA; out: as granted */
    uint32_t flags;          /* in: GMSFS_ACQUIRE_* */
    uint64_t timeout_ms;     /* in: 0 tries once (EAGAIN), GMSFS_TIMEOUT_FOREVER never gives up */
    uint64_t reserve_bytes;  /* in: set aside with RW, all or nothing; ENOMEM: the device has not
                              * as much. Not with RO: EINVAL */
    uint64_t session;        /* out */
    uint64_t generation;     /* out */
    uint64_t count;          /* out: allocations behind the ticket */
    uint8_t token[16];       /* out: for JOIN and GMSFS_SESSION */
    uint8_t ticket[16];      /* out: with GMSFS_ACQUIRE_EXPORT; zeros: EXPORT tells why */
    uint8_t store_id[16];    /* out */
    uint8_t layout_hash[16]; /* out: zeros in RW */
};

/* JOIN: on a `ctl` without a session. A token of an RW session needs a writable handle. */
struct gmsfs_ioc_join {
    uint8_t token[16]; /* in */
    uint64_t session;  /* out */
    uint32_t mode;     /* out */
    uint32_t pad;
};

#define GMSFS_ALLOC_NOWAIT (1u << 0) /* ENOMEM at once instead of waiting for memory */

/* ALLOC: on a writable handle of an RW session. Waits for memory up to -o alloc_timeout. */
struct gmsfs_ioc_alloc {
    uint64_t size_bytes;   /* in: of each, > 0; out: aligned size */
    uint64_t slot;         /* out: of the first; the others follow by one */
    uint64_t rank;         /* out: of the first */
    uint32_t count;        /* in: 1.., all or nothing */
    uint32_t flags;        /* in: GMSFS_ALLOC_* */
    uint32_t mem_class;    /* in: must be 0 so far, else EOPNOTSUPP */
    uint32_t handle_types; /* in: must be 0 so far, else EOPNOTSUPP */
    char tag[256];         /* in: NUL-terminated UTF-8, may be empty */
    char name[256];        /* in: first name or "" for aNNNNNN by slot; out: the first name. With
                            * count > 1 a given name must end in decimal digits, which count up */
    uint64_t timeout_ms;   /* in: how long to wait, where that is less; 0: -o alloc_timeout */
};

#define GMSFS_ALLOC_EACH_MAX 30u

struct gmsfs_alloc_item {
    uint64_t size_bytes; /* in: > 0 */
    uint64_t slot;       /* out */
    char name[256];      /* in: as ALLOC's */
    char tag[256];       /* in */
};

/* ALLOC_EACH: as ALLOC, of several that differ, made at the same time; all or none. */
struct gmsfs_ioc_alloc_each {
    uint64_t timeout_ms; /* in: as ALLOC's */
    uint32_t count;      /* in: 1..GMSFS_ALLOC_EACH_MAX; ranks are in this order */
    uint32_t flags;      /* in: GMSFS_ALLOC_* */
    struct gmsfs_alloc_item items[GMSFS_ALLOC_EACH_MAX];
};

struct gmsfs_ioc_free {
    uint64_t slot; /* in */
};

#define GMSFS_EXPORT_WRITABLE (1u << 0) /* needs a writer's session and a writable handle */
#define GMSFS_EXPORT_BY_SLOT  (1u << 1) /* the one allocation whose slot is `first`; ENOENT */

/* EXPORT: on an open allocation (that one), or on a session's handle (ranks first..first+count). */
struct gmsfs_ioc_export {
    uint64_t first;       /* in: rank, or slot; out: rank */
    uint64_t count;       /* in: 0 = all from first, BY_SLOT: 0 or 1; out: how many */
    uint64_t total_bytes; /* out: sum of aligned sizes */
    uint64_t generation;  /* out */
    uint32_t flags;       /* in: GMSFS_EXPORT_* */
    uint32_t pad;
    uint8_t ticket[16]; /* out: single use, seconds */
};

/* METADATA_PUT / GET / DELETE: `data` holds key, then value, without terminators. */
struct gmsfs_ioc_metadata {
    uint64_t slot;        /* PUT in, GET out: GMSFS_SLOT_NONE = unbound */
    uint64_t rank;        /* GET out: GMSFS_SLOT_NONE = unbound */
    uint64_t offset;      /* PUT in, GET out: bytes into the allocation; unbound: 0 (else EINVAL) */
    uint32_t key_bytes;   /* in */
    uint32_t value_bytes; /* PUT in; GET out: the value's size. If it does not fit: EFBIG */
    uint8_t data[GMSFS_PUT_DATA_MAX];
};

#define GMSFS_COMMIT_STAY  (1u << 0) /* the session stays on as a reader */
#define GMSFS_COMMIT_GROUP (1u << 1) /* `group` is set */
#define GMSFS_COMMIT_CHECK (1u << 2) /* only whether it would be refused; nothing is published */
#define GMSFS_COMMIT_SEAL  (1u << 3) /* seal: the session goes on with RW_DATA. Not with STAY */

struct gmsfs_ioc_commit {
    uint32_t flags; /* in */
    uint32_t mode;  /* out: RO with STAY, RW_DATA with SEAL, else NONE; with CHECK RW, and nothing
                     * else is answered */
    uint64_t generation;
    uint8_t group[16];
    uint8_t layout_hash[16];
};

/* ABORT */
struct gmsfs_ioc_abort {
    uint32_t rolled_back; /* out: 1 = the committed layout is back, 0 = the store is EMPTY, or an
                           * RW_DATA session has ended, which keeps everything */
    uint32_t pad;
};

/* APPLY: apply the bulk document gathered by write(2) on this `ctl`. */
struct gmsfs_ioc_apply {
    uint64_t applied; /* out: entries applied */
    int32_t error;    /* out: 0 or a negative errno; the ioctl itself then returns 0 */
    uint32_t pad;
    uint64_t culprit; /* out: index of the entry at fault, UINT64_MAX: the document itself */
};

#define GMSFS_RESERVE_AT_LEAST (1u << 0) /* where more is set aside already, leave it so */
#define GMSFS_RESERVE_NOWAIT   (1u << 1) /* ENOMEM at once instead of waiting for memory */
#define GMSFS_RESERVE_AS_ACQUIRE                                     \
    (1u << 2) /* at once or not, as an ACQUIRE that tries once: what \
               * the store has committed counts as there; EAGAIN:    \
               * others wait for memory before */
#define GMSFS_RESERVE_REPLACING                                       \
    (1u << 3) /* with AS_ACQUIRE: what the store has committed counts \
               * first, and of what is free only the rest is taken */

/* RESERVE: on a writable handle of an RW session: how much is set aside for it from now on, beside
 * what it has allocated. Less than before gives back. Waits for memory as ALLOC does, unless a flag
 * says otherwise. */
struct gmsfs_ioc_reserve {
    uint64_t bytes;  /* in; out: what is set aside now */
    uint64_t before; /* out: what was */
    uint32_t flags;  /* in: GMSFS_RESERVE_* */
    uint32_t pad;
    uint64_t timeout_ms; /* in: as of ALLOC */
};

#define GMSFS_LIST_BY_SLOT (1u << 0) /* `first` is a slot, or lies between two */

/* LIST: on any open file of a store: its allocations in rank order, as its directory shows them.
 * Looks, never waits. As many items as `data` and the caller have room for, from the first: a page.
 * The next begins one above the last item's rank, or slot. */
struct gmsfs_ioc_list {
    uint64_t first;       /* in: rank or slot; where there is none from there on, count is 0 */
    uint64_t allocations; /* out: of the whole layout */
    uint8_t layout[16];   /* in: zeros, or what an earlier page answered: EAGAIN if what that told
                           * may be true no more; out: which layout this is */
    uint32_t flags;       /* in: GMSFS_LIST_* */
    uint32_t count;       /* in: so many items at most, 0: as many as fit; out: how many */
    uint32_t bytes;       /* out: of `data` that are items. EFBIG: not even one fits */
    uint32_t more;        /* out: 1: there are allocations behind the last item */
    uint8_t data[GMSFS_LIST_DATA_MAX]; /* out */
};

/* Of LIST: one allocation; its tag and its file name follow, without terminators, and zeros up to
 * the next item. */
struct gmsfs_list_item {
    uint64_t rank;
    uint64_t slot;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    uint32_t item_bytes; /* from this item to the next: a multiple of 8 */
    uint16_t tag_bytes;
    uint16_t name_bytes;
};

/* ---- regions ------------------------------------------------------------------------------- */

#define GMSFS_REGION_NAME_MAX     255u /* bytes; its encoded name is bounded as well */
#define GMSFS_REGION_KEY_MAX      511u /* bytes */
#define GMSFS_REGION_HANDLE_BYTES 64u  /* of a CUDA memory handle */
#define GMSFS_REGION_GROUPS_MAX   64u
#define GMSFS_REGION_SELF         UINT32_MAX /* as a uid: the caller's own */

/* No key of a region may begin with this, slashes before it aside. */
#define GMSFS_REGION_RESERVED_PREFIX "triton_python_backend_shm_region_"

enum gmsfs_region_kind {
    GMSFS_REGION_ANY = 0,    /* to look for, never one's kind */
    GMSFS_REGION_SYSTEM = 1, /* a shared-memory object, or a committed allocation of a store */
    GMSFS_REGION_CUDA = 2,   /* what a CUDA memory handle stands for */
};

#define GMSFS_REGION_DRAINING   (1u << 0) /* unregistered; goes with its last reference */
#define GMSFS_REGION_WRITABLE   (1u << 1) /* its descriptor is */
#define GMSFS_REGION_ALLOCATION (1u << 2) /* key is STORE/ALLOCATION, as it was registered */
#define GMSFS_REGION_DESCRIPTOR                                       \
    (1u << 3) /* it has a descriptor; one of CUDA has only its handle \
               */

/* Why a call on regions failed, where the errno leaves more than one cause. */
enum gmsfs_region_reason {
    GMSFS_REGION_FINE = 0,         /* it did not, or the errno says all */
    GMSFS_REGION_BAD_NAME = 1,     /* EINVAL: empty, no UTF-8; ENAMETOOLONG */
    GMSFS_REGION_EXISTS = 2,       /* EEXIST: its owner has a region of this name, of either kind,
                                    * perhaps a draining one */
    GMSFS_REGION_BAD_KEY = 3,      /* EINVAL: nothing but slashes, no UTF-8; ENAMETOOLONG */
    GMSFS_REGION_RESERVED_KEY = 4, /* EINVAL: begins with GMSFS_REGION_RESERVED_PREFIX */
    GMSFS_REGION_NO_OBJECT = 5,    /* the key cannot be opened: ENOENT, EACCES, ... */
    GMSFS_REGION_BAD_OBJECT = 6,   /* EINVAL: the descriptor is of no file in memory or on disk, or
                                    * not open for reading; or one came where none belongs */
    GMSFS_REGION_BAD_RANGE = 7,  /* EINVAL: offset + byte_size overflows, or is beyond the object */
    GMSFS_REGION_NO_SIZE = 8,    /* EINVAL: byte_size is 0 */
    GMSFS_REGION_BAD_HANDLE = 9, /* EINVAL: the CUDA handle has not GMSFS_REGION_HANDLE_BYTES */
    GMSFS_REGION_UNCOMMITTED = 10, /* EAGAIN: a writer is at work in the store, or waits to;
                                    * ENODATA: nothing is committed */
    GMSFS_REGION_NOT_OWNER = 11,   /* EPERM: only root acts for another uid */
    GMSFS_REGION_BOUND = 12,       /* EDQUOT, ENOSPC, ENFILE: a bound, `events` tells which */
    GMSFS_REGION_DRAINED = 13,     /* ENODEV: the mount is drained and takes no more regions */
    GMSFS_REGION_UNKNOWN = 14,     /* ENOENT: its owner has no such region of this kind */
    GMSFS_REGION_BAD_OFFSET = 15,  /* ERANGE: an access begins at or behind the region's end */
    GMSFS_REGION_OVERFLOW = 16,    /* ERANGE: offset + size of an access is above 2^64 - 1 */
    GMSFS_REGION_BAD_END = 17,     /* ERANGE: an access ends behind the region's end */
    GMSFS_REGION_SHRUNK = 18,      /* ENODATA: the client made its object smaller */
};

/* One region, to its owner and root. */
struct gmsfs_region_info {
    uint64_t id;     /* never used again in this mount */
    uint64_t offset; /* bytes into its object, where the region begins */
    uint64_t byte_size;
    int64_t device_id; /* CUDA: the client's number of the device; else 0 */
    uint64_t references;
    uint64_t registered_ms;                        /* since 1970 */
    uint32_t kind;                                 /* enum gmsfs_region_kind */
    uint32_t uid;                                  /* its owner */
    uint32_t flags;                                /* GMSFS_REGION_* */
    uint32_t memory;                               /* enum gmsfs_memory: what its descriptor is */
    uint8_t raw_handle[GMSFS_REGION_HANDLE_BYTES]; /* CUDA; else zeros */
    char name[GMSFS_REGION_NAME_MAX + 1];          /* NUL-terminated */
    char key[GMSFS_REGION_KEY_MAX + 1];            /* NUL-terminated; CUDA: "" */
};

#define GMSFS_REGION_HOLD (1u << 0) /* this open file holds a reference from now on */

/* REGION: on an open region. Its owner and root; ESTALE: it is gone. */
struct gmsfs_ioc_region {
    uint32_t flags; /* in: GMSFS_REGION_HOLD; 0: only look */
    uint32_t pad;
    uint8_t ticket[16];            /* out, with HOLD: for its descriptor; zeros: it has none */
    struct gmsfs_region_info info; /* out */
};

#define GMSFS_IOC_INFO            _IOWR('G', 1, struct gmsfs_ioc_info)
#define GMSFS_IOC_ACQUIRE         _IOWR('G', 2, struct gmsfs_ioc_acquire)
#define GMSFS_IOC_JOIN            _IOWR('G', 3, struct gmsfs_ioc_join)
#define GMSFS_IOC_RELEASE         _IO('G', 4)
#define GMSFS_IOC_ALLOC           _IOWR('G', 5, struct gmsfs_ioc_alloc)
#define GMSFS_IOC_FREE            _IOWR('G', 6, struct gmsfs_ioc_free)
#define GMSFS_IOC_CLEAR           _IO('G', 7)
#define GMSFS_IOC_EXPORT          _IOWR('G', 8, struct gmsfs_ioc_export)
#define GMSFS_IOC_METADATA_PUT    _IOWR('G', 9, struct gmsfs_ioc_metadata)
#define GMSFS_IOC_METADATA_GET    _IOWR('G', 10, struct gmsfs_ioc_metadata)
#define GMSFS_IOC_METADATA_DELETE _IOWR('G', 11, struct gmsfs_ioc_metadata)
#define GMSFS_IOC_COMMIT          _IOWR('G', 12, struct gmsfs_ioc_commit)
#define GMSFS_IOC_ABORT           _IOWR('G', 13, struct gmsfs_ioc_abort)
#define GMSFS_IOC_APPLY           _IOWR('G', 14, struct gmsfs_ioc_apply)
#define GMSFS_IOC_RESERVE         _IOWR('G', 15, struct gmsfs_ioc_reserve)
#define GMSFS_IOC_LIST            _IOWR('G', 16, struct gmsfs_ioc_list)
#define GMSFS_IOC_REGION          _IOWR('G', 17, struct gmsfs_ioc_region)
/* CANCEL: on a `ctl`: an ACQUIRE, ALLOC or RESERVE by this file that waits ends, ECANCELED (the
 * first) or EINTR, without a place kept, and a place that is kept is given up. ENOENT: there is
 * none of these. Answers at once. */
#define GMSFS_IOC_CANCEL     _IO('G', 18)
#define GMSFS_IOC_ALLOC_EACH _IOWR('G', 19, struct gmsfs_ioc_alloc_each)
/* REMOVE_UNUSED: on a writable `ctl` of root or of whoever mounted: the store is removed, whatever
 * it is called now. ENOTEMPTY: a layout is sealed in it, or one was ever committed; EBUSY: it has a
 * session or a waiter, or another file is its `ctl`; ESTALE: it is gone. Answers at once. */
#define GMSFS_IOC_REMOVE_UNUSED _IO('G', 20)

GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_info) == 192, "info");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_acquire) == 112, "acquire");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_join) == 32, "join");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_alloc) == 560, "alloc");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_alloc_item) == 528, "alloc item");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_alloc_each) == 15856, "alloc each");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_free) == 8, "free");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_export) == 56, "export");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_metadata) == 15392, "metadata");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_commit) == 48, "commit");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_abort) == 8, "abort");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_apply) == 24, "apply");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_reserve) == 32, "reserve");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_list) == 16368, "list");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_list_item) == 40, "list item");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_region_info) == 896, "region info");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_ioc_region) == 920, "region");

/* ---- `.fds`: SOCK_SEQPACKET ---------------------------------------------------------------- */

enum gmsfs_fds_op {
    GMSFS_FDS_REDEEM = 1,  /* exchange a ticket for its descriptors */
    GMSFS_FDS_UNMOUNT = 2, /* root or the daemon's uid: unmount if nobody holds a file */
    /* These three, for root or the daemon's uid, drain the mount; gmsfs(5) has what that means. */
    GMSFS_FDS_DRAIN = 3, /* grant no more sessions (batch 1: and revoke those there are), until this
                          * connection ends, or for good once DRAIN_END has answered 0. EBUSY:
                          * another connection drains, or the mount is fenced */
    GMSFS_FDS_DRAIN_END = 4, /* drop what is committed. EBUSY: `remaining` sessions are left;
                              * EAGAIN: `remaining` bytes are; ECANCELED: the mount serves again */
    GMSFS_FDS_SERVE = 5,     /* undo DRAIN */
    /* What the store whose id is in `ticket` holds is as it should be: for root, the daemon's uid
     * and the store's owner; zeros: all stores, not for the last. ENOENT, EPERM; ENODEV: the device
     * is lost */
    GMSFS_FDS_CLEAR_SUSPECT = 6,
    /* The fence of a checkpoint (gmsfs(5)), for whoever may write the stores `weights` and
     * `kv_cache`, EACCES. All four answer struct gmsfs_fds_fence. */
    GMSFS_FDS_FENCE = 7, /* put it up; where it is up, the same again. EBUSY, EINVAL: `obstacle`
                          * says why; ENOENT: there are no weights; ENODEV: the mount is
                          * drained */
    GMSFS_FDS_FENCE_ABORT = 8,    /* `ticket` is its token: there is no checkpoint. EINVAL: it has
                                   * another; ESTALE: there is none of this token any more */
    GMSFS_FDS_FENCE_COMPLETE = 9, /* the same: what was checkpointed is restored */
    GMSFS_FDS_FENCE_STATUS = 10,  /* only tell. EACCES: all but the token */
    /* Regions (gmsfs(5)), for their owner and for root. All four take struct
     * gmsfs_fds_region_request and answer struct gmsfs_fds_region_answer. */
    GMSFS_FDS_REGION_REGISTER = 11,   /* a SYSTEM region comes with its descriptor, unless its key
                                       * is STORE/ALLOCATION */
    GMSFS_FDS_REGION_UNREGISTER = 12, /* by owner, kind and name. ENOENT */
    GMSFS_FDS_REGION_UNREGISTER_ALL = 13, /* by owner and kind */
    GMSFS_FDS_REGION_LIST = 14, /* by owner and kind, in order of names, from the first behind
                                 * `name`; flags GMSFS_REGION_LIST_ONE: the one of this name.
                                 * ENOENT */
    /* The drain of the store whose id is in `ticket`, for its owner, root and the daemon's uid.
     * EPERM; ENOENT */
    GMSFS_FDS_STORE_DRAIN = 15,   /* let nobody in: whoever asks waits, until STORE_SERVE or the end
                                   * of this connection. batch: in so many milliseconds holders are
                                   * to have left, which `info` and `events` tell; 0: no word of
                                   * that. Again: another deadline. EBUSY: another connection drains
                                   * it, or this one another store */
    GMSFS_FDS_STORE_HOLDERS = 16, /* 0: nobody holds what this connection drains. EBUSY: `remaining`
                                   * sessions do; batch 1: and they are revoked. ECANCELED: its
                                   * drain is over; ENOENT: its store is gone */
    GMSFS_FDS_STORE_SERVE = 17,   /* end the drain, whoever's it is */
    /* For root and the daemon's uid, EPERM; answered by the keeper, with a line of text behind the
     * header. EBUSY: another one is asked for, or the mount ends */
    GMSFS_FDS_UPGRADE = 18, /* the worker becomes the program that is installed now */
    GMSFS_FDS_TAKEOVER =
        19, /* the connection becomes one of two keepers, of which this one goes on */
    /* DRAIN and STORE_DRAIN answer struct gmsfs_fds_drain. Where the connection breaks, a drain
     * goes on for GMSFS_FDS_DRAIN_MS, for its process to connect again and show its token; one
     * that has no answer yet asks for the same again, and is answered as if it had been the first
     * time, but where the daemon cannot see its process: EBUSY until then. */
    GMSFS_FDS_DRAIN_RESUME = 20, /* `ticket` is the token: the drain is this connection's.
                                  * ECANCELED: it is over; EPERM: another process's; EBUSY: it is
                                  * another connection's */
    /* For root and the daemon's uid, EPERM: this connection governs the mount until it ends. One
     * that governs already is answered 0. EBUSY: another connection governs, and `remaining` is the
     * pid of the process that asked there, as the daemon sees it; 0: the daemon cannot see it. A
     * worker that ends takes the connection along, and the next worker has no governor until a
     * connection asks. */
    GMSFS_FDS_GOVERN = 21,
};

struct gmsfs_fds_request {
    uint32_t version; /* GMSFS_ABI_VERSION */
    uint32_t op;      /* enum gmsfs_fds_op */
    uint32_t batch;   /* REDEEM: descriptors wanted per message, 1..GMSFS_BATCH_MAX */
    uint32_t pad;
    uint8_t ticket[16]; /* REDEEM; CLEAR_SUSPECT, STORE_*: a store's id; FENCE_*: a token */
};

#define GMSFS_FDS_TAGS_MAX 4096u      /* bytes of tags in one message */
#define GMSFS_FDS_NO_TAG   UINT32_MAX /* as tag_at: not told, for there was no room; LIST tells */

/* One message is a header, `count` items, and their tags, each with a NUL at its end; its
 * SCM_RIGHTS carry `count` descriptors in order. */
struct gmsfs_fds_header {
    uint32_t version;
    int32_t error;      /* 0 or a negative errno; then the transfer is over */
    uint32_t count;     /* items and descriptors in this message */
    uint32_t memory;    /* enum gmsfs_memory: what the descriptors of this message are */
    uint64_t remaining; /* descriptors still to come after this message; 0 ends the transfer */
};

struct gmsfs_fds_item {
    uint64_t rank;
    uint64_t slot;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    uint32_t tag_at; /* where its tag begins among the tags; those that are alike may share one */
    uint32_t pad;
};

/* What keeps a fence from being put up. */
enum gmsfs_fds_obstacle {
    GMSFS_FDS_OBSTACLE_NONE = 0,
    GMSFS_FDS_OBSTACLE_WEIGHTS_IN_USE = 1,
    GMSFS_FDS_OBSTACLE_KV_CACHE_IN_USE = 2,
    GMSFS_FDS_OBSTACLE_WEIGHTS_UNCOMMITTED = 3,
    GMSFS_FDS_OBSTACLE_KV_CACHE_COMMITTED = 4,
    GMSFS_FDS_OBSTACLE_WEIGHTS_EMPTY = 5,
    GMSFS_FDS_OBSTACLE_KV_CACHE_SEALED = 6,
};

/* One message, a header without items and this, whatever the header's error is. */
struct gmsfs_fds_fence {
    uint8_t token[16]; /* where it is up and the caller may know */
    uint32_t is_up;
    uint32_t obstacle; /* enum gmsfs_fds_obstacle */
    char why[96];      /* the same in words, as GMS says it */
};

/* Behind the header of the answer to DRAIN and STORE_DRAIN, whatever its error is. */
struct gmsfs_fds_drain {
    uint8_t token[16]; /* zeros where it failed */
};

/* Only where the daemon's worker was replaced: the end of a process ends its drains at once. */
#define GMSFS_FDS_DRAIN_MS 10000u

#define GMSFS_REGION_LIST_ONE (1u << 0)
#define GMSFS_REGION_LIST_MAX 16u /* in one answer */

struct gmsfs_fds_region_request {
    struct gmsfs_fds_request request; /* op REGION_* */
    uint32_t flags;                   /* LIST: GMSFS_REGION_LIST_ONE */
    uint32_t kind;                    /* enum gmsfs_region_kind */
    uint32_t uid;                     /* whose; GMSFS_REGION_SELF */
    uint32_t gid;                     /* REGISTER for another: with these groups he reads stores */
    uint32_t groups[GMSFS_REGION_GROUPS_MAX];
    uint32_t group_count;
    uint32_t name_bytes;
    uint32_t key_bytes;
    uint32_t handle_bytes; /* of raw_handle: all of them with CUDA, else 0 */
    uint64_t offset;
    uint64_t byte_size;
    int64_t device_id;
    uint8_t raw_handle[GMSFS_REGION_HANDLE_BYTES];
    char name[GMSFS_REGION_NAME_MAX + 1]; /* zeros behind name_bytes, and so below */
    char key[GMSFS_REGION_KEY_MAX + 1];
};

/* One message: a header and this, whatever the header's error is; LIST: then the header's `count`
 * of struct gmsfs_region_info, and `remaining` says how many more there are. */
struct gmsfs_fds_region_answer {
    uint32_t reason; /* enum gmsfs_region_reason */
    uint32_t pad;
    uint64_t count; /* UNREGISTER_*: how many were unregistered */
};

GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_request) == 32, "fds request");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_region_request) == 1176, "fds region request");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_region_answer) == 16, "fds region answer");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_header) == 24, "fds header");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_item) == 40, "fds item");
GMSFS_STATIC_ASSERT(sizeof(struct gmsfs_fds_fence) == 120, "fds fence");

#ifdef __cplusplus
}
#endif
#endif
