/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries that make a store's files/model.safetensors or files/model.gguf: the value of its
 * tensors in the first line; behind that its __metadata__, or behind a '!' its __gguf__ and, on
 * another line, a key-value. Facts told of the file have to be true of it.
 */
#include "fuzz.h"

#include "meta/layout.h"
#include "tensor/gguf_file.h"
#include "tensor/made_file.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>

#define SIZE_BYTES 4096u
#define GGUF_MARK  '!'

static void put(struct layout *layout, uint64_t serial, const char *key, uint64_t slot,
                const void *value, size_t value_bytes)
{
    struct layout_put one = {.key = key,
                             .key_bytes = strlen(key),
                             .slot = slot,
                             .value = value,
                             .value_bytes = (uint32_t)value_bytes,
                             .serial = serial};

    must(layout_put(layout, &one) == 0);
}

/* Adds the entry __gguf__, and behind a line the value of the key k, which is in memory if that can
 * be a long value. */
static void put_gguf(struct layout *layout, uint64_t slot, const uint8_t *from, const uint8_t *end)
{
    const uint8_t *line = memchr(from, '\n', (size_t)(end - from));
    const uint8_t *order_end = line ? line : end;

    put(layout, 5, GGUF_ENTRY, LAYOUT_UNBOUND, from, (size_t)(order_end - from));
    if (line)
        put(layout, 6, "gguf:k", line + 1 < end && line[1] == '{' ? slot : LAYOUT_UNBOUND, line + 1,
            (size_t)(end - line - 1));
    put(layout, 7, "gguf:other", LAYOUT_UNBOUND, "word", 4);
}

/* Returns the text behind the first line; NULL: there is none. */
static const uint8_t *find_rest(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;

    return line ? line + 1 : NULL;
}

static bool has_metadata(const uint8_t *data, size_t size)
{
    const uint8_t *rest = find_rest(data, size);

    return rest && (rest == data + size || *rest != GGUF_MARK);
}

static struct layout *build(const uint8_t *data, size_t size)
{
    const uint8_t *rest = find_rest(data, size), *end = data + size;
    size_t value_bytes = rest ? (size_t)(rest - 1 - data) : size;
    struct layout *layout = layout_new();
    uint64_t slot;

    must(layout != NULL && layout_add(layout, 1, NULL, "", &slot) == 0);
    must(layout_set_memory(layout, slot, 1, SIZE_BYTES, SIZE_BYTES, false) == 0);
    put(layout, 2, "a", slot, data, value_bytes);
    put(layout, 3, "\"\xc3\xa9\\", slot, data, value_bytes);
    if (has_metadata(data, size))
        put(layout, 4, "__metadata__", LAYOUT_UNBOUND, rest, (size_t)(end - rest));
    else if (rest)
        put_gguf(layout, slot, rest + 1, end);
    return layout;
}

static void check_header(const struct file_plan *made, bool has_metadata)
{
    json_error_t error;
    json_t *header =
        json_loadb(made->text + 8, made->text_bytes - 8, JSON_REJECT_DUPLICATES, &error);

    must(json_is_object(header));
    must(json_object_size(header) == (has_metadata ? 3 : 2));
    must(json_is_object(json_object_get(header, "a")));
    must(has_metadata == json_is_object(json_object_get(header, "__metadata__")));
    json_decref(header);
}

static void check_extents(const struct file_plan *made)
{
    uint64_t at = 0;

    for (size_t i = 0; i < made->count; i++) {
        const struct file_extent *extent = &made->extents[i];
        uint64_t end = file_plan_end(made, i);

        must(extent->at == at && end > at);
        must(!file_extent_is_memory(extent) ||
             (extent->source == 1 && extent->offset + (end - at) <= SIZE_BYTES));
        must(extent->source != FILE_PLAN_TEXT || extent->offset + (end - at) <= made->text_bytes);
        must(file_plan_find(made, at) == i && file_plan_find(made, end - 1) == i);
        at = end;
    }
    must(at == made->size_bytes);
}

/* Returns the number of a GGUF file's header at this place, little-endian. */
static uint64_t header_number(const struct file_plan *made, size_t at)
{
    uint64_t number;

    must(made->text_bytes >= at + sizeof number);
    memcpy(&number, made->text + at, sizeof number);
    return le64toh(number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layout *layout = build(data, size);
    struct made_file_facts facts;
    struct file_plan *made;

    must(made_file_look(layout, &facts) == 0);
    int error = made_file_plan(layout, &made);
    must(error == (facts.size_bytes > 0 ? 0 : -EINVAL));
    if (error) {
        must(made == NULL && facts.why && fuzz_is_line(facts.why));
    } else {
        must(facts.size_bytes == made->size_bytes && facts.why == NULL);
        must(facts.plan_bytes == sizeof *made + file_plan_bytes(made));
        if (facts.is_gguf)
            /* Both entries are tensors, or none is: a vocabulary alone. */
            must(memcmp(made->text, "GGUF", 4) == 0 && header_number(made, 8) % 2 == 0 &&
                 header_number(made, 8) <= 2 && header_number(made, 16) <= 2);
        else
            check_header(made, has_metadata(data, size));
        check_extents(made);
    }
    made_file_free(made);
    layout_free(layout);
    return 0;
}
