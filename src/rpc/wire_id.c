/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/wire_id.h"

#include "base/hex.h"

#include <string.h>

/* the last bytes hold the serial, which stays below 2^56; version and variant lie before them */
#define SERIAL_AT    9u
#define SERIAL_BYTES 7u

static void mark_version_4(uint8_t bytes[16])
{
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
}

void wire_id_format_uuid(const uint8_t bytes[16], char text[WIRE_ID_UUID_BYTES])
{
    uint8_t marked[16];

    memcpy(marked, bytes, sizeof marked);
    mark_version_4(marked);
    hex_format_uuid(marked, text);
}

void wire_id_format_gpu(const uint8_t bytes[16], char text[WIRE_ID_GPU_BYTES])
{
    static const char prefix[] = {'G', 'P', 'U', '-'};

    memcpy(text, prefix, sizeof prefix);
    hex_format_uuid(bytes, text + sizeof prefix);
}

static void format_serial(const struct core_store *store, uint64_t serial,
                          char text[WIRE_ID_UUID_BYTES])
{
    uint8_t bytes[16];

    memcpy(bytes, store->uuid, sizeof bytes);
    for (size_t i = 0; i < SERIAL_BYTES; i++)
        bytes[SERIAL_AT + i] ^= (uint8_t)(serial >> (8 * (SERIAL_BYTES - 1 - i)));
    mark_version_4(bytes);
    hex_format_uuid(bytes, text);
}

const char *wire_id_of(enum message_protocol protocol, const struct core_store *store,
                       const struct layout_allocation *allocation, char text[WIRE_ID_UUID_BYTES])
{
    if (protocol == MESSAGE_V1 && allocation->wire_id)
        return allocation->wire_id;
    format_serial(store, allocation->serial, text);
    return text;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool wire_id_parse_uuid(const char *text, size_t bytes, uint8_t uuid[16])
{
    uint8_t read[16];
    size_t digits = 0;

    if (bytes != WIRE_ID_UUID_BYTES - 1)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        int digit = digit_of(text[i]);
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (is_dash ? text[i] != '-' : digit < 0)
            return false;
        if (is_dash)
            continue;
        read[digits / 2] = (uint8_t)(read[digits / 2] << 4 | digit);
        digits++;
    }
    memcpy(uuid, read, sizeof read);
    return true;
}

/* Returns the serial that such an id encodes. */
static uint64_t read_serial(const struct core_store *store, const uint8_t bytes[16])
{
    uint64_t serial = 0;

    for (size_t i = 0; i < SERIAL_BYTES; i++)
        serial = serial << 8 | (uint8_t)(bytes[SERIAL_AT + i] ^ store->uuid[SERIAL_AT + i]);
    return serial;
}

const struct layout_allocation *wire_id_find(enum message_protocol protocol,
                                             const struct core_store *store,
                                             const struct layout *layout, const char *id,
                                             size_t id_bytes)
{
    const struct layout_allocation *found = NULL;
    char text[LAYOUT_MAX_WIRE_ID_BYTES + 1], made[WIRE_ID_UUID_BYTES];
    uint8_t uuid[16];

    if (id_bytes == 0 || id_bytes >= sizeof text || memchr(id, '\0', id_bytes))
        return NULL;
    memcpy(text, id, id_bytes);
    text[id_bytes] = '\0';
    if (protocol == MESSAGE_V1)
        found = layout_find_wire_id(layout, text);
    if (found || !wire_id_parse_uuid(text, id_bytes, uuid))
        return found;
    found = layout_find_serial(layout, read_serial(store, uuid));
    if (!found || (protocol == MESSAGE_V1 && found->wire_id))
        return NULL;
    format_serial(store, found->serial, made);
    return strcmp(made, text) == 0 ? found : NULL;
}
