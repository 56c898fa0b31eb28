/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_text - a JSON object as a readable text, one item a line
 *
 * For the texts of src/fs. Pure. A failed write makes the whole text fail at its end.
 */
#ifndef GMSFS_FS_JSON_TEXT_H
#define GMSFS_FS_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_TEXT_DEPTH 4u /* objects and lists within each other, at most */

struct json_text {
    char *bytes; /* malloc'ed */
    size_t size, room;
    char ends[JSON_TEXT_DEPTH]; /* closing characters of the open objects and lists */
    unsigned depth;
    bool has_items; /* of the innermost open one */
    bool failed;
};

/* Opens the outermost object. */
void json_text_begin(struct json_text *json);
/* `key` NULL: an item of a list. */
void json_text_number(struct json_text *json, const char *key, uint64_t value);
void json_text_bool(struct json_text *json, const char *key, bool value);
/* text NULL: null. Bytes that are not UTF-8 are shown as '?'. */
void json_text_string(struct json_text *json, const char *key, const char *text);
void json_text_object(struct json_text *json, const char *key);
void json_text_list(struct json_text *json, const char *key);
/* Closes the innermost object or list. */
void json_text_close(struct json_text *json);
/* Closes the outermost object and ends the line. *bytes is the caller's. 0, -ENOMEM */
int json_text_end(struct json_text *json, char **bytes, size_t *size);

#endif
