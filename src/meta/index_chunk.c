/* SPDX-License-Identifier: Apache-2.0 */
#include "index_chunk.h"

#include "layout_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 8u /* capacity of a small layout's only chunk */

size_t index_chunk_room(size_t count)
{
    size_t room = FIRST_ROOM;

    while (room < count)
        room *= 2;
    return room;
}

struct index_chunk *index_chunk_new(size_t room)
{
    struct index_chunk *chunk = malloc(sizeof *chunk + room * sizeof chunk->entries[0]);

    if (!chunk)
        return NULL;
    atomic_init(&chunk->refs, 1);
    chunk->room = room;
    chunk->next = NULL;
    return chunk;
}

bool index_chunk_is_own(const struct index_chunk *chunk)
{
    return atomic_load_explicit(&chunk->refs, memory_order_acquire) == 1;
}

void index_chunk_release(const struct layout_index *index, const struct index_chunk_ref *ref)
{
    struct index_chunk *chunk = ref->chunk;

    if (!index_chunk_is_own(chunk) &&
        atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (index->by_serial)
        layout_entries_release(chunk->entries, ref->count);
    free(chunk);
}

void index_chunk_retire(const struct layout_index *index, const struct index_chunk_ref *ref)
{
    if (index_chunk_is_own(ref->chunk)) {
        free(ref->chunk);
        return;
    }
    if (index->by_serial)
        layout_entries_ref(ref->chunk->entries, ref->count);
    index_chunk_release(index, ref);
}

int index_chunk_own(const struct layout_index *index, struct index_chunk_ref *ref, size_t room)
{
    if (index_chunk_is_own(ref->chunk))
        return 0;
    struct index_chunk *copy = index_chunk_new(room > ref->chunk->room ? room : ref->chunk->room);
    if (!copy)
        return -ENOMEM;
    memcpy(copy->entries, ref->chunk->entries, ref->count * sizeof copy->entries[0]);
    index_chunk_retire(index, ref);
    ref->chunk = copy;
    return 0;
}
