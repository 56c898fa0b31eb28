/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries that make a store's files/model.safetensors: the value of its tensors in the first
 * line, its __metadata__ behind that. Facts told of the file have to be true of it.
 */
#include "fuzz.h"

#include "meta/layout.h"
#include "tensor/made_file.h"

#include <errno.h>
#include <jansson.h>

#define SIZE_BYTES 4096u

static void put(struct layout *layout, uint64_t serial, const char *key, uint64_t slot,
                const uint8_t *value, size_t value_bytes)
{
    struct layout_put one = {.key = key,
                             .key_bytes = strlen(key),
                             .slot = slot,
                             .value = value,
                             .value_bytes = (uint32_t)value_bytes,
                             .serial = serial};

    must(layout_put(layout, &one) == 0);
}

static struct layout *build(const uint8_t *data, size_t size)
{
    const uint8_t *line = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t value_bytes = line ? (size_t)(line - data) : size;
    struct layout *layout = layout_new();
    uint64_t slot;

    must(layout != NULL && layout_add(layout, 1, NULL, "", &slot) == 0);
    must(layout_set_memory(layout, slot, 1, SIZE_BYTES, SIZE_BYTES, false) == 0);
    put(layout, 2, "a", slot, data, value_bytes);
    put(layout, 3, "\"\xc3\xa9\\", slot, data, value_bytes);
    if (line)
        put(layout, 4, "__metadata__", LAYOUT_UNBOUND, line + 1, size - value_bytes - 1);
    return layout;
}

static void check_header(const struct made_file *made, bool has_metadata)
{
    json_error_t error;
    json_t *header =
        json_loadb(made->header + 8, made->header_bytes - 8, JSON_REJECT_DUPLICATES, &error);

    must(json_is_object(header));
    must(json_object_size(header) == (has_metadata ? 3 : 2));
    must(json_is_object(json_object_get(header, "a")));
    must(has_metadata == json_is_object(json_object_get(header, "__metadata__")));
    json_decref(header);
}

static void check_extents(const struct made_file *made)
{
    uint64_t at = made->header_bytes;

    for (size_t i = 0; i < made->count; i++) {
        uint64_t end = made_file_end(made, i);

        must(made->extents[i].at == at && end > at && end - at <= SIZE_BYTES);
        must(made_file_find(made, at) == i && made_file_find(made, end - 1) == i);
        at = end;
    }
    must(at == made->size_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layout *layout = build(data, size);
    struct made_file_facts facts;
    struct made_file *made;

    must(made_file_look(layout, &facts) == 0);
    int error = made_file_plan(layout, &made);
    must(error == (facts.size_bytes > 0 ? 0 : -EINVAL));
    if (error) {
        must(made == NULL && facts.why && fuzz_is_line(facts.why));
    } else {
        must(facts.size_bytes == made->size_bytes && facts.why == NULL);
        must(facts.plan_bytes >= sizeof *made + made->header_bytes);
        check_header(made, size > 0 && memchr(data, '\n', size));
        check_extents(made);
    }
    made_file_free(made);
    layout_free(layout);
    return 0;
}
