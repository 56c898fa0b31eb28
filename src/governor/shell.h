/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - words for commands of the shell
 *
 * Pure. Names of stores and paths are others' choice; a quoted word is one word and runs nothing.
 */
#ifndef GMSFS_GOVERNOR_SHELL_H
#define GMSFS_GOVERNOR_SHELL_H

/* The word as it is where it needs no quotes, else in '...'; free(3). NULL: no memory. */
char *shell_quote(const char *word);

#endif
