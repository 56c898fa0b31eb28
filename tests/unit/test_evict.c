/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests which stores leave the device: random tables against laws written apart, a search through
 * all subsets, and a simulator of least recently used.
 */
#include "core/evict.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#define MOST_ROWS  24u
#define MOST_POOLS 4u

static uint64_t random_state;

static uint64_t below(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

static bool one_in(uint64_t times)
{
    return below(times) == 0;
}

struct table {
    struct evict_pool pools[MOST_POOLS];
    size_t pool_count;
    struct evict_row rows[MOST_ROWS];
    size_t row_count;
    struct evict_wish wish;
};

static void make_pools(struct table *table, bool with_min)
{
    table->pool_count = 1 + below(MOST_POOLS);
    for (size_t i = 0; i < table->pool_count; i++)
        table->pools[i] = (struct evict_pool){.class = (enum pool_class)below(POOL_CLASS_COUNT),
                                              .min_bytes = with_min && one_in(2) ? below(40) : 0,
                                              .max_bytes = one_in(2) ? UINT64_MAX : 10 + below(90),
                                              .slots = one_in(3) ? 1 + below(6) : 0};
}

/* Every obstacle is rare, so that most tables have an answer. */
static void make_table(struct table *table, size_t most_rows, bool with_min)
{
    make_pools(table, with_min);
    table->row_count = below(most_rows + 1);
    for (size_t i = 0; i < table->row_count; i++) {
        struct evict_row *row = &table->rows[i];
        size_t pool = below(table->pool_count);

        *row = (struct evict_row){.store = i + 1,
                                  .pool = pool,
                                  .class = table->pools[pool].class,
                                  .bytes = one_in(20) ? 0 : 1 + below(20),
                                  .pinned = one_in(12),
                                  .stuck = one_in(12),
                                  .held = one_in(6),
                                  .waited_for = one_in(12),
                                  .moving = one_in(12),
                                  .has_spare = one_in(2),
                                  .last_used_ms = below(10),
                                  .promoted_ms = below(100),
                                  .goes = one_in(2)};
        table->pools[pool].used_bytes += row->bytes;
        table->pools[pool].resident += row->bytes > 0;
    }
    table->wish = (struct evict_wish){.store = one_in(4) ? 1 + below(MOST_ROWS) : 0,
                                      .pool = below(table->pool_count),
                                      .bytes = 1 + below(60),
                                      .is_resident = one_in(3),
                                      .free_bytes = below(50),
                                      .now_ms = 100,
                                      .min_stay_ms = one_in(2) ? 20 : 0};
}

/* ---- laws ----------------------------------------------------------------------------------- */

static bool is_in(const uint64_t *gone, size_t count, uint64_t store)
{
    for (size_t i = 0; i < count; i++) {
        if (gone[i] == store)
            return true;
    }
    return false;
}

/* Returns true if there is room in the table without these stores. Counted anew by the formula: the
 * unused minimum of a pool belongs to that pool alone. */
static bool makes_room(const struct table *table, const uint64_t *gone, size_t count)
{
    struct evict_pool pools[MOST_POOLS];
    uint64_t free_bytes = table->wish.free_bytes, kept_bytes = 0;
    const struct evict_pool *own = &pools[table->wish.pool];

    memcpy(pools, table->pools, sizeof pools);
    for (size_t i = 0; i < table->row_count; i++) {
        const struct evict_row *row = &table->rows[i];

        if (!is_in(gone, count, row->store))
            continue;
        pools[row->pool].used_bytes -= row->bytes;
        pools[row->pool].resident--;
        free_bytes += row->bytes;
    }
    for (size_t i = 0; i < table->pool_count; i++) {
        if (i != table->wish.pool && pools[i].used_bytes < pools[i].min_bytes)
            kept_bytes += pools[i].min_bytes - pools[i].used_bytes;
    }
    if (own->slots > 0 && !table->wish.is_resident && own->resident >= own->slots)
        return false;
    return table->wish.bytes + kept_bytes <= free_bytes &&
           table->wish.bytes <=
               own->max_bytes -
                   (own->used_bytes < own->max_bytes ? own->used_bytes : own->max_bytes);
}

static const struct evict_row *find_row(const struct table *table, uint64_t store)
{
    for (size_t i = 0; i < table->row_count; i++) {
        if (table->rows[i].store == store)
            return &table->rows[i];
    }
    return NULL;
}

static bool may_go(const struct table *table, const struct evict_row *row)
{
    if (row->pinned || row->stuck || row->held || row->waited_for || row->moving || row->bytes == 0)
        return false;
    if (row->store == table->wish.store)
        return false;
    if (table->pools[row->pool].class > table->pools[table->wish.pool].class)
        return false;
    return row->promoted_ms == 0 || row->promoted_ms + table->wish.min_stay_ms <= 100;
}

/* Other pools keep their minimum. */
static void check_minimums(const struct table *table, const uint64_t *gone, size_t count)
{
    for (size_t pool = 0; pool < table->pool_count; pool++) {
        uint64_t gone_bytes = 0;

        for (size_t i = 0; i < count; i++)
            gone_bytes +=
                find_row(table, gone[i])->pool == pool ? find_row(table, gone[i])->bytes : 0;
        check(pool == table->wish.pool || gone_bytes == 0 ||
              table->pools[pool].used_bytes - gone_bytes >= table->pools[pool].min_bytes);
    }
}

static long choose(const struct table *table, uint64_t gone[MOST_ROWS])
{
    struct table copy = *table;
    long count = evict_choose(copy.rows, copy.row_count, copy.pools, copy.pool_count, &copy.wish);

    for (long i = 0; i < count; i++)
        gone[i] = copy.rows[i].store;
    return count;
}

static void shuffle(struct table *table)
{
    for (size_t i = table->row_count; i > 1; i--) {
        size_t other = below(i);
        struct evict_row row = table->rows[i - 1];

        table->rows[i - 1] = table->rows[other];
        table->rows[other] = row;
    }
}

TAP_TEST(the_leavers_make_room_and_none_of_them_could_stay)
{
    uint64_t gone[MOST_ROWS], fewer[MOST_ROWS];
    unsigned chosen = 0;

    random_state = 1;
    for (int round = 0; round < 20000; round++) {
        struct table table;
        long count;

        make_table(&table, MOST_ROWS, true);
        count = choose(&table, gone);
        if (count < 0)
            continue;
        check(makes_room(&table, gone, (size_t)count));
        check((count == 0) == makes_room(&table, NULL, 0));
        for (long i = 0; i < count; i++) {
            memcpy(fewer, gone, sizeof fewer);
            fewer[i] = 0;
            check(!makes_room(&table, fewer, (size_t)count));
        }
        chosen += count > 1;
    }
    check(chosen > 1000);
}

TAP_TEST(no_store_leaves_that_is_held_pinned_stuck_waited_for_moving_new_or_more_important)
{
    uint64_t gone[MOST_ROWS];
    unsigned chosen = 0;

    random_state = 2;
    for (int round = 0; round < 20000; round++) {
        struct table table;
        long count;

        make_table(&table, MOST_ROWS, true);
        count = choose(&table, gone);
        for (long i = 0; i < count; i++)
            check(may_go(&table, find_row(&table, gone[i])));
        if (count > 0)
            check_minimums(&table, gone, (size_t)count);
        chosen += count > 0;
    }
    check(chosen > 1000);
}

TAP_TEST(the_choice_does_not_depend_on_the_order_of_the_rows)
{
    uint64_t gone[MOST_ROWS], again[MOST_ROWS];

    random_state = 3;
    for (int round = 0; round < 5000; round++) {
        struct table table;
        long count;

        make_table(&table, MOST_ROWS, true);
        count = choose(&table, gone);
        for (int i = 0; i < 3; i++) {
            shuffle(&table);
            check_int(choose(&table, again), count);
            check(count <= 0 || memcmp(gone, again, (size_t)count * sizeof *gone) == 0);
        }
    }
}

/* Marks a store as leaving: its room counts as free. */
static void let_go(struct table *table, uint64_t store)
{
    for (size_t i = 0; i < table->row_count; i++) {
        struct evict_row *row = &table->rows[i];

        if (row->store != store)
            continue;
        row->moving = true;
        table->wish.free_bytes += row->bytes;
        table->pools[row->pool].used_bytes -= row->bytes;
        table->pools[row->pool].resident--;
    }
}

/* So a caller that evicts one after the other need not choose again in between. */
TAP_TEST(when_the_first_has_left_the_others_are_chosen_still)
{
    uint64_t gone[MOST_ROWS], again[MOST_ROWS];
    unsigned chosen = 0;

    random_state = 6;
    for (int round = 0; round < 20000; round++) {
        struct table table;
        long count;

        make_table(&table, MOST_ROWS, true);
        count = choose(&table, gone);
        if (count <= 0)
            continue;
        let_go(&table, gone[0]);
        check_int(choose(&table, again), count - 1);
        check(memcmp(gone + 1, again, (size_t)(count - 1) * sizeof *gone) == 0);
        chosen += count > 1;
    }
    check(chosen > 1000);
}

/* Without minimums of other pools, every store that may leave is taken before the choice fails. */
TAP_TEST(nothing_is_chosen_only_where_no_subset_would_make_room)
{
    unsigned refused = 0;

    random_state = 4;
    for (int round = 0; round < 4000; round++) {
        uint64_t gone[MOST_ROWS], some[MOST_ROWS];
        struct table table;

        make_table(&table, 8, false);
        if (choose(&table, gone) >= 0)
            continue;
        refused++;
        for (unsigned subset = 0; subset < 1u << table.row_count; subset++) {
            size_t count = 0;

            for (size_t i = 0; i < table.row_count; i++) {
                if (subset >> i & 1 && may_go(&table, &table.rows[i]))
                    some[count++] = table.rows[i].store;
            }
            check(!makes_room(&table, some, count));
        }
    }
    check(refused > 300);
}

/* ---- order ---------------------------------------------------------------------------------- */

/* One pool of each class, and a full device. */
static struct table full_device(uint64_t wanted_bytes)
{
    struct table table = {.pool_count = POOL_CLASS_COUNT,
                          .wish = {.pool = POOL_CLASS_CRITICAL, .bytes = wanted_bytes}};

    for (size_t i = 0; i < table.pool_count; i++)
        table.pools[i] = (struct evict_pool){.class = (enum pool_class)i, .max_bytes = UINT64_MAX};
    return table;
}

static void add_row(struct table *table, size_t pool, uint64_t bytes, uint64_t last_used_ms,
                    bool has_spare)
{
    table->rows[table->row_count] = (struct evict_row){.store = table->row_count + 1,
                                                       .pool = pool,
                                                       .class = table->pools[pool].class,
                                                       .bytes = bytes,
                                                       .last_used_ms = last_used_ms,
                                                       .has_spare = has_spare};
    table->row_count++;
    table->pools[pool].used_bytes += bytes;
    table->pools[pool].resident++;
}

TAP_TEST(the_least_important_class_goes_first_then_a_spare_then_the_longest_unused_then_the_oldest)
{
    struct table table = full_device(5);
    uint64_t gone[MOST_ROWS];

    add_row(&table, POOL_CLASS_HIGH, 1, 1, true);
    add_row(&table, POOL_CLASS_BATCH, 1, 9, false);
    add_row(&table, POOL_CLASS_BATCH, 1, 3, false);
    add_row(&table, POOL_CLASS_BATCH, 1, 3, false);
    add_row(&table, POOL_CLASS_BATCH, 1, 8, true);
    require(choose(&table, gone) == 5);
    check(gone[0] == 5 && gone[1] == 3 && gone[2] == 4 && gone[3] == 2 && gone[4] == 1);
}

TAP_TEST(a_pool_without_room_lets_its_own_go_though_others_matter_less)
{
    struct table table = full_device(4);
    uint64_t gone[MOST_ROWS];

    table.wish.pool = POOL_CLASS_HIGH;
    table.wish.free_bytes = 100;
    table.pools[POOL_CLASS_HIGH].max_bytes = 10;
    add_row(&table, POOL_CLASS_BATCH, 10, 1, true);
    add_row(&table, POOL_CLASS_HIGH, 4, 7, true);
    add_row(&table, POOL_CLASS_HIGH, 6, 9, true);
    require(choose(&table, gone) == 1);
    check_int(gone[0], 2);
    table.rows[1].held = table.rows[2].held = true;
    check_int(choose(&table, gone), -EDQUOT);
}

TAP_TEST(a_pool_without_a_slot_lets_one_go_unless_the_store_has_its_own)
{
    struct table table = full_device(1);
    uint64_t gone[MOST_ROWS];

    table.wish.pool = POOL_CLASS_STANDARD;
    table.wish.free_bytes = 100;
    table.pools[POOL_CLASS_STANDARD].slots = 2;
    add_row(&table, POOL_CLASS_STANDARD, 1, 7, true);
    add_row(&table, POOL_CLASS_STANDARD, 1, 4, true);
    require(choose(&table, gone) == 1);
    check_int(gone[0], 2);
    table.wish.is_resident = true;
    check_int(choose(&table, gone), 0);
}

TAP_TEST(a_store_passed_for_a_larger_one_stays)
{
    struct table table = full_device(10);
    uint64_t gone[MOST_ROWS];

    add_row(&table, POOL_CLASS_BATCH, 1, 1, true);
    add_row(&table, POOL_CLASS_BATCH, 10, 2, true);
    require(choose(&table, gone) == 1);
    check_int(gone[0], 2);
}

/* ---- the simulator -------------------------------------------------------------------------- */

#define ADAPTERS 100u
#define ROOM     32u
#define USES     10000u

/* Zipf's law with exponent 1. */
static unsigned draw_adapter(void)
{
    static double sums[ADAPTERS];
    double at;
    unsigned adapter = 0;

    if (sums[0] == 0)
        for (unsigned i = 0; i < ADAPTERS; i++)
            sums[i] = (i > 0 ? sums[i - 1] : 0) + 1.0 / (i + 1);
    at = (double)below(1u << 30) / (1u << 30) * sums[ADAPTERS - 1];
    while (sums[adapter] < at)
        adapter++;
    return adapter;
}

/* Keeps the list of uses, the latest first; returns true if the store was among the first. */
static bool simulate(unsigned *list, unsigned *length, unsigned adapter)
{
    unsigned at = 0;
    bool hit;

    while (at < *length && list[at] != adapter)
        at++;
    hit = at < *length;
    if (!hit && *length < ROOM)
        (*length)++;
    if (!hit)
        at = *length - 1;
    memmove(list + 1, list, at * sizeof *list);
    list[0] = adapter;
    return hit;
}

/* The same by the choice: a store that is not there comes, for 64 MB. */
static bool use(struct evict_row rows[ADAPTERS], unsigned adapter, uint64_t now_ms)
{
    static struct evict_row there[ADAPTERS];
    struct evict_pool pool = {.max_bytes = UINT64_MAX};
    struct evict_wish wish = {.bytes = 64, .now_ms = now_ms};
    bool hit = rows[adapter].bytes > 0;
    size_t count = 0;
    long gone;

    for (unsigned i = 0; i < ADAPTERS; i++) {
        if (rows[i].bytes > 0)
            there[count++] = rows[i];
    }
    pool.used_bytes = count * 64;
    wish.free_bytes = (ROOM - count) * 64;
    gone = hit ? 0 : evict_choose(there, count, &pool, 1, &wish);
    require(gone >= 0);
    for (long i = 0; i < gone; i++)
        rows[there[i].store - 1].bytes = 0;
    rows[adapter] = (struct evict_row){.store = adapter + 1,
                                       .bytes = 64,
                                       .has_spare = true,
                                       .last_used_ms = now_ms,
                                       .promoted_ms = now_ms};
    return hit;
}

TAP_TEST(uses_by_zipfs_law_hit_when_the_simulator_of_lru_does_to_the_use)
{
    static struct evict_row rows[ADAPTERS];
    unsigned list[ROOM + 1], length = 0, hits = 0;

    random_state = 5;
    for (unsigned i = 0; i < USES; i++) {
        unsigned adapter = draw_adapter();
        bool hit = simulate(list, &length, adapter);

        require(use(rows, adapter, i + 1) == hit);
        hits += hit;
    }
    check(hits > USES / 2 && hits < USES * 9 / 10);
}

/* ---- spares --------------------------------------------------------------------------------- */

#define MOST_SPARES 10u

static uint64_t sum_spares(const struct evict_spare *rows, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += rows[i].bytes;
    return bytes;
}

static size_t make_spares(struct evict_spare *rows)
{
    size_t count = below(MOST_SPARES + 1);

    for (size_t i = 0; i < count; i++)
        rows[i] = (struct evict_spare){.store = i + 1,
                                       .bytes = 1 + below(20),
                                       .is_place = one_in(4),
                                       .pinned = one_in(4),
                                       .doubled = one_in(4),
                                       .last_used_ms = one_in(5) ? UINT64_MAX : below(4),
                                       .goes = one_in(2)};
    return count;
}

TAP_TEST(enough_spares_go_and_none_of_them_could_stay_or_none_at_all)
{
    random_state = 7;
    for (unsigned round = 0; round < 20000; round++) {
        struct evict_spare rows[MOST_SPARES], other[MOST_SPARES];
        size_t count = make_spares(rows), chosen;
        uint64_t bytes = 1 + below(100), all_bytes = sum_spares(rows, count);

        for (size_t i = 0; i < count; i++)
            other[i] = rows[count - 1 - i];
        chosen = evict_choose_spares(rows, count, bytes);
        require(check_int(evict_choose_spares(other, count, bytes), chosen));
        if (!check((chosen > 0) == (bytes <= all_bytes)))
            return;
        for (size_t i = 0; i < chosen; i++)
            require(check_int(other[i].store, rows[i].store));
        for (size_t i = 0; i < chosen; i++)
            require(check(sum_spares(rows, chosen) - rows[i].bytes < bytes));
        require(check(chosen == 0 || sum_spares(rows, chosen) >= bytes));
    }
}

TAP_TEST(places_go_after_spares_and_the_longest_unused_first)
{
    struct evict_spare rows[] = {
        {.store = 1, .bytes = 1, .last_used_ms = 5, .is_place = true, .doubled = true},
        {.store = 2, .bytes = 1, .last_used_ms = 3, .is_place = true, .doubled = true},
        {.store = 3, .bytes = 1, .last_used_ms = 3, .is_place = true, .doubled = true},
        {.store = 4, .bytes = 1, .last_used_ms = 1},
        {.store = 5, .bytes = 1, .last_used_ms = 0, .doubled = true},
        {.store = 6, .bytes = 1, .last_used_ms = 9},
    };
    static const uint64_t order[] = {5, 6, 4, 2, 3, 1};

    check_int(evict_choose_spares(rows, 6, 6), 6);
    for (size_t i = 0; i < 6; i++)
        check_int(rows[i].store, order[i]);
}

TAP_TEST(spares_of_pinned_stores_go_first_then_of_held_ones_then_of_the_last_used)
{
    struct evict_spare rows[] = {
        {.store = 1, .bytes = 1, .last_used_ms = 5},
        {.store = 2, .bytes = 1, .last_used_ms = 9},
        {.store = 3, .bytes = 1, .last_used_ms = UINT64_MAX},
        {.store = 4, .bytes = 1, .last_used_ms = 1, .pinned = true},
        {.store = 5, .bytes = 1, .last_used_ms = 5},
    };
    static const uint64_t order[] = {4, 3, 2, 5, 1};

    check_int(evict_choose_spares(rows, 5, 5), 5);
    for (size_t i = 0; i < 5; i++)
        check_int(rows[i].store, order[i]);
}
