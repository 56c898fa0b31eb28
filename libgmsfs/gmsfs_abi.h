/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_abi.h - the binary interface between a gmsfs mount and its clients
 *
 * Two things cross it: ioctls on files of the mount, and messages on the SOCK_SEQPACKET socket
 * `.fds` at the mount's root, where a ticket is exchanged for descriptors. The daemon and libgmsfs
 * include this header; bindings in other languages may copy it.
 *
 * Rules: fixed-width fields, host byte order, no pointers, explicit padding (must be zero). The
 * daemon dispatches by _IOC_NR alone: a shorter payload than it knows is extended by zeros, a
 * longer one must end in zeros (else E2BIG), and the answer is cut to the caller's room. New fields
 * are appended; a field's meaning never changes. FUSE bounds a payload at 16,383 bytes
 * (_IOC_SIZEBITS is 14).
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
    GMSFS_MODE_RW_DATA_OR_RW = 5, /* asked for, never granted: RW_DATA if a layout is sealed when
                                   * the grant comes, else RW */
};

/*
 * The states of a store: the word that the file `state`, the metric gmsfs_store_state and the
 * commands use, and its number, from 0 without a gap. Expands STATE once for each.
 */
#define GMSFS_STATE_LIST(STATE) \
    STATE(EMPTY, 0)             \
    STATE(RW, 1)                \
    STATE(COMMITTED, 2)         \
    STATE(RO, 3)                \
    STATE(LAYOUT_COMMITTED, 4) /* sealed, and no session writes its bytes */

#define GMSFS_STATE_ENUMERATOR(word, number) GMSFS_STATE_##word = number,
enum gmsfs_state {
    GMSFS_STATE_LIST(GMSFS_STATE_ENUMERATOR)
};

/* The kind of an allocation's descriptor. */
enum gmsfs_memory {
    GMSFS_MEMORY_HOST = 0, /* a memfd, for mmap(2) */
    GMSFS_MEMORY_CUDA = 1, /* for cuMemImportFromShareableHandle */
};

/* INFO: on any open file of a store. Never waits. */
struct gmsfs_ioc_info {
    uint8_t store_id[16];
    uint8_t layout_hash[16]; /* zeros when nothing is committed, and while a writer works */
    uint8_t device_uuid[16];
    uint8_t group[16]; /* of the last commit; zeros if none */
    uint64_t generation;
    uint64_t session;     /* of this file; 0: none */
    uint64_t allocations; /* these three: of the layout that this file sees, in its RW session the
                           * working copy */
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
    uint64_t moves;        /* number of times that the bytes moved to other physical memory */
    uint64_t promote_ms;   /* duration of the last promotion to the device; 0: there was none */
};

#define GMSFS_RESIDENCY_DEVICE (1u << 0)
#define GMSFS_RESIDENCY_HOST   (1u << 1)
#define GMSFS_RESIDENCY_DISK   (1u << 2)

#define GMSFS_ACQUIRE_EXPORT (1u << 0) /* also answer with a ticket for the whole layout */
/* After ETIMEDOUT the caller will ask again: its place in the queue is reserved for one second, and
 * holds other waiters off as if it still waited. */
#define GMSFS_ACQUIRE_AGAIN (1u << 1)
#define GMSFS_ACQUIRE_FRESH (1u << 2) /* RW drops the committed layout first */
/* RW does not wait until the store is on the device, because the writer replaces the whole
 * committed layout: until it has, bytes and descriptors of allocations elsewhere are EAGAIN, and a
 * commit is EINVAL. */
#define GMSFS_ACQUIRE_REPLACE (1u << 3)
/* RO does not wait until the store is on the device: descriptors are of the memory that its bytes
 * are in now (struct gmsfs_fds_header). */
#define GMSFS_ACQUIRE_ANY (1u << 4)
/* One of several stores that are promoted one after the other: those promoted a moment ago stay on
 * their devices meanwhile, regardless of min_stay=. */
#define GMSFS_ACQUIRE_GROUP (1u << 5)
/* RO: the session is like that of an open of `lock`: opens by this process and its descendants join
 * it, and it lives as long as one of its files is open. */
#define GMSFS_ACQUIRE_BY_PROCESS (1u << 6)

/* ACQUIRE: on a `ctl` opened for reading (RO) or writing (the others). Waits. */
struct gmsfs_ioc_acquire {
    uint32_t mode;           /* in: enum gmsfs_mode, but not RW_DATA; out: as granted */
    uint32_t flags;          /* in: GMSFS_ACQUIRE_* */
    uint64_t timeout_ms;     /* in: 0 tries once (EAGAIN), GMSFS_TIMEOUT_FOREVER never gives up */
    uint64_t reserve_bytes;  /* in: reserved with RW, all or nothing; ENOMEM: the device has less.
                              * With RO: EINVAL */
    uint64_t session;        /* out */
    uint64_t generation;     /* out */
    uint64_t count;          /* out: allocations behind the ticket */
    uint8_t token[16];       /* out: for JOIN and GMSFS_SESSION */
    uint8_t ticket[16];      /* out: with GMSFS_ACQUIRE_EXPORT; zeros: none, EXPORT answers why */
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
/* Host memory ends with the size, to the byte, and is charged as ever: its file is as long as the
 * allocation, so that the kernel can read an immutable one by itself. A GPU's and huge pages end
 * with the aligned size nevertheless. */
#define GMSFS_ALLOC_EXACT (1u << 1)

/* ALLOC: on a writable handle of an RW session. Waits for memory up to -o alloc_timeout. */
struct gmsfs_ioc_alloc {
    uint64_t size_bytes;   /* in: of each, > 0; out: aligned size */
    uint64_t slot;         /* out: of the first; the others follow by one */
    uint64_t rank;         /* out: of the first */
    uint32_t count;        /* in: 1.., all or nothing */
    uint32_t flags;        /* in: GMSFS_ALLOC_* */
    uint32_t mem_class;    /* in: must be 0, else EOPNOTSUPP */
    uint32_t handle_types; /* in: must be 0, else EOPNOTSUPP */
    char tag[256];         /* in: NUL-terminated UTF-8, may be empty */
    char name[256];        /* in: first name or "" for aNNNNNN by slot; out: the first name. With
                            * count > 1 a given name must end in decimal digits, which count up */
    uint64_t timeout_ms;   /* in: longest wait, if shorter than -o alloc_timeout; 0: that */
};

#define GMSFS_ALLOC_EACH_MAX 30u

struct gmsfs_alloc_item {
    uint64_t size_bytes; /* in: > 0 */
    uint64_t slot;       /* out */
    char name[256];      /* in: as ALLOC's */
    char tag[256];       /* in */
};

/* ALLOC_EACH: as ALLOC, for several allocations that differ, made at the same time; all or none. */
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
#define GMSFS_EXPORT_BY_SLOT  (1u << 1) /* one allocation: `first` is its slot; ENOENT */

/* EXPORT: on an open allocation (exports it), or on a session's handle (ranks from `first`). */
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
#define GMSFS_COMMIT_CHECK (1u << 2) /* answer as a commit would, publish nothing */
#define GMSFS_COMMIT_SEAL  (1u << 3) /* seal: the session continues with RW_DATA. Not with STAY */
/* The layout never changes again, and its memory can be written by no process. Not with SEAL.
 * EBUSY: a process has it mapped for writing; `info` names it as last_error. */
#define GMSFS_COMMIT_IMMUTABLE (1u << 4)

struct gmsfs_ioc_commit {
    uint32_t flags; /* in */
    uint32_t mode;  /* out: RO with STAY, RW_DATA with SEAL, else NONE; with CHECK RW, and no other
                     * output is set */
    uint64_t generation;
    uint8_t group[16];
    uint8_t layout_hash[16];
};

/* ABORT */
struct gmsfs_ioc_abort {
    uint32_t rolled_back; /* out: 1 = the committed layout is back, 0 = the store is EMPTY, or an
                           * RW_DATA session has ended, which leaves everything in place */
    uint32_t pad;
};

/* APPLY: apply the bulk document gathered by write(2) on this `ctl`. */
struct gmsfs_ioc_apply {
    uint64_t applied; /* out: entries applied */
    int32_t error;    /* out: 0 or a negative errno; the ioctl itself then returns 0 */
    uint32_t pad;
    uint64_t culprit; /* out: index of the entry at fault, UINT64_MAX: the document itself */
};

#define GMSFS_RESERVE_AT_LEAST (1u << 0) /* never lower the reservation */
#define GMSFS_RESERVE_NOWAIT   (1u << 1) /* ENOMEM at once instead of waiting for memory */
/* Without waiting, as an ACQUIRE that tries once: the store's committed bytes count as free.
 * EAGAIN: other waiters are ahead in the queue for memory. */
#define GMSFS_RESERVE_AS_ACQUIRE (1u << 2)
/* With AS_ACQUIRE: the store's committed bytes count first, and only the rest is taken from free
 * memory. */
#define GMSFS_RESERVE_REPLACING (1u << 3)

/* RESERVE: on a writable handle of an RW session: sets the reservation of the session, beside its
 * allocations. A smaller one releases the difference. Waits for memory as ALLOC does, unless a flag
 * says otherwise. */
struct gmsfs_ioc_reserve {
    uint64_t bytes;  /* in; out: reserved now */
    uint64_t before; /* out: reserved before */
    uint32_t flags;  /* in: GMSFS_RESERVE_* */
    uint32_t pad;
    uint64_t timeout_ms; /* in: as ALLOC's */
};

#define GMSFS_LIST_BY_SLOT (1u << 0) /* `first` is a slot, perhaps an unused one */

/* LIST: on any open file of a store: its allocations in rank order, as its directory shows them.
 * Never waits. Answers one page: as many items from `first` on as fit `data` and the caller's room.
 * The next page begins one above the last item's rank, or slot. */
struct gmsfs_ioc_list {
    uint64_t first;       /* in: rank or slot; count is 0 if there is no allocation from there on */
    uint64_t allocations; /* out: of the whole layout */
    uint8_t layout[16];   /* in: zeros, or the answer of an earlier page: EAGAIN if that page may be
                           * out of date; out: identifies the layout */
    uint32_t flags;       /* in: GMSFS_LIST_* */
    uint32_t count;       /* in: most items, 0: as many as fit; out: items answered */
    uint32_t bytes;       /* out: bytes of `data` in use. EFBIG: not one item fits */
    uint32_t more;        /* out: 1: more allocations follow the last item */
    uint8_t data[GMSFS_LIST_DATA_MAX]; /* out */
};

/* One allocation in LIST; its tag and its file name follow, without terminators, and zeros up to
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
    GMSFS_REGION_ANY = 0,    /* to look for; no region has this kind */
    GMSFS_REGION_SYSTEM = 1, /* a shared-memory object, or a committed allocation of a store */
    GMSFS_REGION_CUDA = 2,   /* the memory of a CUDA memory handle */
};

#define GMSFS_REGION_DRAINING   (1u << 0) /* unregistered; goes with its last reference */
#define GMSFS_REGION_WRITABLE   (1u << 1) /* its descriptor is writable */
#define GMSFS_REGION_ALLOCATION (1u << 2) /* its key is STORE/ALLOCATION, as registered */
#define GMSFS_REGION_DESCRIPTOR (1u << 3) /* has one; a CUDA region has only its handle */

/* Why a call on regions failed, if the errno has more than one cause. */
enum gmsfs_region_reason {
    GMSFS_REGION_FINE = 0,         /* it succeeded, or the errno has one cause only */
    GMSFS_REGION_BAD_NAME = 1,     /* EINVAL: empty, or not UTF-8; ENAMETOOLONG */
    GMSFS_REGION_EXISTS = 2,       /* EEXIST: its owner has a region of this name, of either kind,
                                    * perhaps a draining one */
    GMSFS_REGION_BAD_KEY = 3,      /* EINVAL: only slashes, or not UTF-8; ENAMETOOLONG */
    GMSFS_REGION_RESERVED_KEY = 4, /* EINVAL: begins with GMSFS_REGION_RESERVED_PREFIX */
    GMSFS_REGION_NO_OBJECT = 5,    /* the key cannot be opened: ENOENT, EACCES, ... */
    GMSFS_REGION_BAD_OBJECT = 6,   /* EINVAL: the descriptor is of no file in memory or on disk, or
                                    * not open for reading; or a descriptor came without need */
    GMSFS_REGION_BAD_RANGE = 7,  /* EINVAL: offset + byte_size overflows, or is beyond the object */
    GMSFS_REGION_NO_SIZE = 8,    /* EINVAL: byte_size is 0 */
    GMSFS_REGION_BAD_HANDLE = 9, /* EINVAL: the CUDA handle is not GMSFS_REGION_HANDLE_BYTES long */
    GMSFS_REGION_UNCOMMITTED =
        10, /* EAGAIN: the store has a writer, or a waiting one; ENODATA: nothing is committed */
    GMSFS_REGION_NOT_OWNER = 11,  /* EPERM: only root acts for another uid */
    GMSFS_REGION_BOUND = 12,      /* EDQUOT, ENOSPC, ENFILE: a bound; `events` names it */
    GMSFS_REGION_DRAINED = 13,    /* ENODEV: the mount is drained and accepts no regions */
    GMSFS_REGION_UNKNOWN = 14,    /* ENOENT: its owner has no such region of this kind */
    GMSFS_REGION_BAD_OFFSET = 15, /* ERANGE: an access begins at or behind the region's end */
    GMSFS_REGION_OVERFLOW = 16,   /* ERANGE: offset + size of an access is above 2^64 - 1 */
    GMSFS_REGION_BAD_END = 17,    /* ERANGE: an access ends behind the region's end */
    GMSFS_REGION_SHRUNK = 18,     /* ENODATA: the client made its object smaller */
};

/* One region, as its owner and root see it. */
struct gmsfs_region_info {
    uint64_t id;     /* never used again in this mount */
    uint64_t offset; /* beginning of the region, in bytes into its object */
    uint64_t byte_size;
    int64_t device_id; /* CUDA: the client's number of the device; else 0 */
    uint64_t references;
    uint64_t registered_ms;                        /* since 1970 */
    uint32_t kind;                                 /* enum gmsfs_region_kind */
    uint32_t uid;                                  /* its owner */
    uint32_t flags;                                /* GMSFS_REGION_* */
    uint32_t memory;                               /* enum gmsfs_memory of its descriptor */
    uint8_t raw_handle[GMSFS_REGION_HANDLE_BYTES]; /* CUDA; else zeros */
    char name[GMSFS_REGION_NAME_MAX + 1];          /* NUL-terminated */
    char key[GMSFS_REGION_KEY_MAX + 1];            /* NUL-terminated; CUDA: "" */
};

#define GMSFS_REGION_HOLD (1u << 0) /* this open file holds a reference from now on */

/* REGION: on an open region, by its owner and root. ESTALE: it is gone. */
struct gmsfs_ioc_region {
    uint32_t flags; /* in: GMSFS_REGION_HOLD; 0: only answer info */
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
/* CANCEL: on a `ctl`: ends a waiting ACQUIRE (ECANCELED), ALLOC or RESERVE (EINTR) of this file,
 * and gives up its place in the queue, also a reserved one. ENOENT: it has neither. Never waits. */
#define GMSFS_IOC_CANCEL     _IO('G', 18)
#define GMSFS_IOC_ALLOC_EACH _IOWR('G', 19, struct gmsfs_ioc_alloc_each)
/* REMOVE_UNUSED: on a writable `ctl`, by root or the mounting user: removes the store, under its
 * present name. ENOTEMPTY: a layout is sealed in it, or one was ever committed; EBUSY: it has a
 * session or a waiter, or another file is its `ctl`; ESTALE: it is gone. Never waits. */
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
    GMSFS_FDS_UNMOUNT = 2, /* root or the daemon's uid: unmount if no file of it is open */
    /* These three, for root or the daemon's uid, drain the mount; gmsfs(5) explains draining. */
    GMSFS_FDS_DRAIN = 3,     /* grant no more sessions (batch 1: and revoke the present ones), until
                              * this connection ends, or for good once DRAIN_END has answered 0.
                              * EBUSY: another connection drains, or the mount is fenced */
    GMSFS_FDS_DRAIN_END = 4, /* drop all committed bytes. EBUSY: `remaining` sessions are left;
                              * EAGAIN: `remaining` bytes are; ECANCELED: the mount serves again */
    GMSFS_FDS_SERVE = 5,     /* undo DRAIN */
    /* Declares the bytes of the store with the id in `ticket` undamaged: for root, the daemon's uid
     * and the store's owner; zeros: of all stores, not for the owner. ENOENT, EPERM; ENODEV: the
     * device is lost */
    GMSFS_FDS_CLEAR_SUSPECT = 6,
    /* The fence of a checkpoint (gmsfs(5)), for users with write permission on the stores `weights`
     * and `kv_cache`, else EACCES. All four answer struct gmsfs_fds_fence. */
    GMSFS_FDS_FENCE =
        7, /* raise it; if it is up, answer the same again. EBUSY, EINVAL: see `obstacle`; ENOENT:
            * there are no weights; ENODEV: the mount is drained */
    GMSFS_FDS_FENCE_ABORT = 8,    /* `ticket` is its token: lower it without a checkpoint. EINVAL:
                                   * another token; ESTALE: the fence of this token is over */
    GMSFS_FDS_FENCE_COMPLETE = 9, /* the same, after the checkpoint was restored */
    GMSFS_FDS_FENCE_STATUS = 10,  /* only report. EACCES: all but the token is answered */
    /* Regions (gmsfs(5)), for their owner and for root. All four take struct
     * gmsfs_fds_region_request and answer struct gmsfs_fds_region_answer. */
    GMSFS_FDS_REGION_REGISTER =
        11, /* with the descriptor of a SYSTEM region, unless its key is STORE/ALLOCATION */
    GMSFS_FDS_REGION_UNREGISTER = 12,     /* by owner, kind and name. ENOENT */
    GMSFS_FDS_REGION_UNREGISTER_ALL = 13, /* by owner and kind */
    GMSFS_FDS_REGION_LIST =
        14, /* by owner and kind, in order of names, from the first after `name`; flags
             * GMSFS_REGION_LIST_ONE: only the region of this name. ENOENT */
    /* The drain of the store with the id in `ticket`, for its owner, root and the daemon's uid.
     * EPERM; ENOENT */
    GMSFS_FDS_STORE_DRAIN =
        15, /* grant no lock: requests wait, until STORE_SERVE or the end of this connection. batch:
             * milliseconds until the deadline by which holders have to leave, which `info` and
             * `events` show; 0: no deadline. Sent again: changes the deadline. EBUSY: another
             * connection drains it, or this one drains another store */
    GMSFS_FDS_STORE_HOLDERS = 16, /* 0: no session holds the store that this connection drains.
                                   * EBUSY: `remaining` sessions do; batch 1: and they are revoked.
                                   * ECANCELED: its drain is over; ENOENT: its store is gone */
    GMSFS_FDS_STORE_SERVE = 17,   /* end the drain, also that of another connection */
    /* For root and the daemon's uid, EPERM; answered by the keeper, with a line of text behind the
     * header. EBUSY: another upgrade runs, or the mount ends */
    GMSFS_FDS_UPGRADE = 18, /* replace the worker by the program installed now */
    GMSFS_FDS_TAKEOVER =
        19, /* the connection becomes that of two keepers, and this keeper stays in charge */
    /* DRAIN and STORE_DRAIN answer struct gmsfs_fds_drain. If the connection breaks, the drain
     * continues for GMSFS_FDS_DRAIN_MS, so that its process can connect again and show its token. A
     * process that has no answer yet sends the same request again, and gets the answer to the
     * first; if the daemon cannot see the process, it is EBUSY during that time. */
    GMSFS_FDS_DRAIN_RESUME =
        20, /* `ticket` is the token: this connection takes the drain over. ECANCELED: it is over;
             * EPERM: it belongs to another process; EBUSY: it belongs to another connection */
    /* For root and the daemon's uid, EPERM: this connection governs the mount until it ends; 0 also
     * if it governs already. EBUSY: another connection governs, and `remaining` is the pid of its
     * process as the daemon sees it; 0: the daemon cannot see it. The connection ends with the
     * worker, and the next worker has no governor until a connection asks. */
    GMSFS_FDS_GOVERN = 21,
    /* For root and the daemon's uid, EPERM: how much the worker logs from now on. batch: 1 error, 2
     * warning, 3 info, 4 debug; 0: only tell. `remaining` is the level that is in force then. */
    GMSFS_FDS_LOG = 22,
};

struct gmsfs_fds_request {
    uint32_t version; /* GMSFS_ABI_VERSION */
    uint32_t op;      /* enum gmsfs_fds_op */
    uint32_t batch;   /* REDEEM: descriptors wanted per message, 1..GMSFS_BATCH_MAX */
    uint32_t pad;
    uint8_t ticket[16]; /* REDEEM; CLEAR_SUSPECT, STORE_*: a store's id; FENCE_*: a token */
};

#define GMSFS_FDS_TAGS_MAX 4096u      /* bytes of tags in one message */
#define GMSFS_FDS_NO_TAG   UINT32_MAX /* as tag_at: left out for lack of room; LIST has it */

/* One message is a header, `count` items, and their tags, each with a NUL at its end; its
 * SCM_RIGHTS carry `count` descriptors in order. */
struct gmsfs_fds_header {
    uint32_t version;
    int32_t error;      /* 0 or a negative errno; then the transfer is over */
    uint32_t count;     /* items and descriptors in this message */
    uint32_t memory;    /* enum gmsfs_memory of the descriptors of this message */
    uint64_t remaining; /* descriptors still to come after this message; 0 ends the transfer */
};

struct gmsfs_fds_item {
    uint64_t rank;
    uint64_t slot;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    uint32_t tag_at; /* beginning of its tag among the tags; equal tags may share one */
    uint32_t pad;
};

/* Why a fence cannot be raised. */
enum gmsfs_fds_obstacle {
    GMSFS_FDS_OBSTACLE_NONE = 0,
    GMSFS_FDS_OBSTACLE_WEIGHTS_IN_USE = 1,
    GMSFS_FDS_OBSTACLE_KV_CACHE_IN_USE = 2,
    GMSFS_FDS_OBSTACLE_WEIGHTS_UNCOMMITTED = 3,
    GMSFS_FDS_OBSTACLE_KV_CACHE_COMMITTED = 4,
    GMSFS_FDS_OBSTACLE_WEIGHTS_EMPTY = 5,
    GMSFS_FDS_OBSTACLE_KV_CACHE_SEALED = 6,
};

/* One message: a header without items, then this, also when the header has an error. */
struct gmsfs_fds_fence {
    uint8_t token[16]; /* if it is up and the caller may know it; else zeros */
    uint32_t is_up;
    uint32_t obstacle; /* enum gmsfs_fds_obstacle */
    char why[96];      /* the same in words, as GMS words it */
};

/* Follows the header of the answer to DRAIN and STORE_DRAIN, also when the header has an error. */
struct gmsfs_fds_drain {
    uint8_t token[16]; /* zeros if it failed */
};

/* Applies after the daemon's worker was replaced: the end of a process ends its drains at once. */
#define GMSFS_FDS_DRAIN_MS 10000u

#define GMSFS_REGION_LIST_ONE (1u << 0)
#define GMSFS_REGION_LIST_MAX 16u /* in one answer */

struct gmsfs_fds_region_request {
    struct gmsfs_fds_request request; /* op REGION_* */
    uint32_t flags;                   /* LIST: GMSFS_REGION_LIST_ONE */
    uint32_t kind;                    /* enum gmsfs_region_kind */
    uint32_t uid;                     /* the owner; GMSFS_REGION_SELF */
    uint32_t gid; /* REGISTER for another owner: groups by which that owner may read stores */
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

/* One message: a header, then this, also when the header has an error; LIST: then `count` of struct
 * gmsfs_region_info, and the header's `remaining` is the number of regions that follow later. */
struct gmsfs_fds_region_answer {
    uint32_t reason; /* enum gmsfs_region_reason */
    uint32_t pad;
    uint64_t count; /* UNREGISTER_*: number of regions unregistered */
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
