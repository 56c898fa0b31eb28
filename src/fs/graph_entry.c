/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/graph_entry.h"

#include <jansson.h>

static bool read_number(const json_t *object, const char *name, uint64_t *number)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

bool fs_graph_read(const void *bytes, size_t size, struct fs_graph *graph)
{
    if (size > FS_GRAPH_BYTES_MAX)
        return false;
    json_t *object = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_is_object(object) && read_number(object, "chunk_bytes", &graph->chunk_bytes) &&
                read_number(object, "spaces", &graph->spaces) &&
                read_number(object, "address_bytes", &graph->address_bytes) &&
                read_number(object, "high_bytes", &graph->high_bytes);
    json_decref(object);
    return good;
}
