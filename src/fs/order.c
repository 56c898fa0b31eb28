/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/order.h"

#include "fs/fs_internal.h"

#include <errno.h>

/* Returns FS_ORDERS if no order for this store is remembered. */
static size_t find_order(const struct fs_orders *orders, uint64_t store)
{
    size_t at = 0;
    while (at < FS_ORDERS && orders->list[at].store != store)
        at++;
    return at;
}

static size_t count_of_user(const struct fs_orders *orders, uint32_t uid)
{
    size_t count = 0;
    for (size_t at = 0; at < FS_ORDERS; at++)
        count += orders->list[at].uid == uid;
    return count;
}

/* Returns the user that loses a place to this one: itself, or if it has none the one with most. */
static uint32_t choose_user(const struct fs_orders *orders, uint32_t uid)
{
    uint32_t chosen = orders->list[0].uid;
    if (count_of_user(orders, uid) > 0)
        return uid;
    for (size_t at = 1; at < FS_ORDERS; at++) {
        if (count_of_user(orders, orders->list[at].uid) > count_of_user(orders, chosen))
            chosen = orders->list[at].uid;
    }
    return chosen;
}

/* Returns a place for an order of this user: a free one, or else that of the oldest. */
static size_t choose_place(const struct fs *fs, uint32_t uid)
{
    size_t oldest = FS_ORDERS;
    for (size_t at = 0; at < FS_ORDERS; at++) {
        if (!core_find_store(fs->core, fs->orders.list[at].store))
            return at;
    }
    uid = choose_user(&fs->orders, uid);
    for (size_t at = 0; at < FS_ORDERS; at++) {
        const struct fs_order *order = &fs->orders.list[at];
        if (order->uid == uid &&
            (oldest == FS_ORDERS || order->event < fs->orders.list[oldest].event))
            oldest = at;
    }
    return oldest;
}

/* Returns true if the last order's move is still running; its note then stays. */
static bool is_under_way(const struct fs_order *order, const struct core_store *store)
{
    return order->move != 0 && order->move == store->places.move.id;
}

/* Notes an order. A move that has begun may still fail, and keeps its note; a move that was done at
 * once drops it. */
void fs_order_note(struct fs *fs, uint64_t file, const struct service_caller *caller,
                   const struct service_move_order *order, int error)
{
    const struct core_file *opened = core_find_file(fs->core, file);
    const struct core_store *store = opened ? core_find_store(fs->core, opened->store) : NULL;
    struct fs_order note = {.uid = caller->uid, .to = order->place, .event = fs->core->next_event};
    if (!store || error == -EPERM || error == -ECANCELED ||
        (order->act != SERVICE_MOVE_TO && order->act != SERVICE_MOVE_COPY))
        return;
    if (error)
        service_find_obstacle(fs->service, store, order->place, error, &note.obstacle);
    else if (order->act == SERVICE_MOVE_TO)
        note.move = store->places.move.id;
    if (note.obstacle.text[0] || note.move)
        note.store = store->id;
    note.owner = store->uid;
    note.group = store->gid;
    note.mode = store->mode;
    size_t at = find_order(&fs->orders, store->id);
    if (error == -EBUSY && !note.store && at < FS_ORDERS &&
        is_under_way(&fs->orders.list[at], store))
        return;
    if (at == FS_ORDERS && note.store)
        at = choose_place(fs, caller->uid);
    if (at == FS_ORDERS)
        return;
    fs->orders.list[at] = note;
    fs->orders.changes++;
}

/* Returns true if the store has the same readers as when the obstacle was noted. */
static bool has_its_readers(const struct fs_order *order, const struct core_store *store)
{
    return order->owner == store->uid && order->group == store->gid && order->mode == store->mode;
}

void fs_order_find_obstacle(const struct fs *fs, const struct core_store *store,
                            enum core_place *to, struct move_obstacle *out)
{
    size_t at = find_order(&fs->orders, store->id);
    const struct fs_order *order = at < FS_ORDERS ? &fs->orders.list[at] : NULL;
    *out = order && has_its_readers(order, store) ? order->obstacle : (struct move_obstacle){0};
    if (order)
        *to = order->to;
    if (order && !order->obstacle.text[0])
        service_find_move_end(fs->service, store, order->to, order->event, out);
}
