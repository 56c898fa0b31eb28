/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes an index. A group is the edits of one chunk: the chunk is changed in place if they fit,
 * and replaced by new ones if not.
 */
#include "index_chunk.h"

#include "layout_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define JOINED_MOST (INDEX_CHUNK_ENTRIES / 2)

/* The edits of one chunk. */
struct group {
    size_t chunk;
    size_t first, end;
    size_t entries; /* number of the chunk's entries afterwards */
};

static struct group last_group(const struct layout_index *index, const struct index_change *change,
                               size_t end)
{
    const struct index_edit *edits = change->edits;
    struct group group = {.chunk = edits[end - 1].at.chunk, .first = end, .end = end};

    if (group.chunk < index->chunk_count)
        group.entries = index->chunks[group.chunk].count;
    if (change->only_inserts && edits[0].at.chunk == group.chunk) { /* as with most documents */
        group.first = 0;
        group.entries += end;
        return group;
    }
    while (group.first > 0 && edits[group.first - 1].at.chunk == group.chunk) {
        const struct index_edit *edit = &edits[--group.first];
        group.entries += (edit->entry != NULL);
        group.entries -= (edit->old != NULL);
    }
    return group;
}

/* Returns the number of new chunks for a group's entries; 0 if they stay in their chunk. */
static size_t count_fresh(const struct layout_index *index, const struct group *group)
{
    if (group->chunk < index->chunk_count &&
        group->entries <= index->chunks[group->chunk].chunk->room)
        return 0;
    return (group->entries + INDEX_CHUNK_ENTRIES - 1) / INDEX_CHUNK_ENTRIES;
}

/* Copies the group's chunk if it is shared, and makes the new chunks. */
static int prepare_group(struct layout_index *index, struct index_change *change,
                         const struct group *group)
{
    bool exists = group->chunk < index->chunk_count;
    size_t room = INDEX_CHUNK_ENTRIES, fresh;

    if (group->entries == 0)
        return 0;
    if (group->entries <= INDEX_CHUNK_ENTRIES)
        room = index_chunk_room(group->entries);
    if (exists && index_chunk_own(index, &index->chunks[group->chunk], room) < 0)
        return -ENOMEM;
    fresh = count_fresh(index, group);
    change->growth += fresh - (fresh > 0 && exists);
    for (; fresh > 0; fresh--) {
        struct index_chunk *chunk = index_chunk_new(room);
        if (!chunk)
            return -ENOMEM;
        *change->fresh_last = chunk;
        change->fresh_last = &chunk->next;
    }
    return 0;
}

int layout_index_prepare(struct layout_index *index, struct index_change *change)
{
    int error = 0;

    change->fresh = NULL;
    change->fresh_last = &change->fresh;
    change->growth = 0;
    for (size_t end = change->count; error == 0 && end > 0;) {
        struct group group = last_group(index, change, end);
        error = prepare_group(index, change, &group);
        end = group.first;
    }
    if (error == 0)
        error = layout_index_reserve(index, index->chunk_count + change->growth);
    if (error < 0)
        layout_index_cancel(change);
    return error;
}

void layout_index_cancel(struct index_change *change)
{
    while (change->fresh) {
        struct index_chunk *chunk = change->fresh;
        change->fresh = chunk->next;
        free(chunk);
    }
}

/* The target of merged entries: fills the chunks one after the other up to their counts. */
struct output {
    struct layout_entry **at, **end;
    struct index_chunk_ref *ref; /* the current chunk; the next ones follow it */
};

static void output_next(struct output *output)
{
    if (output->at != output->end)
        return;
    output->ref++;
    output->at = output->ref->chunk->entries;
    output->end = output->at + output->ref->count;
}

static void output_copy(struct output *output, struct layout_entry *const *entries, size_t count)
{
    while (count > 0) {
        output_next(output);
        size_t most = (size_t)(output->end - output->at);
        if (most > count)
            most = count;
        memcpy(output->at, entries, most * sizeof *entries);
        output->at += most;
        entries += most;
        count -= most;
    }
}

/* Merges a chunk's entries with the edits of its group. */
static void merge(const struct index_chunk_ref *ref, const struct index_edit *edits,
                  const struct group *group, struct output *output)
{
    size_t offset = 0;

    for (size_t i = group->first; i < group->end; i++) {
        const struct index_edit *edit = &edits[i];
        if (edit->at.offset > offset)
            output_copy(output, ref->chunk->entries + offset, edit->at.offset - offset);
        if (edit->entry) {
            output_next(output);
            *output->at++ = edit->entry;
        }
        offset = edit->at.offset + (edit->old != NULL);
    }
    if (offset < ref->count)
        output_copy(output, ref->chunk->entries + offset, ref->count - offset);
}

static void note_first(struct index_chunk_ref *ref)
{
    ref->first = ref->chunk->entries[0];
    ref->first_serial = ref->first->serial;
}

static bool only_replaces(const struct index_edit *edits, const struct group *group)
{
    for (size_t i = group->first; i < group->end; i++) {
        if (!edits[i].entry || !edits[i].old)
            return false;
    }
    return true;
}

static void edit_in_place(struct index_chunk_ref *ref, const struct index_edit *edits,
                          const struct group *group)
{
    struct layout_entry **entries = ref->chunk->entries, *merged[INDEX_CHUNK_ENTRIES];
    struct output output = {merged, merged + INDEX_CHUNK_ENTRIES, NULL};

    if (only_replaces(edits, group)) {
        for (size_t i = group->first; i < group->end; i++)
            entries[edits[i].at.offset] = edits[i].entry;
    } else {
        merge(ref, edits, group, &output);
        memcpy(entries, merged, group->entries * sizeof *entries);
    }
    ref->count = group->entries;
    note_first(ref);
}

/* Distributes the entries of one chunk, or none, to new ones. Insertions at the very end fill the
 * chunks, because more will follow there; elsewhere all chunks get equal room. */
static void edit_into_fresh(const struct layout_index *index, struct index_change *change,
                            const struct group *group, struct index_chunk_ref *refs, size_t fresh)
{
    bool exists = group->chunk < index->chunk_count;
    const struct index_chunk_ref old =
        exists ? index->chunks[group->chunk] : (struct index_chunk_ref){0};
    bool at_end = group->chunk + exists == index->chunk_count &&
                  change->edits[group->first].at.offset == old.count;
    struct output output;
    size_t before = 0;

    for (size_t i = 0; i < fresh; i++) {
        size_t until = at_end ? (i + 1) * INDEX_CHUNK_ENTRIES : group->entries * (i + 1) / fresh;
        struct index_chunk *chunk = change->fresh;

        if (until > group->entries)
            until = group->entries;
        change->fresh = chunk->next;
        chunk->next = NULL;
        refs[i] = (struct index_chunk_ref){.chunk = chunk, .count = until - before};
        before = until;
    }
    output = (struct output){refs->chunk->entries, refs->chunk->entries + refs->count, refs};
    merge(&old, change->edits, group, &output);
    for (size_t i = 0; i < fresh; i++)
        note_first(&refs[i]);
    free(old.chunk);
}

/* Joins two chunks into the first. False if neither has room for the other's entries. */
static bool join(const struct layout_index *index, struct index_chunk_ref *a,
                 const struct index_chunk_ref *b)
{
    size_t total = a->count + b->count;

    if (total > JOINED_MOST)
        return false;
    if (index_chunk_is_own(a->chunk) && total <= a->chunk->room) {
        memcpy(a->chunk->entries + a->count, b->chunk->entries,
               b->count * sizeof a->chunk->entries[0]);
        index_chunk_retire(index, b);
    } else if (index_chunk_is_own(b->chunk) && total <= b->chunk->room) {
        memmove(b->chunk->entries + a->count, b->chunk->entries,
                b->count * sizeof b->chunk->entries[0]);
        memcpy(b->chunk->entries, a->chunk->entries, a->count * sizeof b->chunk->entries[0]);
        index_chunk_retire(index, a);
        a->chunk = b->chunk;
    } else {
        return false;
    }
    a->count = total;
    return true;
}

/* Drops empty chunks and joins small neighbours, so that a layout that lost most of its entries
 * also loses chunks. */
static void tidy(struct layout_index *index, size_t first, size_t end)
{
    size_t begin = first > 0 ? first - 1 : 0, limit = end, out = begin;

    if (limit < index->chunk_count)
        limit++;
    for (size_t i = begin; i < limit; i++) {
        struct index_chunk_ref ref = index->chunks[i];

        if (ref.count > 0 && (out == begin || !join(index, &index->chunks[out - 1], &ref)))
            index->chunks[out++] = ref;
    }
    memmove(index->chunks + out, index->chunks + limit,
            (index->chunk_count - limit) * sizeof index->chunks[0]);
    index->chunk_count -= limit - out;
}

static void release_old(const struct layout_index *index, const struct index_edit *edits,
                        const struct group *group)
{
    for (size_t i = group->first; index->by_serial && i < group->end; i++) {
        if (edits[i].old)
            layout_entries_release(&edits[i].old, 1);
    }
}

static void commit_deletes(struct layout_index *index, const struct index_change *change)
{
    size_t end = change->edits[change->count - 1].at.chunk + 1;

    for (size_t left = change->count; left > 0;) {
        struct group group = last_group(index, change, left);
        struct index_chunk_ref *ref = &index->chunks[group.chunk];

        left = group.first;
        if (group.entries == 0) {
            index_chunk_release(index, ref);
            *ref = (struct index_chunk_ref){0};
            continue;
        }
        edit_in_place(ref, change->edits, &group);
        release_old(index, change->edits, &group);
    }
    tidy(index, change->edits[0].at.chunk, end);
}

/* From the back, so that each remaining chunk moves once. */
static void commit_puts(struct layout_index *index, struct index_change *change)
{
    size_t from = index->chunk_count, to = from + change->growth;

    for (size_t left = change->count; left > 0;) {
        struct group group = last_group(index, change, left);
        size_t fresh = count_fresh(index, &group), behind = group.chunk + 1;

        left = group.first;
        if (behind < from) {
            to -= from - behind;
            memmove(index->chunks + to, index->chunks + behind,
                    (from - behind) * sizeof index->chunks[0]);
        }
        from = group.chunk;
        to -= fresh > 0 ? fresh : 1;
        if (fresh > 0) {
            edit_into_fresh(index, change, &group, index->chunks + to, fresh);
        } else {
            index->chunks[to] = index->chunks[from];
            edit_in_place(&index->chunks[to], change->edits, &group);
        }
        release_old(index, change->edits, &group);
    }
    assert(from == to && !change->fresh);
    index->chunk_count += change->growth;
}

void layout_index_commit(struct layout_index *index, struct index_change *change)
{
    if (change->count == 0)
        return;
    if (change->edits[0].entry)
        commit_puts(index, change);
    else
        commit_deletes(index, change);
}
