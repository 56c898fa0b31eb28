/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open - opens a model from a user's paths: files, an index, or the directory that has them
 *
 * The type of a file is decided by its bytes, never by its name; the model's files in a directory
 * by their names. Functions as in safetensors.h.
 */
#ifndef GMSFS_MODEL_OPEN_H
#define GMSFS_MODEL_OPEN_H

#include "base/failure.h"
#include "model/safetensors.h"

#include <stddef.h>

/*
 * Opens the model at `paths`: safetensors files, one index.json, GGUF files, or one directory in
 * the layout of Hugging Face. On success the caller calls safetensors_close().
 */
int model_open(const char *const *paths, size_t count, struct model **model,
               struct failure *failure);

/*
 * Checks paths that a user gave: for a model in parts (STEM-00001-of-00003) every part must be
 * among them. Ignores other names, indexes and directories. -EINVAL with the missing parts.
 */
int model_check_parts(const char *const *paths, size_t count, struct failure *failure);

/*
 * Finds the files of the model in a directory: its index alone, its file, or all of its parts in
 * order. Of several models it takes only one that is called "model". The caller frees each path and
 * the list. -ENOENT: there is none; -EINVAL: several models, or missing parts.
 */
int model_find(const char *directory, char ***paths, size_t *count, struct failure *failure);

#endif
