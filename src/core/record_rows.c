/* SPDX-License-Identifier: Apache-2.0 */
/* Many entries in one record: a msgpack array of [key, slot|nil, offset, value]. */
#include "core/core_internal.h"

#include "pack/pack.h"
#include "pack/unpack.h"

#include <errno.h>
#include <stdlib.h>

#define ROW_FIELDS    4u
#define ROW_MIN_BYTES 7u /* an array, two numbers, two bins without bytes */

size_t record_rows_most_bytes(const struct layout_put *puts, size_t count)
{
    size_t bytes = 2 * PACK_MAX_BYTES; /* heads of the binary and of the array */

    for (size_t i = 0; i < count; i++)
        bytes += (ROW_FIELDS + 1) * PACK_MAX_BYTES + puts[i].key_bytes + puts[i].value_bytes;
    return bytes;
}

uint8_t *record_rows_pack(uint8_t *at, const struct layout_put *puts, size_t count)
{
    at = pack_array(at, count);
    for (size_t i = 0; i < count; i++) {
        const struct layout_put *put = &puts[i];
        at = pack_array(at, ROW_FIELDS);
        at = pack_bin(at, put->key, put->key_bytes);
        at = put->slot == LAYOUT_UNBOUND ? pack_nil(at) : pack_uint(at, put->slot);
        at = pack_uint(at, put->offset);
        at = pack_bin(at, put->value, put->value_bytes);
    }
    return at;
}

int record_rows_encode(const struct layout_put *puts, size_t count, uint8_t **bytes, size_t *size)
{
    *bytes = malloc(record_rows_most_bytes(puts, count));
    if (!*bytes)
        return -ENOMEM;
    *size = (size_t)(record_rows_pack(*bytes, puts, count) - *bytes);
    return 0;
}

static int read_row(struct unpack *unpack, struct layout_put *put)
{
    const uint8_t *key, *value;
    uint32_t fields;

    if (unpack_array(unpack, &fields) < 0 || fields != ROW_FIELDS ||
        unpack_bin(unpack, &key, &put->key_bytes) < 0)
        return -EINVAL;
    put->slot = LAYOUT_UNBOUND;
    if (!unpack_nil(unpack) && unpack_uint(unpack, &put->slot) < 0)
        return -EINVAL;
    if (unpack_uint(unpack, &put->offset) < 0 || unpack_bin(unpack, &value, &put->value_bytes) < 0)
        return -EINVAL;
    put->key = key;
    put->value = value;
    return 0;
}

int record_rows_decode(const uint8_t *bytes, size_t size, struct layout_put **puts, size_t *count)
{
    struct unpack unpack = {.at = bytes};
    struct layout_put *made;
    uint32_t rows;
    int error = 0;

    if (size == 0)
        return -EINVAL;
    unpack.end = bytes + size;
    if (unpack_array(&unpack, &rows) < 0 || rows > unpack_left(&unpack) / ROW_MIN_BYTES)
        return -EINVAL;
    made = calloc((size_t)rows + 1, sizeof *made);
    if (!made)
        return -ENOMEM;
    for (uint32_t i = 0; error == 0 && i < rows; i++)
        error = read_row(&unpack, &made[i]);
    if (error == 0 && unpack_left(&unpack) > 0)
        error = -EINVAL;
    if (error < 0) {
        free(made);
        return error;
    }
    *puts = made;
    *count = rows;
    return 0;
}
