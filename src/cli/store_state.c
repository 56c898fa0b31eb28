/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_state.h"

#include <errno.h>
#include <stddef.h>
#include <strings.h>

#define STATE_NAME(word, number) [number] = #word,
static const char *const state_names[] = {GMSFS_STATE_LIST(STATE_NAME)};

#define STATES (sizeof(state_names) / sizeof(state_names[0]))

const char *store_state_name(enum gmsfs_state state)
{
    return (size_t)state < STATES ? state_names[state] : "UNKNOWN";
}

int store_state_parse(const char *text, enum gmsfs_state *state)
{
    for (size_t i = 0; i < STATES; i++) {
        if (strcasecmp(text, state_names[i]) == 0) {
            *state = (enum gmsfs_state)i;
            return 0;
        }
    }
    return -EINVAL;
}
