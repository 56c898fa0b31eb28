/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/long_value.h"

#include "base/json_scan.h"
#include "tensor/form.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

char *long_value_json(const char *format, uint64_t size_bytes)
{
    char *text;

    if (asprintf(&text, "{\"bytes\":%" PRIu64 ",\"format\":\"%s\"}", size_bytes, format) < 0)
        return NULL;
    return text;
}

static bool take_member(struct json_scan *scan, struct json_token *format, uint64_t *bytes)
{
    struct json_token name;

    if (!json_scan_string(scan, &name) || !json_scan_take(scan, ':'))
        return false;
    if (json_token_is(&name, "format"))
        return !format->text && json_scan_string(scan, format);
    if (json_token_is(&name, "bytes"))
        return *bytes == 0 && json_scan_number(scan, bytes) && *bytes > 0 && *bytes <= INT64_MAX;
    return json_scan_skip(scan);
}

int long_value_parse(const char *format, const void *value, size_t value_bytes,
                     uint64_t *size_bytes)
{
    struct json_scan scan = {value, (const char *)value + value_bytes};
    struct json_token found = {0};
    uint64_t bytes = 0;
    bool is_good = value_bytes <= TENSOR_VALUE_BYTES && json_scan_take(&scan, '{');

    do
        is_good = is_good && take_member(&scan, &found, &bytes);
    while (is_good && json_scan_take(&scan, ','));
    is_good = is_good && json_scan_take(&scan, '}') && json_scan_is_over(&scan) && found.text &&
              json_token_is(&found, format) && bytes > 0;
    *size_bytes = is_good ? bytes : 0;
    return is_good ? 0 : -EINVAL;
}
