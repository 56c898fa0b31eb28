/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of this machine: callers work on its bytes in place. */
#include "base/pages.h"
#include "mover/staging_parts.h"
#include "mover/work.h"

static int host_room(struct staging_lane *lane, void *to, size_t most_bytes, uint8_t **room,
                     size_t *size_bytes)
{
    (void)lane;
    pages_make(to, most_bytes);
    *room = to;
    *size_bytes = most_bytes;
    return 0;
}

static int host_next(struct staging_lane *lane, size_t size_bytes, const uint8_t **part)
{
    (void)size_bytes;
    *part = lane->from;
    return 0;
}

/* No driver is involved. */
static const char *host_way_out(const char *text, int error)
{
    (void)text;
    (void)error;
    return "the kernel's log (dmesg) may tell more";
}

const struct staging_kind staging_host = {
    .is_single = true,
    .is_file = true,
    .most_threads = WORK_MAX_THREADS,
    .room = host_room,
    .next = host_next,
    .way_out = host_way_out,
};
