/* SPDX-License-Identifier: Apache-2.0 */
/* text_region - the text of a region's file: one JSON object, for its owner and root */
#include "fs/fs_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes a JSON string. Names and keys are UTF-8. */
static bool put_string(FILE *out, const char *key, const char *text)
{
    json_t *string = json_string(text);
    char *dumped = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    bool fits = dumped && fprintf(out, ",\n  \"%s\": %s", key, dumped) > 0;
    json_decref(string);
    free(dumped);
    return fits;
}

/* Numbers of 64 bits, unlike jansson's. */
static void put_number(FILE *out, const char *key, uint64_t number)
{
    fprintf(out, ",\n  \"%s\": %" PRIu64, key, number);
}

static bool put_place(FILE *out, const struct core *core, const struct region *region)
{
    const struct core_store *store = core_find_store(core, region->store);
    const struct layout_allocation *allocation = core_find_region_allocation(core, region);
    if (!store || !allocation)
        return true;
    return put_string(out, "store", store->name) && put_string(out, "allocation", allocation->name);
}

static bool write_region(FILE *out, const struct core *core, const struct region *region)
{
    bool of_cuda = region->kind == REGION_CUDA;
    fprintf(out, "{\n  \"kind\": \"%s\"", of_cuda ? "cuda" : "system");
    bool fits = put_string(out, "name", region->name);
    if (of_cuda)
        fprintf(out, ",\n  \"device_id\": %" PRId64, region->device_id);
    else
        fits = fits && put_string(out, "key", region->key) && put_place(out, core, region);
    put_number(out, "offset", region->offset);
    put_number(out, "byte_size", region->byte_size);
    put_number(out, "references", region->references);
    fprintf(out, ",\n  \"draining\": %s", region->draining ? "true" : "false");
    fprintf(out, ",\n  \"writable\": %s", region->writable ? "true" : "false");
    put_number(out, "registered_ms", region->registered_ms);
    fputs("\n}\n", out);
    return fits;
}

int fs_text_region(const struct fs *fs, const struct region *region, struct fs_text *text)
{
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    if (!write_region(out, fs->core, region))
        text->error = -ENOMEM;
    return fs_text_end(text, out);
}
