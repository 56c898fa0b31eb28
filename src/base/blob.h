/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob - immutable bytes with a reference count
 *
 * A reader of a long text keeps it without a copy while its owner makes the next one. Pure; for
 * every part, on any thread.
 */
#ifndef GMSFS_BASE_BLOB_H
#define GMSFS_BASE_BLOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blob {
    atomic_size_t refs;
    size_t size;
    uint8_t *bytes;
};

/* Makes a blob with one reference, which owns `bytes` (malloc'ed). NULL if out of memory: then the
 * caller still owns them. */
struct blob *blob_new(uint8_t *bytes, size_t size);
struct blob *blob_ref(struct blob *blob);
void blob_unref(struct blob *blob); /* NULL is allowed; the last reference frees */
bool blob_is_shared(const struct blob *blob);

#endif
