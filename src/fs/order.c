/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/order.h"

#include "fs/fs_internal.h"

#include <errno.h>

/* FS_ORDERS: none of this store is remembered. */
static size_t find_order(const struct fs_orders *orders, uint64_t store)
{
    size_t at = 0;
    while (at < FS_ORDERS && orders->list[at].store != store)
        at++;
    return at;
}

/* The move that the last order began is still under way, so that order has the note. */
static bool is_under_way(const struct fs_order *order, const struct core_store *store)
{
    return order->move != 0 && order->move == store->places.move.id;
}

/* A move that has begun may fail yet, and keeps its note; one that was done at once drops it. */
void fs_order_note(struct fs *fs, uint64_t file, const struct service_caller *caller,
                   const struct service_move_order *order, int error)
{
    const struct core_file *opened = core_find_file(fs->core, file);
    const struct core_store *store = opened ? core_find_store(fs->core, opened->store) : NULL;
    struct fs_order note = {.to = order->place, .event = fs->core->next_event};
    if (!store || error == -EPERM || error == -ECANCELED ||
        (order->act != SERVICE_MOVE_TO && order->act != SERVICE_MOVE_COPY))
        return;
    if (error)
        service_find_obstacle(fs->service, store, order->place, error, caller, &note.obstacle);
    else if (order->act == SERVICE_MOVE_TO)
        note.move = store->places.move.id;
    if (note.obstacle.text[0] || note.move)
        note.store = store->id;
    size_t at = find_order(&fs->orders, store->id);
    if (error == -EBUSY && !note.store && at < FS_ORDERS &&
        is_under_way(&fs->orders.list[at], store))
        return;
    if (at == FS_ORDERS && note.store)
        at = fs->orders.next++ % FS_ORDERS;
    if (at < FS_ORDERS)
        fs->orders.list[at] = note;
}

void fs_order_find_obstacle(const struct fs *fs, const struct core_store *store,
                            enum core_place *to, struct move_obstacle *out)
{
    size_t at = find_order(&fs->orders, store->id);
    const struct fs_order *order = at < FS_ORDERS ? &fs->orders.list[at] : NULL;
    *out = order ? order->obstacle : (struct move_obstacle){0};
    if (order)
        *to = order->to;
    if (order && !out->text[0])
        service_find_move_end(fs->service, store, order->to, order->event, out);
}
