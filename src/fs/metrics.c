/* SPDX-License-Identifier: Apache-2.0 */
/* metrics - numbers in Prometheus' text format */
#include "fs/fs_internal.h"

#include "base/clock.h"
#include "base/timeline.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
    head(out, name, type, help);
    fprintf(out, "%s %llu\n", name, (unsigned long long)value);
}

/* Writes microseconds as seconds. */
static void seconds(FILE *out, uint64_t us)
{
    fprintf(out, "%llu.%06u\n", (unsigned long long)(us / 1000000), (unsigned)(us % 1000000));
}

/* labels: "" or pairs that end with a comma. */
static void write_histogram(FILE *out, const char *name, const char *labels,
                            const struct histogram *histogram)
{
    int bytes = (int)strlen(labels);
    uint64_t count = 0;
    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        count += histogram->counts[i];
        fprintf(out, "%s_bucket{%sle=\"", name, labels);
        if (i < HISTOGRAM_BOUNDS)
            fprintf(out, "%g\"} %llu\n", (double)histogram_bounds_us[i] / 1e6,
                    (unsigned long long)count);
        else
            fprintf(out, "+Inf\"} %llu\n", (unsigned long long)count);
    }
    const char *open = bytes ? "{" : "", *close = bytes ? "}" : "";
    bytes -= bytes > 0; /* without the comma */
    fprintf(out, "%s_sum%s%.*s%s ", name, open, bytes, labels, close);
    seconds(out, histogram->sum_us);
    fprintf(out, "%s_count%s%.*s%s %llu\n", name, open, bytes, labels, close,
            (unsigned long long)count);
}

/* Of a sample of a store, without its value: each byte of the name may take two. */
#define SAMPLE_BYTES (2 * NAME_MAX + 160)

static char *put_label(char *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            *to++ = '\\';
        *to++ = *text == '\n' ? 'n' : *text;
    }
    return to;
}

/* Writes the sample up to its value. There are tens of thousands of samples, and fprintf takes
 * several times as long. */
static void begin_sample(FILE *out, const char *name, const struct core_store *store,
                         const char *more)
{
    char line[SAMPLE_BYTES], *end = put_label(stpcpy(stpcpy(line, name), "{store=\""), store->name);
    end = stpcpy(stpcpy(stpcpy(end, "\""), more), "} ");
    fwrite_unlocked(line, 1, (size_t)(end - line), out);
}

static void sample(FILE *out, const char *name, const struct core_store *store, const char *more,
                   uint64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    begin_sample(out, name, store, more);
    *--at = '\n';
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    fwrite_unlocked(at, 1, (size_t)(digits + sizeof digits - at), out);
}

enum store_metric {
    METRIC_STATE,
    METRIC_BYTES,
    METRIC_ALLOCATIONS,
    METRIC_ENTRIES,
    METRIC_GENERATION,
    METRIC_SUSPECT,
    METRIC_DRAINING,
    METRIC_READERS,
    METRIC_WAITERS,
    METRIC_OLDEST_WAIT,
    METRIC_GRANTS,
    METRIC_COMMITS,
    METRIC_ABORTS,
    METRIC_EXPORTS,
    METRIC_COPY,
    METRIC_HELD,
    METRIC_LAST_USED,
    METRIC_GRAPH_SPACES,
    METRIC_GRAPH_ADDRESS_BYTES,
    METRIC_GRAPH_HIGH_BYTES,
    METRIC_COUNT,
};

static const struct {
    const char *name, *type, *help;
} STORE_METRICS[METRIC_COUNT] = {
    [METRIC_STATE] = {"gmsfs_store_state", "gauge", "1 for the state that the store is in."},
    [METRIC_BYTES] = {"gmsfs_store_bytes", "gauge", "Memory of the store's allocations."},
    [METRIC_ALLOCATIONS] = {"gmsfs_store_allocations", "gauge", "Allocations in the layout."},
    [METRIC_ENTRIES] = {"gmsfs_store_entries", "gauge", "Metadata entries in the layout."},
    [METRIC_GENERATION] = {"gmsfs_store_generation", "gauge", "Number of the store's last commit."},
    [METRIC_SUSPECT] = {"gmsfs_store_suspect", "gauge",
                        "1 if the store's memory may be damaged: it takes no new readers."},
    [METRIC_DRAINING] = {"gmsfs_store_draining", "gauge",
                         "1 while the store is drained: it admits no session."},
    [METRIC_READERS] = {"gmsfs_store_readers", "gauge", "Sessions that hold the lock as readers."},
    [METRIC_WAITERS] = {"gmsfs_store_waiters", "gauge", "Requests that wait for the lock."},
    [METRIC_OLDEST_WAIT] = {"gmsfs_store_oldest_wait_seconds", "gauge",
                            "Age of the oldest request that waits for the lock."},
    [METRIC_GRANTS] = {"gmsfs_store_grants_total", "counter", "Grants of the lock by mode."},
    [METRIC_COMMITS] = {"gmsfs_store_commits_total", "counter", "Commits."},
    [METRIC_ABORTS] = {"gmsfs_store_aborts_total", "counter",
                       "Writers that ended without a commit."},
    [METRIC_EXPORTS] = {"gmsfs_store_exports_total", "counter", "Tickets for descriptors."},
    [METRIC_COPY] = {"gmsfs_store_copy", "gauge", "1 for each tier that has the store's bytes."},
    [METRIC_HELD] = {"gmsfs_store_held", "gauge",
                     "Sessions that keep the store from being evicted."},
    [METRIC_LAST_USED] = {"gmsfs_store_last_used_seconds", "gauge",
                          "When the store was last held, in seconds since 1970; now while it is."},
    [METRIC_GRAPH_SPACES] = {"gmsfs_store_graph_spaces", "gauge",
                             "Address spaces of the graph pool that holds the store."},
    [METRIC_GRAPH_ADDRESS_BYTES] = {"gmsfs_store_graph_address_bytes", "gauge",
                                    "Addresses that the pool has reserved."},
    [METRIC_GRAPH_HIGH_BYTES] = {"gmsfs_store_graph_high_bytes", "gauge",
                                 "Most memory that the pool ever had."},
};

static void write_states(FILE *out, const char *name, const struct core_store *store)
{
    enum lock_state now = lock_get_state(&store->lock);
    char more[48];
    for (unsigned state = 0; state < LOCK_STATE_COUNT; state++) {
        snprintf(more, sizeof more, ",state=\"%s\"", lock_state_name((enum lock_state)state));
        sample(out, name, store, more, now == (enum lock_state)state);
    }
}

static void write_copies(FILE *out, const char *name, const struct core_store *store)
{
    char more[48];
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++) {
        snprintf(more, sizeof more, ",tier=\"%s\"", core_place_name((enum core_place)tier));
        sample(out, name, store, more, core_has_copy(store, (enum core_place)tier));
    }
}

static uint64_t count_waiters(const struct lock *lock)
{
    uint64_t count = 0;
    for (size_t i = 0; i < lock->waiter_count; i++)
        count += lock->waiters[i].kept_until_ms == 0 || lock->waiters[i].looking;
    return count;
}

static uint64_t find_oldest_wait(const struct core *core, const struct lock *lock)
{
    uint64_t oldest_ms = 0, now_ms = clock_wall_ms();
    for (size_t i = 0; i < lock->waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(core, lock->waiters[i].id);
        if (waiter && core_waiter_counts(waiter) && waiter->since_wall_ms < now_ms &&
            now_ms - waiter->since_wall_ms > oldest_ms)
            oldest_ms = now_ms - waiter->since_wall_ms;
    }
    return oldest_ms;
}

/* Only for stores of graph pools. */
static void write_graph(FILE *out, const struct core *core, const struct core_store *store,
                        enum store_metric metric)
{
    struct fs_graph graph;
    if (!fs_text_find_graph(core, store, &graph))
        return;
    sample(out, STORE_METRICS[metric].name, store, "",
           metric == METRIC_GRAPH_SPACES          ? graph.spaces
           : metric == METRIC_GRAPH_ADDRESS_BYTES ? graph.address_bytes
                                                  : graph.high_bytes);
}

/* Returns the value of a metric that has one sample for each store. */
static uint64_t get_number(const struct core *core, const struct core_store *store,
                           enum store_metric metric)
{
    switch (metric) {
    case METRIC_BYTES:
        return layout_total_bytes(core_get_layout(core, store));
    case METRIC_ALLOCATIONS:
        return layout_count_allocations(core_get_layout(core, store));
    case METRIC_ENTRIES:
        return layout_count_entries(core_get_layout(core, store));
    case METRIC_GENERATION:
        return store->generation;
    case METRIC_SUSPECT:
        return store->suspect > 0;
    case METRIC_DRAINING:
        return store->drain.is_on;
    case METRIC_READERS:
        return service_count_readers(store);
    case METRIC_WAITERS:
        return count_waiters(&store->lock);
    case METRIC_COMMITS:
        return store->commits;
    case METRIC_ABORTS:
        return store->aborts;
    case METRIC_EXPORTS:
        return store->exports;
    case METRIC_HELD:
        return store->use.holds;
    case METRIC_STATE:
    case METRIC_OLDEST_WAIT:
    case METRIC_GRANTS:
    case METRIC_COPY:
    case METRIC_LAST_USED:
    case METRIC_GRAPH_SPACES:
    case METRIC_GRAPH_ADDRESS_BYTES:
    case METRIC_GRAPH_HIGH_BYTES:
    case METRIC_COUNT:
        break; /* not a single number: write_store */
    }
    return 0;
}

static void write_store(FILE *out, const struct core *core, const struct core_store *store,
                        enum store_metric metric)
{
    const char *name = STORE_METRICS[metric].name;
    switch (metric) {
    case METRIC_STATE:
        write_states(out, name, store);
        break;
    case METRIC_OLDEST_WAIT:
        begin_sample(out, name, store, "");
        seconds(out, find_oldest_wait(core, &store->lock) * 1000);
        break;
    case METRIC_GRANTS:
        sample(out, name, store, ",mode=\"RW\"", store->grants_rw);
        sample(out, name, store, ",mode=\"RO\"", store->grants_ro);
        break;
    case METRIC_COPY:
        write_copies(out, name, store);
        break;
    case METRIC_LAST_USED:
        if (fs_get_last_used_ms(store) > 0)
            sample(out, name, store, "", fs_get_last_used_ms(store) / 1000);
        break;
    case METRIC_GRAPH_SPACES:
    case METRIC_GRAPH_ADDRESS_BYTES:
    case METRIC_GRAPH_HIGH_BYTES:
        write_graph(out, core, store, metric);
        break;
    default:
        sample(out, name, store, "", get_number(core, store, metric));
        break;
    }
}

static void write_health(FILE *out, const struct core *core)
{
    const char *name = "gmsfs_device_health";
    head(out, name, "gauge", "1 for the health that the device is in.");
    for (unsigned health = CORE_HEALTH_OK; health <= CORE_HEALTH_LOST; health++)
        fprintf(out, "%s{health=\"%s\"} %d\n", name, fs_text_health((enum core_health)health),
                core_get_health(core) == (enum core_health)health);
}

static void write_regions(FILE *out, const struct core *core)
{
    const struct idvec *items = &core->regions.items;
    uint64_t counts[REGION_CUDA + 1] = {0}, references = 0, draining = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct region *region = items->items[i];
        counts[region->kind]++;
        references += region->references;
        draining += region->draining;
    }
    head(out, "gmsfs_regions", "gauge", "Named regions of shared memory by kind.");
    fprintf(out, "gmsfs_regions{kind=\"system\"} %llu\n",
            (unsigned long long)counts[REGION_SYSTEM]);
    fprintf(out, "gmsfs_regions{kind=\"cuda\"} %llu\n", (unsigned long long)counts[REGION_CUDA]);
    single(out, "gmsfs_regions_draining", "gauge",
           "Regions that are unregistered and still referred to.", draining);
    single(out, "gmsfs_region_references", "gauge", "Open files that refer to regions.",
           references);
}

static const struct {
    const char *name, *type, *help;
    size_t at; /* of a uint64_t in struct core_pool */
} POOL_METRICS[] = {
    {"gmsfs_pool_min_bytes", "gauge", "Memory of the device that is kept for the pool.",
     offsetof(struct core_pool, min_bytes)},
    {"gmsfs_pool_max_bytes", "gauge",
     "Most memory that the pool may have; absent if it has no limit.",
     offsetof(struct core_pool, max_bytes)},
    {"gmsfs_pool_used_bytes", "gauge", "Memory that the stores of the pool have.",
     offsetof(struct core_pool, used_bytes)},
    {"gmsfs_evictions_total", "counter", "Stores of the pool that were evicted for others.",
     offsetof(struct core_pool, evictions)},
};

static void write_pools(FILE *out, const struct core *core)
{
    for (size_t metric = 0; metric < sizeof POOL_METRICS / sizeof POOL_METRICS[0]; metric++) {
        const char *name = POOL_METRICS[metric].name;
        head(out, name, POOL_METRICS[metric].type, POOL_METRICS[metric].help);
        for (size_t i = 0; i < core->pools.items.count; i++) {
            const struct core_pool *pool = core->pools.items.items[i];
            uint64_t value = *(const uint64_t *)((const char *)pool + POOL_METRICS[metric].at);
            if (value != CORE_NO_LIMIT)
                fprintf(out, "%s{pool=\"%s\"} %llu\n", name, pool->name, (unsigned long long)value);
        }
    }
}

static void write_audit(FILE *out, const struct fs *fs)
{
    uint64_t written, dropped;
    if (!fs->host.get_audit(fs->host.context, &written, &dropped))
        return;
    single(out, "gmsfs_audit_lines_total", "counter", "Lines of the audit.", written);
    single(out, "gmsfs_audit_dropped_total", "counter",
           "Lines of the audit that could not be written.", dropped);
}

static void write_trace(FILE *out)
{
    struct timeline_numbers numbers;
    if (!timeline_get_numbers(&numbers))
        return;
    single(out, "gmsfs_trace_spans_total", "counter", "Spans in the trace.", numbers.written);
    single(out, "gmsfs_trace_dropped_total", "counter",
           "Spans that the trace had no room for, or could not be written.", numbers.dropped);
}

static void write_tiers(FILE *out, const char *name, const char *help,
                        const uint64_t bytes[CORE_TIER_COUNT])
{
    head(out, name, "gauge", help);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        fprintf(out, "%s{tier=\"%s\"} %llu\n", name, core_place_name((enum core_place)tier),
                (unsigned long long)bytes[tier]);
}

static void single_seconds(FILE *out, const char *name, const char *type, const char *help,
                           uint64_t us)
{
    head(out, name, type, help);
    fprintf(out, "%s ", name);
    seconds(out, us);
}

static void write_moves(FILE *out, const struct vmm_info *info, const struct service_counts *counts)
{
    write_tiers(
        out, "gmsfs_tier_total_bytes", "Memory by tier.",
        (const uint64_t[]){info->total_bytes, info->host_total_bytes, info->spill_total_bytes});
    write_tiers(
        out, "gmsfs_tier_used_bytes", "Memory in use by tier.",
        (const uint64_t[]){info->used_bytes, info->host_used_bytes, info->spill_used_bytes});
    head(out, "gmsfs_moves_total", "counter", "Changes of stores' places, from tier to tier.");
    for (unsigned from = 0; from < CORE_PLACE_COUNT; from++) {
        for (unsigned to = 0; to < CORE_PLACE_COUNT; to++) {
            if (counts->moves[from][to] > 0)
                fprintf(out, "gmsfs_moves_total{from=\"%s\",to=\"%s\"} %llu\n",
                        core_place_name((enum core_place)from),
                        core_place_name((enum core_place)to),
                        (unsigned long long)counts->moves[from][to]);
        }
    }
    single(out, "gmsfs_move_bytes_total", "counter", "Bytes copied between tiers.",
           counts->move_bytes);
    single_seconds(out, "gmsfs_move_seconds_total", "counter",
                   "Time that copies between tiers took.", counts->move_ms * 1000);
    single_seconds(out, "gmsfs_promote_wait_seconds_total", "counter",
                   "Duration of the waits that promotions ended.", counts->promote_waits.ms * 1000);
    single(out, "gmsfs_promote_waits_total", "counter", "Number of waits that promotions ended.",
           counts->promote_waits.count);
}

static void write_waits(FILE *out, const struct service_counts *counts)
{
    const char *name = "gmsfs_lock_wait_seconds";
    head(out, name, "histogram",
         "Time from the first request for a store's lock to its grant; 0 if it was free.");
    write_histogram(out, name, "mode=\"RW\",", &counts->write_waits);
    write_histogram(out, name, "mode=\"RO\",", &counts->read_waits);
    name = "gmsfs_promotion_seconds";
    head(out, name, "histogram", "Duration of the copies to the device.");
    write_histogram(out, name, "", &counts->promotions);
    name = "gmsfs_recovery_seconds";
    head(out, name, "histogram", "Time from a worker's end until the next one served all again.");
    write_histogram(out, name, "", &counts->recoveries);
}

static void write_requests(FILE *out, const struct fs *fs)
{
    const struct fs_counts *counts = fs->options.counts;
    head(out, "gmsfs_requests_total", "counter",
         "Requests of the kernel, of clients of .fds, and of GMS clients.");
    for (uint32_t i = 0; i < FS_COUNTED_KINDS; i++)
        if (counts->requests[i].count > 0)
            fprintf(out, "gmsfs_requests_total{kind=\"%s\"} %llu\n", fs_count_name(fs, i),
                    (unsigned long long)counts->requests[i].count);
    head(out, "gmsfs_request_loop_seconds_total", "counter",
         "Time that the event loop took for requests of this kind.");
    for (uint32_t i = 0; i < FS_COUNTED_KINDS; i++) {
        if (counts->requests[i].count == 0)
            continue;
        fprintf(out, "gmsfs_request_loop_seconds_total{kind=\"%s\"} ", fs_count_name(fs, i));
        seconds(out, counts->requests[i].loop_us);
    }
    head(out, "gmsfs_request_loop_seconds", "histogram",
         "Time that the event loop took for one request.");
    write_histogram(out, "gmsfs_request_loop_seconds", "", &counts->loop_times);
}

static void write_device(FILE *out, const struct fs *fs)
{
    struct vmm_info info;
    struct service_numbers numbers;
    service_get_device(fs->service, &info);
    service_get_numbers(fs->service, &numbers);
    single(out, "gmsfs_device_total_bytes", "gauge", "Memory of the device.", info.total_bytes);
    single(out, "gmsfs_device_used_bytes", "gauge", "Memory in use, or being given back.",
           info.used_bytes);
    single(out, "gmsfs_device_reserved_bytes", "gauge", "Memory set aside for sessions.",
           info.aside_bytes);
    if (info.knows_others) {
        single(out, "gmsfs_device_other_bytes", "gauge",
               "Memory of the device that other processes hold.", info.other_bytes);
        single(out, "gmsfs_device_free_bytes", "gauge",
               "Memory of the device that no process holds.", info.free_bytes);
    }
    single(out, "gmsfs_device_freeing_bytes", "gauge", "Memory being given back.",
           numbers.freeing_bytes);
    single(out, "gmsfs_device_mapped_bytes", "gauge",
           "Memory that stores have given up and processes still map.", numbers.mapped_bytes);
    single(out, "gmsfs_open_files", "gauge", "Open files of the mount.",
           service_count_open_files(fs->service));
    single(out, "gmsfs_transfers_in_flight", "gauge", "Byte transfers on helper threads.",
           numbers.transfers_in_flight);
    single(out, "gmsfs_transfers_total", "counter", "Byte transfers.", numbers.counts.transfers);
    single(out, "gmsfs_read_bytes_total", "counter", "Bytes read.", numbers.counts.read_bytes);
    single(out, "gmsfs_written_bytes_total", "counter", "Bytes written.",
           numbers.counts.written_bytes);
    single(out, "gmsfs_jobs_in_flight", "gauge", "Jobs of all kinds on helper threads.",
           numbers.jobs_in_flight);
    single(out, "gmsfs_allocs_waiting", "gauge", "Requests that wait for memory.",
           numbers.allocs_waiting);
    single(out, "gmsfs_reservations_waiting", "gauge", "Requests for the lock that reserve memory.",
           fs->core->reserving);
    single(out, "gmsfs_exports_total", "counter", "Tickets given out.", numbers.counts.exports);
    single(out, "gmsfs_tickets_redeemed_total", "counter", "Tickets exchanged for descriptors.",
           numbers.counts.tickets_redeemed);
    single(out, "gmsfs_descriptors_unread", "gauge",
           "Descriptors that users were sent and have not read, at most.", fs->unread_count);
    write_moves(out, &info, &numbers.counts);
    write_waits(out, &numbers.counts);
    write_requests(out, fs);
    write_audit(out, fs);
    write_trace(out);
    single(out, "gmsfs_recoveries_total", "counter", "Workers that took over a live mount.",
           fs->core->resumes);
    single_seconds(out, "gmsfs_last_recovery_seconds", "gauge",
                   "Duration of the last recovery; 0 if there was none.",
                   fs->options.ledger->recovery.took_us);
}

int fs_text_metrics(const struct fs *fs, struct fs_text *text)
{
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    write_device(out, fs);
    write_health(out, fs->core);
    write_regions(out, fs->core);
    write_pools(out, fs->core);
    for (unsigned metric = 0; metric < METRIC_COUNT; metric++) {
        head(out, STORE_METRICS[metric].name, STORE_METRICS[metric].type,
             STORE_METRICS[metric].help);
        for (size_t i = 0; i < fs->core->stores.count; i++)
            write_store(out, fs->core, fs->core->stores.items[i], (enum store_metric)metric);
    }
    return fs_text_end(text, out);
}
