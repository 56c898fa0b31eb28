/* SPDX-License-Identifier: Apache-2.0 */
/* Parses JSON objects of a model, and finds names that JSON allows and gmsfs does not. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "safetensors_parts.h"

#define NUL_ESCAPED "\\u0000"

/* ---- NUL bytes ----------------------------------------------------------------------------- */

/* A string in the text, without its quotes. */
struct json_text {
    const char *bytes;
    size_t size_bytes;
    unsigned depth; /* number of objects and arrays around it */
    bool is_name;   /* followed by a colon */
};

/* Finds the next string from *at on; false: none. For invalid JSON the result is arbitrary, but
 * within bounds. */
static bool next_string(const char *bytes, size_t size_bytes, size_t *at, struct json_text *found)
{
    size_t end;

    for (; *at < size_bytes && bytes[*at] != '"'; ++*at) {
        found->depth += bytes[*at] == '{' || bytes[*at] == '[';
        found->depth -= bytes[*at] == '}' || bytes[*at] == ']';
    }
    for (end = *at + 1; end < size_bytes && bytes[end] != '"'; end++)
        end += bytes[end] == '\\';
    if (end >= size_bytes)
        return false;
    found->bytes = bytes + *at + 1;
    found->size_bytes = end - *at - 1;
    *at = end + 1;
    end++;
    while (end < size_bytes && strchr(" \t\r\n", bytes[end]))
        end++;
    found->is_name = end < size_bytes && bytes[end] == ':';
    return true;
}

static bool has_nul(const struct json_text *text)
{
    for (size_t i = 0; i + strlen(NUL_ESCAPED) <= text->size_bytes; i++) {
        if (text->bytes[i] != '\\')
            continue;
        if (memcmp(text->bytes + i, NUL_ESCAPED, strlen(NUL_ESCAPED)) == 0)
            return true;
        i++; /* skip the escaped character */
    }
    return false;
}

/* Reports where the text has an escaped NUL, which jansson refuses. */
static int fail_nul(const char *path, const char *what, const char *bytes, size_t size_bytes,
                    struct failure *failure)
{
    struct json_text text = {0};
    size_t at = 0;
    int length;

    while (next_string(bytes, size_bytes, &at, &text)) {
        if (!has_nul(&text))
            continue;
        length = text.size_bytes < 200 ? (int)text.size_bytes : 200;
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "%s '%.*s' has a NUL byte (" NUL_ESCAPED
                                "), which no name or text that is loaded "
                                "can have; write the file again without it",
                                !text.is_name     ? "the text"
                                : text.depth == 1 ? "the name of tensor"
                                                  : "the name",
                                length, text.bytes);
    }
    return safetensors_fail(failure, -EINVAL, path, NULL,
                            "%s has a NUL byte; write the file again without it", what);
}

/* ---- objects ------------------------------------------------------------------------------ */

int safetensors_parse_object(const char *path, const char *what, const char *bytes,
                             size_t size_bytes, json_t **object, struct failure *failure)
{
    json_error_t parse;
    json_t *value = json_loadb(bytes, size_bytes, JSON_REJECT_DUPLICATES, &parse);

    if (value == NULL && json_error_code(&parse) == json_error_out_of_memory)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    if (value == NULL && (json_error_code(&parse) == json_error_null_character ||
                          json_error_code(&parse) == json_error_null_byte_in_key))
        return fail_nul(path, what, bytes, size_bytes, failure);
    if (value == NULL && json_error_code(&parse) == json_error_duplicate_key)
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "a name occurs twice in %s: %s (byte %d of it); write the file "
                                "again with each name once",
                                what, parse.text, parse.position);
    if (value == NULL)
        return safetensors_fail(
            failure, -EINVAL, path, NULL,
            "%s is not valid JSON: %s (byte %d of it); fetch the file again, or "
            "if that is the same, write it again",
            what, parse.text, parse.position);
    if (!json_is_object(value)) {
        json_decref(value);
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "%s is not a JSON object; fetch the file again", what);
    }
    *object = value;
    return 0;
}
