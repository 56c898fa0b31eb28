/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text_stream - texts that are written piece by piece, and counted before they grow
 *
 * The length of a text depends on the users' stores, sessions and waiters. A user that may not have
 * more of SERVICE_BOUND_TEXTS is refused before the memory is allocated.
 */
#include "fs/fs_internal.h"

#include "service/bounds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES 4096u
#define STEPS       8u /* a text grows by this part of its size */

static int take(struct fs_text *text, size_t bytes)
{
    size_t more = bytes - text->counted_bytes;
    int error = service_take(text->service, SERVICE_BOUND_TEXTS, text->store, text->uid, more);
    char *data = error ? NULL : realloc(text->data, bytes);

    if (error)
        return error;
    if (!data) {
        service_give(text->service, SERVICE_BOUND_TEXTS, text->uid, more);
        return -ENOMEM;
    }
    text->data = data;
    text->counted_bytes = bytes;
    return 0;
}

/* A write function of fopencookie(3): 0 is a failure. */
static ssize_t write_part(void *cookie, const char *bytes, size_t size)
{
    struct fs_text *text = cookie;
    size_t least = text->size + size;
    size_t usual = text->counted_bytes + text->counted_bytes / STEPS + FIRST_BYTES;

    if (!text->error && least > text->counted_bytes)
        text->error = take(text, least > usual ? least : usual);
    if (text->error)
        return 0;
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
    return (ssize_t)size;
}

FILE *fs_text_begin(const struct fs *fs, struct fs_text *text)
{
    text->service = fs->service;
    text->error = take(text, FIRST_BYTES);
    if (text->error)
        return NULL;
    FILE *out = fopencookie(text, "w", (cookie_io_functions_t){.write = write_part});
    if (!out)
        text->error = fs_text_end(text, NULL);
    return out;
}

int fs_text_end(struct fs_text *text, FILE *out)
{
    bool failed = !out || text->error || ferror(out) != 0;

    if (out && fclose(out))
        failed = true;
    service_give(text->service, SERVICE_BOUND_TEXTS, text->uid, text->counted_bytes);
    text->counted_bytes = 0;
    if (!failed)
        return 0;
    free(text->data);
    text->data = NULL;
    return text->error ? text->error : -ENOMEM;
}
