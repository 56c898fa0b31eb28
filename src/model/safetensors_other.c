/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that is no safetensors file, and what a name is that JSON allows and gmsfs does
 * not: so that whoever named it learns more than that. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "safetensors_parts.h"

#define OTHER_FORMAT "; gmsfs loads safetensors: fetch the model in that format, or convert it"
#define TORCH_FORMAT OTHER_FORMAT " (torch.load, then safetensors.torch.save_file)"
#define NUL_ESCAPED  "\\u0000"
#define LENGTH_BYTES 8u

const char *safetensors_other(const char *bytes, size_t size_bytes)
{
#define BEGINS(magic) magic, sizeof(magic) - 1
    static const struct {
        const char *magic;
        size_t magic_bytes;
        const char *text;
    } others[] = {
        {BEGINS("GGUF"), "is a GGUF file, of llama.cpp" OTHER_FORMAT},
        {BEGINS("PK\x03\x04"),
         "is a ZIP archive, as PyTorch writes .bin, .pt and .pth" TORCH_FORMAT},
        {BEGINS("\x80\x02\x8a\nl\xfc\x9c\x46\xf9"),
         "is a pickle, as PyTorch wrote .bin, .pt and .pth" TORCH_FORMAT},
        {BEGINS("\x89HDF\r\n"), "is an HDF5 file" OTHER_FORMAT},
        {BEGINS("\x93NUMPY"), "is a NumPy array" OTHER_FORMAT},
        {BEGINS("version https://git-lfs"),
         "is a pointer of Git LFS and not the file itself; 'git lfs pull' fetches that"},
        {BEGINS("<!DOCTYPE"), "is a web page; fetch the file again, perhaps after a login"},
        {BEGINS("<!doctype"), "is a web page; fetch the file again, perhaps after a login"},
        {BEGINS("<html"), "is a web page; fetch the file again, perhaps after a login"},
    };
#undef BEGINS

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (size_bytes >= others[i].magic_bytes &&
            memcmp(bytes, others[i].magic, others[i].magic_bytes) == 0)
            return others[i].text;
    /* The length of a header is less than 2^32, so a file that is cut off has zeros here. */
    if (size_bytes >= LENGTH_BYTES && bytes[0] == '{' && !memchr(bytes, '\0', LENGTH_BYTES))
        return "is JSON and no safetensors file; an index has to be named *.json";
    return NULL;
}

/* ---- NUL bytes ----------------------------------------------------------------------------- */

/* A string of the text, between its quotes. */
struct json_text {
    const char *bytes;
    size_t size_bytes;
    unsigned depth; /* of objects and arrays around it */
    bool is_name;   /* a colon follows */
};

/* The next string, from *at on; false: there is none. Text that is no JSON gives anything, within
 * its bounds. */
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
        i++; /* what is escaped begins nothing */
    }
    return false;
}

int safetensors_fail_nul(const char *path, const char *what, const char *bytes, size_t size_bytes,
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
