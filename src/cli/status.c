/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/status.h"

#include "base/scope.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/mount_look.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BAR_MAX_WIDTH 60u
#define BAR_MIN_WIDTH 10u
#define TEXT_BYTES    160
#define INDENT        2

#define GROUP_TEXT_BYTES 9 /* 8 digits of an id, enough to tell two groups apart, and NUL */

/* ---- text ---------------------------------------------------------------------------------- */

/* Formats one kind of memory of a device, between two words; "" if there is none. */
static const char *status_format_memory(const json_t *device, const char *key, const char *before,
                                        const char *behind, char *text, size_t room)
{
    uint64_t bytes = json_get_number(device, key);
    char size[SIZE_TEXT_BYTES];

    *text = '\0';
    if (bytes > 0)
        snprintf(text, room, ", %s%s%s", before, size_format(bytes, size), behind);
    return text;
}

static void status_print_memory(const json_t *device, FILE *to, unsigned screen)
{
    uint64_t total = json_get_number(device, "total_bytes");
    uint64_t used = json_get_number(device, "used_bytes");
    char used_text[SIZE_TEXT_BYTES], total_text[SIZE_TEXT_BYTES], mapped[64], reserved[64];
    char bar[BAR_MAX_WIDTH + 1] = "", text[TEXT_BYTES];

    snprintf(
        text, sizeof(text), "%3u%%  %s of %s used%s%s%s%s", ui_percent(used, total),
        size_format(used, used_text), size_format(total, total_text),
        status_format_memory(device, "mapped_bytes", "", " of it still mapped from former layouts",
                             mapped, sizeof(mapped)),
        status_format_memory(device, "reserved_bytes", "reserved ", "", reserved, sizeof(reserved)),
        json_get_flag(device, "draining") ? ", drained: grants nothing" : "",
        json_get_flag(device, "fenced") ? ", fenced for a checkpoint" : "");
    size_t taken = INDENT + 2 + strlen(text);
    unsigned width = screen > taken ? screen - (unsigned)taken : 0;
    if (width > BAR_MAX_WIDTH)
        width = BAR_MAX_WIDTH;
    if (width >= BAR_MIN_WIDTH)
        ui_bar(bar, sizeof(bar), width, used, total);
    fprintf(to, "%*s%s%s%s\n", INDENT, "", bar, *bar ? " " : "", text);
}

/* Adds a store that could not be read, with the error. */
static void status_add_unknown(const json_t *store, struct ui_table *table)
{
    const char *name = json_get_text(store, "errno");
    char why[TEXT_BYTES];

    snprintf(why, sizeof(why), "%s (%s)", json_get_text(store, "error"), name);
    ui_table_add(table, (const char *[]){json_get_text(store, "name"),
                                         strcmp(name, "EACCES") ? "UNKNOWN" : "NO ACCESS", "-", "-",
                                         "-", "-", "-", why});
}

/* Formats the holders, and the description of a graph pool. */
static char *status_format_use(const json_t *store)
{
    const json_t *graph = json_object_get(store, "graph");
    SCOPED_FREE char *holders = status_format_holders(store);
    char addresses[SIZE_TEXT_BYTES];

    if (!json_is_object(graph))
        return cli_format("%s", *holders ? holders : "-");
    size_format(json_get_number(graph, "address_bytes"), addresses);
    return cli_format("%s%sgraph of %" PRIu64 " spaces, %s of addresses", holders,
                      *holders ? ", " : "", json_get_number(graph, "spaces"), addresses);
}

static void status_add_store(const json_t *store, struct ui_table *table)
{
    char bytes[SIZE_TEXT_BYTES], allocations[24], entries[24], generation[24];
    char group[GROUP_TEXT_BYTES], state[STATUS_STATE_BYTES];
    SCOPED_FREE char *use = status_format_use(store);

    snprintf(group, sizeof(group), "%s", json_get_text(store, "group"));
    size_format(json_get_number(store, "bytes"), bytes);
    snprintf(allocations, sizeof(allocations), "%" PRIu64, json_get_number(store, "allocations"));
    snprintf(entries, sizeof(entries), "%" PRIu64, json_get_number(store, "entries"));
    snprintf(generation, sizeof(generation), "%" PRIu64, json_get_number(store, "generation"));
    ui_table_add(table,
                 (const char *[]){json_get_text(store, "name"),
                                  status_format_state(store, state, sizeof(state)), bytes,
                                  allocations, entries, generation, *group ? group : "-", use});
}

static void status_print_stores(const json_t *stores, FILE *to)
{
    struct ui_table table;
    json_t *store;
    size_t i;

    ui_table_begin(&table, "llrrrrll");
    ui_table_add(&table, (const char *[]){"STORE", "STATE", "BYTES", "ALLOCATIONS", "ENTRIES",
                                          "GENERATION", "GROUP", "HOLDERS"});
    json_array_foreach (stores, i, store) {
        if (json_object_get(store, "error"))
            status_add_unknown(store, &table);
        else
            status_add_store(store, &table);
    }
    ui_table_end(&table, to, INDENT);
}

/* Prints the regions of all users together: their owners are private. */
static void status_print_regions(const json_t *device, FILE *to)
{
    uint64_t regions = json_get_number(device, "regions");
    uint64_t references = json_get_number(device, "region_references");

    if (regions > 0)
        ui_line(to, "  %" PRIu64 " region%s, %" PRIu64 " reference%s", regions,
                regions == 1 ? "" : "s", references, references == 1 ? "" : "s");
}

/* Prints how often the worker was replaced; the daemon's log has the causes too. */
static void status_print_recoveries(const json_t *device, FILE *to)
{
    const json_t *last = json_object_get(device, "last_recovery");
    uint64_t count = json_get_number(device, "recoveries");
    uint64_t took_us = json_get_number(last, "took_us");
    char text[CLOCK_TEXT_BYTES];

    if (count == 0)
        return;
    ui_line(to,
            "  its worker was replaced %" PRIu64 " time%s, last at %s within %" PRIu64
            ".%03u ms: it %s",
            count, count == 1 ? "" : "s",
            clock_format_utc(json_get_number(last, "time_ms") / 1000, text), took_us / 1000,
            (unsigned)(took_us % 1000), json_get_text(last, "cause"));
}

static void status_print_unlisted(const json_t *look, FILE *to)
{
    SCOPED_FREE char *text = status_format_unknown(look, "its stores cannot be listed");

    ui_line(to, "  %s", text);
}

static void status_print_mount(const json_t *look, const char *pool, FILE *to, unsigned width)
{
    const char *path = json_get_text(look, "mount"), *reason, *obstacle;
    SCOPED_FREE char *text = NULL;
    json_t *device = json_object_get(look, "device");

    if (!json_is_object(device)) {
        text = status_format_absent(look, path);
        ui_line(to, "%s  %s", path, text);
        return;
    }
    reason = json_get_text(device, "health_reason");
    obstacle = json_get_text(device, "mapping_obstacle");
    ui_line(to, "%s  %s  %s%s%s%s  mapping %s%s%s", path, json_get_text(device, "name"),
            json_get_text(look, "health"), *reason ? " (" : "", reason, *reason ? ")" : "",
            *obstacle ? "not shared (" : "shared", obstacle, *obstacle ? ")" : "");
    status_print_memory(device, to, width);
    status_print_recoveries(device, to);
    if (pool)
        status_pool_print_budget(look, pool, to);
    else
        status_print_regions(device, to);
    if (json_object_get(look, "error"))
        status_print_unlisted(look, to);
    else if (pool)
        status_pool_print_stores(json_object_get(look, "stores"), to);
    else
        status_print_stores(json_object_get(look, "stores"), to);
}

/* ---- the whole ----------------------------------------------------------------------------- */

void status_print(const struct status_look *look, FILE *to, unsigned width)
{
    for (size_t i = 0; i < look->mounts.count; i++) {
        if (i > 0)
            fputc('\n', to);
        status_print_mount(look->looks[i], look->pool, to, width);
    }
}

bool status_is_whole(const struct status_look *look)
{
    const json_t *store;
    size_t j;

    for (size_t i = 0; i < look->mounts.count; i++) {
        if (!json_is_object(json_object_get(look->looks[i], "device")) ||
            json_object_get(look->looks[i], "error"))
            return false;
        json_array_foreach (json_object_get(look->looks[i], "stores"), j, store) {
            if (json_object_get(store, "error"))
                return false;
        }
    }
    return true;
}

json_t *status_make_json(const struct status_look *look)
{
    json_t *array = json_array();

    for (size_t i = 0; i < look->mounts.count; i++)
        json_array_append(array, look->looks[i]);
    return array;
}

/* ---- looking ------------------------------------------------------------------------------- */

/* Selects the named mounts, in that order; they share the texts of `all`. */
static int status_select(const struct mounts *all, char **paths, size_t count,
                         struct mounts *selected)
{
    selected->list = cli_need(calloc(count, sizeof(*selected->list)));
    selected->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct mount *mount = mounts_find(all, paths[i], true);
        if (!mount) {
            cli_error("%s: not in a gmsfs mount; 'gmsfs status' lists the mounts", paths[i]);
            free(selected->list);
            selected->list = NULL;
            return CLI_FAILURE;
        }
        selected->list[selected->count++] = *mount;
    }
    return CLI_OK;
}

int status_look(struct status_look *look)
{
    int status = CLI_OK, error = mounts_read_for(look->paths, look->path_count, &look->all);

    if (error)
        return mounts_explain(error);
    look->mounts = look->all;
    if (look->path_count) {
        memset(&look->mounts, 0, sizeof(look->mounts));
        status = status_select(&look->all, look->paths, look->path_count, &look->mounts);
    }
    if (status == CLI_OK)
        look->looks = mount_look(&look->mounts);
    if (status == CLI_OK && look->pool)
        status = status_pool_select(look);
    return status;
}

void status_look_free(struct status_look *look)
{
    for (size_t i = 0; look->looks && i < look->mounts.count; i++)
        json_decref(look->looks[i]);
    free(look->looks);
    if (look->mounts.list != look->all.list)
        free(look->mounts.list);
    mounts_free(&look->all);
    look->looks = NULL;
    memset(&look->all, 0, sizeof(look->all));
    memset(&look->mounts, 0, sizeof(look->mounts));
}
