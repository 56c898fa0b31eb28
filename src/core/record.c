/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record as bytes: a msgpack array of a version, the type, and all fields in the order of the
 * lists below, each in msgpack's shortest form. Decoding trusts nothing.
 */
#include "core/core_internal.h"

#include "pack/pack.h"
#include "pack/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct record, member)

static const size_t wide_fields[] = {
    AT(now_ms),     AT(wall_ms),       AT(store),  AT(file),        AT(session),
    AT(waiter),     AT(serial),        AT(slot),   AT(count),       AT(offset),
    AT(size_bytes), AT(aligned_bytes), AT(memory), AT(deadline_ms), AT(free_bytes),
};
static const size_t narrow_fields[] = {AT(flags), AT(kind), AT(wish), AT(uid), AT(gid), AT(mode)};

#define WIDE_COUNT   (sizeof wide_fields / sizeof wide_fields[0])
#define NARROW_COUNT (sizeof narrow_fields / sizeof narrow_fields[0])
#define FIELD_COUNT  (2u + WIDE_COUNT + NARROW_COUNT + 2u + 6u) /* + process + strings */

struct record_arena {
    size_t memory_count;
    uint64_t memories[];
};

size_t record_most_bytes(const struct record *record)
{
    size_t bytes = PACK_MAX_BYTES * (1 + FIELD_COUNT + record->memory_count) +
                   sizeof record->bytes16 + sizeof record->comm + record->name_bytes +
                   record->tag_bytes;

    return bytes + (record->puts ? record_rows_most_bytes(record->puts, record->put_count)
                                 : record->value_bytes);
}

/* Packs the rows as one binary; its head needs their length, so they are written first and then
 * moved. */
static uint8_t *pack_rows(uint8_t *at, const struct layout_put *puts, size_t count)
{
    uint8_t *rows = at + PACK_MAX_BYTES;
    size_t size = (size_t)(record_rows_pack(rows, puts, count) - rows);

    at = pack_bin_head(at, size);
    memmove(at, rows, size);
    return at + size;
}

uint8_t *record_pack(uint8_t *at, const struct record *record)
{
    const char *fields = (const char *)record;

    at = pack_array(at, FIELD_COUNT);
    at = pack_uint(at, CORE_RECORD_VERSION);
    at = pack_uint(at, (uint64_t)record->type);
    for (size_t i = 0; i < WIDE_COUNT; i++)
        at = pack_uint(at, *(const uint64_t *)(fields + wide_fields[i]));
    for (size_t i = 0; i < NARROW_COUNT; i++)
        at = pack_uint(at, *(const uint32_t *)(fields + narrow_fields[i]));
    at = pack_uint(at, record->process.pid);
    at = pack_uint(at, record->process.start);
    at = pack_bin(at, record->bytes16, sizeof record->bytes16);
    at = pack_bin(at, record->comm, sizeof record->comm);
    at = pack_bin(at, record->name, record->name_bytes);
    at = pack_bin(at, record->tag, record->tag_bytes);
    at = record->puts ? pack_rows(at, record->puts, record->put_count)
                      : pack_bin(at, record->value, record->value_bytes);
    at = pack_array(at, record->memory_count);
    for (size_t i = 0; i < record->memory_count; i++)
        at = pack_uint(at, record->memories[i]);
    return at;
}

static int read_numbers(struct unpack *unpack, struct record *record)
{
    char *fields = (char *)record;
    uint64_t number;

    for (size_t i = 0; i < WIDE_COUNT; i++) {
        if (unpack_uint(unpack, (uint64_t *)(fields + wide_fields[i])) < 0)
            return -EINVAL;
    }
    for (size_t i = 0; i < NARROW_COUNT; i++) {
        if (unpack_uint(unpack, &number) < 0 || number > UINT32_MAX)
            return -EINVAL;
        *(uint32_t *)(fields + narrow_fields[i]) = (uint32_t)number;
    }
    if (unpack_uint(unpack, &record->process.pid) < 0)
        return -EINVAL;
    return unpack_uint(unpack, &record->process.start);
}

static int read_fixed(struct unpack *unpack, void *to, size_t size)
{
    const uint8_t *bytes;
    size_t found;

    if (unpack_bin(unpack, &bytes, &found) < 0 || found != size)
        return -EINVAL;
    memcpy(to, bytes, size);
    return 0;
}

static int read_bytes(struct unpack *unpack, struct record *record)
{
    const uint8_t *name, *tag;

    if (read_fixed(unpack, record->bytes16, sizeof record->bytes16) < 0 ||
        read_fixed(unpack, record->comm, sizeof record->comm) < 0 ||
        unpack_bin(unpack, &name, &record->name_bytes) < 0 ||
        unpack_bin(unpack, &tag, &record->tag_bytes) < 0)
        return -EINVAL;
    record->name = (const char *)name;
    record->tag = (const char *)tag;
    return unpack_bin(unpack, &record->value, &record->value_bytes);
}

static int read_memories(struct unpack *unpack, struct record *record, struct record_arena **arena)
{
    struct record_arena *made;
    uint32_t count;

    if (unpack_array(unpack, &count) < 0 || count > unpack_left(unpack))
        return -EINVAL;
    made = malloc(sizeof *made + count * sizeof made->memories[0]);
    if (!made)
        return -ENOMEM;
    *arena = made;
    made->memory_count = count;
    for (uint32_t i = 0; i < count; i++) {
        if (unpack_uint(unpack, &made->memories[i]) < 0)
            return -EINVAL;
    }
    record->memories = made->memories;
    record->memory_count = count;
    return 0;
}

int record_decode(const void *bytes, size_t size, struct record *record,
                  struct record_arena **arena)
{
    struct unpack unpack = {.at = bytes};
    uint64_t version, type;
    uint32_t count;

    memset(record, 0, sizeof *record);
    *arena = NULL;
    if (size == 0)
        return -EINVAL;
    unpack.end = unpack.at + size;
    if (unpack_array(&unpack, &count) < 0 || unpack_uint(&unpack, &version) < 0)
        return -EINVAL;
    if (version != CORE_RECORD_VERSION) /* the format of the other bytes is unknown */
        return -EPROTONOSUPPORT;
    if (count != FIELD_COUNT || unpack_uint(&unpack, &type) < 0 || type < RECORD_STORE_CREATE)
        return -EINVAL;
    if (type >= RECORD_TYPE_COUNT) /* of a later build */
        return -EPROTONOSUPPORT;
    record->type = (enum record_type)type;
    if (read_numbers(&unpack, record) < 0 || read_bytes(&unpack, record) < 0)
        return -EINVAL;
    int error = read_memories(&unpack, record, arena);
    if (error == 0 && unpack_left(&unpack) > 0)
        error = -EINVAL;
    if (error < 0) {
        record_decode_free(*arena);
        *arena = NULL;
        memset(record, 0, sizeof *record);
    }
    return error;
}

void record_decode_free(struct record_arena *arena)
{
    free(arena);
}
