/* SPDX-License-Identifier: Apache-2.0 */
#include "base/idvec.h"

#include "base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t id_of(const void *item)
{
    uint64_t id;
    memcpy(&id, item, sizeof id);
    return id;
}

/* Returns the index of the first item with an id not below `id`. Ids differ, so the distances of
 * `id` from the first and the last id bound that index. Without gaps on either side the bounds
 * meet, and nothing is searched. */
static size_t lower_bound(const struct idvec *vec, uint64_t id)
{
    size_t at = 0, end = vec->count;
    if (end == 0)
        return 0;
    uint64_t first = id_of(vec->items[0]), last = id_of(vec->items[end - 1]);
    if (id <= first || id > last)
        return id <= first ? 0 : end;
    if (last - id < end)
        at = end - 1 - (size_t)(last - id);
    if (id - first < end)
        end = (size_t)(id - first);
    ARRAY_SEARCH(at, end, id_of(vec->items[at]) < id);
    return at;
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
    int error = ARRAY_RESERVE(vec->items, vec->room, vec->count + 1);
    if (!error)
        idvec_insert_within(vec, item);
    return error;
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

void *idvec_find_near(const struct idvec *vec, uint64_t id, size_t *at)
{
    if (*at >= vec->count || id_of(vec->items[*at]) != id)
        *at = lower_bound(vec, id);
    if (*at == vec->count || id_of(vec->items[*at]) != id)
        return NULL;
    return vec->items[(*at)++];
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
