/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as file names: one spelling each, and the way back is exact. */
#include "fuzz.h"

#include "base/clean.h"
#include "meta/name.h"

#include <errno.h>
#include <jansson.h>

static bool is_utf8_for_jansson(const uint8_t *data, size_t size)
{
    json_t *text = json_stringn((const char *)data, size);
    bool good = text != NULL;

    json_decref(text);
    return good;
}

static void try_key(const uint8_t *data, size_t size)
{
    char name[NAME_MAX_BYTES + 1], key[NAME_MAX_BYTES + 1];
    int length = name_encode_key(data, size, name);

    if (length < 0) {
        must(length == -EINVAL || length == -ENAMETOOLONG);
        must(length == -ENAMETOOLONG || size == 0 || !clean_is_utf8(data, size));
        return;
    }
    must(length > 0 && (size_t)length == strlen(name) && (size_t)length >= size);
    must(clean_is_utf8(data, size) && name[0] != '.' && !strchr(name, '/'));
    must(name_decode_key(name, key) == (int)size);
    must(memcmp(key, data, size) == 0 && key[size] == '\0');
}

static void try_name(const char *name)
{
    char key[NAME_MAX_BYTES + 1], again[NAME_MAX_BYTES + 1];
    int length = name_decode_key(name, key);

    if (length < 0) {
        must(length == -EINVAL || length == -ENAMETOOLONG);
        return;
    }
    must(length > 0 && name_encode_key(key, (size_t)length, again) == (int)strlen(name));
    must(strcmp(again, name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name = fuzz_text(data, size);

    must(clean_is_utf8(data, size) == is_utf8_for_jansson(data, size));
    try_key(data, size);
    try_name(name);
    free(name);
    return 0;
}
