/* SPDX-License-Identifier: Apache-2.0 */
/*
 * become_free - whether a device that is full by its account may have memory for an ALLOC later
 *
 * What stays is counted: whatever else the account has, others are giving back, or may at any
 * moment. Where that does not do, waiting helps nobody.
 */
#include "service/account.h"
#include "service/evict_table.h"

/* All that a writer has may come back, for it may abort; of a sealed layout, what it had beside. */
static uint64_t count_of_writer(const struct core_store *store, const struct core_session *writer)
{
    return writer->mode == LOCK_MODE_RW ? store->use.used_bytes
                                        : writer->reserved_bytes + writer->making_bytes;
}

/* As long as nobody but who asks does anything, and no store begins to leave the device. */
static uint64_t count_staying(const struct service *s, const struct core_session *held)
{
    const struct core_store *own = core_find_store(s->core, held->store);
    uint64_t bytes = 0, given_up_bytes = core_count_given_up_bytes(s->core, own);
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        const struct core_session *writer = core_get_writer(s->core, store->id);
        bytes += store->use.used_bytes;
        if (evict_table_is_leaving(store)) /* nobody writes there */
            bytes -= layout_total_bytes(store->fixed);
        if (writer && writer != held)
            bytes -= count_of_writer(store, writer);
    }
    return bytes > given_up_bytes ? bytes - given_up_bytes : 0;
}

/* When whoever uses them has gone, and they have been there for long enough. What a writer has is
 * counted already; so is what leaves, and would not be there twice. */
static void let_all_go(struct service *s, struct evict_table *table)
{
    enum core_place place;
    for (size_t i = 0; i < table->count; i++) {
        struct evict_row *row = &table->rows[i];
        const struct core_store *store = core_find_store(s->core, row->store);
        row->held = row->waited_for = false;
        row->moving = evict_table_is_leaving(store);
        row->stuck =
            core_get_writer(s->core, row->store) || !evict_table_find_place(table, store, &place);
        row->promoted_ms = 0;
    }
}

static bool could_leave(struct service *s, const struct core_store *store, uint64_t bytes,
                        uint64_t free_bytes)
{
    struct evict_table table;
    if (!evict_table_fill(s, &table, store))
        return true; /* nobody knows */
    struct evict_wish wish = {.store = store->id,
                              .pool = evict_table_find_pool(s, store->use.pool),
                              .bytes = bytes,
                              .is_resident = store->use.used_bytes > 0,
                              .free_bytes = free_bytes};
    let_all_go(s, &table);
    long chosen =
        evict_choose(table.rows, table.count, table.pools, s->core->pools.items.count, &wish);
    evict_table_free(&table);
    return chosen >= 0;
}

bool service_can_become_free(struct service *s, const struct core_session *held, uint64_t bytes)
{
    if (service_count_try(s, BACKOFF_FREE_LOOKS) > 0)
        return true; /* of many waiters some are believed */
    uint64_t staying_bytes = count_staying(s, held);
    struct vmm_info info;
    vmm_get_info(s->vmm, &info);
    uint64_t free_bytes = info.total_bytes > staying_bytes ? info.total_bytes - staying_bytes : 0;
    if (bytes <= free_bytes)
        return true;
    return s->options.evicts && !s->ending &&
           could_leave(s, core_find_store(s->core, held->store), bytes, free_bytes);
}
