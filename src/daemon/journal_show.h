/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journal_show - prints a journal as lines of text
 *
 * For `gmsfs journal`, by daemon.h. Secrets (tokens, tickets) and the bytes of values are left out;
 * every line is harmless for a terminal.
 */
#ifndef GMSFS_DAEMON_JOURNAL_SHOW_H
#define GMSFS_DAEMON_JOURNAL_SHOW_H

#include "core/core.h"
#include "journal/journal.h"

#include <stdio.h>

/* Prints the state at the beginning of the journal, then a line for each entry. Returns as
 * journal_read */
int journal_show(const struct journal *journal, FILE *to, struct failure *failure);

#endif
