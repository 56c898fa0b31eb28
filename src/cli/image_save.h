/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_save - the parts of `gmsfs image save`
 *
 * For image_save*.c. Until the finished manifest is in place there is only an unfinished one. A
 * load refuses it, and a later save can resume it.
 */
#ifndef GMSFS_CLI_IMAGE_SAVE_H
#define GMSFS_CLI_IMAGE_SAVE_H

#include "cli/image_commands.h"
#include "cli/reader.h"
#include "cli/reader_manifest.h"
#include "mover/sink.h"

struct image_save {
    const struct image_request *request;
    struct sink_way way;

    /* Of the store. */
    struct reader reader;

    /* Of the image. */
    struct image_dir dir;
    struct reader_manifest made;
    bool resumes; /* true if the manifest's done pieces were found in DIR */
    bool began;   /* true if data was written that a later save can resume */

    /* Of the disk, before anything was reserved: free bytes, and bytes of the unfinished image. */
    bool knows_free;
    uint64_t free_bytes, there_bytes;

    /* For the report at the end. */
    uint64_t kept_bytes, copied_ms;
};

/* image_save_plan.c: makes the manifest of the store, with no piece done. */
int image_save_plan(struct image_save *save);

/* image_save_dir.c: opens DIR, decides whether it may be written to, takes over the pieces of an
 * unfinished image, and makes the files. */
int image_save_prepare(struct image_save *save);

/* image_save_data.c: writes the missing pieces, and then the manifest. */
int image_save_write(struct image_save *save);

/* Prints why a file could not be written; CLI_FAILURE, or 128 + the signal that came. */
int image_save_fail(const struct image_save *save, const char *name, int error);

/* Writes the manifest as IMAGE_UNFINISHED, or as IMAGE_MANIFEST. */
int image_save_manifest(const struct image_save *save, bool unfinished);

#endif
