/* SPDX-License-Identifier: Apache-2.0 */
/* The names of states, modes and wishes for users. */
#include "fsm/lock.h"

#include <assert.h>
#include <stddef.h>

const char *lock_state_name(enum lock_state state)
{
#define NAME(word, number) [number] = #word,
    static const char *const names[LOCK_STATE_COUNT] = {GMSFS_STATE_LIST(NAME)};
#undef NAME

    assert((size_t)state < LOCK_STATE_COUNT);
    return names[state];
}

const char *lock_mode_name(enum lock_mode mode)
{
    static const char *const names[LOCK_MODES] = {
        [LOCK_MODE_NONE] = "none",
        [LOCK_MODE_RO] = "RO",
        [LOCK_MODE_RW] = "RW",
        [LOCK_MODE_RW_DATA] = "RW_DATA",
    };

    assert((size_t)mode < LOCK_MODES);
    return names[mode];
}

const char *lock_wish_name(enum lock_wish wish)
{
    static const char *const names[LOCK_WISHES] = {
        [LOCK_WISH_RO] = "RO",
        [LOCK_WISH_RW] = "RW",
        [LOCK_WISH_AUTO] = "AUTO",
        [LOCK_WISH_DATA] = "DATA",
    };

    assert(wish >= LOCK_WISH_RO && (size_t)wish < LOCK_WISHES);
    return names[wish];
}
