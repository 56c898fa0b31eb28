/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_escape - a text as it stands between the quotes of a JSON string
 *
 * Pure. For lines of events and for texts of files.
 */
#ifndef GMSFS_META_JSON_ESCAPE_H
#define GMSFS_META_JSON_ESCAPE_H

#include <stddef.h>

#define JSON_ESCAPE_MAX_BYTES 6u /* of one byte */

/* Writes `text`, which a stranger chose: if it is no UTF-8, a byte that is not ASCII is shown as
 * '?'. `out` has room for it; NULL: nothing is written. Returns its bytes. */
size_t json_escape(const char *text, size_t bytes, char *out);

#endif
