/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clean - makes untrusted text harmless for a terminal
 *
 * For the commands and the log. Pure.
 */
#ifndef GMSFS_BASE_CLEAN_H
#define GMSFS_BASE_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces by '?', in place and byte by byte, everything that a terminal would obey or be confused
 * by: control characters including C1, characters that change the direction of text, and invalid
 * UTF-8. */
void clean_text(char *text);
/* The same for bytes, which may have NULs; control characters in `kept` stay. */
void clean_bytes(void *bytes, size_t size_bytes, const char *kept);
/* Copies at most size_bytes - 1 bytes of a name that a line shows between single quotes, with '?'
 * for each quote in it: the name cannot look like the text after it. Returns `to`. */
const char *clean_quoted(char *to, size_t size_bytes, const char *name, size_t name_bytes);

/* Decodes the first UTF-8 character of a text that is not empty (Unicode 15, table 3-7); returns
 * its bytes, 0 if it is invalid. */
size_t clean_decode(const unsigned char *at, size_t left, uint32_t *character);
bool clean_is_utf8(const void *text, size_t bytes);

#endif
