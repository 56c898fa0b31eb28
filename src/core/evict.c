/* SPDX-License-Identifier: Apache-2.0 */
#include "core/evict.h"

#include "base/number.h"

#include <errno.h>
#include <stdlib.h>

/* State of a choice. */
struct choice {
    const struct evict_pool *pools;
    const struct evict_wish *wish;
    uint64_t unfilled_bytes; /* unused parts of other pools' minimums */
    uint64_t gone_bytes;     /* bytes of all victims */
    uint64_t own_gone;       /* number of victims of the wish's pool */
    uint64_t pool_gone_bytes[EVICT_MAX_POOLS];
};

static uint64_t count_unfilled(const struct evict_pool *pool)
{
    return pool->used_bytes < pool->min_bytes ? pool->min_bytes - pool->used_bytes : 0;
}

static uint64_t sum_unfilled(const struct evict_pool *pools, size_t pool_count, size_t but)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pool_count; i++)
        bytes = number_add(bytes, i == but ? 0 : count_unfilled(&pools[i]));
    return bytes;
}

static bool pool_has_room(const struct choice *choice)
{
    const struct evict_wish *wish = choice->wish;
    const struct evict_pool *own = &choice->pools[wish->pool];
    uint64_t used_bytes = own->used_bytes - choice->pool_gone_bytes[wish->pool];

    if (own->slots > 0 && !wish->is_resident && own->resident - choice->own_gone >= own->slots)
        return false;
    return number_add(used_bytes, wish->bytes) <= own->max_bytes;
}

static bool device_has_room(const struct choice *choice)
{
    const struct evict_wish *wish = choice->wish;

    return number_add(wish->bytes, choice->unfilled_bytes) <=
           number_add(wish->free_bytes, choice->gone_bytes);
}

static void add_victim(struct choice *choice, struct evict_row *row)
{
    row->goes = true;
    choice->gone_bytes += row->bytes;
    choice->pool_gone_bytes[row->pool] += row->bytes;
    choice->own_gone += row->pool == choice->wish->pool;
}

static void remove_victim(struct choice *choice, struct evict_row *row)
{
    row->goes = false;
    choice->gone_bytes -= row->bytes;
    choice->pool_gone_bytes[row->pool] -= row->bytes;
    choice->own_gone -= row->pool == choice->wish->pool;
}

static bool is_candidate(const struct choice *choice, const struct evict_row *row)
{
    const struct evict_wish *wish = choice->wish;

    return row->bytes > 0 && row->store != wish->store && !row->pinned && !row->stuck &&
           !row->held && !row->waited_for && !row->moving &&
           row->class <= choice->pools[wish->pool].class &&
           (row->promoted_ms == 0 ||
            number_add(row->promoted_ms, wish->min_stay_ms) <= wish->now_ms);
}

/* True if the row is within another pool's guaranteed minimum. */
static bool is_protected(const struct choice *choice, const struct evict_row *row)
{
    const struct evict_pool *pool = &choice->pools[row->pool];
    uint64_t used_bytes = pool->used_bytes - choice->pool_gone_bytes[row->pool];

    return row->pool != choice->wish->pool &&
           (used_bytes < row->bytes || used_bytes - row->bytes < pool->min_bytes);
}

/* ---- in order ------------------------------------------------------------------------------- */

static bool goes_before(const struct evict_row *a, const struct evict_row *b)
{
    if (a->class != b->class)
        return a->class < b->class;
    if (a->has_spare != b->has_spare)
        return a->has_spare;
    if (a->last_used_ms != b->last_used_ms)
        return a->last_used_ms < b->last_used_ms;
    return a->store < b->store;
}

static void swap(struct evict_row *a, struct evict_row *b)
{
    struct evict_row row = *a;

    *a = *b;
    *b = row;
}

/* Sifts a row down the heap, which has the next victim on top: most rows are never sorted. */
static void sift(struct evict_row *rows, size_t count, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && goes_before(&rows[child + 1], &rows[child]))
            child++;
        if (!goes_before(&rows[child], &rows[at]))
            return;
        swap(&rows[child], &rows[at]);
    }
}

/* Moves the rows that may go to the front, as a heap. Returns their number. */
static size_t heap_candidates(const struct choice *choice, struct evict_row *rows, size_t count,
                              bool only_own)
{
    size_t candidates = 0;

    for (size_t i = 0; i < count; i++) {
        rows[i].goes = false;
        if (is_candidate(choice, &rows[i]) && (!only_own || rows[i].pool == choice->wish->pool))
            swap(&rows[i], &rows[candidates++]);
    }
    for (size_t i = candidates / 2; i > 0; i--)
        sift(rows, candidates, i - 1);
    return candidates;
}

/* Moves the victims of rows[from, to), which are in reverse order, to the front in order. */
static size_t bring_forward(struct evict_row *rows, size_t from, size_t to)
{
    size_t front = 0;

    for (size_t i = from, k = to; i + 1 < k; i++, k--)
        swap(&rows[i], &rows[k - 1]);
    for (size_t i = from; i < to; i++) {
        if (rows[i].goes)
            swap(&rows[i], &rows[front++]);
    }
    return front;
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Chooses victims until `has_room`, and moves them to the front of the rows. */
static size_t take_until(struct choice *choice, struct evict_row *rows, size_t count, bool only_own,
                         bool (*has_room)(const struct choice *choice))
{
    size_t candidates, left;

    if (has_room(choice))
        return 0;
    candidates = left = heap_candidates(choice, rows, count, only_own);
    while (left > 0 && !has_room(choice)) {
        left--;
        swap(&rows[0], &rows[left]);
        sift(rows, left, 0);
        if (!is_protected(choice, &rows[left]))
            add_victim(choice, &rows[left]);
    }
    return bring_forward(rows, left, candidates);
}

/* Drops victims that a later, larger one made needless, beginning with the last. */
static size_t drop_needless(struct choice *choice, struct evict_row *rows, size_t count)
{
    size_t front = 0;

    for (size_t i = count; i > 0; i--) {
        remove_victim(choice, &rows[i - 1]);
        if (!pool_has_room(choice) || !device_has_room(choice))
            add_victim(choice, &rows[i - 1]);
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i].goes)
            swap(&rows[i], &rows[front++]);
    }
    return front;
}

long evict_choose(struct evict_row *rows, size_t row_count, const struct evict_pool *pools,
                  size_t pool_count, const struct evict_wish *wish)
{
    struct choice choice = {.pools = pools,
                            .wish = wish,
                            .unfilled_bytes = sum_unfilled(pools, pool_count, wish->pool)};
    size_t count = take_until(&choice, rows, row_count, true, pool_has_room);

    if (!pool_has_room(&choice))
        return -EDQUOT;
    count += take_until(&choice, rows + count, row_count - count, false, device_has_room);
    if (!device_has_room(&choice))
        return wish->bytes <= number_add(wish->free_bytes, choice.gone_bytes) ? -EDQUOT : -ENOMEM;
    return (long)drop_needless(&choice, rows, count);
}

/* ---- spares --------------------------------------------------------------------------------- */

static bool spare_goes_before(const struct evict_spare *a, const struct evict_spare *b)
{
    if (a->is_place != b->is_place)
        return b->is_place;
    if (a->pinned != b->pinned)
        return a->pinned;
    if (a->doubled != b->doubled)
        return a->doubled;
    if (a->last_used_ms != b->last_used_ms)
        return (a->last_used_ms > b->last_used_ms) != a->is_place;
    return (a->store > b->store) != a->is_place;
}

static int compare_spares(const void *one, const void *other)
{
    return spare_goes_before(one, other) ? -1 : 1;
}

size_t evict_choose_spares(struct evict_spare *rows, size_t count, uint64_t bytes)
{
    uint64_t gone_bytes = 0;
    size_t taken = 0, front = 0;

    if (count > 1)
        qsort(rows, count, sizeof *rows, compare_spares);
    while (taken < count && gone_bytes < bytes)
        gone_bytes = number_add(gone_bytes, rows[taken++].bytes);
    if (gone_bytes < bytes)
        return 0;
    for (size_t i = taken; i > 0; i--) {
        rows[i - 1].goes = gone_bytes - rows[i - 1].bytes < bytes;
        gone_bytes -= rows[i - 1].goes ? 0 : rows[i - 1].bytes;
    }
    for (size_t i = 0; i < taken; i++) {
        if (rows[i].goes)
            rows[front++] = rows[i];
    }
    return front;
}
