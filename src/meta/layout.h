/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout - the ordered allocations and sorted metadata entries of a store
 *
 * Pure: no I/O, no clock, no descriptors: memory is a handle (a number) that the caller counts.
 * Serials are the caller's increasing numbers for files, never used twice. Slots are the layout's
 * own: next_slot counts up, a freed slot leaves a gap, rank is the index in slot order.
 * Entries are immutable, shared between clones by reference count, and bound to a slot or to
 * LAYOUT_UNBOUND. All functions return 0 (or a count) or a negative errno and change nothing when
 * they fail.
 *
 * Threads: a layout is read by any number of them at a time, or changed by one; all functions that
 * take it const only read, layout_clone among them. A layout and its clones are independent of each
 * other, whatever they share: each may be read, changed and freed on a thread of its own meanwhile.
 * A layout has as many holders as layout_ref has made it, on any threads; while they are more than
 * one nobody may change it (that is asserted), and it goes with the last one's layout_free.
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

/* As a writer has set them, in nanoseconds since 1970; LAYOUT_NO_TIME: not set. */
struct layout_times {
    int64_t access_ns, change_ns;
};

struct layout_allocation {
    uint64_t serial;
    uint64_t slot;
    uint64_t memory;        /* LAYOUT_NO_MEMORY until it has any, and when it was given up */
    uint64_t size_bytes;    /* what was asked for (a spool: what was written) */
    uint64_t aligned_bytes; /* what it costs */
    uint64_t bound_entries;
    struct layout_times times;
    bool spool;    /* memory still grows with writes; not yet final */
    char *name;    /* file name, as it stands in allocations/ */
    char *tag;     /* never NULL; UTF-8 */
    char *wire_id; /* what a client chose to know it by; NULL: it has none. UTF-8, never empty */
};

struct layout_entry_block;

struct layout_entry {
    struct layout_entry_block *block; /* that it lies in, with others that were put with it */
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
/* One holder less; the last one frees it, on any thread: 1,048,576 entries take some 20 ms. */
void layout_free(struct layout *layout);
/* Sets the function that gives the pages of a large value back to the system before free(3) does so
 * while it holds malloc's lock (NULL: none does). Once, before other threads start. */
void layout_drop_pages_by(void (*drop)(void *at, size_t bytes));
/* Another layout, which shares the entries: costs the allocations, and a count for some hundred
 * entries. NULL: no memory. */
struct layout *layout_clone(const struct layout *layout);
/* What a clone takes at most, with all that it shares at first but the entries. */
uint64_t layout_clone_bytes(const struct layout *layout);
/* The same layout, with one holder more: for a job that reads it while its owner may drop it. Who
 * holds a layout that is shared and wants to change it takes a clone. */
struct layout *layout_ref(struct layout *layout);
bool layout_is_shared(const struct layout *layout);

size_t layout_count_allocations(const struct layout *layout);
size_t layout_count_entries(const struct layout *layout);
uint64_t layout_entry_bytes(const struct layout *layout); /* keys + values */
uint64_t layout_total_bytes(const struct layout *layout); /* sum of aligned sizes */
uint64_t layout_text_bytes(const struct layout *layout);  /* names, tags, wire ids */
/* How many allocations have times; and one more if their directory has. */
size_t layout_count_times(const struct layout *layout);
uint64_t layout_next_slot(const struct layout *layout);
/* Goes up with whatever makes false what was told of an allocation: not when one is added, for that
 * becomes the last. A clone goes on counting from its original's. */
uint64_t layout_count_changes(const struct layout *layout);

/* Allocations. Pointers stay valid until the next change of the layout. */
const struct layout_allocation *layout_at_rank(const struct layout *layout, size_t rank);
const struct layout_allocation *layout_find_slot(const struct layout *layout, uint64_t slot,
                                                 size_t *rank);
/* The rank of the first allocation at or above this slot: their number if there is none. */
size_t layout_slot_lower_bound(const struct layout *layout, uint64_t slot);
const struct layout_allocation *layout_find_serial(const struct layout *layout, uint64_t serial);
const struct layout_allocation *layout_find_name(const struct layout *layout, const char *name);
const struct layout_allocation *layout_find_wire_id(const struct layout *layout,
                                                    const char *wire_id);
/* name NULL: aNNNNNN by slot (slots whose name is taken are skipped). tag NULL: none. The serial
 * must be above those of all allocations here. -EEXIST -ENOSPC -ENAMETOOLONG -EINVAL -ENOMEM */
int layout_add(struct layout *layout, uint64_t serial, const char *name, const char *tag,
               uint64_t *slot);
/* The same with a wire id, that it keeps: no other allocation here has it (-EEXIST), and it is as
 * struct layout_allocation says (-EINVAL). NULL: none. It is no part of the encoding. */
int layout_add_with_wire_id(struct layout *layout, uint64_t serial, const char *name,
                            const char *tag, const char *wire_id, uint64_t *slot);
/* And the entries bound to it, which are looked for among all. -ENOENT; with such entries -ENOMEM
 */
int layout_remove(struct layout *layout, uint64_t slot, size_t *entries_removed);
int layout_rename(struct layout *layout, uint64_t slot, const char *name); /* -EEXIST if taken */
int layout_set_tag(struct layout *layout, uint64_t slot,
                   const char *tag); /* -EINVAL not UTF-8/long */
/* Gives, changes or (LAYOUT_NO_MEMORY: sizes become 0, and it is no spool) takes away memory;
 * entries stay. -EINVAL if aligned_bytes is below size_bytes or the sum of all would overflow. */
int layout_set_memory(struct layout *layout, uint64_t slot, uint64_t memory, uint64_t size_bytes,
                      uint64_t aligned_bytes, bool spool);
/* Of an allocation, or (LAYOUT_UNBOUND) of their directory. Times are no part of the encoding. An
 * allocation that is given its first memory, or loses it, has none any more, nor has the directory
 * when an allocation comes, goes or is renamed. -ENOENT */
int layout_set_times(struct layout *layout, uint64_t slot, const struct layout_times *times);
struct layout_times layout_get_times(const struct layout *layout); /* of the directory */
bool layout_has_times(const struct layout_times *times);
/* Every allocation has the memory of its rank from now on, and the sizes that it had; NULL: none
 * has any, and the sizes are what they would need. What was told of an allocation stays true. */
void layout_replace_memories(struct layout *layout, const uint64_t *memories);
void layout_clear(struct layout *layout); /* everything goes; next_slot stays */

/* Entries, sorted bytewise by key. */
const struct layout_entry *layout_find_entry(const struct layout *layout, const void *key,
                                             size_t key_bytes);
const struct layout_entry *layout_find_entry_serial(const struct layout *layout, uint64_t serial);

struct layout_index;

/* Goes through the entries in an order, of keys or of serials. Valid until the next change of the
 * layout. */
struct layout_cursor {
    struct layout_entry *const *next, *const *end; /* in this chunk */
    const struct layout_index *index;
    size_t chunk;
};

void layout_cursor_first(struct layout_cursor *cursor, const struct layout *layout);
/* To the first entry whose key is not below this one, and on by keys. */
void layout_cursor_seek(struct layout_cursor *cursor, const struct layout *layout, const void *key,
                        size_t key_bytes);
/* To the first entry whose serial is not below this one, and on by serials: a position that means
 * the same whatever comes and goes. */
void layout_cursor_seek_serial(struct layout_cursor *cursor, const struct layout *layout,
                               uint64_t serial);
const struct layout_entry *layout_cursor_cross(struct layout_cursor *cursor);
/* The entry that it stands at, and it moves on. NULL: there is none any more. */
static inline const struct layout_entry *layout_cursor_next(struct layout_cursor *cursor)
{
    return cursor->next != cursor->end ? *cursor->next++ : layout_cursor_cross(cursor);
}

struct layout_put {
    const void *key;
    size_t key_bytes;
    uint64_t slot; /* LAYOUT_UNBOUND, or of an existing allocation (else -EINVAL) */
    uint64_t offset;
    const void *value;
    size_t value_bytes;
    uint64_t serial; /* used if the key is new; a replaced entry keeps its serial */
};

/* Checks key (name.h rules), value size and slot; offset is checked by layout_check only. */
int layout_put(struct layout *layout, const struct layout_put *put);
/* Many at once: all or nothing; *culprit is the index at fault, or `count` where no single put is
 * (a bound of the whole, -ENOMEM). Costs their sorting, but for what is in order, and the chunks
 * of a few hundred entries that they fall into. Within `puts`, of a repeated key the last counts.
 * Puts whose slot does not exist are skipped if skip_unknown_slots. -EINVAL -ENAMETOOLONG -ENOSPC
 * -ENOMEM; a new key's serial that an entry has already is -EINVAL. */
int layout_put_many(struct layout *layout, const struct layout_put *puts, size_t count,
                    bool skip_unknown_slots, size_t *culprit);
/* The same for puts that are the rows of a document: their serials count up from first_serial (>
 * 0), whatever they say themselves, and unknown slots are skipped: *known is how many are not. */
int layout_put_rows(struct layout *layout, const struct layout_put *puts, size_t count,
                    uint64_t first_serial, size_t *known, size_t *culprit);
/* -ENOENT; -ENOMEM, but only where a clone shares the entry */
int layout_delete(struct layout *layout, const void *key, size_t key_bytes);

/*
 * A layout exactly as it was, from what may be damaged: next_slot and the count of changes, its
 * allocations by rank, then its entries, all at once. What no layout could have is -EINVAL, and
 * what lacks memory -ENOMEM; the caller frees the layout then.
 */
struct layout_restored {
    uint64_t serial;
    uint64_t slot;
    uint64_t memory;
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    bool spool;
    const char *name, *tag, *wire_id;            /* not terminated */
    size_t name_bytes, tag_bytes, wire_id_bytes; /* wire_id_bytes 0: it has none */
};

int layout_restore(uint64_t next_slot, uint64_t changes, struct layout **layout);
/* Each above the one before it, by slot and by serial; before any entries. */
int layout_restore_allocation(struct layout *layout, const struct layout_restored *allocation);
/* In order of their keys, under the serials that they say, each once. *culprit: the index of the
 * entry at fault, or `count`. */
int layout_restore_entries(struct layout *layout, const struct layout_put *puts, size_t count,
                           size_t *culprit);

/* What commit demands: every allocation has final memory and no temporary name, every bound entry's
 * offset lies inside [0, aligned_bytes): what is mapped, which GMS clients use up to its end.
 * spools: memory that is still being written will do. -EINVAL and a message naming the culprit. */
int layout_check(const struct layout *layout, bool spools, char *message, size_t message_bytes);

/* Whether the wire ids are each as they must be, unique, and found: -EINVAL. */
int layout_check_wire_ids(const struct layout *layout);

/* The canonical encoding (gmsfs(5)): the caller frees *bytes. 0 or -ENOMEM */
int layout_encode(const struct layout *layout, uint8_t **bytes, size_t *size);
/* How many bytes that makes at most. */
size_t layout_encoding_bytes(const struct layout *layout);
/* XXH3-128 of an encoding, big-endian. */
void layout_hash(const void *bytes, size_t size, uint8_t hash[16]);

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
 * within bounds. Non-minimal integers and lengths are accepted. *culprit: index of the metadata row
 * at fault, UINT64_MAX the document itself. The document borrows `bytes`. Without
 * "allocations" a rank may be any below LAYOUT_MAX_ALLOCATIONS; a repeated key is the caller's.
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
/* The rows as puts in order of their keys, whatever order they have in the document; those of one
 * key stay as they are, so of all that are put one after the other the last counts. Their slots are
 * ranks still, and their serials say where they stand in the document, from 0 on. They become the
 * caller's, who frees them; the document has none then. */
struct layout_put *layout_document_take_puts(struct layout_document *document, size_t *count);

#endif
