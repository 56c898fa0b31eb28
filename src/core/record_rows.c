/* SPDX-License-Identifier: Apache-2.0 */
/* Many entries in one record: a msgpack array of [key, slot|nil, offset, value]. */
#include "core/core_internal.h"

#include "meta/unpack.h"

#include <errno.h>
#include <msgpack.h>
#include <stdlib.h>

#define ROW_FIELDS    4u
#define ROW_MIN_BYTES 7u /* an array, two numbers, two bins without bytes */

static int pack_bin(msgpack_packer *packer, const void *bytes, size_t size)
{
    int failed = msgpack_pack_bin(packer, size);

    return size > 0 && !failed ? msgpack_pack_bin_body(packer, bytes, size) : failed;
}

static int pack_row(msgpack_packer *packer, const struct layout_put *put)
{
    int failed = msgpack_pack_array(packer, ROW_FIELDS);

    failed |= pack_bin(packer, put->key, put->key_bytes);
    failed |= put->slot == LAYOUT_UNBOUND ? msgpack_pack_nil(packer)
                                          : msgpack_pack_uint64(packer, put->slot);
    failed |= msgpack_pack_uint64(packer, put->offset);
    failed |= pack_bin(packer, put->value, put->value_bytes);
    return failed;
}

int record_rows_encode(const struct layout_put *puts, size_t count, uint8_t **bytes, size_t *size)
{
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    int failed;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    failed = msgpack_pack_array(&packer, count);
    for (size_t i = 0; i < count && !failed; i++)
        failed = pack_row(&packer, &puts[i]);
    if (failed) {
        msgpack_sbuffer_destroy(&buffer);
        return -ENOMEM;
    }
    *size = buffer.size;
    *bytes = (uint8_t *)msgpack_sbuffer_release(&buffer);
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
