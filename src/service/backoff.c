/* SPDX-License-Identifier: Apache-2.0 */
#include "service/backoff.h"

#include "service/service_internal.h"

#include <stdlib.h>

static struct backoff *find(const struct service *s, enum backoff_reason reason, uint64_t store)
{
    uint64_t id = store * BACKOFF_COUNT + reason;
    const struct backoff *row = s->backoffs.rows;
    if (store == 0)
        return (struct backoff *)&s->backoffs.of_all[reason];
    if (reason == BACKOFF_TELL)
        return idvec_find(&s->backoffs.told, id);
    for (unsigned i = 0; i < SERVICE_BACKOFFS && s->backoffs.used > 0; i++, row++) {
        if (row->id == id)
            return (struct backoff *)row;
    }
    return NULL;
}

static bool take_gone(void *item, void *core)
{
    struct backoff *row = item;
    if (core_find_store(core, row->id / BACKOFF_COUNT))
        return false;
    free(row);
    return true;
}

/* NULL: no memory */
static struct backoff *make_told(struct service *s, uint64_t id)
{
    if (s->backoffs.told.count >= CORE_MAX_STORES)
        idvec_remove_if(&s->backoffs.told, take_gone, s->core);
    struct backoff *row = calloc(1, sizeof *row);
    if (row)
        row->id = id;
    if (row && idvec_insert(&s->backoffs.told, row) == 0)
        return row;
    free(row);
    return NULL;
}

static void drop(struct service *s, struct backoff *row)
{
    deadline_clear(s, &row->over);
    row->until_ms = 0;
    if (row->id < BACKOFF_COUNT)
        return; /* for all stores, or free */
    if (row->id % BACKOFF_COUNT == BACKOFF_TELL) {
        free(idvec_remove(&s->backoffs.told, row->id));
        if (s->backoffs.told.count == 0)
            idvec_free(&s->backoffs.told);
    } else {
        row->id = 0;
        s->backoffs.used--;
    }
}

/* Takes a free row, or the row of the back-off that ends first. */
static struct backoff *take_row(struct service *s, uint64_t id)
{
    struct backoff *row = &s->backoffs.rows[0];
    for (unsigned i = 1; i < SERVICE_BACKOFFS; i++) {
        if (s->backoffs.rows[i].until_ms < row->until_ms)
            row = &s->backoffs.rows[i];
    }
    drop(s, row);
    row->id = id;
    s->backoffs.used++;
    return row;
}

/* A choice of victims differs only if a victim can leave again, or room can be looked for again. */
static void try_again(struct service *s, struct deadline *over)
{
    struct backoff *row = CONTAINER_OF(over, struct backoff, over);
    enum backoff_reason reason = row->id % BACKOFF_COUNT;
    drop(s, row);
    s->step.is_unsettled = true;
    if (reason == BACKOFF_MOVES)
        service_note_moves(s);
    else if (reason != BACKOFF_PROMOTE)
        service_note_memory(s);
    if (reason == BACKOFF_LEAVE || reason == BACKOFF_STAY || reason == BACKOFF_EVICT)
        s->backoffs.choices++;
}

void service_back_off(struct service *s, enum backoff_reason reason, uint64_t store, uint64_t ms)
{
    uint64_t id = store * BACKOFF_COUNT + reason;
    struct backoff *row = find(s, reason, store);
    if (!row)
        row = reason == BACKOFF_TELL ? make_told(s, id) : take_row(s, id);
    if (!row)
        return;
    row->id = id;
    row->until_ms = ms == BACKOFF_FOREVER ? ms : service_now(s) + ms;
    row->over.pass = try_again;
    deadline_set(s, &row->over, row->until_ms);
}

void service_end_backoff(struct service *s, enum backoff_reason reason, uint64_t store)
{
    struct backoff *row = find(s, reason, store);
    if (row)
        drop(s, row);
}

bool service_is_backed_off(const struct service *s, enum backoff_reason reason, uint64_t store)
{
    const struct backoff *row = find(s, reason, store);
    uint64_t until_ms = s->backoffs.of_all[reason].until_ms;
    if (row && row->until_ms > until_ms)
        until_ms = row->until_ms;
    return until_ms > 0 &&
           until_ms > service_now(s); /* mostly there is none, and the clock costs */
}

uint64_t service_count_try(struct service *s, enum backoff_reason reason)
{
    struct backoff *row = &s->backoffs.of_all[reason];
    uint64_t now_ms = service_now(s);
    if (row->until_ms <= now_ms) {
        row->until_ms = now_ms + SERVICE_TRIES_MS;
        row->tries = 0;
    }
    return row->tries++ < SERVICE_TRIES_MAX ? 0 : row->until_ms - now_ms;
}

/* ---- choices that found no victims -------------------------------------------------------- */

static uint64_t get_free(const struct service *s)
{
    return vmm_get_free(s->vmm) + s->numbers.freeing_bytes;
}

void service_note_no_victims(struct service *s, uint64_t store, uint64_t bytes)
{
    s->backoffs.failed[s->backoffs.next_failed++ % SERVICE_FAILED_CHOICES] = (struct failed_choice){
        .store = store, .bytes = bytes, .free_bytes = get_free(s), .choices = s->backoffs.choices};
}

bool service_had_no_victims(const struct service *s, uint64_t store, uint64_t bytes)
{
    uint64_t free_bytes = get_free(s);
    for (unsigned i = 0; i < SERVICE_FAILED_CHOICES; i++) {
        const struct failed_choice *failed = &s->backoffs.failed[i];
        if (failed->store == store && failed->choices == s->backoffs.choices &&
            failed->bytes == bytes && failed->free_bytes == free_bytes)
            return true;
    }
    return false;
}
