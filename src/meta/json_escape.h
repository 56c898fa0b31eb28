/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_escape - escapes a text for the inside of a JSON string
 *
 * Pure. For lines of events and for texts of files.
 */
#ifndef GMSFS_META_JSON_ESCAPE_H
#define GMSFS_META_JSON_ESCAPE_H

#include <stddef.h>

#define JSON_ESCAPE_MAX_BYTES 6u /* per byte of text */

/* Writes an untrusted `text`; if it is not UTF-8, its bytes above ASCII become '?'. `out` has the
 * room; NULL: writes nothing. Returns the number of bytes. */
size_t json_escape(const char *text, size_t bytes, char *out);

#endif
