/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_other - explains a tree without a model by its other files
 *
 * For find.c and the readers of this folder.
 */
#ifndef GMSFS_MODEL_FIND_OTHER_H
#define GMSFS_MODEL_FIND_OTHER_H

#include "source/source.h"

/* Room for the text of source_tell_unfinished(). */
#define UNFINISHED_BYTES 320u

/* Fails because the tree, which has these names, has no model; the message says what it has. */
int find_say_none(struct source *source, const char *tree, const struct source_list *names,
                  struct failure *failure);

#endif
