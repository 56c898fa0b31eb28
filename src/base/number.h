/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number - sums that stop at the greatest number, differences that stop at 0, multiples
 *
 * Pure and header-only, so that every layer can use it.
 */
#ifndef GMSFS_BASE_NUMBER_H
#define GMSFS_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t number_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t number_subtract(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t number_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the least multiple of `unit` that is not below `a`; `a` itself if there is no unit (0).
 * The multiple has to be below 2^64. */
static inline uint64_t number_round_up(uint64_t a, uint64_t unit)
{
    uint64_t over = unit ? a % unit : 0;

    return over ? a + (unit - over) : a;
}

#endif
