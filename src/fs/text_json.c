/* SPDX-License-Identifier: Apache-2.0 */
/* text_json - `device` and `info` */
#include "fs/fs_internal.h"
#include "gmsfs_abi.h"
#include "service/move.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that may not be UTF-8: what is not ASCII is then shown as '?'. */
static json_t *make_string(const char *text)
{
    json_t *string = json_string(text);
    if (string)
        return string;
    char *copy = strdup(text);
    if (!copy)
        return NULL;
    for (char *at = copy; *at; at++) {
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    }
    string = json_string(copy);
    free(copy);
    return string;
}

static json_t *make_number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *make_hex(const uint8_t bytes[16])
{
    char hex[33];
    fs_text_hex(bytes, hex);
    return json_string(hex);
}

static json_t *make_uuid(const uint8_t uuid[16])
{
    char text[37];
    fs_text_uuid(uuid, text);
    return json_string(text);
}

/* Takes the object. Sets nothing where a value could not be made: then the whole text fails. */
static int finish(json_t *object, bool failed, size_t flags, struct fs_text *text)
{
    char *dumped = object && !failed ? json_dumps(object, flags) : NULL;
    json_decref(object);
    if (!dumped)
        return -ENOMEM;
    size_t size = strlen(dumped);
    char *line = realloc(dumped, size + 2);
    if (!line) {
        free(dumped);
        return -ENOMEM;
    }
    line[size] = '\n';
    line[size + 1] = '\0';
    *text = (struct fs_text){.data = line, .size = size + 1};
    return 0;
}

static bool add_gpu(json_t *object, const struct vmm_info *info)
{
    bool failed = false;
    failed |= json_object_set_new(object, "pci_id", make_string(info->pci_id)) != 0;
    failed |= json_object_set_new(object, info->version_name, make_string(info->version)) != 0;
    failed |=
        json_object_set_new(object, "other_bytes",
                            info->knows_others ? make_number(info->other_bytes) : json_null()) != 0;
    failed |=
        json_object_set_new(object, "free_bytes",
                            info->knows_others ? make_number(info->free_bytes) : json_null()) != 0;
    return failed;
}

static bool add_health(json_t *object, const struct core *core)
{
    const char *health = fs_text_health(core_get_health(core)), *reason = core->health_reason;
    bool failed = json_object_set_new(object, "health", json_string(health)) != 0;
    failed |= json_object_set_new(object, "health_reason",
                                  *reason ? make_string(reason) : json_null()) != 0;
    return failed;
}

static bool add_regions(json_t *object, const struct core *core)
{
    const struct idvec *regions = &core->regions.items;
    uint64_t references = 0;
    for (size_t i = 0; i < regions->count; i++)
        references += ((const struct region *)regions->items[i])->references;
    bool failed = json_object_set_new(object, "regions", make_number(regions->count)) != 0;
    failed |= json_object_set_new(object, "region_references", make_number(references)) != 0;
    return failed;
}

/* Workers that were replaced, and the last time: null if there was none. */
static bool add_recoveries(json_t *object, const struct fs *fs)
{
    const struct fs_recovery *last = &fs->options.ledger->recovery;
    json_t *told = last->noticed_us ? json_object() : json_null();
    bool failed = json_object_set_new(object, "recoveries", make_number(fs->core->resumes)) != 0;
    if (last->noticed_us) {
        failed |= json_object_set_new(told, "time_ms", make_number(last->wall_ms)) != 0;
        failed |= json_object_set_new(told, "cause", make_string(last->cause)) != 0;
        failed |= json_object_set_new(told, "took_us", make_number(last->took_us)) != 0;
    }
    return json_object_set_new(object, "last_recovery", told) != 0 || failed;
}

/* The daemon's own memory, as of its last look. */
static bool add_room(json_t *object, const struct service *service)
{
    struct room_view view = service_get_room(service);
    json_t *told = json_object();
    bool failed = json_object_set_new(told, "free_bytes", make_number(view.free_bytes)) != 0;
    failed |= json_object_set_new(told, "reserve_bytes", make_number(view.reserve_bytes)) != 0;
    failed |= json_object_set_new(told, "aside_bytes", make_number(view.aside_bytes)) != 0;
    return json_object_set_new(object, "daemon_memory", told) != 0 || failed;
}

/* When a store leaves for another one. */
static bool add_eviction(json_t *object, const struct fs_options *options)
{
    const char *word = options->evicts ? "lru" : "none";
    bool failed = json_object_set_new(object, "evict", json_string(word)) != 0;
    failed |= json_object_set_new(object, "min_stay_ms", make_number(options->min_stay_ms)) != 0;
    return failed;
}

int fs_text_device(const struct fs *fs, struct fs_text *text)
{
    struct vmm_info info;
    struct service_numbers numbers;
    json_t *object = json_object();
    bool failed = false;
    service_get_device(fs->service, &info);
    service_get_numbers(fs->service, &numbers);
    failed |= json_object_set_new(object, "uuid", make_uuid(info.uuid)) != 0;
    failed |= json_object_set_new(object, "name", make_string(info.name)) != 0;
    failed |= json_object_set_new(object, "backend", make_string(info.backend)) != 0;
    failed |= add_health(object, fs->core);
    failed |=
        json_object_set_new(object, "granularity_bytes", make_number(info.granularity_bytes)) != 0;
    failed |= json_object_set_new(object, "total_bytes", make_number(info.total_bytes)) != 0;
    failed |= json_object_set_new(object, "used_bytes", make_number(info.used_bytes)) != 0;
    failed |= json_object_set_new(object, "freeing_bytes", make_number(numbers.freeing_bytes)) != 0;
    failed |= json_object_set_new(object, "reserved_bytes", make_number(info.aside_bytes)) != 0;
    if (info.host_total_bytes > 0) {
        failed |= json_object_set_new(object, "host_total_bytes",
                                      make_number(info.host_total_bytes)) != 0;
        failed |=
            json_object_set_new(object, "host_used_bytes", make_number(info.host_used_bytes)) != 0;
    }
    if (info.spill_total_bytes > 0) {
        failed |= json_object_set_new(object, "spill_total_bytes",
                                      make_number(info.spill_total_bytes)) != 0;
        failed |= json_object_set_new(object, "spill_used_bytes",
                                      make_number(info.spill_used_bytes)) != 0;
    }
    failed |= add_eviction(object, &fs->options);
    failed |= json_object_set_new(object, "draining", json_boolean(fs->core->draining)) != 0;
    failed |= json_object_set_new(object, "fenced", json_boolean(fs->core->fence.is_up)) != 0;
    failed |= add_regions(object, fs->core);
    failed |=
        json_object_set_new(object, "events_from", make_number(core_first_offset(fs->core))) != 0;
    failed |= add_recoveries(object, fs);
    failed |= add_room(object, fs->service);
    failed |= json_object_set_new(object, "keeper_pid",
                                  make_number((uint64_t)fs->options.keeper_pid)) != 0;
    if (info.pci_id[0])
        failed |= add_gpu(object, &info);
    failed |= json_object_set_new(object, "version", make_string(fs->options.version)) != 0;
    return finish(object, failed, JSON_INDENT(2), text);
}

/* Set aside for the writer, or to be as its store gives memory back. */
static uint64_t count_reserved(const struct core *core, const struct core_store *store)
{
    const struct core_session *writer = core_get_writer(core, store->id);
    return writer ? writer->reserved_bytes + writer->due_bytes : 0;
}

/* Each of them holds a reader's lock of the store. */
static uint64_t count_regions(const struct core *core, const struct core_store *store)
{
    uint64_t count = 0;
    if (store->lock.session_count == 0)
        return 0;
    for (size_t i = 0; i < core->regions.items.count; i++)
        count += ((const struct region *)core->regions.items.items[i])->store == store->id;
    return count;
}

/* Processes that were handed descriptors to write its memory with, and live. */
static json_t *make_writers(const struct core_store *store)
{
    json_t *pids = json_array();
    for (size_t i = 0; pids && i < store->writer_count; i++) {
        if (json_array_append_new(pids, make_number(store->writers[i].pid))) {
            json_decref(pids);
            return NULL;
        }
    }
    return pids;
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

static json_t *make_graph(const struct core *core, const struct core_store *store)
{
    struct fs_graph graph;
    if (!fs_text_find_graph(core, store, &graph))
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "chunk_bytes", make_number(graph.chunk_bytes),
                     "spaces", make_number(graph.spaces), "address_bytes",
                     make_number(graph.address_bytes), "high_bytes", make_number(graph.high_bytes));
}

/* When a drain asks its holders to have left; null: nobody said, or nobody drains it. */
static bool add_drain(json_t *object, const struct core_drain *drain)
{
    bool failed = json_object_set_new(object, "draining", json_boolean(drain->is_on)) != 0;
    failed |= json_object_set_new(object, "drain_deadline_ms",
                                  drain->deadline_ms ? make_number(drain->deadline_ms)
                                                     : json_null()) != 0;
    return failed;
}

static bool add_use(json_t *object, const struct core *core, const struct core_store *store)
{
    uint64_t last_used_ms = fs_get_last_used_ms(store);
    const char *pool = core_find_pool(core, store)->name;
    bool failed = json_object_set_new(object, "pool", json_string(pool)) != 0;
    failed |= json_object_set_new(object, "pinned", json_boolean(store->use.pinned)) != 0;
    failed |= json_object_set_new(object, "held", make_number(store->use.holds)) != 0;
    failed |= json_object_set_new(object, "last_used_ms",
                                  last_used_ms ? make_number(last_used_ms) : json_null()) != 0;
    return failed;
}

/* The tiers that have its bytes, the fastest first. */
static json_t *make_residency(const struct core_store *store)
{
    json_t *tiers = json_array();
    for (unsigned i = 0; tiers && i < CORE_TIER_COUNT; i++) {
        if (!core_has_copy(store, (enum core_place)i))
            continue;
        if (json_array_append_new(tiers, json_string(core_place_name((enum core_place)i)))) {
            json_decref(tiers);
            return NULL;
        }
    }
    return tiers;
}

static json_t *make_moving(const struct fs *fs, const struct core_store *store)
{
    struct service_moving moving;
    if (!service_get_moving(fs->service, store, &moving))
        return json_null();
    return json_pack("{s:s, s:b, s:o, s:o}", "to", core_place_name(moving.to), "spare",
                     moving.spare, "done_bytes", make_number(moving.done_bytes), "all_bytes",
                     make_number(moving.all_bytes));
}

static json_t *make_ahead(const struct fs *fs, const struct core_store *store)
{
    const struct core_store *ahead = service_get_ahead(fs->service, store);
    return ahead ? json_string(ahead->name) : json_null();
}

static bool add_places(json_t *object, const struct fs *fs, const struct core_store *store)
{
    bool failed = json_object_set_new(object, "residency", make_residency(store)) != 0;
    failed |= json_object_set_new(object, "moving", make_moving(fs, store)) != 0;
    failed |= json_object_set_new(object, "moves", make_number(store->places.moves)) != 0;
    failed |= json_object_set_new(object, "moved_ms",
                                  store->places.moved_ms ? make_number(store->places.moved_ms)
                                                         : json_null()) != 0;
    failed |= json_object_set_new(object, "promote_ms", make_number(store->places.promote_ms)) != 0;
    return failed;
}

static json_t *make_obstacle(const struct fs *fs, const struct core_store *store)
{
    enum core_place to = CORE_PLACE_NONE;
    struct move_obstacle obstacle;
    fs_order_find_obstacle(fs, store, &to, &obstacle);
    return obstacle.text[0] ? json_pack("{s:s, s:o}", "to", core_place_name(to), "text",
                                        make_string(obstacle.text))
                            : json_null();
}

int fs_text_info(const struct fs *fs, const struct core_store *store, struct fs_text *text)
{
    static const uint8_t none[16];
    const struct layout *layout = core_get_layout(fs->core, store);
    enum lock_state state = lock_get_state(&store->lock);
    bool has_group = memcmp(store->group, none, sizeof none) != 0;
    bool has_hash = service_get_shown_layout(fs->service, store) != NULL;
    const char *last_error = store->last_error;
    json_t *object = json_object();
    bool failed = false;
    failed |= json_object_set_new(object, "id", make_hex(store->uuid)) != 0;
    failed |= json_object_set_new(object, "state", json_string(lock_state_name(state))) != 0;
    failed |= json_object_set_new(object, "committed", json_boolean(store->lock.committed)) != 0;
    failed |= json_object_set_new(object, "sealed", json_boolean(store->lock.sealed)) != 0;
    failed |= json_object_set_new(object, "suspect", json_boolean(store->suspect > 0)) != 0;
    failed |= json_object_set_new(object, "fenced",
                                  json_boolean(core_is_fenced(fs->core, store->name))) != 0;
    failed |= add_drain(object, &store->drain);
    failed |=
        json_object_set_new(object, "readers", make_number(service_count_readers(store))) != 0;
    failed |= json_object_set_new(object, "writers_waiting",
                                  make_number(lock_count_waiting_writers(&store->lock))) != 0;
    failed |=
        json_object_set_new(object, "regions", make_number(count_regions(fs->core, store))) != 0;
    failed |= json_object_set_new(object, "may_write", make_writers(store)) != 0;
    failed |= json_object_set_new(object, "allocations",
                                  make_number(layout_count_allocations(layout))) != 0;
    failed |=
        json_object_set_new(object, "entries", make_number(layout_count_entries(layout))) != 0;
    failed |= json_object_set_new(object, "bytes", make_number(layout_total_bytes(layout))) != 0;
    failed |=
        json_object_set_new(object, "entry_bytes", make_number(layout_entry_bytes(layout))) != 0;
    failed |= json_object_set_new(object, "layout_hash",
                                  has_hash ? make_hex(store->hash) : json_null()) != 0;
    failed |= json_object_set_new(object, "generation", make_number(store->generation)) != 0;
    failed |=
        json_object_set_new(object, "group", has_group ? make_hex(store->group) : json_null()) != 0;
    failed |= json_object_set_new(object, "reserved_bytes",
                                  make_number(count_reserved(fs->core, store))) != 0;
    failed |= json_object_set_new(object, "behind", make_ahead(fs, store)) != 0;
    failed |= add_use(object, fs->core, store);
    failed |= add_places(object, fs, store);
    failed |= json_object_set_new(object, "graph", make_graph(fs->core, store)) != 0;
    failed |= json_object_set_new(object, "scratch", json_boolean(service_is_scratch(store))) != 0;
    failed |= json_object_set_new(object, "obstacle", make_obstacle(fs, store)) != 0;
    failed |= json_object_set_new(object, "last_error",
                                  last_error[0] ? make_string(last_error) : json_null()) != 0;
    return finish(object, failed, JSON_INDENT(2), text);
}
