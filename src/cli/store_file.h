/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_file - what the pseudo-files of stores and mounts say
 *
 * For the commands of src/cli. By path, without a lock. Nothing is printed.
 */
#ifndef GMSFS_CLI_STORE_FILE_H
#define GMSFS_CLI_STORE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* The path of a file in the store, absolute for an absolute store; free(3). NULL: no memory. */
char *store_file_path(const char *path, const char *file);

/* A small text file whole, NUL-terminated, free(3). Negative errno. */
int store_read_text(const char *path, char **text);
/* Any file, of not much more than most_bytes (-ENOMEM), free(3). */
int store_read_bytes(const char *path, size_t most_bytes, uint8_t **bytes, size_t *size_bytes);

/* A file of a store or mount as a JSON object. -EBADMSG: it is none; *json is NULL on failure. */
int store_read_json(const char *path, const char *file, json_t **json);

/* `device` of the mount that the store lies in, or `info` of the store: JSON, or NULL. */
json_t *store_device_json(const char *path);
json_t *store_info_json(const char *path);

/* last_error of the store's info into `text`; "" when there is none. */
void store_last_error(const char *path, char *text, size_t room);

/* The id of the store at `path`, as its `info` has it. -ENOENT: it is none; -EACCES: it may be one,
 * whose owner lets nobody look into it. */
int store_read_id(const char *path, uint8_t id[16]);

/* An unsigned number of a JSON object, 0 when it has none of that name. */
uint64_t store_json_number(const json_t *object, const char *name);
const char *store_json_text(const json_t *object, const char *name); /* "" when it has none */

#endif
