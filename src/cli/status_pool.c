/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs status --pool: the stores of one budget, and its use */
#include "cli/status.h"

#include "base/scope.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define INDENT       2
#define AGE_BYTES    24
#define PLACES_BYTES 64 /* of three tiers and one more */
#define MS_PER_S     1000u

static const json_t *pool_find(const json_t *look, const char *name)
{
    json_t *pool;
    size_t i;

    json_array_foreach (json_object_get(look, "pools"), i, pool) {
        if (strcmp(json_get_text(pool, "name"), name) == 0)
            return pool;
    }
    return NULL;
}

/* Keeps stores of the pool, and stores that could not be read, as they may be in it. */
static void pool_keep_stores(json_t *stores, const char *name)
{
    size_t i = 0;

    while (i < json_array_size(stores)) {
        const json_t *store = json_array_get(stores, i);
        bool is_unknown = json_object_get(store, "error") != NULL;

        if (is_unknown || strcmp(json_get_text(store, "pool"), name) == 0)
            i++;
        else
            json_array_remove(stores, i);
    }
}

int status_pool_select(struct status_look *look)
{
    bool found = false;

    for (size_t i = 0; i < look->mounts.count; i++) {
        pool_keep_stores(json_object_get(look->looks[i], "stores"), look->pool);
        found |= pool_find(look->looks[i], look->pool) != NULL;
    }
    if (found)
        return CLI_OK;
    return cli_error("%s: no mount that was looked at has a pool of this name; its file 'pools' "
                     "lists those there are",
                     look->pool);
}

/* ---- text ----------------------------------------------------------------------------------- */

/* "12 s", "5 min", "3 h", "2 d": whole ones, of the largest that fits. */
static char *pool_format_age(const json_t *store, char text[AGE_BYTES])
{
    static const struct {
        uint64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    uint64_t last_s = json_get_number(store, "last_used_ms") / MS_PER_S, now_s, age_s;
    size_t i = 0;

    if (json_get_number(store, "held") > 0 || last_s == 0) {
        snprintf(text, AGE_BYTES, last_s ? "now" : "never");
        return text;
    }
    now_s = (uint64_t)time(NULL);
    age_s = now_s > last_s ? now_s - last_s : 0;
    while (units[i].seconds > 1 && age_s < units[i].seconds)
        i++;
    snprintf(text, AGE_BYTES, "%" PRIu64 " %s ago", age_s / units[i].seconds, units[i].unit);
    return text;
}

/* The tiers that have its bytes, the fastest first, and where they are going. */
static char *pool_format_places(const json_t *store, char text[PLACES_BYTES])
{
    const json_t *tiers = json_object_get(store, "residency"), *tier;
    const char *to = json_get_text(json_object_get(store, "moving"), "to");
    bool is_committed = json_get_flag(store, "committed");
    size_t i, used = 0;

    text[0] = '\0';
    json_array_foreach (tiers, i, tier)
        used += (size_t)snprintf(text + used, PLACES_BYTES - used, "%s%.8s", i > 0 ? " " : "",
                                 json_string_value(tier));
    if (used == 0)
        used = (size_t)snprintf(text, PLACES_BYTES, "%s", is_committed ? "none" : "-");
    if (*to)
        snprintf(text + used, PLACES_BYTES - used, ", to %.8s", to);
    return text;
}

static void pool_add_store(const json_t *store, struct ui_table *table)
{
    char bytes[SIZE_TEXT_BYTES], state[STATUS_STATE_BYTES], age[AGE_BYTES], places[PLACES_BYTES];
    SCOPED_FREE char *holders = status_format_holders(store);

    size_format(json_get_number(store, "bytes"), bytes);
    ui_table_add(table, (const char *[]){json_get_text(store, "name"),
                                         status_format_state(store, state, sizeof(state)),
                                         pool_format_places(store, places), bytes,
                                         json_get_flag(store, "pinned") ? "pinned" : "-",
                                         pool_format_age(store, age), *holders ? holders : "-"});
}

static bool pool_has_number(const json_t *pool, const char *key)
{
    return json_is_integer(json_object_get(pool, key));
}

void status_pool_print_budget(const json_t *look, const char *name, FILE *to)
{
    const json_t *pool = pool_find(look, name);
    char used[SIZE_TEXT_BYTES], max[SIZE_TEXT_BYTES], min[SIZE_TEXT_BYTES];

    if (!pool) {
        fprintf(to, "%*sno pool %s\n", INDENT, "", name);
        return;
    }
    size_format(json_get_number(pool, "used"), used);
    size_format(json_get_number(pool, "max"), max);
    size_format(json_get_number(pool, "min"), min);
    fprintf(to, "%*s%s: %s%s%s used", INDENT, "", name, used,
            pool_has_number(pool, "max") ? " of " : "", pool_has_number(pool, "max") ? max : "");
    if (json_get_number(pool, "min") > 0)
        fprintf(to, ", %s kept for it", min);
    fprintf(to, ", %" PRIu64, json_get_number(pool, "resident"));
    if (pool_has_number(pool, "slots"))
        fprintf(to, " of %" PRIu64, json_get_number(pool, "slots"));
    fprintf(to, " with memory, class %s", json_get_text(pool, "class"));
    if (json_get_number(pool, "sm") < 100)
        fprintf(to, ", %" PRIu64 "%% of the processors", json_get_number(pool, "sm"));
    fputc('\n', to);
}

void status_pool_print_stores(const json_t *stores, FILE *to)
{
    struct ui_table table;
    json_t *store;
    size_t i;

    ui_table_begin(&table, "lllrlll");
    ui_table_add(&table, (const char *[]){"STORE", "STATE", "PLACES", "BYTES", "PIN", "LAST USED",
                                          "HOLDERS"});
    json_array_foreach (stores, i, store) {
        if (json_object_get(store, "error"))
            ui_table_add(&table, (const char *[]){json_get_text(store, "name"), "UNKNOWN", "-", "-",
                                                  "-", "-", json_get_text(store, "error")});
        else
            pool_add_store(store, &table);
    }
    ui_table_end(&table, to, INDENT);
}
