/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event_line - an event as a line of JSON
 *
 * For the file `events` and for the audit. Pure.
 */
#ifndef GMSFS_SERVICE_EVENT_LINE_H
#define GMSFS_SERVICE_EVENT_LINE_H

#include "core/core.h"

#include <stddef.h>

/* reader: the uid of who reads it; only some are told which region it is about. *line is malloc'ed,
 * terminated, and ends with a newline. 0, -ENOMEM */
int event_line_render(const struct core_event *event, uint32_t reader, char **line, size_t *size);

#endif
