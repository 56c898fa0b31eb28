/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open - a model from what a user names: files, an index, or the directory that has them
 *
 * Decides by the bytes of a file what it is, never by its name; in a directory by names which files
 * are the model. Functions as in safetensors.h.
 */
#ifndef GMSFS_MODEL_OPEN_H
#define GMSFS_MODEL_OPEN_H

#include "base/failure.h"
#include "model/safetensors.h"

#include <stddef.h>

/*
 * Opens the model that is in `paths`: safetensors files, one index.json, GGUF files, or one
 * directory as Hugging Face lays it out. On success the caller ends it by safetensors_close().
 */
int model_open(const char *const *paths, size_t count, struct model **model,
               struct failure *failure);

/*
 * The files of the model in a directory: its index alone, or its files in order. free(3) each path
 * and the list. -ENOENT: none is there; -EINVAL: of more than one model.
 */
int model_find(const char *directory, char ***paths, size_t *count, struct failure *failure);

#endif
