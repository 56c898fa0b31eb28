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
 * Checks files that a user names to be loaded: of a model in parts (STEM-00001-of-00003) every part
 * is among them. What has another name, an index and a directory are not looked at. -EINVAL with
 * the parts that are missing.
 */
int model_check_parts(const char *const *paths, size_t count, struct failure *failure);

/*
 * Finds the files of the model in a directory: its index alone, or its file, or all of its parts in
 * order. Of several models it takes the one that is called "model", and no other. free(3) each path
 * and the list. -ENOENT: none is there; -EINVAL: more than one model, or one that lacks parts.
 */
int model_find(const char *directory, char ***paths, size_t *count, struct failure *failure);

#endif
