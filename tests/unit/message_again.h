/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_again - a decoded message as a frame, with its items
 *
 * For the unit tests and the fuzz target of src/rpc/message.h.
 */
#ifndef GMSFS_TESTS_UNIT_MESSAGE_AGAIN_H
#define GMSFS_TESTS_UNIT_MESSAGE_AGAIN_H

#include "rpc/message.h"

/* Returns 0 or the encoder's error; a failed step makes the end fail too. */
__attribute__((unused)) static int encode_again(struct message_buffer *buffer,
                                                enum message_protocol protocol,
                                                const struct message *message)
{
    struct message_list list = message->list;
    struct message item;

    message_begin(buffer, protocol, message);
    while (message_next_item(&list, &item))
        message_add_item(buffer, &item);
    return message_end(buffer);
}

/* Compares two integers that are present: below 0, 0 or above 0. */
__attribute__((unused)) static int message_integer_compare(struct message_integer a,
                                                           struct message_integer b)
{
    int order = (a.magnitude > b.magnitude) - (a.magnitude < b.magnitude);

    if (a.is_negative != b.is_negative)
        return a.is_negative ? -1 : 1;
    return a.is_negative ? -order : order;
}

#endif
