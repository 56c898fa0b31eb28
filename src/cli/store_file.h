/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_file - reads the pseudo-files of stores and mounts
 *
 * For the commands of src/cli. By path, without a lock. Nothing is printed.
 */
#ifndef GMSFS_CLI_STORE_FILE_H
#define GMSFS_CLI_STORE_FILE_H

#include "base/json_get.h"

#include <stddef.h>

/* Makes the path of a file in the store, absolute for an absolute store; free(3). */
char *store_file_path(const char *path, const char *file);

/* Reads a small text file whole, NUL-terminated, free(3). 0 or a negative errno. */
int store_read_text(const char *path, char **text);
/* Reads a short text from the beginning, which makes a new text and resets poll(2). 0 or a negative
 * errno. */
int store_read_again(int fd, char *text, size_t room);
/* Reads any file of at most most_bytes (else -ENOMEM), free(3). */
int store_read_bytes(const char *path, size_t most_bytes, uint8_t **bytes, size_t *size_bytes);
/* Does so NUL-terminated and without a wait. -ENOTSUP: a directory, a FIFO, a device. */
int store_read_regular(const char *path, size_t most_bytes, char **text, size_t *text_bytes);

/* Reads a file of a store or mount as store_read_text does. */
int store_read_file(const char *path, const char *file, char **text);

/* Reads a file of a store or mount as a JSON object. -EBADMSG: it is none; *json is NULL on
 * failure. */
int store_read_json(const char *path, const char *file, json_t **json);

/* Read `device` of the store's mount, or `info` of the store: JSON, or NULL. */
json_t *store_device_json(const char *path);
json_t *store_info_json(const char *path);

/* Copies last_error of the store's info into `text`; "" if there is none. */
void store_last_error(const char *path, char *text, size_t room);

/* Reads the id of the store at `path` from its `info`. -ENOENT: it is no store; -EACCES: it may be
 * a store that this user cannot look into. */
int store_read_id(const char *path, uint8_t id[16]);

#endif
