/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal - the records and replies of a worker, in memory that outlives it
 *
 * A transaction has the records and replies of one step of the worker. Entries are added to it, and
 * none of them counts before journal_publish, which is one store instruction: after a crash a
 * transaction is either complete or missing. A snapshot replaces all transactions before a certain
 * one, which are then dropped. The journal does not interpret entries and snapshots.
 *
 * The memory is in files without names (memfd), which the keeper makes and holds; only workers read
 * them, one worker at a time. Transactions go to one of two files: the beginning of a snapshot
 * switches to the other one, and its end empties the first. Another process or this one writes the
 * snapshot (journal_write_snapshot).
 *
 * Every transaction and snapshot has a length, a number and a checksum, and the files have a
 * version: a mismatch is refused, never read. One thread.
 */
#ifndef GMSFS_JOURNAL_JOURNAL_H
#define GMSFS_JOURNAL_JOURNAL_H

#include "base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define JOURNAL_VERSION 1u
/* Most bytes of a file of transactions: address space, not memory. */
#define JOURNAL_MAX_BYTES (UINT64_C(8) << 30)
/* Bytes of transactions that lead to the first snapshot. */
#define JOURNAL_SNAPSHOT_BYTES (UINT64_C(16) << 20)

/* Descriptors; -1 if none. */
struct journal_files {
    int head, transactions[2], snapshots[2];
};

/* Makes empty files. 0 or a negative errno */
int journal_make_files(struct journal_files *files);
void journal_close_files(struct journal_files *files);

struct journal; /* opaque */

/* Maps the files, which the caller owns and keeps open, and frees their unused memory: no other
 * process may have them open. -EPROTO: they are damaged; -EPROTONOSUPPORT: of another version;
 * `failure` gives the reason; -ENOMEM. */
int journal_open(const struct journal_files *files, struct journal **journal,
                 struct failure *failure);
void journal_close(struct journal *journal);

/* ---- reading ----------------------------------------------------------------------------- */

struct journal_entry {
    uint32_t type;
    const void *bytes; /* points into the file; aligned to 8 */
    size_t size;
    bool is_delivered; /* journal_set_delivered came after its transaction */
};

/* True if nothing was ever published. */
bool journal_is_new(const struct journal *journal);
/* Returns the last complete snapshot; NULL if there is none: then the transactions begin with the
 * first. */
const void *journal_get_snapshot(const struct journal *journal, size_t *size);
/* Passes every entry since the snapshot to on_entry, in order, while it returns 0. -EPROTO: the
 * journal is damaged; else the value of on_entry. */
int journal_read(const struct journal *journal,
                 int (*on_entry)(void *context, const struct journal_entry *entry), void *context,
                 struct failure *failure);

/* ---- writing ----------------------------------------------------------------------------- */

/* Makes room, so that `bytes` of entries can be added without failure. -ENOMEM: the machine or the
 * file has no room, and the caller must not act on it. A reserve is kept for small
 * entries (JOURNAL_SMALL_BYTES), so that these fail last: the end of a session must not fail. */
#define JOURNAL_SMALL_BYTES 8192u
int journal_reserve(struct journal *journal, size_t bytes);
/* The same, with `beside` more bytes for entries that have to follow; journal_has_room checks for
 * them. */
int journal_reserve_with(struct journal *journal, size_t bytes, size_t beside);
bool journal_has_room(const struct journal *journal, size_t bytes);
/* Sets the bytes of transactions since the last snapshot beyond which large entries are refused
 * until the next one: otherwise clients that are faster than a snapshot, or a failing snapshot,
 * would fill the machine's memory. At most half a file; no bound before the first call. */
void journal_set_bound(struct journal *journal, uint64_t bytes);
bool journal_is_at_bound(const struct journal *journal);
/* Returns the room that an entry of `size` bytes takes. */
size_t journal_entry_room(size_t size);
/* Adds an entry, made of all parts, to the transaction, in reserved room. Returns its bytes in the
 * file, valid until the next snapshot ends. */
const void *journal_add(struct journal *journal, uint32_t type, const struct iovec *parts,
                        int count);
/* The same for an entry written in place: the caller writes its `size` bytes, within the reserved
 * room, to the returned address, and journal_end_entry adds it. */
uint8_t *journal_begin_entry(struct journal *journal);
void journal_end_entry(struct journal *journal, uint32_t type, size_t size);
/* Returns a mark of the transaction; rewind drops the entries added since. */
size_t journal_get_mark(const struct journal *journal);
void journal_rewind(struct journal *journal, size_t mark);
/* True if the transaction has entries. */
bool journal_has_transaction(const struct journal *journal);
/* Makes the transaction valid and begins the next one. Does nothing without entries. */
void journal_publish(struct journal *journal);
/* Notes that the replies of everything published were sent. */
void journal_set_delivered(struct journal *journal);

/* ---- snapshots --------------------------------------------------------------------------- */

/* True if `bytes` of transactions were written since the last snapshot and none is in progress. */
bool journal_wants_snapshot(const struct journal *journal, uint64_t bytes);
/* Begins a snapshot that will replace everything published so far; the transaction must be
 * empty. */
void journal_begin_snapshot(struct journal *journal);
/* Counts the bytes that lead to the next snapshot from here on. */
void journal_count_from_here(struct journal *journal);
/* Returns the only descriptor that journal_write_snapshot needs. */
int journal_get_snapshot_file(const struct journal *journal);
/* Writes the snapshot, in any process that inherited the journal, while the worker keeps
 * publishing. -ENOMEM */
int journal_write_snapshot(struct journal *journal, const void *bytes, size_t size);
/* Ends the snapshot, in the worker. 0: journal_free_former should follow; -EPROTO: it is
 * incomplete, and is dropped. */
int journal_end_snapshot(struct journal *journal);
/* Counts the bytes that journal_free_former would free. */
uint64_t journal_count_former(const struct journal *journal);
/* Frees the memory of the former snapshot and its transactions. Any thread, for it may take long;
 * no snapshot may begin and no other memory be freed meanwhile. */
void journal_free_former(struct journal *journal);
void journal_abandon_snapshot(struct journal *journal);

/* Frees the files' memory beyond their use and the reserve; call while little is written. */
void journal_trim(struct journal *journal);

/* ---- other data -------------------------------------------------------------------------- */

/* Bytes for the caller's own use, zero at first, which also outlive the worker. */
#define JOURNAL_OWN_BYTES 1024u
void *journal_get_own(const struct journal *journal);
/* Bytes for numbers that count on over a worker's end, zero at first. */
#define JOURNAL_COUNTS_BYTES 2560u
void *journal_get_counts(const struct journal *journal);

struct journal_numbers {
    uint64_t bytes; /* bytes of transactions since the snapshot */
    uint64_t snapshots, snapshot_bytes;
};
struct journal_numbers journal_get_numbers(const struct journal *journal);

#endif
