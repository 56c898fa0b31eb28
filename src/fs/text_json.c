/* SPDX-License-Identifier: Apache-2.0 */
/* text_json - `device` and `info` */
#include "base/hex.h"
#include "fs/fs_internal.h"
#include "fs/json_text.h"
#include "gmsfs_abi.h"
#include "service/move.h"

#include <stdio.h>
#include <string.h>

#define MADE_REASON_BYTES 512u /* a key and the reason */

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static void add_hex(struct json_text *json, const char *key, const uint8_t *bytes)
{
    char hex[33];
    if (bytes)
        hex_format(bytes, 16, hex);
    json_text_string(json, key, bytes ? hex : NULL);
}

/* Zero is null. */
static void add_time(struct json_text *json, const char *key, uint64_t value)
{
    if (value)
        json_text_number(json, key, value);
    else
        json_text_string(json, key, NULL);
}

static int finish(struct json_text *json, struct fs_text *text)
{
    *text = (struct fs_text){0};
    return json_text_end(json, &text->data, &text->size);
}

static void add_gpu(struct json_text *json, const struct vmm_info *info)
{
    json_text_string(json, "pci_id", info->pci_id);
    json_text_string(json, info->version_name, info->version);
    if (info->knows_others) {
        json_text_number(json, "other_bytes", info->other_bytes);
        json_text_number(json, "free_bytes", info->free_bytes);
    } else {
        json_text_string(json, "other_bytes", NULL);
        json_text_string(json, "free_bytes", NULL);
    }
}

const char *fs_text_health(enum core_health health)
{
    static const char *const names[] = {
        [CORE_HEALTH_OK] = "ok", [CORE_HEALTH_SUSPECT] = "suspect", [CORE_HEALTH_LOST] = "lost"};
    return names[health];
}

static void add_health(struct json_text *json, const struct core *core)
{
    json_text_string(json, "health", fs_text_health(core_get_health(core)));
    json_text_string(json, "health_reason", or_null(core->health_reason));
}

static void add_regions(struct json_text *json, const struct core *core)
{
    const struct idvec *regions = &core->regions.items;
    uint64_t references = 0;
    for (size_t i = 0; i < regions->count; i++)
        references += ((const struct region *)regions->items[i])->references;
    json_text_number(json, "regions", regions->count);
    json_text_number(json, "region_references", references);
}

/* The number of replaced workers, and the last replacement: null if there was none. */
static void add_recoveries(struct json_text *json, const struct fs *fs)
{
    const struct fs_recovery *last = &fs->options.ledger->recovery;
    json_text_number(json, "recoveries", fs->core->resumes);
    if (!last->noticed_us) {
        json_text_string(json, "last_recovery", NULL);
        return;
    }
    json_text_object(json, "last_recovery");
    json_text_number(json, "time_ms", last->wall_ms);
    json_text_string(json, "cause", last->cause);
    json_text_number(json, "took_us", last->took_us);
    json_text_close(json);
}

/* The daemon's own memory, as last measured. */
static void add_room(struct json_text *json, const struct service *service)
{
    struct room_view view = service_get_room(service);
    json_text_object(json, "daemon_memory");
    json_text_number(json, "free_bytes", view.free_bytes);
    json_text_number(json, "reserve_bytes", view.reserve_bytes);
    json_text_number(json, "aside_bytes", view.aside_bytes);
    json_text_close(json);
}

/* The rule by which stores are evicted. */
static void add_eviction(struct json_text *json, const struct fs_options *options)
{
    json_text_string(json, "evict", options->evicts ? "lru" : "none");
    json_text_number(json, "min_stay_ms", options->min_stay_ms);
}

static void add_tiers(struct json_text *json, const struct vmm_info *info)
{
    if (info->host_total_bytes > 0) {
        json_text_number(json, "host_total_bytes", info->host_total_bytes);
        json_text_number(json, "host_used_bytes", info->host_used_bytes);
    }
    if (info->spill_total_bytes > 0) {
        json_text_number(json, "spill_total_bytes", info->spill_total_bytes);
        json_text_number(json, "spill_used_bytes", info->spill_used_bytes);
    }
}

int fs_text_device(const struct fs *fs, struct fs_text *text)
{
    struct vmm_info info;
    struct service_numbers numbers;
    struct json_text json;
    char uuid[HEX_UUID_TEXT_BYTES];
    service_get_device(fs->service, &info);
    service_get_numbers(fs->service, &numbers);
    hex_format_uuid(info.uuid, uuid);
    json_text_begin(&json);
    json_text_string(&json, "uuid", uuid);
    json_text_string(&json, "name", info.name);
    json_text_string(&json, "backend", info.backend);
    add_health(&json, fs->core);
    json_text_number(&json, "granularity_bytes", info.granularity_bytes);
    json_text_number(&json, "total_bytes", info.total_bytes);
    json_text_number(&json, "used_bytes", info.used_bytes);
    json_text_number(&json, "freeing_bytes", numbers.freeing_bytes);
    json_text_number(&json, "mapped_bytes", numbers.mapped_bytes);
    json_text_string(&json, "mapping_obstacle", fs_mapped_get_obstacle(fs));
    json_text_number(&json, "reserved_bytes", info.aside_bytes);
    add_tiers(&json, &info);
    add_eviction(&json, &fs->options);
    json_text_bool(&json, "draining", fs->core->draining);
    json_text_bool(&json, "fenced", fs->core->fence.is_up);
    add_regions(&json, fs->core);
    json_text_number(&json, "events_from", core_first_offset(fs->core));
    add_recoveries(&json, fs);
    add_room(&json, fs->service);
    json_text_number(&json, "keeper_pid", (uint64_t)fs->options.keeper_pid);
    if (info.pci_id[0])
        add_gpu(&json, &info);
    json_text_string(&json, "version", fs->options.version);
    return finish(&json, text);
}

/* Returns the memory reserved for the writer, including what its store has yet to give back to the
 * reservation. */
static uint64_t count_reserved(const struct core *core, const struct core_store *store)
{
    const struct core_session *writer = core_get_writer(core, store->id);
    return writer ? writer->reserved_bytes + writer->due_bytes : 0;
}

/* Counts the store's regions, each of which holds a reader's lock. */
static uint64_t count_regions(const struct core *core, const struct core_store *store)
{
    uint64_t count = 0;
    if (store->lock.session_count == 0)
        return 0;
    for (size_t i = 0; i < core->regions.items.count; i++)
        count += ((const struct region *)core->regions.items.items[i])->store == store->id;
    return count;
}

/* The live processes that received descriptors to write its memory with. */
static void add_writers(struct json_text *json, const struct core_store *store)
{
    json_text_list(json, "may_write");
    for (size_t i = 0; i < store->writer_count; i++)
        json_text_number(json, NULL, store->writers[i].pid);
    json_text_close(json);
}

bool fs_text_find_graph(const struct core *core, const struct core_store *store,
                        struct fs_graph *graph)
{
    static const char key[] = GMSFS_GRAPH_KEY;
    if (lock_get_state(&store->lock) != LOCK_STATE_RW)
        return false;
    const struct layout_entry *entry =
        layout_find_entry(core_get_layout(core, store), key, sizeof key - 1);
    return entry && entry->slot == LAYOUT_UNBOUND &&
           fs_graph_read(entry->value, entry->value_bytes, graph);
}

static void add_graph(struct json_text *json, const struct core *core,
                      const struct core_store *store)
{
    struct fs_graph graph;
    if (!fs_text_find_graph(core, store, &graph)) {
        json_text_string(json, "graph", NULL);
        return;
    }
    json_text_object(json, "graph");
    json_text_number(json, "chunk_bytes", graph.chunk_bytes);
    json_text_number(json, "spaces", graph.spaces);
    json_text_number(json, "address_bytes", graph.address_bytes);
    json_text_number(json, "high_bytes", graph.high_bytes);
    json_text_close(json);
}

/* The drain's deadline for holders to leave; null if it has none, or the store is not drained. */
static void add_drain(struct json_text *json, const struct core_drain *drain)
{
    json_text_bool(json, "draining", drain->is_on);
    add_time(json, "drain_deadline_ms", drain->deadline_ms);
}

static void add_use(struct json_text *json, const struct core *core, const struct core_store *store)
{
    json_text_string(json, "pool", core_find_pool(core, store)->name);
    json_text_bool(json, "pinned", store->use.pinned);
    json_text_number(json, "held", store->use.holds);
    add_time(json, "last_used_ms", fs_get_last_used_ms(store));
}

/* The tiers with a copy, the fastest first. */
static void add_residency(struct json_text *json, const struct core_store *store)
{
    json_text_list(json, "residency");
    for (unsigned i = 0; i < CORE_TIER_COUNT; i++)
        if (core_has_copy(store, (enum core_place)i))
            json_text_string(json, NULL, core_place_name((enum core_place)i));
    json_text_close(json);
}

static void add_moving(struct json_text *json, const struct fs *fs, const struct core_store *store)
{
    struct service_moving moving;
    if (!service_get_moving(fs->service, store, &moving)) {
        json_text_string(json, "moving", NULL);
        return;
    }
    json_text_object(json, "moving");
    json_text_string(json, "to", core_place_name(moving.to));
    json_text_bool(json, "spare", moving.spare);
    json_text_number(json, "done_bytes", moving.done_bytes);
    json_text_number(json, "all_bytes", moving.all_bytes);
    json_text_close(json);
}

static void add_places(struct json_text *json, const struct fs *fs, const struct core_store *store)
{
    add_residency(json, store);
    add_moving(json, fs, store);
    json_text_number(json, "moves", store->places.moves);
    add_time(json, "moved_ms", store->places.moved_ms);
    json_text_number(json, "promote_ms", store->places.promote_ms);
}

static void add_obstacle(struct json_text *json, const struct fs *fs,
                         const struct core_store *store)
{
    enum core_place to = CORE_PLACE_NONE;
    struct move_obstacle obstacle;
    fs_order_find_obstacle(fs, store, &to, &obstacle);
    if (!obstacle.text[0]) {
        json_text_string(json, "obstacle", NULL);
        return;
    }
    json_text_object(json, "obstacle");
    json_text_string(json, "to", core_place_name(to));
    json_text_string(json, "text", obstacle.text);
    json_text_close(json);
}

static void add_lock(struct json_text *json, const struct fs *fs, const struct core_store *store)
{
    enum lock_state state = lock_get_state(&store->lock);
    json_text_string(json, "state", lock_state_name(state));
    json_text_bool(json, "committed", store->lock.committed);
    json_text_bool(json, "sealed", store->lock.sealed);
    json_text_bool(json, "suspect", store->suspect > 0);
    json_text_bool(json, "fenced", core_is_fenced(fs->core, store->name));
    add_drain(json, &store->drain);
    json_text_number(json, "readers", service_count_readers(store));
    json_text_number(json, "writers_waiting", lock_count_waiting_writers(&store->lock));
    json_text_number(json, "regions", count_regions(fs->core, store));
    add_writers(json, store);
}

/* Whether the committed layout never changes, and its memory can be mapped as a file. */
static void add_immutable(struct json_text *json, const struct fs *fs,
                          const struct core_store *store)
{
    bool immutable = store->fixed && layout_is_immutable(store->fixed);
    const char *why = service_get_unmappable_reason(fs->service, store);
    json_text_bool(json, "immutable", immutable);
    json_text_bool(json, "mappable", !why);
    json_text_string(json, "mappable_reason", immutable ? why : NULL);
}

/* The file of the tensors that `files` shows, or the reason why there is none. */
static void add_made(struct json_text *json, const struct fs *fs, const struct core_store *store)
{
    const struct made_file_facts *made = &store->made;
    const struct layout_entry *culprit =
        made->culprit ? layout_find_entry_serial(store->fixed, made->culprit) : NULL;
    char why[MADE_REASON_BYTES];
    enum node_kind kind = node_find_made(fs->core, store);
    snprintf(why, sizeof why, "%s%.*s%s%s", culprit ? "'" : "", culprit ? culprit->key_bytes : 0,
             culprit ? culprit->key : "", culprit ? "': " : "", made->why ? made->why : "");
    json_text_string(json, "made_file", node_get_traits(kind)->name);
    json_text_string(json, "made_file_reason", made->why ? why : NULL);
}

static void add_layout(struct json_text *json, const struct fs *fs, const struct core_store *store)
{
    static const uint8_t none[16];
    const struct layout *layout = core_get_layout(fs->core, store);
    bool has_group = memcmp(store->group, none, sizeof none) != 0;
    bool has_hash = service_get_shown_layout(store) != NULL;
    json_text_number(json, "allocations", layout_count_allocations(layout));
    json_text_number(json, "entries", layout_count_entries(layout));
    json_text_number(json, "bytes", layout_total_bytes(layout));
    json_text_number(json, "entry_bytes", layout_entry_bytes(layout));
    add_hex(json, "layout_hash", has_hash ? store->hash : NULL);
    add_hex(json, "contents_id",
            store->contents && core_is_settled(store) ? store->contents_id : NULL);
    json_text_number(json, "generation", store->generation);
    add_immutable(json, fs, store);
    add_made(json, fs, store);
    add_hex(json, "group", has_group ? store->group : NULL);
}

int fs_text_info(const struct fs *fs, const struct core_store *store, struct fs_text *text)
{
    const struct core_store *ahead = service_get_ahead(fs->service, store);
    struct json_text json;
    json_text_begin(&json);
    add_hex(&json, "id", store->uuid);
    add_lock(&json, fs, store);
    add_layout(&json, fs, store);
    json_text_number(&json, "reserved_bytes", count_reserved(fs->core, store));
    json_text_string(&json, "behind", ahead ? ahead->name : NULL);
    add_use(&json, fs->core, store);
    add_places(&json, fs, store);
    add_graph(&json, fs->core, store);
    json_text_bool(&json, "scratch", service_is_scratch(store));
    add_obstacle(&json, fs, store);
    json_text_string(&json, "last_error", or_null(store->last_error));
    return finish(&json, text);
}
