/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url - makes parts of addresses from names, and back
 *
 * For the places of src/source that a server has. Pure. Source of facts: RFC 3986.
 */
#ifndef GMSFS_SOURCE_URL_H
#define GMSFS_SOURCE_URL_H

#include <stdbool.h>

enum url_keep {
    URL_KEEP_NOTHING, /* one part of a path: a slash is encoded, too */
    URL_KEEP_SLASHES, /* a path */
};

/* Appends `text` to a string, with each byte that is not a letter, digit, '-', '.', '_' or '~' as
 * %XX (upper case, as AWS wants it). The room has to hold three times the text, and a NUL. Returns
 * the end. */
char *url_encode(char *to, const char *text, enum url_keep keep);

/* Decodes %XX in place. False: there is a NUL or a '%' without two digits; the text is of no use
 * then. */
bool url_decode(char *text);

/* Removes the slashes at the end of a server's address. False: it does not begin with http:// or
 * https://, so that libcurl would guess a scheme. */
bool url_trim_endpoint(char *endpoint);

/* Returns FOLDER/NAME with the name encoded; a slash between them only if the folder does not end
 * with one. The caller frees it; NULL: no memory. */
char *url_join(const char *folder, const char *name);

#endif
