/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout - the ordered allocations and sorted metadata entries of a store
 *
 * Pure: no I/O, no clock, no descriptors: memory is a number, and the caller counts references to
 * it. Serials are the caller's increasing numbers for files, never used twice. Slots are the
 * layout's own: next_slot counts up, a freed slot leaves a gap, rank is the index in slot order.
 * Entries are immutable, shared between clones by reference count, and bound to a slot or to
 * LAYOUT_UNBOUND. All functions return 0 (or a count) or a negative errno and change nothing when
 * they fail.
 *
 * Threads: any number of threads may read a layout at a time, or one may change it; all functions
 * with a const layout only read, including layout_clone. A layout and its clones are independent
 * although they share memory: each may be read, changed and freed on a thread of its own.
 * layout_ref adds a holder, on any thread; a layout with more than one holder may not be changed
 * (asserted), and the last holder's layout_free frees it.
 */
#ifndef GMSFS_META_LAYOUT_H
#define GMSFS_META_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_UNBOUND           UINT64_MAX
#define LAYOUT_MAX_ALLOCATIONS   65536u       /* ENOSPC */
#define LAYOUT_MAX_ENTRIES       1048576u     /* ENOSPC */
#define LAYOUT_MAX_ENTRY_BYTES   (1ull << 30) /* keys and values together; ENOSPC */
#define LAYOUT_MAX_VALUE_BYTES   (1u << 20)   /* EINVAL */
#define LAYOUT_MAX_TAG_BYTES     255u
#define LAYOUT_MAX_WIRE_ID_BYTES 255u
#define LAYOUT_NO_MEMORY         0ull

#define LAYOUT_NO_TIME INT64_MIN

/* Times set by a writer, in nanoseconds since 1970; LAYOUT_NO_TIME if not set. */
struct layout_times {
    int64_t access_ns, change_ns;
};

struct layout_allocation {
    uint64_t serial;
    uint64_t slot;
    uint64_t memory;        /* LAYOUT_NO_MEMORY before it has any, and after it was dropped */
    uint64_t size_bytes;    /* size that was asked for; of a spool: bytes written */
    uint64_t aligned_bytes; /* bytes of memory that it takes */
    uint64_t bound_entries;
    struct layout_times times;
    bool spool;    /* memory still grows with writes; not yet final */
    char *name;    /* file name in allocations/ */
    char *tag;     /* never NULL; UTF-8 */
    char *wire_id; /* id chosen by a client, UTF-8 and never empty; NULL if none */
};

struct layout_entry_block;

struct layout_entry {
    struct layout_entry_block *block; /* block of memory that it shares with entries put together */
    uint64_t serial;
    uint64_t slot; /* LAYOUT_UNBOUND or an existing allocation's slot */
    uint64_t offset;
    char *key; /* not terminated by contract; may hold NUL */
    uint8_t *value;
    uint32_t value_bytes;
    uint16_t key_bytes;
};

struct layout; /* opaque */

struct layout *layout_new(void);
/* Drops a holder; the last one frees the layout, on any thread: 1,048,576 entries take some 20
 * ms. */
void layout_free(struct layout *layout);
/* Sets the function that gives the pages of a large value back to the system before free(3) does so
 * while it holds malloc's lock (NULL: none does). Once, before other threads start. */
void layout_drop_pages_by(void (*drop)(void *at, size_t bytes));
/* Returns a copy that shares the entries: copies the allocations, and counts once per some hundred
 * entries. NULL if out of memory. */
struct layout *layout_clone(const struct layout *layout);
/* Returns the most bytes that a clone takes, including everything it shares at first except the
 * entries. */
uint64_t layout_clone_bytes(const struct layout *layout);
/* Adds a holder and returns the layout: for a job that reads it while its owner may drop it. To
 * change a shared layout, its holder clones it first. */
struct layout *layout_ref(struct layout *layout);
bool layout_is_shared(const struct layout *layout);

size_t layout_count_allocations(const struct layout *layout);
size_t layout_count_entries(const struct layout *layout);
uint64_t layout_entry_bytes(const struct layout *layout); /* bytes of keys and values */
uint64_t layout_total_bytes(const struct layout *layout); /* sum of aligned sizes */
uint64_t layout_text_bytes(const struct layout *layout);  /* names, tags, wire ids */
/* Counts the allocations with times, and the directory if it has times. */
size_t layout_count_times(const struct layout *layout);
uint64_t layout_next_slot(const struct layout *layout);
/* Returns a counter of changes that make known facts about an allocation wrong. Adding one does not
 * count, because it becomes the last. A clone continues its original's count. */
uint64_t layout_count_changes(const struct layout *layout);

/* Allocations. Pointers stay valid until the next change of the layout. */
const struct layout_allocation *layout_at_rank(const struct layout *layout, size_t rank);
const struct layout_allocation *layout_find_slot(const struct layout *layout, uint64_t slot,
                                                 size_t *rank);
/* Returns the rank of the first allocation at or above this slot; the number of allocations if
 * none. */
size_t layout_slot_lower_bound(const struct layout *layout, uint64_t slot);
const struct layout_allocation *layout_find_serial(const struct layout *layout, uint64_t serial);
const struct layout_allocation *layout_find_name(const struct layout *layout, const char *name);
const struct layout_allocation *layout_find_wire_id(const struct layout *layout,
                                                    const char *wire_id);
/* Adds an allocation. name NULL: aNNNNNN by slot (slots with a taken name are skipped). tag NULL:
 * none. The serial must be above those of all allocations here. -EEXIST -ENOSPC -ENAMETOOLONG
 * -EINVAL -ENOMEM */
int layout_add(struct layout *layout, uint64_t serial, const char *name, const char *tag,
               uint64_t *slot);
/* The same with a wire id, which never changes: unique in the layout (-EEXIST), and UTF-8 that is
 * not empty (-EINVAL). NULL: none. Not part of the encoding. */
int layout_add_with_wire_id(struct layout *layout, uint64_t serial, const char *name,
                            const char *tag, const char *wire_id, uint64_t *slot);
/* Removes an allocation and its bound entries, which it finds by walking all entries. -ENOENT; with
 * such entries -ENOMEM */
int layout_remove(struct layout *layout, uint64_t slot, size_t *entries_removed);
int layout_rename(struct layout *layout, uint64_t slot, const char *name); /* -EEXIST if taken */
int layout_set_tag(struct layout *layout, uint64_t slot,
                   const char *tag); /* -EINVAL not UTF-8/long */
/* Sets, changes or removes memory (LAYOUT_NO_MEMORY: sizes become 0, and it is no spool); entries
 * stay. -EINVAL if aligned_bytes is below size_bytes or the sum of all would overflow. */
int layout_set_memory(struct layout *layout, uint64_t slot, uint64_t memory, uint64_t size_bytes,
                      uint64_t aligned_bytes, bool spool);
/* Sets the times of an allocation, or (LAYOUT_UNBOUND) of the directory. Times are not part of the
 * encoding. An allocation loses its times when it gets its first memory or loses it; the directory
 * loses them when an allocation is added, removed or renamed. -ENOENT */
int layout_set_times(struct layout *layout, uint64_t slot, const struct layout_times *times);
struct layout_times layout_get_times(const struct layout *layout); /* of the directory */
bool layout_has_times(const struct layout_times *times);
/* Gives every allocation the memory of its rank; sizes stay. NULL: removes all memory, and the
 * sizes tell the memory that the bytes would need. Does not count as a change. */
void layout_replace_memories(struct layout *layout, const uint64_t *memories);
/* Gives a new layout the counters with which a writer that replaces `before` goes on. */
void layout_succeed(struct layout *fresh, const struct layout *before);
/* Marks a committed layout whose bytes never change again. Clones and copies are marked alike, the
 * encoding is not. The layout may be shared: its other holders do not read the mark. */
void layout_set_immutable(struct layout *layout);
bool layout_is_immutable(const struct layout *layout);

/* Entries, sorted bytewise by key. */
const struct layout_entry *layout_find_entry(const struct layout *layout, const void *key,
                                             size_t key_bytes);
const struct layout_entry *layout_find_entry_serial(const struct layout *layout, uint64_t serial);

/* Returns the number of entries with lower keys; and the entry with so many, NULL if there is none.
 * In time linear in a 256th of the entries. */
size_t layout_entry_rank(const struct layout *layout, const struct layout_entry *entry);
const struct layout_entry *layout_entry_at(const struct layout *layout, size_t rank);

struct layout_index;

/* Walks the entries in order of keys or of serials. Valid until the next change of the layout. */
struct layout_cursor {
    struct layout_entry *const *next, *const *end; /* in this chunk */
    const struct layout_index *index;
    size_t chunk;
};

void layout_cursor_first(struct layout_cursor *cursor, const struct layout *layout);
/* Moves to the first entry with a key not below this one, in order of keys. */
void layout_cursor_seek(struct layout_cursor *cursor, const struct layout *layout, const void *key,
                        size_t key_bytes);
/* Moves to the first entry with a serial not below this one, in order of serials: such a position
 * stays valid when entries are added and removed. */
void layout_cursor_seek_serial(struct layout_cursor *cursor, const struct layout *layout,
                               uint64_t serial);
const struct layout_entry *layout_cursor_cross(struct layout_cursor *cursor);
/* Returns the current entry and moves on; NULL at the end. */
static inline const struct layout_entry *layout_cursor_next(struct layout_cursor *cursor)
{
    return cursor->next != cursor->end ? *cursor->next++ : layout_cursor_cross(cursor);
}

struct layout_put {
    const void *key;
    size_t key_bytes;
    uint64_t slot; /* LAYOUT_UNBOUND, or the slot of an existing allocation (else -EINVAL) */
    uint64_t offset;
    const void *value;
    size_t value_bytes;
    uint64_t serial; /* used if the key is new; a replaced entry keeps its serial */
};

/* Puts one entry; checks key (name.h rules), value size and slot. Only layout_check checks the
 * offset. */
int layout_put(struct layout *layout, const struct layout_put *put);
/* Puts many entries: all or nothing; *culprit is the index of the bad put, or `count` if no single
 * put is bad (a bound of the whole, -ENOMEM). Sorts them unless they are sorted, and copies the
 * chunks of a few hundred entries that they fall into. The last put of a repeated key counts. With
 * skip_unknown_slots, puts of unknown slots are skipped. -EINVAL -ENAMETOOLONG -ENOSPC -ENOMEM; a
 * new key with a serial in use is -EINVAL. */
int layout_put_many(struct layout *layout, const struct layout_put *puts, size_t count,
                    bool skip_unknown_slots, size_t *culprit);
/* The same for the rows of a document: their serials count up from first_serial (> 0), their own
 * are ignored, and unknown slots are skipped; *known is the number of the others. */
int layout_put_rows(struct layout *layout, const struct layout_put *puts, size_t count,
                    uint64_t first_serial, size_t *known, size_t *culprit);
/* -ENOENT; -ENOMEM only if a clone shares the entry */
int layout_delete(struct layout *layout, const void *key, size_t key_bytes);

/* Restores a layout from values that may be damaged: first next_slot and the count of changes, then
 * its allocations by rank, then all its entries. -EINVAL for a state that no layout can have,
 * -ENOMEM; after an error the caller frees the layout. */
struct layout_restored {
    uint64_t serial;
    uint64_t slot;
    uint64_t memory;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    bool spool;
    const char *name, *tag, *wire_id;            /* not terminated */
    size_t name_bytes, tag_bytes, wire_id_bytes; /* wire_id_bytes 0 if none */
};

int layout_restore(uint64_t next_slot, uint64_t changes, struct layout **layout);
/* Adds an allocation above the last one by slot and serial; call before any entries. */
int layout_restore_allocation(struct layout *layout, const struct layout_restored *allocation);
/* Adds entries sorted by key, with their own serials, each once. *culprit: the index of the bad
 * entry, or `count`. */
int layout_restore_entries(struct layout *layout, const struct layout_put *puts, size_t count,
                           size_t *culprit);

/* Checks the conditions of a commit: every allocation has final memory and no temporary name, and
 * every bound entry's offset lies in [0, aligned_bytes): the mapped bytes, which GMS clients use to
 * the end. spools: accepts memory that is still being written. -EINVAL and a message that names the
 * object. */
int layout_check(const struct layout *layout, bool spools, char *message, size_t message_bytes);

/* Checks that the wire ids are valid, unique and indexed. -EINVAL */
int layout_check_wire_ids(const struct layout *layout);

/* Makes the canonical encoding (gmsfs(5)); the caller frees *bytes. 0 or -ENOMEM */
int layout_encode(const struct layout *layout, uint8_t **bytes, size_t *size);
/* Returns an upper bound of its bytes. */
size_t layout_encoding_bytes(const struct layout *layout);
/* Computes the XXH3-128 of an encoding, big-endian. */
void layout_hash(const void *bytes, size_t size, uint8_t hash[16]);
/* Computes the same of the encoding with each aligned size replaced by the size: the part of a
 * contents id (pieces.h) that is not bytes; the granularity has no part in it. Takes no memory for
 * the encoding. -ENOMEM */
int layout_contents_hash(const struct layout *layout, uint8_t hash[16]);

/* A decoded document row; pointers go into the document. */
struct layout_row {
    const char *key;
    size_t key_bytes;
    uint64_t rank; /* LAYOUT_UNBOUND for nil */
    uint64_t offset;
    const uint8_t *value;
    size_t value_bytes;
};

struct layout_document; /* a decoded `layout` or a bulk metadata document */
/* Decodes msgpack {"v":1, ("allocations":[…],)? "metadata":[…]}; strict: no unknown or repeated map
 * keys, no trailing bytes, str keys in UTF-8 that name_encode_key accepts, bin values, all sizes
 * within bounds. Accepts integers and lengths that are not in shortest form. *culprit: index of the
 * bad metadata row; UINT64_MAX if it is the document itself. The document borrows `bytes`. Without
 * "allocations" a rank may be any below LAYOUT_MAX_ALLOCATIONS; the caller handles repeated keys.
 * -EINVAL -ENAMETOOLONG (a key) -ENOSPC (a bound on the whole) -ENOMEM */
int layout_document_decode(const void *bytes, size_t size, struct layout_document **document,
                           uint64_t *culprit);
void layout_document_free(struct layout_document *document);
bool layout_document_has_allocations(const struct layout_document *document);
size_t layout_document_count_allocations(const struct layout_document *document);
void layout_document_allocation(const struct layout_document *document, size_t rank,
                                uint64_t *size_bytes, uint64_t *aligned_bytes, const char **tag,
                                size_t *tag_bytes);
size_t layout_document_count_rows(const struct layout_document *document);
void layout_document_row(const struct layout_document *document, size_t index,
                         struct layout_row *row);
/* As layout_contents_hash, for a document that has allocations and is canonical. -ENOMEM */
int layout_document_contents_hash(const struct layout_document *document, uint8_t hash[16]);
/* Returns the rows as puts, sorted by key; rows of one key keep their order, so that the last one
 * counts. Their slots are still ranks, and their serials are their index in the document. The
 * caller owns and frees them; the document has no rows afterwards. */
struct layout_put *layout_document_take_puts(struct layout_document *document, size_t *count);

#endif
