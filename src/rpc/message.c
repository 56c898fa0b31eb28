/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of frames, texts and integers, for decoding and encoding. */
#include "rpc/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int message_payload_bytes(enum message_protocol protocol,
                          const uint8_t header[MESSAGE_HEADER_BYTES], size_t *payload_bytes)
{
    uint32_t most = protocol == MESSAGE_V1 ? MESSAGE_V1_MAX_BYTES : MESSAGE_V0_MAX_REQUEST_BYTES;
    uint32_t bytes = (uint32_t)header[0] << 24 | (uint32_t)header[1] << 16 |
                     (uint32_t)header[2] << 8 | header[3];

    if (bytes == 0)
        return -EINVAL;
    if (bytes > most)
        return -EMSGSIZE;
    *payload_bytes = bytes;
    return 0;
}

struct message_text message_text(const char *text)
{
    return (struct message_text){text, strlen(text)};
}

struct message_integer message_integer(uint64_t value)
{
    return (struct message_integer){.magnitude = value, .is_given = true};
}

const char *message_integer_format(struct message_integer integer,
                                   char text[MESSAGE_INTEGER_TEXT_BYTES])
{
    if (integer.is_given)
        snprintf(text, MESSAGE_INTEGER_TEXT_BYTES, "%s%" PRIu64, integer.is_negative ? "-" : "",
                 integer.magnitude);
    else
        snprintf(text, MESSAGE_INTEGER_TEXT_BYTES, "nil");
    return text;
}
