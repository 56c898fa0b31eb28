/* SPDX-License-Identifier: Apache-2.0 */
#include "base/blob.h"

#include <stdlib.h>

struct blob *blob_new(uint8_t *bytes, size_t size)
{
    struct blob *blob = malloc(sizeof *blob);

    if (blob)
        *blob = (struct blob){.refs = 1, .size = size, .bytes = bytes};
    return blob;
}

struct blob *blob_ref(struct blob *blob)
{
    blob->refs++;
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (!blob || --blob->refs > 0)
        return;
    free(blob->bytes);
    free(blob);
}
