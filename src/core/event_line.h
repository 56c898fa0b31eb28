/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_line - an event as a line of JSON
 *
 * For the file `events` and for the audit. Pure. An offset in `events` is a byte of all lines that
 * there ever were, so how long the line of an event is must be the same for every reader and after
 * every record: what changes it is another CORE_STATE_VERSION.
 */
#ifndef GMSFS_CORE_EVENT_LINE_H
#define GMSFS_CORE_EVENT_LINE_H

#include "core/core.h"

#include <stddef.h>

/* Writes the line, which ends with a newline, as event_line_render; `out` has room for it. NULL:
 * nothing is written. Returns its bytes, which do not depend on the reader. */
size_t event_line_write(const struct core_event *event, uint32_t reader, char *out);
/* reader: the uid of who reads it; only some are told which region it is about. *line is malloc'ed,
 * terminated, and ends with a newline. 0, -ENOMEM */
int event_line_render(const struct core_event *event, uint32_t reader, char **line, size_t *size);

#endif
