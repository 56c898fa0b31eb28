/* SPDX-License-Identifier: Apache-2.0 */
/* record_bytes - a record as one word, and its bytes on the heap */
#ifndef GMSFS_TESTS_RECORD_BYTES_H
#define GMSFS_TESTS_RECORD_BYTES_H

#include "core/record.h"

#include <errno.h>
#include <stdlib.h>

/* A record of this type, with the fields that follow. */
#define RECORD(kind, ...) ((struct record){.type = RECORD_##kind, __VA_ARGS__})

/* Free with free(3). 0, -ENOMEM */
static inline int record_encode(const struct record *record, uint8_t **bytes, size_t *size)
{
    *bytes = malloc(record_most_bytes(record));
    *size = 0;
    if (!*bytes)
        return -ENOMEM;
    *size = (size_t)(record_pack(*bytes, record) - *bytes);
    return 0;
}

#endif
