/* SPDX-License-Identifier: Apache-2.0 */
/* Text written to `residency`: one of its words, or nothing. */
#include "fuzz.h"

#include "fs/residency.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char ACTS[] = {[SERVICE_MOVE_TO] = '\0',
                            [SERVICE_MOVE_COPY] = '+',
                            [SERVICE_MOVE_DROP] = '-',
                            [SERVICE_MOVE_CANCEL] = '\0'};

/* Writes the order as a word with the same meaning. */
static void write_again(const struct service_move_order *order)
{
    struct service_move_order again;
    char word[80];
    int size =
        snprintf(word, sizeof word, "%.1s%s%s", &ACTS[order->act],
                 order->act == SERVICE_MOVE_CANCEL ? "cancel" : core_place_name(order->place),
                 order->is_drained ? " drained " : "\n");

    for (unsigned i = 0; order->is_drained && i < sizeof order->token; i++)
        size += snprintf(word + size, sizeof word - (size_t)size, "%02x", order->token[i]);

    must(residency_parse(word, (size_t)size, &again) == 0);
    must(again.act == order->act && again.place == order->place);
    must(again.is_drained == order->is_drained &&
         memcmp(again.token, order->token, sizeof again.token) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct service_move_order order;
    int error = residency_parse((const char *)data, size, &order);

    must(error == 0 || error == -EINVAL);
    if (error < 0)
        return 0;
    must(!order.is_drained || order.act == SERVICE_MOVE_TO);
    must(order.act <= SERVICE_MOVE_CANCEL && order.place < CORE_PLACE_COUNT);
    must(order.act == SERVICE_MOVE_TO || order.act == SERVICE_MOVE_CANCEL ||
         order.place == CORE_PLACE_HOST || order.place == CORE_PLACE_DISK);
    write_again(&order);
    return 0;
}
