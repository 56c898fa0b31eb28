/* SPDX-License-Identifier: Apache-2.0 */
#include "base/blob.h"

#include <stdlib.h>

struct blob *blob_new(uint8_t *bytes, size_t size)
{
    struct blob *blob = malloc(sizeof *blob);

    if (!blob)
        return NULL;
    *blob = (struct blob){.size = size, .bytes = bytes};
    atomic_init(&blob->refs, 1);
    return blob;
}

struct blob *blob_ref(struct blob *blob)
{
    atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
    return blob;
}

void blob_unref(struct blob *blob)
{
    if (!blob || atomic_fetch_sub_explicit(&blob->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(blob->bytes);
    free(blob);
}

bool blob_is_shared(const struct blob *blob)
{
    return atomic_load_explicit(&blob->refs, memory_order_acquire) != 1;
}
