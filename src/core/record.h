/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record - one change of the core's state (core.h), and its bytes
 *
 * Made by src/service; what it does is core_apply's, of which each type says here what it takes,
 * what comes of it and how it fails.
 */
#ifndef GMSFS_CORE_RECORD_H
#define GMSFS_CORE_RECORD_H

#include "core/event.h"
#include "meta/layout.h"

#include <stddef.h>
#include <stdint.h>

/* Of an encoded record: a change is another version. What was frozen of it (tests/data) says when.
 */
#define CORE_RECORD_VERSION 2u

enum record_type {
    /* Of stores: process and uid are who asks. But of CREATE, uid is also whose the store is to be,
     * and of ATTR, of which there is no event, only that. */
    RECORD_STORE_CREATE = 1, /* name, bytes16 = uuid, uid, gid, mode → out.id */
    RECORD_STORE_REMOVE,     /* store. -EBUSY while it has sessions or waiters; open files
                                outside of sessions then answer -ESTALE. flags CORE_REMOVE_UNUSED:
                                also while other files than `file` are its ctl; -ENOTEMPTY where
                                a layout is sealed, or one was ever committed */
    RECORD_STORE_RENAME, /* store, name, flags = RENAME_NOREPLACE|RENAME_EXCHANGE (as renameat2) */
    RECORD_STORE_ATTR,   /* store, flags: CORE_ATTR_*, uid, gid, mode */
    RECORD_FILE_OPEN,    /* store (0: top), kind, serial, flags, process, uid, session (0 or one to
                            join) → out.file. Takes no lock. */
    RECORD_FILE_CLOSE,   /* file: the last RELEASE. Ends its session if it was the last file, or
                            (an exclusive one) the one that took it. flags CORE_CLOSE_LINGER: such a
                            session is only `ending`, for its transfers run still */
    RECORD_LOCK_OPEN,   /* store, kind LOCK|AUTO|DATA|ALLOCATION, serial, flags, wish, process, uid,
                           comm, bytes16 = token, deadline_ms → out.file + out.session, or
                           out.waiter. -EAGAIN if it may not wait (NONBLOCK, ALLOCATION without
                           GRACE; or the deadline has come). -EDEADLK if it would wait and the
                           process is itself a member (without GRACE or LEAVING), or wishes RW of
                           a session it reads in. ALLOCATION: serial 0 is one yet to be made
                           (then FILE_BIND); -ENOENT one that is not there. A kept place of the
                           same process for the same store, kind, serial and wish is resumed. At
                           its deadline: GRACE -EAGAIN, else -ETIMEDOUT and the place is kept.
                         */
    RECORD_ACQUIRE,     /* file (ctl), wish, process, comm, bytes16, deadline_ms (now: try once) →
                           out.session or out.waiter. -EDEADLK if the file has a live session,
                           -EBUSY if it waits already, -EBADF if its direction does not fit the
                           wish, -EAGAIN if the deadline has come. A kept place of this file and wish
                           is resumed. At its deadline: -ETIMEDOUT; flags CORE_OPEN_AGAIN: the
                           place is kept, and holds others off meanwhile. size_bytes: to be set
                           aside with a grant of RW (see RESERVATIONS); if it may not wait and only
                           memory is lacking, -ENOMEM, or -EDQUOT of its pool, also where that could
                           never have as much. -EINVAL with RO. See SEALED LAYOUTS */
    RECORD_JOIN,        /* file (ctl), bytes16 = token → out.session, mode. -ESTALE no such token
                           (of this store), -EDEADLK, -EBUSY as ACQUIRE, -EBADF RW needs a writable
                           file */
    RECORD_DETACH,      /* file (ctl): leaves its session (RELEASE ioctl). Ends it if it was the
                           last file or an exclusive session's acquiring one. -ENOLCK, -ESTALE */
    RECORD_WAIT_END,    /* waiter, count = errno to answer with; flags CORE_WAIT_KEEP keeps the
                           place for a second (EINTR, ETIMEDOUT by the kernel's bound). A kept
                           place has nobody to answer: without KEEP it is forgotten. -ENOENT. flags
                           CORE_WAIT_REVOKED: an event; process and uid are who asked for it */
    RECORD_SESSION_END, /* session, flags CORE_END_REVOKED (process and uid are who asked for it); a
                           writer aborts. out.rolled_back. CORE_END_LINGER: it is only `ending`,
                           for its transfers run still; that it is revoked is told now, once */
    RECORD_TIME,        /* expires deadlines (effects REFUSED), kept places, tickets; grants what
                           patience held back */
    RECORD_COMMIT,      /* session, flags CORE_COMMIT_STAY|GROUP, bytes16 = group →
                           out.generation. -EINVAL with last_error set (this alone changes). flags
                           CORE_COMMIT_CHECK: no more than that; what is still spooled passes, for
                           a commit ends the spools before. flags CORE_COMMIT_SEAL: the layout is
                           sealed instead, and the session goes on with RW_DATA; -EOPNOTSUPP where
                           who could write it cannot be seen; not with STAY */
    RECORD_ALLOC_ADD, /* session, name (or empty), tag, count (≥ 1), and, if memory_count == count,
                         memories, size_bytes, aligned_bytes → out.serial/slot/rank of the first.
                         offset: so much was being made for it (RESERVE), and is no longer; slot: of
                         that, so much was drawn.
                         name's trailing digits count up when count > 1 (slots and serials are
                         consecutive; -EINVAL without digits). value (or empty): its wire id, then
                         count must be 1; -EEXIST: another allocation of the layout has it */
    RECORD_ALLOC_MEMORY, /* session, serial, memory (0: takes away), size, aligned, flags: SPOOL.
                            A spool may grow, end, or be replaced; other memory: -EBUSY.
                            offset, slot: as ALLOC_ADD */
    RECORD_ALLOC_REMOVE, /* session, serial */
    RECORD_ALLOC_RENAME, /* session, serial, name, flags NOREPLACE; replaces an existing name */
    RECORD_ALLOC_TAG,    /* session, serial, tag */
    RECORD_CLEAR,        /* session */
    RECORD_TOUCH,        /* session: committed bytes may have changed */
    RECORD_GIVE_UP,   /* session: the committed layout is given up to make room (implies TOUCH) */
    RECORD_ENTRY_PUT, /* session, key = name, offset, value, slot */
    RECORD_ENTRY_PUT_MANY, /* session, puts (their serials are ignored), or the same as msgpack
                              rows in value (record_rows_*): unknown slots skipped → out.count: how
                              many were not. Fails as a whole; out.count is then the row at fault
                              (the number of rows: none in particular) */
    RECORD_ENTRY_DELETE,   /* session, key = name */
    RECORD_ENTRY_RENAME,   /* session, serial, key = name (replaces) */
    RECORD_FILE_BIND,      /* file (ALLOCATION, opened with serial 0), serial: what it created */
    RECORD_TICKET_ADD,     /* file (its session), first = offset, count (0: all from first), serial,
                              uid, bytes16 = secret, flags CORE_TICKET_WRITABLE → out.ticket.
                              A writable one of committed memory touches; it needs a writable file
                              (-EBADF) in an RW session (-ENOLCK). -EINVAL: range, no memory. Of
                              a file that holds a region on an object: its descriptor; -ENODATA: it
                              has none */
    RECORD_TICKET_USE, /* bytes16, uid → out.ticket. -ESTALE unknown, expired; -EACCES other uid */
    RECORD_OUT_OF_MEMORY, /* session: only an event */
    RECORD_RESERVE, /* session (RW), size_bytes = what is set aside for it from now on, count =
                       what is due to it, offset = what is charged and being made for it, slot = how
                       much of that was drawn from what was set aside. More than before: -ENOMEM if
                       free_bytes lacks it, -EDQUOT if its pool does. flags
                       CORE_RESERVE_AS_ACQUIRE: decided as an ACQUIRE that may not wait, and count
                       is ignored: -EAGAIN too. With it CORE_RESERVE_REPLACING: what is committed
                       is due first, and only the rest is set aside of what is free */
    RECORD_DRAIN,   /* flags CORE_DRAIN_ON: from now on no session is granted (-ENODEV), whoever
                       waits is refused (-ECANCELED). -EBUSY behind a fence, whose checkpoint
                       needs what would be dropped. CORE_DRAIN_DROP: what is committed is
                       dropped in every store; -EBUSY while there are sessions, -EINVAL unless
                       draining. CORE_DRAIN_OVER, likewise: its drainer has come to its end,
                       and it stays drained, whoever goes. 0: serves again. ON: bytes16 =
                       token, process and uid are the drainer's; again: another drainer */
    RECORD_HEALTH,  /* flags CORE_NOTE_*, name = why. SUSPECT: all memory that there is may
                       be damaged; a store is suspect as long as it holds some of that, and grants
                       no RO (-EIO). LOST: whoever waits is refused and no session is granted
                       (-ENODEV) from now on; a store without sessions is emptied. TRUST:
                       store (0: all) is suspect no more; -ENOENT, -ENODEV when lost */
    RECORD_GATHER,  /* file, size_bytes: so much is gathered for it from now on. -EBADF, -EDQUOT,
                       -ENOMEM: more than before, and beyond the bound */
    RECORD_BOUND, /* store (or 0), uid, name = which bound, flags CORE_BOUND_SHARE: only an event */
    RECORD_LEND,  /* session (of a writer), process: it is handed a writable descriptor of the
                     store's memory → out.count: 1 if it was not known before. -ENOSPC; with RW_DATA
                     -EOPNOTSUPP a process that cannot be seen (pid 0) */
    RECORD_EXIT,  /* process: it has exited, and writes no more */
    RECORD_FENCE, /* flags CORE_FENCE_ON, name = of a store, tag = another name (or empty), of which
                     there need be no store, bytes16 = token: the stores are for nobody until it is
                     resolved: -ENODEV, also for who waits to read; and until then these names are
                     no other store's, nor given up: -EBUSY. -EBUSY: one is not idle, or a fence is
                     there. -ENOENT. -EINVAL, -EPERM: no names of stores, or the same. flags
                     CORE_FENCE_ABORT or _COMPLETE, bytes16: resolves it; -EINVAL: another token is
                     prepared; -ESTALE: none is, unless it was resolved last by this token in this
                     way */
    RECORD_REGION_REGISTER, /* uid = its owner, kind, name, tag = key, offset, size_bytes → out.id.
                               Of an object: memory, flags CORE_REGION_WRITABLE; of an allocation:
                               file, a ctl whose session reads, and serial; of CUDA: value = the
                               handle, count = the device. -EEXIST: the name is taken; -ENODEV:
                               drained; -ERANGE: the allocation ends before; -ENOENT: it has no
                               memory */
    RECORD_REGION_UNREGISTER, /* uid, kind (0: any), name, or flags CORE_REGION_ALL → out.count.
                                 What is referred to drains. -ENOENT */
    RECORD_REGION_REFER,   /* file (REGION): it holds a reference from now on, and joins the session
                              of the region's ctl → out.id. -ESTALE: the region is gone */
    RECORD_REGION_RELEASE, /* file: no longer, as with its end. -ENOLCK: it holds none; -ESTALE */
    RECORD_STORE_DRAIN,    /* store, bytes16 = token, process, uid, deadline_ms (wall clock; 0:
                              none): nobody is let in from now on, whoever asks waits. Again: another
                              deadline and drainer. -ENOENT */
    RECORD_STORE_SERVE,    /* store: lets in again, first who waits. -ENOENT */
    RECORD_POOL_SET,   /* name; flags CORE_POOL_*: which of min (offset), max (size_bytes), slots
                          (count), class (kind) and sm (mode) it says; a pool that is not there is
                          made → out.id. CORE_POOL_REMOVE alone: it goes; -EBUSY: a store is in it,
                          or it is `default`; -ENOENT. -ENOSPC: there are CORE_MAX_POOLS. -EINVAL:
                          no name, or no budget */
    RECORD_STORE_POOL, /* store, name: it is in that pool from now on. -EDQUOT: which has no room
                          for what it uses; -ENOENT */
    RECORD_STORE_PIN,  /* store, flags CORE_PIN_ON or 0. -ENOENT */
    RECORD_OVER_QUOTA, /* store, name = of the pool, process, uid: only an event */
    RECORD_MOVE_BEGIN, /* store, kind = the tier (enum core_place), flags CORE_MOVE_SPARE → out.id:
                          a move under way, which MOVE_END or MOVE_FAIL ends; 0: there was nothing
                          to copy, it is done. NONE: gives all copies up. -EBUSY: another move, a
                          writer, or (to a slower place) a holder; fenced. -ENODATA: nothing is
                          committed, or no copy is left. -EIO: it would be copied from suspect
                          memory. -ENODEV: of or to a device that is lost. -EAGAIN: to the device,
                          and somebody's turn for its memory comes first. -ENOENT.
                          CORE_MOVE_EVICT: it leaves the device for the store `count`, which is told
                          when it has left; -EBUSY: it is
                          pinned, or of a more important class than that.
                          CORE_MOVE_LOOK: to a slower place where a spare is, that is looked at
                          first, so it is a move under way. That heals a suspect store, which
                          waits for it (core_wants_heal) */
    RECORD_MOVE_END,   /* store, count = the move, memories by rank, flags CORE_MOVE_KEEP: what was
                          the place becomes a spare. None: the spare was looked at, and is well.
                          -ESTALE: it is over already; -EINVAL */
    RECORD_MOVE_FAIL, /* store, count = the move, or 0: of one that could not begin; offset = errno;
                         flags CORE_MOVE_REFUSE: who waits for it is refused with that;
                         CORE_MOVE_QUIET: no event tells it again. -ESTALE */
    RECORD_MOVE_CANCEL, /* store. -ENODATA: none is under way; -EBUSY: somebody waits for it,
                           or it heals a suspect store, and would begin again */
    RECORD_COPY_DROP,   /* store, kind: the spare in that tier; offset = errno of who could not read
                           it, or 0. -ENODATA: there is none; -EBUSY: a
                           writer, a move, or a reader that was let in wherever the store is */
    RECORD_RESUME,      /* a new worker goes on with this state: see RESUMING. flags
                           CORE_RESUME_END: all who could come back have; grants as TIME. With a
                           name, the cause, and count, the microseconds since the last worker's
                           end, that is an event, too: -EINVAL where nothing was resumed */
    RECORD_TIMES,       /* session, kind ALLOCATION: serial, or 0: of their directory; offset and
                           size_bytes = when it was read and changed (LAYOUT_NO_TIME: not set), as
                           two's complement. Kind ENTRY: only the store's own time. -ENOENT */
    RECORD_TYPE_COUNT,
};

#define CORE_MOVE_SPARE  (1u << 0)
#define CORE_MOVE_EVICT  (1u << 1)
#define CORE_MOVE_LOOK   (1u << 2)
#define CORE_MOVE_KEEP   (1u << 0)
#define CORE_MOVE_REFUSE (1u << 0)
#define CORE_MOVE_QUIET  (1u << 1)

#define CORE_ATTR_MODE          (1u << 0)
#define CORE_ATTR_UID           (1u << 1)
#define CORE_ATTR_GID           (1u << 2)
#define CORE_WAIT_KEEP          (1u << 0)
#define CORE_WAIT_REVOKED       (1u << 1)
#define CORE_REMOVE_UNUSED      (1u << 0)
#define CORE_CLOSE_LINGER       (1u << 0)
#define CORE_END_REVOKED        (1u << 0)
#define CORE_END_LINGER         (1u << 1)
#define CORE_COMMIT_STAY        (1u << 0) /* values equal GMSFS_COMMIT_* */
#define CORE_COMMIT_GROUP       (1u << 1)
#define CORE_COMMIT_CHECK       (1u << 2)
#define CORE_COMMIT_SEAL        (1u << 3)
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
    uint64_t free_bytes; /* of the device: neither in use nor set aside */
    uint64_t store, file, session, waiter, serial, slot;
    uint64_t count, offset, size_bytes, aligned_bytes, memory, deadline_ms;
    uint32_t flags, kind, wish, uid, gid, mode;
    struct core_process process;
    uint8_t bytes16[16];
    char comm[CORE_COMM_BYTES];
    const char *name; /* or key */
    size_t name_bytes;
    const char *tag;
    size_t tag_bytes;
    const uint8_t *value;
    size_t value_bytes;
    const uint64_t *memories;
    size_t memory_count;
    /* Instead of value, spares writing and reading it: record_pack writes them as that. */
    const struct layout_put *puts;
    size_t put_count;
    /* COMMIT: spares computing it, if it is of the layout that is to be committed; else nothing.
     * Not part of the record: the outcome is the same without it. */
    const struct core_commit *commit;
};

/* A record as bytes (msgpack), written at `at`; returns their end. */
uint8_t *record_pack(uint8_t *at, const struct record *record);
/* Upper bound of the bytes that record_pack writes. */
size_t record_most_bytes(const struct record *record);
/* And back: the decoded record borrows from `bytes` and `arena` (freed by record_decode_free).
 * -EINVAL; -EPROTONOSUPPORT: a version or a type that is not known; -ENOMEM */
struct record_arena;
int record_decode(const void *bytes, size_t size, struct record *record,
                  struct record_arena **arena);
void record_decode_free(struct record_arena *arena);
const char *record_type_name(enum record_type type);
/* Rows for RECORD_ENTRY_PUT_MANY: builds `value` from puts (key, slot, offset, value). */
int record_rows_encode(const struct layout_put *puts, size_t count, uint8_t **bytes, size_t *size);

#endif
