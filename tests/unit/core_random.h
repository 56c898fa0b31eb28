/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_random - random records, mostly sensible, sometimes not
 *
 * For test_records.c. random_step draws one kind of record, fills it with objects of the core at
 * that time, and applies it through the fixture. The same random_state gives the same records.
 */
#ifndef GMSFS_TESTS_UNIT_CORE_RANDOM_H
#define GMSFS_TESTS_UNIT_CORE_RANDOM_H

#include "core_random_clients.h"
#include "core_random_mount.h"

/* Each other walk has no budgets but the first pool's, which has none. */
static bool has_pools;

static const struct {
    int (*step)(void);
    unsigned weight;
} steps[] = {
    {step_store, 3},       {step_open, 8},        {step_lock_open, 14}, {step_acquire, 10},
    {step_join, 4},        {step_leave, 12},      {step_time, 10},      {step_commit, 8},
    {step_add, 10},        {step_allocation, 10}, {step_entry, 10},     {step_ticket, 5},
    {step_bind, 2},        {step_reserve, 5},     {step_drain, 3},      {step_health, 2},
    {step_gather, 4},      {step_lend, 6},        {step_fence, 3},      {step_region, 12},
    {step_store_drain, 4}, {step_pool, 8},        {step_move, 14},      {step_resume, 2},
    {step_contents, 6},
};

/* Every other walk meets bounds. */
static void choose_limits(uint64_t seed)
{
    core_start_limits = (struct core_limits){.events = 16};
    has_pools = seed % 4 < 2;
    if (seed % 2)
        core_start_limits = (struct core_limits){.events = 16,
                                                 .files = 16 + below(16),
                                                 .tickets = 2 + below(8),
                                                 .gathered_bytes = 1000,
                                                 .sessions = 3 + below(8),
                                                 .waiters = 3 + below(8),
                                                 .regions = 4 + below(8),
                                                 .region_bytes = 20 + below(60)};
}

static int random_step(void)
{
    unsigned total = 0;
    uint64_t dice;
    size_t i = 0;

    for (size_t j = 0; j < sizeof steps / sizeof steps[0]; j++)
        total += steps[j].weight;
    dice = below(total);
    device_free = below(12) * GRAIN;
    reserved_before = core->reserved_bytes;
    while (dice >= steps[i].weight)
        dice -= steps[i++].weight;
    if (steps[i].step == step_pool && !has_pools)
        return step_time();
    return steps[i].step();
}

#endif
