/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_parts - shared by the files of the safetensors reader
 *
 * For safetensors*.c alone. safetensors_open() owns the model under construction, and closes it if
 * a part fails; a part never frees it.
 */
#ifndef GMSFS_MODEL_SAFETENSORS_PARTS_H
#define GMSFS_MODEL_SAFETENSORS_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "safetensors.h"

/*
 * Writes "FILE: tensor 'NAME': text" (or "FILE: text" when tensor is NULL) with control characters
 * made harmless for a terminal. Returns `error`, so that a failure is one statement.
 */
int safetensors_fail(struct failure *failure, int error, const char *path, const char *tensor,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Adds the files that a user named to the source; the caller frees the list in any case. */
int safetensors_add_places(struct source *source, const char *const *places, size_t count,
                           size_t **files, struct failure *failure);

/* As safetensors_open, for files of the source. */
int safetensors_open_added(struct source *source, const size_t *files, size_t count,
                           struct model **model, struct failure *failure);

/* As model_open, for files of the source. */
int model_open_added(struct source *source, const size_t *files, size_t count, struct model **model,
                     struct failure *failure);

/* Reads exactly size_bytes at offset_bytes of a file of the source into a new buffer, which the
 * caller frees. */
int safetensors_read(struct source *source, size_t file, uint64_t offset_bytes, size_t size_bytes,
                     char **bytes, struct failure *failure);

/* Parses a JSON object without duplicate keys; `what` names the text in an error. */
int safetensors_parse_object(const char *path, const char *what, const char *bytes,
                             size_t size_bytes, json_t **object, struct failure *failure);

/* Names the format of a file that begins so, and the way out, to follow the file's name; NULL:
 * unknown. Pure. */
const char *safetensors_other(const char *bytes, size_t size_bytes);

/* Returns the array with room for `more` items after `count`, or NULL with the array unchanged. */
void *safetensors_grow(void *array, size_t count, size_t more, size_t item_bytes);

/* Adds a file of the source to the model, without reading it. */
int safetensors_add_opened(struct model *model, size_t file, struct failure *failure);

/* Adds one validated GGUF file of a model of `count`; appends its tensors unsorted. */
int gguf_add_file(struct model *model, size_t file, size_t count, struct failure *failure);

/*
 * Adds the tensors of a header in the usual form, and returns its __metadata__, or NULL. -EAGAIN:
 * another form, or out of memory; nothing was added. The caller checks the bytes between tensors.
 */
int safetensors_pull_header(struct model *model, uint32_t file, const char *bytes,
                            size_t size_bytes, const char **metadata, size_t *metadata_bytes);

/* Removes the tensors from `first` on. */
void safetensors_drop_tensors(struct model *model, size_t first);

/* Adds one validated safetensors file; appends its tensors unsorted. */
int safetensors_add_file(struct model *model, size_t file, struct failure *failure);

/* Sorts the tensors of all files and rejects duplicate names. */
int safetensors_finish(struct model *model, struct failure *failure);

/*
 * Makes a long value of the __metadata__ of all files if it is too long for an entry. Called last,
 * because no file or index names this value.
 */
int safetensors_add_metadata(struct model *model, struct failure *failure);

/* Adds the shards that an index.json names, finishes, and compares both with each other. */
int safetensors_add_index(struct model *model, size_t file, struct failure *failure);

#endif
