/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_other - the other files of a directory in which a model is searched
 *
 * For find.c and the readers of this folder: lists the names in a directory, finds traces of an
 * unfinished download, and explains a directory without a model.
 */
#ifndef GMSFS_MODEL_FIND_OTHER_H
#define GMSFS_MODEL_FIND_OTHER_H

#include "base/failure.h"

#include <stddef.h>

/* Room for the text of find_unfinished(). */
#define UNFINISHED_BYTES 320u

/* Names that do not begin with a dot, sorted. */
struct file_names {
    char **list;
    size_t count;
};

/* Call file_names_free() in any case; the struct must begin as zeros. */
int file_names_read(const char *directory, struct file_names *names, struct failure *failure);
void file_names_free(struct file_names *names);

/*
 * Searches for a file that a download tool removes or renames when it has finished: beside the
 * model, in the hub's .cache below it, or in the blobs of the hub's cache. Writes " ('NAME' is
 * still there)", or nothing.
 */
void find_unfinished(const char *directory, char text[UNFINISHED_BYTES]);

/* Fails because the directory has no model; the message names its other content. */
int find_say_none(const char *directory, const struct file_names *names, struct failure *failure);

#endif
