/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save - the parts of `gmsfs save`
 *
 * For cmd_save.c and save_*.c. The steps of a save: lock and map - plan (which tensors in
 * which file) - write, under other names - put in place. Each step prints its error and returns an
 * exit status; a failure before the last step leaves no file behind and replaces none.
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
    int fd; /* of a file without a name while it is written; -1: it has one, or does not exist */
    char *temporary; /* name before it gets the real one; NULL if none */
    char *head;      /* the header, or all of an index */
    size_t head_bytes;
    size_t first, count; /* tensors */
    uint64_t size_bytes;
};

struct save {
    /* Options of the command line. */
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
    uint64_t *offsets;       /* of each tensor, in its file; GGUF: also the end of the last */
    struct save_file *files; /* an index is the last */
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
    uint64_t size_bytes; /* 0: the value is not in memory, and need not be fetched */
    char *bytes;         /* after the fetch */
};

/* save_values.c: finds a long value of that format, of at most most_bytes. NULL, or why the entry
 * is none. */
const char *save_find_value(const struct save *save, const struct gmsfs_layout_entry *entry,
                            const char *format, uint64_t most_bytes, struct save_value *value);
/* Fetches the values with a size. Call save_free_values() in any case. */
int save_fetch_values(struct save *save, struct save_value *values, size_t count);
void save_free_values(struct save_value *values, size_t count);

/* save_plan.c: names, headers and places. */
int save_plan(struct save *save);
int save_plan_gguf(struct save *save); /* save_gguf.c: the same for a GGUF file */
void save_plan_free(struct save *save);

/* save_write.c: writes the files and puts them in place. CLI_OK, CLI_FAILURE, or 128 + the signal
 * that stopped it. */
int save_write(struct save *save);

#endif
