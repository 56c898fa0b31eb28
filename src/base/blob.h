/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blob - bytes that never change and that several hold
 *
 * Counted, so that a reader of a long text keeps it without a copy while its owner goes on to
 * another. Pure; anybody may use it, on any thread.
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

/* With one reference; takes `bytes` (malloc'ed) then. NULL: no memory, and they are the caller's
 * still. */
struct blob *blob_new(uint8_t *bytes, size_t size);
struct blob *blob_ref(struct blob *blob);
void blob_unref(struct blob *blob); /* NULL is fine; the last one frees */
bool blob_is_shared(const struct blob *blob);

#endif
