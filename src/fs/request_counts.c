/* SPDX-License-Identifier: Apache-2.0 */
/* request_counts - requests by kind, and their time in the loop, for `metrics` */
#include "base/clock.h"
#include "base/number.h"
#include "base/timeline.h"
#include "fs/fs_internal.h"
#include "fs/trace.h"

/* Kinds without a name are counted together, in the place of an opcode that there is not. */
static uint32_t choose_place(uint32_t kind)
{
    return kind == FS_COUNTED_FDS || fs_trace_has_name(kind) ? kind : 0;
}

static uint64_t count(struct fs_counts *counts, uint32_t place, uint64_t began_us)
{
    uint64_t now_us = clock_now_us(), took_us = number_subtract(now_us, began_us);
    counts->requests[place].count++;
    counts->requests[place].loop_us += took_us;
    histogram_add(&counts->loop_times, took_us);
    return now_us;
}

uint64_t fs_count_request(struct fs *fs, uint32_t kind, uint64_t began_us)
{
    uint32_t place = choose_place(kind);
    uint64_t now_us = count(fs->options.counts, place, began_us);
    if (timeline_is_on())
        timeline_end("loop", fs_count_name(fs, place), began_us, NULL);
    return now_us;
}

void fs_count_gms(struct fs_counts *counts, uint32_t kind, uint64_t began_us)
{
    count(counts, FS_COUNTED_GMS + (kind < FS_GMS_KINDS ? kind : 0), began_us);
}

const char *fs_count_name(const struct fs *fs, uint32_t place)
{
    if (place == FS_COUNTED_FDS)
        return ".fds";
    return place < FS_COUNTED_GMS ? fs_trace_opcode_name(place)
                                  : fs->options.get_gms_kind(place - FS_COUNTED_GMS);
}
