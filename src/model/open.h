/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open - opens a model from a user's places: files, an index, or the tree that has them
 *
 * The type of a file is decided by its bytes, never by its name; the model's files in a tree by
 * their names. Functions as in safetensors.h.
 */
#ifndef GMSFS_MODEL_OPEN_H
#define GMSFS_MODEL_OPEN_H

#include "base/failure.h"
#include "model/safetensors.h"

#include <stddef.h>

/*
 * Opens the model at `places`: safetensors files, one index.json, GGUF files, or one directory in
 * the layout of Hugging Face. On success the caller calls safetensors_close(), before it closes the
 * source.
 */
int model_open(struct source *source, const char *const *places, size_t count, struct model **model,
               struct failure *failure);

/*
 * Checks places that a user gave: for a model in parts (STEM-00001-of-00003) every part must be
 * among them. Ignores other names, indexes and directories. -EINVAL with the missing parts.
 */
int model_check_parts(const char *const *places, size_t count, struct failure *failure);

/*
 * Finds the files of the model in a tree, and adds them to the source: its index alone, its file,
 * or all of its parts in order. Of several models it takes only one that is called "model". The
 * caller frees the list. -ENOENT: there is none; -ENOTUNIQ: several models; -EINVAL:
 * missing parts.
 */
int model_find(struct source *source, const char *tree, size_t **files, size_t *count,
               struct failure *failure);

#endif
