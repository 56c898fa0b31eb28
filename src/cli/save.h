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
#include "tensor/file_plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct save_file {
    char *path;
    int fd; /* of a file without a name while it is written; -1: it has one, or does not exist */
    char *temporary;       /* name before it gets the real one; NULL if none */
    size_t first, count;   /* tensors */
    struct file_plan plan; /* its allocations are ranks of the reader's mappings */
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
    uint64_t size_bytes;
    char *bytes; /* after the fetch; the caller frees them */
};

/* save_value.c: finds the long value of a safetensors file. False if the entry
 * has no long value. */
bool save_find_value(const struct save *save, const struct gmsfs_layout_entry *entry,
                     struct save_value *value);
int save_fetch_value(struct save *save, struct save_value *value);

/* save_plan.c: names, headers and places. */
int save_plan(struct save *save);
int save_plan_gguf(struct save *save); /* save_gguf.c: the same for a GGUF file */
void save_plan_free(struct save *save);

/* save_write.c: writes the files and puts them in place. CLI_OK, CLI_FAILURE, or 128 + the signal
 * that stopped it. */
int save_write(struct save *save);

#endif
