/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_space.h"

#include "base/size.h"
#include "cli/cli.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

void store_get_space(const char *path, gmsfs_t *handle, struct store_space *space)
{
    json_t *device = store_device_json(path);
    struct gmsfs_info info;
    uint64_t taken;

    memset(space, 0, sizeof(*space));
    if (!device || gmsfs_get_info(handle, &info) != 0) {
        json_decref(device);
        return;
    }
    space->is_known = true;
    space->total_bytes = json_get_number(device, "total_bytes");
    taken = json_get_number(device, "used_bytes") + json_get_number(device, "reserved_bytes");
    json_decref(device);
    if (taken < space->total_bytes)
        space->free_bytes = space->total_bytes - taken;
    /* the load replaces the store's own bytes */
    if (!info.committed || info.residency & GMSFS_RESIDENCY_DEVICE)
        space->free_bytes += info.total_bytes;
    if (space->free_bytes > space->total_bytes)
        space->free_bytes = space->total_bytes;
}

const char *store_late_way_out(uint64_t timeout_ms)
{
    return timeout_ms
               ? "that did not change in the time given; 'gmsfs status' shows the stores that "
                 "have the rest; wait longer (--timeout), remove another store's layout, or "
                 "mount with a larger size="
               : NULL;
}

int store_say_full(const char *path, const struct store_space *space, uint64_t needed_bytes,
                   const char *way_out)
{
    char needed[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES], total[SIZE_TEXT_BYTES];

    size_format_apart((struct size_text[]){{needed_bytes, needed},
                                           {space->free_bytes, available},
                                           {space->total_bytes, total}},
                      3);
    return cli_error("%s: the model does not fit: %s needed, %s free of %s; %s", path, needed,
                     available, total,
                     way_out ? way_out
                     : needed_bytes > space->total_bytes
                         ? "mount with a larger size="
                         : "remove another store's layout, or mount with a larger size=");
}

int store_check_space(const char *path, gmsfs_t *handle, uint64_t needed_bytes, const char *way_out)
{
    struct store_space space;

    store_get_space(path, handle, &space);
    return space.is_known && needed_bytes > space.total_bytes
               ? store_say_full(path, &space, needed_bytes, way_out)
               : CLI_OK;
}

int store_say_too_many(const char *path, size_t count, const char *way_out)
{
    return cli_error(
        "%s: no room for %zu allocation%s: the store has as many as it may, or its daemon as "
        "many open files, of which each takes one; %s with a larger limit of those (ulimit -Hn, "
        "LimitNOFILE=)",
        path, count, count == 1 ? "" : "s", way_out);
}

void store_get_ahead(const char *path, char name[STORE_AHEAD_BYTES])
{
    json_auto_t *info = store_info_json(path);
    const char *ahead = json_string_value(json_object_get(info, "behind"));

    snprintf(name, STORE_AHEAD_BYTES, "%s", ahead ? ahead : "");
}

static void say_behind(const char *path)
{
    char ahead[STORE_AHEAD_BYTES];

    store_get_ahead(path, ahead);
    if (ahead[0])
        ui_line(stderr, "waiting for memory for %s: %s is ahead in the queue", path, ahead);
    else
        ui_line(stderr, "waiting for memory for %s", path);
}

void store_say_memory(const char *path, gmsfs_t *handle, uint64_t needed_bytes)
{
    struct store_space space;
    char needed[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES];

    store_get_space(path, handle, &space);
    if (!space.is_known || needed_bytes <= space.free_bytes) {
        say_behind(path);
        return;
    }
    size_format_apart((struct size_text[]){{needed_bytes, needed}, {space.free_bytes, available}},
                      2);
    ui_line(stderr,
            "waiting for memory for %s: %s needed, %s free; 'gmsfs status' shows the stores that "
            "have the rest",
            path, needed, available);
}
