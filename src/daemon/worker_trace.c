/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of `-o trace=FILE` (base/timeline.h), whose file the keeper opens. */
#include "daemon/worker_internal.h"

#include "base/test_hooks.h"

static int on_full(void *context)
{
    const struct worker *worker = context;
    struct wire_message message = {.type = WIRE_TRACE};

    return wire_send(worker->setup->control_fd, &message, -1);
}

int worker_take_trace(struct worker *worker, int fd)
{
    struct worker_counts *counts = journal_get_counts(worker->journal);
    struct timeline_options options = {
        .process = worker->setup->mountpoint,
        .fd = fd,
        .max_bytes = hook_number("GMSFS_TRACE_BYTES", TIMELINE_MAX_BYTES),
        .full = on_full,
        .context = worker,
        .numbers = &counts->trace,
    };

    if (!timeline_is_on())
        return timeline_start(&options);
    timeline_reopen(fd);
    return 0;
}
