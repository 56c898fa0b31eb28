/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader - a committed store held with the reader's lock and mapped, and the tensors in it
 *
 * For the commands that read all bytes: save, sum, verify. While a reader is open its layout cannot
 * change. Never writes to a store. Errors are printed here, once.
 */
#ifndef GMSFS_CLI_READER_H
#define GMSFS_CLI_READER_H

#include "gmsfs.h"
#include "model/safetensors.h"
#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
    const char *store;
    gmsfs_t *handle;
    struct gmsfs_layout *layout;
    struct gmsfs_mapping *mappings; /* by rank; only `staging` may use the memory at `ptr` */
    size_t mapping_count;
    struct staging *staging;
    struct staging_memory memory;
};

/* An entry that describes a tensor, and its bytes. */
struct reader_tensor {
    struct model_tensor tensor;  /* as in a file; `name` is the layout's, file and offset are 0 */
    const uint8_t *bytes;        /* in the store's memory: for `staging` alone */
    uint64_t rank, offset_bytes; /* where it lies in the store */
};

struct reader_tensors {
    struct reader_tensor *list; /* as they lie in the store: by rank, offset, name */
    size_t count;
    size_t files;  /* number of files that the store keeps whole */
    size_t others; /* number of entries that describe no tensor in memory, without __metadata__ */
    uint64_t size_bytes;
};

/* CLI_OK, CLI_TIMEOUT or CLI_FAILURE. reader_close() in any case; the struct begins as zeros. */
int reader_open(struct reader *reader, const char *store, uint64_t timeout_ms, bool quiet);
void reader_close(struct reader *reader);

/* The entry of that key, or NULL. */
const struct gmsfs_layout_entry *reader_find(const struct reader *reader, const char *key);

/*
 * Finds all tensors. A tensor that is not a plain run of bytes (an unknown dtype, strides of a
 * view, beyond its allocation) is a failure that names it and ends with `way_out`. CLI_OK or
 * CLI_FAILURE; call reader_tensors_free() in any case.
 */
int reader_get_tensors(const struct reader *reader, const char *way_out,
                       struct reader_tensors *tensors);
void reader_tensors_free(struct reader_tensors *tensors);

#endif
