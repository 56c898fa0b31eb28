/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal - what a worker has done, in memory that outlives it
 *
 * A transaction is what one step of the worker records and answers. Entries are added to it, and
 * none of them counts before journal_publish, which is one store: after a crash a transaction is
 * there whole or not at all. A snapshot stands for all transactions before a certain one, so that
 * they can be forgotten. What an entry or a snapshot says is the caller's affair.
 *
 * The memory is files without names (memfd), which the keeper makes and holds; only workers look
 * into them, one at a time. Transactions go to one of two files: with the beginning of a snapshot
 * to the other one, and when the snapshot is whole the first is emptied. The snapshot is written by
 * another process (journal_write_snapshot), or by this one.
 *
 * Every transaction and snapshot has a length, a number and a checksum, and the files a version:
 * what does not fit is refused, never read. One thread.
 */
#ifndef GMSFS_JOURNAL_JOURNAL_H
#define GMSFS_JOURNAL_JOURNAL_H

#include "base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define JOURNAL_VERSION 1u
/* Of a file of transactions, which may have less: bytes of address space, not of memory. */
#define JOURNAL_MAX_BYTES (UINT64_C(8) << 30)
/* Beyond so many bytes of transactions it is time for the first snapshot. */
#define JOURNAL_SNAPSHOT_BYTES (UINT64_C(16) << 20)

/* Descriptors; -1: none. */
struct journal_files {
    int head, transactions[2], snapshots[2];
};

/* Empty ones. 0 or a negative errno */
int journal_make_files(struct journal_files *files);
void journal_close_files(struct journal_files *files);

struct journal; /* opaque */

/* Maps the files, which stay the caller's and have to stay open, and gives back memory of theirs
 * that nobody needs: no other process has them open. -EPROTO, -EPROTONOSUPPORT: they
 * are damaged, or of another version, as `failure` says; -ENOMEM. */
int journal_open(const struct journal_files *files, struct journal **journal,
                 struct failure *failure);
void journal_close(struct journal *journal);

/* ---- what was there ---------------------------------------------------------------------- */

struct journal_entry {
    uint32_t type;
    const void *bytes; /* aligned to 8; into the file */
    size_t size;
    bool is_delivered; /* journal_set_delivered came after its transaction */
};

/* Nothing was ever published. */
bool journal_is_new(const struct journal *journal);
/* The last whole snapshot; NULL: there is none, and the transactions begin with the first one. */
const void *journal_get_snapshot(const struct journal *journal, size_t *size);
/* Every entry of the transactions since the snapshot, in order, as long as on_entry returns 0.
 * -EPROTO: the journal is damaged; else what on_entry returned. */
int journal_read(const struct journal *journal,
                 int (*on_entry)(void *context, const struct journal_entry *entry), void *context,
                 struct failure *failure);

/* ---- writing ----------------------------------------------------------------------------- */

/* So many bytes of entries can be added without failing. -ENOMEM: the machine, or the file, has no
 * room: do not do what could not be recorded. Some is kept in hand for those that are small
 * (JOURNAL_SMALL_BYTES), which so fail last: ends of sessions must not. */
#define JOURNAL_SMALL_BYTES 8192u
int journal_reserve(struct journal *journal, size_t bytes);
/* The same, and behind them `beside` bytes, which journal_has_room then tells of: for what has to
 * follow if these are added. */
int journal_reserve_with(struct journal *journal, size_t bytes, size_t beside);
bool journal_has_room(const struct journal *journal, size_t bytes);
/* With so many bytes of transactions since the last snapshot what is not small is refused as well,
 * until there is another one: else who is faster than a snapshot, or goes on where none can be
 * made, would fill the machine. At most half a file; before this is called there is none. */
void journal_set_bound(struct journal *journal, uint64_t bytes);
bool journal_is_at_bound(const struct journal *journal);
/* What an entry of so many bytes takes of that. */
size_t journal_entry_room(size_t size);
/* To the transaction; the parts together are the entry's bytes. Room for them was reserved. Returns
 * the bytes in the file, which stay until the next snapshot ends. */
const void *journal_add(struct journal *journal, uint32_t type, const struct iovec *parts,
                        int count);
/* The same for an entry that its caller writes in place: its `size` bytes, of the room that was
 * reserved, are to be at the returned address when journal_end_entry adds it. */
uint8_t *journal_begin_entry(struct journal *journal);
void journal_end_entry(struct journal *journal, uint32_t type, size_t size);
/* The transaction as it is now, and back to that: what was added since is not there. */
size_t journal_get_mark(const struct journal *journal);
void journal_rewind(struct journal *journal, size_t mark);
/* Has the transaction entries? */
bool journal_has_transaction(const struct journal *journal);
/* The transaction counts, and the next one begins. Nothing happens if it has no entries. */
void journal_publish(struct journal *journal);
/* The answers of all that was published have left. */
void journal_set_delivered(struct journal *journal);

/* ---- snapshots --------------------------------------------------------------------------- */

/* So many bytes of transactions were written since the last one, and none is under way. */
bool journal_wants_snapshot(const struct journal *journal, uint64_t bytes);
/* The snapshot will stand for all that was published so far; the transaction has no entries. */
void journal_begin_snapshot(struct journal *journal);
/* What was published since the beginning of the snapshot is no reason for the next one. */
void journal_count_from_here(struct journal *journal);
/* The descriptor that journal_write_snapshot needs, of all. */
int journal_get_snapshot_file(const struct journal *journal);
/* In any process that inherited the journal, while others go on publishing. -ENOMEM */
int journal_write_snapshot(struct journal *journal, const void *bytes, size_t size);
/* In the worker: it was written whole, or not. 0; -EPROTO: it is not whole, and forgotten. */
int journal_end_snapshot(struct journal *journal);
void journal_abandon_snapshot(struct journal *journal);

/* Gives back the memory that the files have beyond what is in use and kept in hand: for times in
 * which little is written. */
void journal_trim(struct journal *journal);

/* ---- beside transactions ----------------------------------------------------------------- */

/* Of the caller, who changes them as he likes: they outlive him, and are zero at first. */
#define JOURNAL_OWN_BYTES 1024u
void *journal_get_own(const struct journal *journal);

struct journal_numbers {
    uint64_t bytes; /* of transactions since the snapshot */
    uint64_t snapshots, snapshot_bytes;
};
struct journal_numbers journal_get_numbers(const struct journal *journal);

#endif
