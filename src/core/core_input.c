/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_input.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors --------------------------------------------------------------------------------- */

void input_fail(struct input *input, int error)
{
    if (input->error == 0)
        input->error = error == -ENOMEM ? failure_no_memory(input->failure) : error;
}

void input_refuse(struct input *input, const char *format, ...)
{
    char why[128], which[24] = "";
    va_list arguments;

    if (input->error < 0)
        return;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (input->which > 0)
        snprintf(which, sizeof which, " %" PRIu64, input->which);
    input->error = failure_set(input->failure, -EINVAL, "byte %zu of the saved state, %s%s: %s",
                               (size_t)(input->at - input->start), input->part, which, why);
}

/* ---- numbers, texts ------------------------------------------------------------------------- */

size_t input_left(const struct input *input)
{
    return (size_t)(input->end - input->at);
}

const uint8_t *input_raw(struct input *input, size_t size)
{
    const uint8_t *bytes = input->at;

    if (input->error == 0 && size > input_left(input))
        input_refuse(input, "the bytes end too early");
    if (input->error < 0)
        return NULL;
    input->at += size;
    return bytes;
}

static void input_fixed(struct input *input, void *bytes, size_t size)
{
    const uint8_t *from = input_raw(input, size);

    if (from)
        memcpy(bytes, from, size);
}

static uint8_t input_u8(struct input *input)
{
    uint8_t number = 0;

    input_fixed(input, &number, sizeof number);
    return number;
}

uint32_t input_u32(struct input *input)
{
    uint32_t little = 0;

    input_fixed(input, &little, sizeof little);
    return le32toh(little);
}

uint64_t input_u64(struct input *input)
{
    uint64_t little = 0;

    input_fixed(input, &little, sizeof little);
    return le64toh(little);
}

static uint64_t input_within(struct input *input, uint64_t least, uint64_t most)
{
    uint64_t number = input_u64(input);

    if (number >= least && number <= most)
        return number;
    input_refuse(input, "%" PRIu64 " is out of range", number);
    return least;
}

bool input_bool(struct input *input)
{
    uint8_t number = input_u8(input);

    if (number > 1)
        input_refuse(input, "%u is neither 0 nor 1", number);
    return number == 1;
}

unsigned input_choice(struct input *input, unsigned least, unsigned most)
{
    uint8_t number = input_u8(input);

    if (number >= least && number <= most)
        return number;
    input_refuse(input, "%u is not a known value", number);
    return least;
}

size_t input_count(struct input *input, size_t most, size_t bytes_each)
{
    uint32_t count = input_u32(input);

    if (count <= most && count <= input_left(input) / bytes_each)
        return count;
    input_refuse(input, "%" PRIu32 " are too many", count);
    return 0;
}

const void *input_bytes(struct input *input, size_t most, size_t *size)
{
    *size = input_u32(input);
    if (*size > most) {
        input_refuse(input, "a text of %zu bytes is too long", *size);
        *size = 0;
    }
    return input_raw(input, *size);
}

static void input_text(struct input *input, char *text, size_t room)
{
    size_t size;
    const char *from = input_bytes(input, room - 1, &size);

    if (!from)
        return;
    if (memchr(from, '\0', size))
        input_refuse(input, "a text contains a NUL");
    memset(text, 0, room);
    memcpy(text, from, size);
}

struct core_process input_process(struct input *input)
{
    struct core_process process = {.pid = input_u64(input)};

    process.start = input_u64(input);
    return process;
}

static void read_field(struct input *input, const struct core_field *field, void *at)
{
    switch (field->kind) {
    case CORE_FIELD_U64:
        *(uint64_t *)at = input_within(input, field->least, field->most);
        break;
    case CORE_FIELD_U32:
        *(uint32_t *)at = input_u32(input);
        break;
    case CORE_FIELD_BOOL:
        *(bool *)at = input_bool(input);
        break;
    case CORE_FIELD_CHOICE:
        *(uint32_t *)at = input_choice(input, (unsigned)field->least, (unsigned)field->most);
        break;
    case CORE_FIELD_TEXT:
        input_text(input, at, field->size);
        break;
    default:
        input_fixed(input, at, field->size);
        break;
    }
}

void input_fields(struct input *input, const struct core_field *fields, void *object)
{
    for (const struct core_field *field = fields; field->kind != CORE_FIELD_END; field++)
        read_field(input, field, (uint8_t *)object + field->at);
}

uint64_t input_id(struct input *input, const char *part)
{
    input->part = part;
    input->which = 0;
    input->which = input_u64(input);
    return input->which;
}

bool input_keep(struct input *input, struct idvec *vec, void *item, uint64_t next)
{
    uint64_t id = *(const uint64_t *)item, before = 0;

    if (vec->count > 0)
        before = *(const uint64_t *)vec->items[vec->count - 1];
    if (id <= before || id >= next)
        input_refuse(input, "its number is out of order");
    if (input->error == 0)
        input_fail(input, idvec_append(vec, item));
    if (input->error == 0)
        return true;
    free(item);
    return false;
}

void *input_new_item(struct input *input, size_t size)
{
    void *item = input->error == 0 ? calloc(1, size) : NULL;

    if (!item)
        input_fail(input, -ENOMEM);
    return item;
}

void input_take(struct input *input, struct share *share, uint32_t uid, uint64_t more)
{
    if (input->error < 0)
        return;
    if (more > share->limit - share->taken)
        input_refuse(input, "user %" PRIu32 " has more than the bound", uid);
    else
        input_fail(input, share_take(share, uid, more));
}
