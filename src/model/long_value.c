/* SPDX-License-Identifier: Apache-2.0 */
#include "model/long_value.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

char *long_value_json(const char *format, uint64_t size_bytes)
{
    json_auto_t *json = json_pack("{s:s, s:I}", "format", format, "bytes", (json_int_t)size_bytes);

    return json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

int long_value_parse(const char *format, const void *value, size_t value_bytes,
                     uint64_t *size_bytes)
{
    json_t *json = json_loadb(value, value_bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *found = json_string_value(json_object_get(json, "format"));
    json_int_t bytes = json_integer_value(json_object_get(json, "bytes"));
    int error = found && strcmp(found, format) == 0 && bytes > 0 ? 0 : -EINVAL;

    json_decref(json);
    *size_bytes = error ? 0 : (uint64_t)bytes;
    return error;
}
