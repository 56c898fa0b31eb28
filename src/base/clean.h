/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clean - text of strangers, made harmless for a terminal
 *
 * For whoever prints: the commands and the log. Pure.
 */
#ifndef GMSFS_BASE_CLEAN_H
#define GMSFS_BASE_CLEAN_H

#include <stddef.h>

/*
 * Replaces by '?', in place and byte by byte, what a terminal would obey or be confused by: control
 * characters, C1 too, those that change the direction of text, and what is not UTF-8.
 */
void clean_text(char *text);
/* The same of bytes, which may have NULs; control characters in `kept` stay. */
void clean_bytes(void *bytes, size_t size_bytes, const char *kept);

#endif
