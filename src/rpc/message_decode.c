/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes bytes into fields. The tag is found first, at any place of the map; then the map is read
 * once more by the tag's row. Items of a list are maps without lists: nothing nests deeper, and
 * deeper values are skipped.
 */
#include "rpc/message_table.h"

#include "base/clean.h"
#include "pack/unpack.h"

#include <errno.h>
#include <string.h>

struct reader {
    struct unpack unpack;
    enum message_protocol protocol;
};

typedef int read_value(struct reader *reader, const struct message_row *row,
                       const struct message_field *field, struct message *message);

static int read_text(struct reader *reader, struct message_text *text)
{
    const char *at;
    size_t bytes;

    if (unpack_str(&reader->unpack, &at, &bytes) < 0 || !clean_is_utf8(at, bytes))
        return -EINVAL;
    *text = (struct message_text){at, bytes};
    return 0;
}

static int read_bytes(struct reader *reader, struct message_text *value)
{
    const uint8_t *at;
    size_t bytes;

    if (unpack_bin(&reader->unpack, &at, &bytes) < 0)
        return -EINVAL;
    *value = (struct message_text){at, bytes};
    return 0;
}

static int read_integer(struct reader *reader, struct message_integer *integer)
{
    integer->is_given = true;
    return unpack_int(&reader->unpack, &integer->magnitude, &integer->is_negative);
}

static int read_lock(struct reader *reader, enum field_kind kind, struct message *message)
{
    const char *name;
    size_t bytes;

    if (unpack_str(&reader->unpack, &name, &bytes) < 0)
        return -EINVAL;
    message->lock_type = message_lock_from_name(reader->protocol, kind, name, bytes);
    message->is_older = message->lock_type != MESSAGE_LOCK_NIL &&
                        bytes != strlen(message_lock_name(kind, message->lock_type));
    return message->lock_type == MESSAGE_LOCK_NIL ? -EINVAL : 0;
}

static int read_identity(struct reader *reader, struct message *message)
{
    uint32_t count;

    if (unpack_array(&reader->unpack, &count) < 0 || count != 2 ||
        read_text(reader, &message->server_nonce) < 0)
        return -EINVAL;
    return read_text(reader, &message->gpu_uuid);
}

static void set_nil(const struct message_field *field, struct message *message)
{
    static const struct message nothing;
    char *member = (char *)message + field->offset;

    if (field->kind == FIELD_IDENTITY)
        message->server_nonce = message->gpu_uuid = nothing.tag;
    else if (field->kind == FIELD_GRANTED)
        message->lock_type = MESSAGE_LOCK_NIL;
    else if (field->kind == FIELD_INTEGER)
        *(struct message_integer *)member = nothing.size;
    else
        *(struct message_text *)member = nothing.tag;
}

static int read_plain(struct reader *reader, const struct message_row *row,
                      const struct message_field *field, struct message *message)
{
    void *member = (char *)message + field->offset;

    (void)row;
    if (message_is_nil_good(field) && unpack_nil(&reader->unpack)) {
        set_nil(field, message);
        return 0;
    }
    switch (field->kind) {
    case FIELD_INTEGER:
        return read_integer(reader, member);
    case FIELD_BOOL:
        return unpack_bool(&reader->unpack, member);
    case FIELD_TEXT:
        return read_text(reader, member);
    case FIELD_BYTES:
        return read_bytes(reader, member);
    case FIELD_WANTED:
    case FIELD_GRANTED:
        return read_lock(reader, field->kind, message);
    case FIELD_IDENTITY:
        return read_identity(reader, message);
    case FIELD_LIST:
        break;
    }
    return -EINVAL;
}

static int find_field(const struct message_row *row, const char *key, size_t bytes)
{
    for (int i = 0; row->fields[i].name; i++) {
        const struct message_field *field = &row->fields[i];
        if (bytes == field->name_bytes && memcmp(key, field->name, bytes) == 0)
            return i;
    }
    return -1;
}

/* A repeated tag has to be the same. */
static int read_type(struct reader *reader, const struct message_row *row)
{
    const char *tag;
    size_t bytes;

    if (unpack_str(&reader->unpack, &tag, &bytes) < 0)
        return -EINVAL;
    return bytes == strlen(row->tag) && memcmp(tag, row->tag, bytes) == 0 ? 0 : -EINVAL;
}

static bool is_type(const char *key, size_t bytes)
{
    return bytes == 4 && memcmp(key, "type", 4) == 0;
}

/* Reads one key and its value; sets the field's bit in *seen. */
static int read_pair(struct reader *reader, const struct message_row *row, read_value *read,
                     struct message *message, unsigned *seen)
{
    const char *key;
    size_t bytes;

    if (unpack_str(&reader->unpack, &key, &bytes) < 0)
        return -EINVAL;
    if (row->tag && is_type(key, bytes))
        return read_type(reader, row);
    int field = find_field(row, key, bytes);
    if (field >= 0) {
        *seen |= 1u << field;
        return read(reader, row, &row->fields[field], message);
    }
    return reader->protocol == MESSAGE_V0 ? unpack_skip(&reader->unpack) : -EINVAL;
}

static void clear(const struct message_row *row, struct message *message)
{
    *message = (struct message){.type = row->type, .is_older = row->is_older};
    for (const struct message_field *field = row->fields; field->name; field++)
        message_set_absent(field, message);
}

static int read_fields(struct reader *reader, const struct message_row *row, read_value *read,
                       struct message *message)
{
    unsigned seen = 0;
    uint32_t count;

    if (unpack_map(&reader->unpack, &count) < 0)
        return -EINVAL;
    for (uint32_t i = 0; i < count; i++) {
        if (read_pair(reader, row, read, message, &seen) < 0)
            return -EINVAL;
    }
    for (unsigned i = 0; row->fields[i].name; i++) {
        enum field_absent absent = row->fields[i].absent;
        if ((absent == FIELD_REQUIRED || absent == FIELD_REQUIRED_OR_NIL) && !(seen & 1u << i))
            return -EINVAL;
    }
    return 0;
}

static int read_item(struct reader *reader, const struct message_row *row, struct message *item)
{
    if (row->is_bare)
        return read_plain(reader, row, row->fields, item);
    return read_fields(reader, row, read_plain, item);
}

/* Checks all items; their values are not kept, nor cleared in between. */
static int read_list(struct reader *reader, const struct message_row *row,
                     struct message_list *list)
{
    struct message item;
    uint32_t count;

    if (unpack_array(&reader->unpack, &count) < 0 || count > unpack_left(&reader->unpack))
        return -EINVAL;
    *list = (struct message_list){
        .at = reader->unpack.at, .count = count, .protocol = reader->protocol, .item = row->item};
    for (uint32_t i = 0; i < count; i++) {
        if (read_item(reader, row->item, &item) < 0)
            return -EINVAL;
    }
    list->end = reader->unpack.at;
    return 0;
}

static int read_any(struct reader *reader, const struct message_row *row,
                    const struct message_field *field, struct message *message)
{
    if (field->kind == FIELD_LIST)
        return read_list(reader, row, &message->list);
    return read_plain(reader, row, field, message);
}

/* Finds the row by the first `type` of the map; NULL: no type, or an unknown one. */
static const struct message_row *find_row(struct reader reader)
{
    const char *text;
    size_t bytes;
    uint32_t count;

    if (unpack_map(&reader.unpack, &count) < 0)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (unpack_str(&reader.unpack, &text, &bytes) < 0)
            return NULL;
        if (is_type(text, bytes)) {
            if (unpack_str(&reader.unpack, &text, &bytes) < 0)
                return NULL;
            return message_find_tag(reader.protocol, text, bytes);
        }
        if (unpack_skip(&reader.unpack) < 0)
            return NULL;
    }
    return NULL;
}

int message_decode(enum message_protocol protocol, const void *payload, size_t bytes,
                   struct message *message)
{
    const uint8_t *start = payload;
    struct reader reader = {{start, start + bytes}, protocol};
    const struct message_row *row = find_row(reader);

    if (!row)
        return -EINVAL;
    clear(row, message);
    if (read_fields(&reader, row, read_any, message) < 0)
        return -EINVAL;
    return unpack_left(&reader.unpack) == 0 ? 0 : -EINVAL;
}

bool message_next_item(struct message_list *list, struct message *item)
{
    struct reader reader = {{list->at, list->end}, list->protocol};

    if (list->count == 0)
        return false;
    clear(list->item, item);
    item->type = 0;
    if (read_item(&reader, list->item, item) < 0)
        return false;
    list->at = reader.unpack.at;
    list->count--;
    return true;
}
