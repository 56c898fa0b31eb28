/* SPDX-License-Identifier: Apache-2.0 */
/* A page of S3's list of objects: the XML of a server. */
#include "fuzz.h"

#include "source/s3_list.h"

#include <errno.h>

static int add(void *context, const char *key, uint64_t size_bytes, bool is_folder)
{
    unsigned *count = context;

    must(key[0] != '\0' && strlen(key) <= S3_MOST_KEY_BYTES);
    must(size_bytes <= INT64_MAX && (!is_folder || size_bytes == 0));
    return ++*count > 1000 ? -E2BIG : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), code[64];
    struct s3_page page;
    unsigned count = 0;
    int error = s3_list_decode(text, size, add, &count, &page);

    must(error == 0 || error == -EPROTO || error == -E2BIG);
    must(error != -EPROTO || fuzz_is_line(page.fault));
    must(error != 0 || !page.is_truncated || page.token[0] != '\0');
    must(strlen(page.token) <= S3_MOST_TOKEN_BYTES);
    if (s3_error_get(text, "Code", code, sizeof(code)))
        must(!strchr(code, '<'));
    free(text);
    return 0;
}
