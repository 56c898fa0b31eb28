/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/holdings.h"

#include "daemon/wire.h"
#include "service/host.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true for connections, for a region's descriptor from its client, and for the descriptors
 * of memory's readers. */
static bool is_no_memory(uint64_t id)
{
    return (id & (WIRE_CONNECTION | SERVICE_REGION_MEMORY | SERVICE_MEMORY_READONLY)) != 0;
}

/* Returns true for a connection of `.fds`. These come last, are in no store, and keep the mount
 * busy. */
static bool holdings_is_unread(uint64_t id)
{
    return (id & WIRE_UNREAD) == WIRE_UNREAD;
}

static void drop_one(struct holdings *holdings, uint64_t id)
{
    struct holding *holding = idvec_remove(&holdings->items, id);

    if (holding) {
        if (holdings->store)
            fdstore_remove(holdings->store, holding->place);
        close(holding->fd);
        free(holding);
    }
}

/* Stores a descriptor; its former place, if any, holds another descriptor and is freed. */
static void store_one(struct holdings *holdings, struct holding *holding)
{
    uint32_t former = holding->place;

    if (!holdings->store || holdings_is_unread(holding->id))
        return;
    holding->place =
        fdstore_add(holdings->store, FDSTORE_KEPT, holding->fd, holding->id, holding->bytes);
    fdstore_remove(holdings->store, former);
}

/* Returns NULL if there is no memory, after closing the descriptor. */
static struct holding *insert(struct holdings *holdings, struct holding value)
{
    struct holding *holding = malloc(sizeof *holding);

    if (holding) {
        *holding = value;
        if (idvec_insert(&holdings->items, holding) == 0)
            return holding;
        free(holding);
    }
    close(value.fd);
    return NULL;
}

static bool is_same_connection(uint64_t id, int fd, int other)
{
    struct stat one, two;

    return (id & WIRE_CONNECTION) && fstat(fd, &one) == 0 && fstat(other, &two) == 0 &&
           one.st_ino == two.st_ino && one.st_dev == two.st_dev;
}

int holdings_add(struct holdings *holdings, uint64_t id, int fd, uint64_t bytes)
{
    struct holding *holding = idvec_find(&holdings->items, id);

    /* It was told ahead (keep_add_ahead). */
    if (holding && is_same_connection(id, fd, holding->fd)) {
        close(fd);
        return 0;
    }
    if (holding && !is_no_memory(id)) /* its readers' descriptor belongs to the former memory */
        drop_one(holdings, id | SERVICE_MEMORY_READONLY);
    if (holding) { /* memory that was made again with the same number */
        close(holding->fd);
        holding->fd = fd;
        holding->bytes = bytes;
        store_one(holdings, holding);
        return 0;
    }
    holding = insert(holdings, (struct holding){.id = id, .fd = fd, .bytes = bytes});
    if (holding)
        store_one(holdings, holding);
    return holding ? 0 : -ENOMEM;
}

int holdings_add_stored(struct holdings *holdings, const struct fdstore_item *item)
{
    const struct holding holding = {
        .id = item->id, .fd = item->fd, .bytes = item->bytes, .place = item->place};

    holdings_drop(holdings, item->id);
    return insert(holdings, holding) ? 0 : -ENOMEM;
}

void holdings_store(struct holdings *holdings, struct fdstore *store)
{
    holdings->store = store;
    for (size_t i = 0; i < holdings->items.count; i++)
        store_one(holdings, holdings->items.items[i]);
}

void holdings_drop(struct holdings *holdings, uint64_t id)
{
    drop_one(holdings, id);
    if (!is_no_memory(id))
        drop_one(holdings, id | SERVICE_MEMORY_READONLY);
}

void holdings_drop_unread(struct holdings *holdings)
{
    const struct idvec *items = &holdings->items;

    while (items->count > 0) {
        const struct holding *last = items->items[items->count - 1];
        if (!holdings_is_unread(last->id))
            break;
        drop_one(holdings, last->id);
    }
}

int holdings_take(struct holdings *holdings, struct service_kept **out, size_t *count)
{
    struct idvec *items = &holdings->items;
    struct service_kept *kept = calloc(items->count ? items->count : 1, sizeof *kept);

    if (!kept)
        return -ENOMEM;
    for (size_t i = 0; i < items->count; i++) {
        struct holding *holding = items->items[i];
        kept[i] = (struct service_kept){.id = holding->id, .fd = holding->fd};
        free(holding);
    }
    *count = items->count;
    *out = kept;
    idvec_free(items);
    return 0;
}

int holdings_find_readonly(const struct holdings *holdings, uint64_t memory)
{
    const struct holding *holding =
        is_no_memory(memory) ? NULL
                             : idvec_find(&holdings->items, memory | SERVICE_MEMORY_READONLY);

    return holding ? holding->fd : -1;
}

size_t holdings_count_all(const struct holdings *holdings)
{
    return holdings->items.count;
}

struct holding holdings_at(const struct holdings *holdings, size_t index)
{
    return *(const struct holding *)holdings->items.items[index];
}

void holdings_free(struct holdings *holdings)
{
    for (size_t i = 0; i < holdings->items.count; i++) {
        struct holding *holding = holdings->items.items[i];
        close(holding->fd);
        free(holding);
    }
    idvec_free(&holdings->items);
}

size_t holdings_count(const struct holdings *holdings)
{
    size_t count = holdings->items.count;

    while (count > 0 && is_no_memory(((struct holding *)holdings->items.items[count - 1])->id))
        count--;
    return count;
}

uint64_t holdings_count_bytes(const struct holdings *holdings)
{
    uint64_t bytes = 0;
    struct stat stat;

    for (size_t i = 0, count = holdings_count(holdings); i < count; i++) {
        const struct holding *holding = holdings->items.items[i];
        if (holding->bytes)
            bytes += holding->bytes;
        else if (fstat(holding->fd, &stat) == 0)
            bytes += (uint64_t)stat.st_blocks * 512;
    }
    return bytes;
}
