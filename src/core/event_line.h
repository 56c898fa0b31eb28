/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_line - an event as a line of JSON
 *
 * For the file `events` and for the audit. Pure. An offset in `events` counts the bytes of all
 * lines since the first, so the length of an event's line must be the same for every reader and
 * after every record. A change of lengths needs another CORE_STATE_VERSION.
 */
#ifndef GMSFS_CORE_EVENT_LINE_H
#define GMSFS_CORE_EVENT_LINE_H

#include "core/core.h"

#include <stddef.h>

/* Writes the line with its newline to `out`, as event_line_render does; NULL: only counts. Returns
 * its bytes, which do not depend on the reader. */
size_t event_line_write(const struct core_event *event, uint32_t reader, char *out);
/* Makes the line for the user `reader`: only root and a region's owner see the region's name. *line
 * is malloc'ed, terminated, and ends with a newline. 0, -ENOMEM */
int event_line_render(const struct core_event *event, uint32_t reader, char **line, size_t *size);

#endif
