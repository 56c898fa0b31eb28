/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record_line - a record and an effect as one line of text
 *
 * For the trace of the service and for `gmsfs journal`. Pure. The secrets of a record (tokens,
 * tickets) and the bytes of values are left out. Names are as clients gave them: the caller makes
 * the line harmless (base/clean.h) before a terminal sees it.
 */
#ifndef GMSFS_CORE_RECORD_LINE_H
#define GMSFS_CORE_RECORD_LINE_H

#include "core/core.h"

#define RECORD_LINE_BYTES 768u

/* Writes the type and the numbers and texts that are not zero; a long line is cut. Left out:
 * now_ms, wall_ms, bytes16, the start of the process, the ids of memories and all values. */
void record_line(const struct record *record, char line[RECORD_LINE_BYTES]);

/* Appends " type(ids)" to the text in `line`; cut as well. */
void record_line_add_effect(char line[RECORD_LINE_BYTES], const struct effect *effect);

#endif
