/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - quotes words for shell commands
 *
 * Pure. Other users choose names of stores and paths; a quoted word stays one word and runs
 * nothing.
 */
#ifndef GMSFS_GOVERNOR_SHELL_H
#define GMSFS_GOVERNOR_SHELL_H

/* Returns the word, in '...' if it needs quotes, to be freed. NULL: no memory. */
char *shell_quote(const char *word);

/* As sprintf, into new memory. NULL: no memory. */
char *shell_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
