/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/timeouts.h"

#include "base/file_io.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

#define TIMEOUTS_MARGIN_MS 1000u /* besides the half, for the answer to arrive */
#define TIMEOUTS_LEAST_MS  200u

uint64_t timeouts_get_parking_ms(uint64_t default_s, uint64_t max_s)
{
    uint64_t bound_s = default_s;

    /* As in the kernel, the maximum is in force even if there is no default. */
    if (max_s > 0 && (bound_s == 0 || max_s < bound_s))
        bound_s = max_s;
    if (bound_s == 0 || bound_s > UINT32_MAX)
        return UINT64_MAX;
    uint64_t half_ms = bound_s * 1000 / 2;
    return half_ms > TIMEOUTS_MARGIN_MS + TIMEOUTS_LEAST_MS ? half_ms - TIMEOUTS_MARGIN_MS
                                                            : TIMEOUTS_LEAST_MS;
}

static uint64_t read_seconds(const char *path)
{
    uint64_t seconds = 0;
    SCOPED_FILE FILE *file = fopen(path, "re");

    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &seconds) != 1)
        seconds = 0;
    return seconds;
}

uint64_t timeouts_read_parking_ms(void)
{
    uint64_t default_s = read_seconds("/proc/sys/fs/fuse/default_request_timeout");
    uint64_t max_s = read_seconds("/proc/sys/fs/fuse/max_request_timeout");
    uint64_t parking_ms = timeouts_get_parking_ms(default_s, max_s);

    if (parking_ms != UINT64_MAX)
        log_warning("the kernel bounds requests to file systems (fs.fuse.default_request_timeout "
                    "= %" PRIu64 ", fs.fuse.max_request_timeout = %" PRIu64 "): an open that waits "
                    "for a lock gets ETIMEDOUT after %" PRIu64 ".%" PRIu64 " s and has to be tried "
                    "again; set both to 0 to let it wait",
                    default_s, max_s, parking_ms / 1000, parking_ms % 1000 / 100);
    return parking_ms;
}
