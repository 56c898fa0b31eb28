/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - the choice of victims among as many stores as a mount may have, against one sort of them
 *
 * Every store may go: the first row takes one victim, the second half of them all. The floor is one
 * qsort(3) of rows of that size by when they were used.
 */
#include "core/evict.h"
#include "bench.h"

#define STORES 4096u
#define POOLS  256u

static struct evict_row rows[STORES], chosen[STORES];
static struct evict_pool pools[POOLS];

static void fill(void)
{
    uint64_t state = 1;

    for (size_t i = 0; i < POOLS; i++)
        pools[i] = (struct evict_pool){.class = POOL_CLASS_STANDARD, .max_bytes = UINT64_MAX};
    for (size_t i = 0; i < STORES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows[i] = (struct evict_row){.store = i + 1,
                                     .pool = i % POOLS,
                                     .class = POOL_CLASS_STANDARD,
                                     .bytes = 64,
                                     .has_spare = true,
                                     .last_used_ms = state >> 20};
        pools[i % POOLS].used_bytes += 64;
        pools[i % POOLS].resident++;
    }
}

static double time_choice(uint64_t bytes)
{
    struct evict_wish wish = {.bytes = bytes};
    double from;

    memcpy(chosen, rows, sizeof chosen);
    from = bench_now_us();
    if (evict_choose(chosen, STORES, pools, POOLS, &wish) != (long)(bytes / 64))
        bench_die("the choice", EINVAL);
    return bench_now_us() - from;
}

static int compare_use(const void *left, const void *right)
{
    uint64_t a = ((const struct evict_row *)left)->last_used_ms,
             b = ((const struct evict_row *)right)->last_used_ms;

    return (a > b) - (a < b);
}

static double time_sort(void)
{
    double from;

    memcpy(chosen, rows, sizeof chosen);
    from = bench_now_us();
    qsort(chosen, STORES, sizeof *chosen, compare_use);
    return bench_now_us() - from;
}

static void compare(const char *label, uint64_t bytes, double limit)
{
    double ours[BENCH_ROUNDS], floor[BENCH_ROUNDS];

    for (size_t round = 0; round < BENCH_ROUNDS; round++) {
        ours[round] = time_choice(bytes);
        floor[round] = time_sort();
    }
    bench_row(label, bench_median(ours), bench_median(floor), limit, BENCH_AT_MOST);
}

int main(void)
{
    fill();
    compare("one victim of 4,096 stores / a sort of them", 64, 1);
    compare("2,048 victims of 4,096 stores / a sort of them", 2048 * 64, 1.5);
    return 0;
}
