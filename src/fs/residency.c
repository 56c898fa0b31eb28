/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/residency.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORD_BYTES 16u

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* A tier, or `none`. */
static int find_place(const char *word, enum core_place *place)
{
    for (unsigned i = 0; i < CORE_PLACE_COUNT; i++) {
        if (strcmp(word, core_place_name((enum core_place)i)) != 0)
            continue;
        *place = (enum core_place)i;
        return 0;
    }
    return -EINVAL;
}

static int parse_word(const char *word, struct service_move_order *order)
{
    bool adds = word[0] == '+', drops = word[0] == '-';
    int error;

    *order = (struct service_move_order){.act = SERVICE_MOVE_CANCEL};
    if (strcmp(word, "cancel") == 0)
        return 0;
    error = find_place(word + (adds || drops), &order->place);
    order->act = SERVICE_MOVE_TO;
    if (adds)
        order->act = SERVICE_MOVE_COPY;
    if (drops)
        order->act = SERVICE_MOVE_DROP;
    /* A spare is where the place is not, and `none` is no tier. */
    if ((adds || drops) && (order->place == CORE_PLACE_DEVICE || order->place == CORE_PLACE_NONE))
        return -EINVAL;
    return error;
}

int residency_parse(const char *text, size_t bytes, struct service_move_order *order)
{
    char word[WORD_BYTES];

    while (bytes > 0 && is_space(text[bytes - 1]))
        bytes--;
    while (bytes > 0 && is_space(text[0])) {
        text++;
        bytes--;
    }
    if (bytes == 0 || bytes >= sizeof word || memchr(text, '\0', bytes))
        return -EINVAL;
    memcpy(word, text, bytes);
    word[bytes] = '\0';
    return parse_word(word, order);
}

size_t residency_format(const struct core_store *store, const struct service_moving *moving,
                        char text[RESIDENCY_TEXT_BYTES])
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < CORE_TIER_COUNT; i++) {
        if (core_has_copy(store, (enum core_place)i))
            used += (size_t)snprintf(text + used, RESIDENCY_TEXT_BYTES - used, "%s%s",
                                     used > 0 ? " " : "", core_place_name((enum core_place)i));
    }
    if (store->lock.committed)
        used += (size_t)snprintf(text + used, RESIDENCY_TEXT_BYTES - used, "%s\n",
                                 used > 0 ? "" : core_place_name(CORE_PLACE_NONE));
    if (moving)
        used += (size_t)snprintf(text + used, RESIDENCY_TEXT_BYTES - used,
                                 "moving %s %" PRIu64 " %" PRIu64 "\n", core_place_name(moving->to),
                                 moving->done_bytes, moving->all_bytes);
    return used;
}
