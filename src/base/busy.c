/* SPDX-License-Identifier: Apache-2.0 */
#include "base/busy.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#define WAIT_US   50u /* twice as long with the slack of timers */
#define WAITS_MAX 20u

static atomic_bool is_busy;
static _Thread_local uint64_t gives_way_until_ms;

void busy_begin(void)
{
    atomic_store_explicit(&is_busy, true, memory_order_relaxed);
}

void busy_end(void)
{
    atomic_store_explicit(&is_busy, false, memory_order_relaxed);
}

void busy_give_way_for(unsigned ms)
{
    gives_way_until_ms = ms > 0 ? clock_now_ms() + ms : 0;
}

void busy_let_pass(void)
{
    for (unsigned i = 0; i < WAITS_MAX && gives_way_until_ms > 0; i++) {
        if (!atomic_load_explicit(&is_busy, memory_order_relaxed) ||
            clock_now_ms() >= gives_way_until_ms)
            return;
        usleep(WAIT_US);
    }
}
