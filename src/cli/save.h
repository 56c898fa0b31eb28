/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save - the parts of `gmsfs save`
 *
 * For cmd_save.c and save_*.c. One save goes: lock and map - plan (which tensors in which file) -
 * write, under other names - put in place. Each step prints its error and returns an exit status;
 * whatever fails before the last step, no file is left behind and none was replaced.
 */
#ifndef GMSFS_CLI_SAVE_H
#define GMSFS_CLI_SAVE_H

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/reader.h"
#include "mover/sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct save_file {
    char *path;
    int fd; /* where it has no name while it is written; -1: it has, or is not there */
    char *
        temporary; /* where it has one, and shortly before it gets its real one; NULL: it has not */
    char *head;    /* the header, or all of an index */
    size_t head_bytes;
    size_t first, count; /* tensors */
    uint64_t size_bytes;
};

struct save {
    /* As asked for. */
    const char *store;
    const char *path;
    uint64_t shard_bytes; /* 0: one file */
    uint64_t timeout_ms;
    struct sink_way way;
    bool quiet;
    bool as_gguf;

    /* Of the store. */
    struct reader reader;
    struct reader_tensors tensors;

    /* Planned. */
    const struct model_tensor **models; /* those of the tensors */
    uint64_t *sizes;                    /* of each tensor */
    uint64_t *offsets;                  /* of each tensor, in its file; GGUF: and where that ends */
    struct save_file *files;            /* an index is the last */
    size_t file_count;
    bool has_index;
    uint64_t size_bytes; /* of all files */

    /* Being written. */
    struct progress progress;
    uint64_t copied_bytes;
    uint64_t copied_ms;
};

/* A value that lies in the store's memory. */
struct save_value {
    const uint8_t *from; /* for `staging` alone */
    uint64_t size_bytes; /* 0: the value is elsewhere, and nothing is fetched */
    char *bytes;         /* once it was fetched */
};

/* save_values.c: finds a long value of that format, and no more than so many bytes. NULL, or why
 * the entry is none. */
const char *save_find_value(const struct save *save, const struct gmsfs_layout_entry *entry,
                            const char *format, uint64_t most_bytes, struct save_value *value);
/* Fetches those that have a size. save_free_values() in any case. */
int save_fetch_values(struct save *save, struct save_value *values, size_t count);
void save_free_values(struct save_value *values, size_t count);

/* save_plan.c: names, headers and places. */
int save_plan(struct save *save);
int save_plan_gguf(struct save *save); /* save_gguf.c: the same of a GGUF file's */
void save_plan_free(struct save *save);

/* save_write.c: writes the files and puts them in place. CLI_OK, CLI_FAILURE, or 128 + the signal
 * that stopped it. */
int save_write(struct save *save);

#endif
