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

/* Finds a tier, or `none`. */
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

static int find_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static int parse_token(const char *digits, size_t count, uint8_t token[16])
{
    if (count != 32)
        return -EINVAL;
    for (size_t i = 0; i < 16; i++) {
        int high = find_digit(digits[2 * i]), low = find_digit(digits[2 * i + 1]);

        if (high < 0 || low < 0)
            return -EINVAL;
        token[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

/* Parses `WORD drained TOKEN`: *bytes is then the word's. */
static int parse_drained(const char *text, size_t *bytes, struct service_move_order *order)
{
    static const char between[] = " drained ";
    const char *at = memmem(text, *bytes, between, sizeof between - 1);
    const char *token = at ? at + sizeof between - 1 : NULL;

    if (!at)
        return 0;
    order->is_drained = true;
    if (parse_token(token, (size_t)(text + *bytes - token), order->token) < 0)
        return -EINVAL;
    *bytes = (size_t)(at - text);
    return 0;
}

static int parse_word(const char *word, struct service_move_order *order)
{
    bool adds = word[0] == '+', drops = word[0] == '-';

    order->act = SERVICE_MOVE_CANCEL;
    if (strcmp(word, "cancel") == 0)
        return order->is_drained ? -EINVAL : 0;
    int error = find_place(word + (adds || drops), &order->place);
    order->act = SERVICE_MOVE_TO;
    if (adds)
        order->act = SERVICE_MOVE_COPY;
    if (drops)
        order->act = SERVICE_MOVE_DROP;
    /* A spare is never at the store's own place, and `none` is no tier. */
    if ((adds || drops) && (order->place == CORE_PLACE_DEVICE || order->place == CORE_PLACE_NONE))
        return -EINVAL;
    return order->is_drained && order->act != SERVICE_MOVE_TO ? -EINVAL : error;
}

int residency_parse(const char *text, size_t bytes, struct service_move_order *order)
{
    char word[WORD_BYTES];

    *order = (struct service_move_order){0};
    while (bytes > 0 && is_space(text[bytes - 1]))
        bytes--;
    while (bytes > 0 && is_space(text[0])) {
        text++;
        bytes--;
    }
    if (parse_drained(text, &bytes, order) < 0)
        return -EINVAL;
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
