/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files - the files that a store keeps byte for byte: a directory's, or those named
 *
 * Opens them as a `struct model` with one tensor for each file (is_file): its name is the key of
 * the file's entry in a store (base/file_entry.h), and its bytes are the whole file. Functions as
 * in safetensors.h.
 */
#ifndef GMSFS_MODEL_FILES_H
#define GMSFS_MODEL_FILES_H

#include "base/failure.h"
#include "model/safetensors.h"

#include <stddef.h>

/*
 * Opens every file of one tree, at any depth, or the named files by their last names. -EINVAL for a
 * path that no entry can have, or a link that source_list() refuses; on success the caller calls
 * safetensors_close().
 */
int files_open(struct source *source, const char *const *paths, size_t count, struct model **files,
               struct failure *failure);

/* Returns the path of a file in its store. */
const char *files_path(const struct model_tensor *file);

/*
 * Opens the model whose tensors lie in the same files: of a directory as `gmsfs load` finds it,
 * else of the named files that end in .safetensors or .gguf. 0 with *model NULL where there is
 * none; -ENOTUNIQ if a tree has several; -EINVAL for an index without the files that it names.
 */
int files_open_model(struct source *source, const char *const *paths, size_t count,
                     struct model **model, struct failure *failure);

/* Finds the file that has the bytes of one of a model's files; its index in `files`, or -ENOENT
 * with a failure. */
int files_find(const struct model *files, const struct model_file *file, size_t *index,
               struct failure *failure);

#endif
