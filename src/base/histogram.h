/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram - durations counted by size, as `metrics` shows them
 *
 * Plain numbers without pointers, for memory that outlives a process and that another build
 * continues: the bounds never change. Pure; one writer.
 */
#ifndef GMSFS_BASE_HISTOGRAM_H
#define GMSFS_BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BOUNDS 15u

/* Upper bounds of the buckets, in microseconds. The last bucket has none. */
static const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS] = {
    10,     50,     100,     500,     1000,     5000,     10000,     50000,
    100000, 500000, 1000000, 5000000, 10000000, 60000000, 600000000,
};

struct histogram {
    uint64_t sum_us;
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* of each bucket alone */
};

static inline void histogram_add(struct histogram *histogram, uint64_t took_us)
{
    size_t bucket = 0;
    while (bucket < HISTOGRAM_BOUNDS && took_us > histogram_bounds_us[bucket])
        bucket++;
    histogram->counts[bucket]++;
    histogram->sum_us += took_us;
}

#endif
