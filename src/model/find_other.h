/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_other - what else is in a directory in which a model is searched
 *
 * For find.c and the readers of this folder: the names of a directory, the traces that a download
 * leaves while it is under way, and words for a directory without a model.
 */
#ifndef GMSFS_MODEL_FIND_OTHER_H
#define GMSFS_MODEL_FIND_OTHER_H

#include "base/failure.h"

#include <stddef.h>

/* Room for what find_unfinished() says. */
#define UNFINISHED_BYTES 320u

/* Names that do not begin with a dot, sorted. */
struct file_names {
    char **list;
    size_t count;
};

/* file_names_free() in any case; the struct begins as zeros. */
int file_names_read(const char *directory, struct file_names *names, struct failure *failure);
void file_names_free(struct file_names *names);

/*
 * Looks for a file that a download tool removes or renames when it has finished: beside the model,
 * in the hub's .cache below it, or in the blobs of the hub's cache. Writes " ('NAME' is still
 * there)", or nothing where there is none.
 */
void find_unfinished(const char *directory, char text[UNFINISHED_BYTES]);

/* Fails: the directory has no model. Names what it has instead. */
int find_say_none(const char *directory, const struct file_names *names, struct failure *failure);

#endif
