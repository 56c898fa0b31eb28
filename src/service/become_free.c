/* SPDX-License-Identifier: Apache-2.0 */
/*
 * become_free - whether a device that is full by its account may have memory for an ALLOC later
 *
 * Counts the memory that stays: clients are giving back all other memory of the account, or may at
 * any moment. Where that is not enough, waiting does not help.
 */
#include "service/account.h"
#include "service/evict_table.h"

/* Returns the bytes of a writer that may come back: all, for it may abort; of a sealed layout,
 * those reserved beside it. */
static uint64_t count_of_writer(const struct core_store *store, const struct core_session *writer)
{
    return writer->mode == LOCK_MODE_RW ? store->use.used_bytes
                                        : writer->reserved_bytes + writer->making_bytes;
}

/* Returns the bytes that stay as long as only this session acts, and no further store begins to
 * leave the device. */
static uint64_t count_staying(const struct service *s, const struct core_session *held)
{
    const struct core_store *own = core_find_store(s->core, held->store);
    uint64_t bytes = 0, given_up_bytes = core_count_given_up_bytes(s->core, own);
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        const struct core_session *writer = core_get_writer(s->core, store->id);
        bytes += store->use.used_bytes;
        if (evict_table_is_leaving(store)) /* it has no writer */
            bytes -= layout_total_bytes(store->fixed);
        if (writer && writer != held)
            bytes -= count_of_writer(store, writer);
    }
    return bytes > given_up_bytes ? bytes - given_up_bytes : 0;
}

/* Marks the rows as if all sessions had ended and no store were new. The bytes of writers are
 * counted already; so are those of leaving stores, which must not count twice. */
static void free_all_rows(struct service *s, struct evict_table *table)
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
        return true; /* no memory to find out: assume so */
    struct evict_wish wish = {.store = store->id,
                              .pool = evict_table_find_pool(s, store->use.pool),
                              .bytes = bytes,
                              .is_resident = store->use.used_bytes > 0,
                              .free_bytes = free_bytes};
    free_all_rows(s, &table);
    long chosen =
        evict_choose(table.rows, table.count, table.pools, s->core->pools.items.count, &wish);
    evict_table_free(&table);
    return chosen >= 0;
}

bool service_can_become_free(struct service *s, const struct core_session *held, uint64_t bytes)
{
    if (service_count_try(s, BACKOFF_FREE_LOOKS) > 0)
        return true; /* too many looks of late: assume so */
    uint64_t staying_bytes = count_staying(s, held);
    uint64_t total_bytes = vmm_get_total_in(s->vmm, VMM_TIER_DEVICE);
    uint64_t free_bytes = total_bytes - number_smaller(staying_bytes, total_bytes);
    if (bytes <= free_bytes)
        return true;
    return s->options.evicts && !s->ending &&
           could_leave(s, core_find_store(s->core, held->store), bytes, free_bytes);
}
