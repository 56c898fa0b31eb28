/* SPDX-License-Identifier: Apache-2.0 */
#include "base/idvec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t id_of(const void *item)
{
    uint64_t id;
    memcpy(&id, item, sizeof id);
    return id;
}

/* Index of the first item whose id is not below `id`: mostly that of the newest item. */
static size_t lower_bound(const struct idvec *vec, uint64_t id)
{
    size_t low = 0, high = vec->count;
    if (high > 0 && id_of(vec->items[high - 1]) <= id)
        return id_of(vec->items[high - 1]) < id ? high : high - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (id_of(vec->items[middle]) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void idvec_free(struct idvec *vec)
{
    free(vec->items);
    *vec = (struct idvec){0};
}

void idvec_free_items(struct idvec *vec)
{
    for (size_t i = 0; i < vec->count; i++)
        free(vec->items[i]);
    idvec_free(vec);
}

void idvec_insert_within(struct idvec *vec, void *item)
{
    size_t index = lower_bound(vec, id_of(item));

    assert(vec->count < vec->room);
    assert(index == vec->count || id_of(vec->items[index]) != id_of(item));
    memmove(&vec->items[index + 1], &vec->items[index], (vec->count - index) * sizeof *vec->items);
    vec->items[index] = item;
    vec->count++;
}

int idvec_insert(struct idvec *vec, void *item)
{
    if (vec->count == vec->room) {
        size_t room = vec->room ? vec->room * 2 : 16;
        void **items = realloc(vec->items, room * sizeof *items);
        if (!items)
            return -ENOMEM;
        vec->items = items;
        vec->room = room;
    }
    idvec_insert_within(vec, item);
    return 0;
}

int idvec_append(struct idvec *vec, void *item)
{
    assert(vec->count == 0 || id_of(vec->items[vec->count - 1]) < id_of(item));
    return idvec_insert(vec, item);
}

void *idvec_find(const struct idvec *vec, uint64_t id)
{
    if (vec->count > 0 && id_of(vec->items[vec->count - 1]) == id)
        return vec->items[vec->count - 1];
    size_t index = lower_bound(vec, id);
    if (index == vec->count || id_of(vec->items[index]) != id)
        return NULL;
    return vec->items[index];
}

void *idvec_find_after(const struct idvec *vec, uint64_t id)
{
    size_t index = id < UINT64_MAX ? lower_bound(vec, id + 1) : vec->count;
    return index < vec->count ? vec->items[index] : NULL;
}

void *idvec_remove(struct idvec *vec, uint64_t id)
{
    size_t index = lower_bound(vec, id);
    if (index == vec->count || id_of(vec->items[index]) != id)
        return NULL;
    void *item = vec->items[index];
    memmove(&vec->items[index], &vec->items[index + 1],
            (vec->count - index - 1) * sizeof *vec->items);
    vec->count--;
    return item;
}

void idvec_remove_if(struct idvec *vec, bool (*take)(void *item, void *context), void *context)
{
    size_t kept = 0;

    for (size_t i = 0; i < vec->count; i++) {
        void *item = vec->items[i];
        if (!take(item, context))
            vec->items[kept++] = item;
    }
    vec->count = kept;
}
