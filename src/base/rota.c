/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rota.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct rota_party {
    uint64_t key;
    struct rota_party *parent;      /* NULL if its key is the first of a path */
    struct rota_party *next;        /* in its parent's line */
    struct rota_party *bucket_next; /* in the list of its hash bucket */
    struct rota_party *first, *last;
    struct rota_item *first_item, *last_item; /* items, if its key is the last of a path */
};

static struct rota_party **bucket_of(struct rota *rota, const struct rota_party *parent,
                                     uint64_t key)
{
    uint64_t hash = (key ^ (uintptr_t)parent >> 4) * UINT64_C(0x9e3779b97f4a7c15);

    return &rota->buckets[hash >> 32 & (ROTA_BUCKETS - 1)];
}

static struct rota_party *find_party(struct rota *rota, const struct rota_party *parent,
                                     uint64_t key)
{
    struct rota_party *party = *bucket_of(rota, parent, key);

    while (party && (party->key != key || party->parent != parent))
        party = party->bucket_next;
    return party;
}

static void line_up(struct rota *rota, struct rota_party *party)
{
    struct rota_party *parent = party->parent;
    struct rota_party **first = parent ? &parent->first : &rota->first;
    struct rota_party **last = parent ? &parent->last : &rota->last;

    party->next = NULL;
    if (*last)
        (*last)->next = party;
    else
        *first = party;
    *last = party;
}

/* Removes the party from the head of its line. */
static void step_out(struct rota *rota, struct rota_party *party)
{
    struct rota_party *parent = party->parent;
    struct rota_party **first = parent ? &parent->first : &rota->first;
    struct rota_party **last = parent ? &parent->last : &rota->last;

    *first = party->next;
    if (!*first)
        *last = NULL;
}

static struct rota_party *add_party(struct rota *rota, struct rota_party *parent, uint64_t key)
{
    struct rota_party *party = rota->spare;
    struct rota_party **bucket = bucket_of(rota, parent, key);

    if (party) {
        rota->spare = party->next;
        rota->spare_count--;
    } else {
        party = malloc(sizeof *party);
    }
    if (!party)
        return NULL;
    *party = (struct rota_party){.key = key, .parent = parent, .bucket_next = *bucket};
    *bucket = party;
    line_up(rota, party);
    return party;
}

static void drop_party(struct rota *rota, struct rota_party *party)
{
    struct rota_party **at = bucket_of(rota, party->parent, party->key);

    while (*at != party)
        at = &(*at)->bucket_next;
    *at = party->bucket_next;
    if (rota->spare_count == ROTA_DEPTH) {
        free(party);
        return;
    }
    party->next = rota->spare;
    rota->spare = party;
    rota->spare_count++;
}

static bool is_empty(const struct rota_party *party)
{
    return !party->first && !party->first_item;
}

/* Undoes the parties added for an item that could not be queued: each is the last of its line. */
static void take_back(struct rota *rota, struct rota_party *party)
{
    while (party && is_empty(party)) {
        struct rota_party *parent = party->parent;
        struct rota_party **at = parent ? &parent->first : &rota->first, *before = NULL;
        for (; *at != party; at = &(*at)->next)
            before = *at;
        *at = NULL;
        *(parent ? &parent->last : &rota->last) = before;
        drop_party(rota, party);
        party = parent;
    }
}

int rota_push(struct rota *rota, const uint64_t path[ROTA_DEPTH], struct rota_item *item)
{
    struct rota_party *party = NULL;

    for (unsigned i = 0; i < ROTA_DEPTH; i++) {
        struct rota_party *found = find_party(rota, party, path[i]);
        if (!found)
            found = add_party(rota, party, path[i]);
        if (!found) {
            take_back(rota, party);
            return -ENOMEM;
        }
        party = found;
    }
    item->next = NULL;
    if (party->last_item)
        party->last_item->next = item;
    else
        party->first_item = item;
    party->last_item = item;
    rota->count++;
    return 0;
}

/* Moves the parties that were served to the end of their lines, and drops empty ones. */
static void end_turn(struct rota *rota, struct rota_party *party)
{
    while (party) {
        struct rota_party *parent = party->parent;
        step_out(rota, party);
        if (is_empty(party))
            drop_party(rota, party);
        else
            line_up(rota, party);
        party = parent;
    }
}

struct rota_item *rota_pop(struct rota *rota)
{
    struct rota_party *party = rota->first;

    if (!party)
        return NULL;
    while (party->first)
        party = party->first;
    struct rota_item *item = party->first_item;
    party->first_item = item->next;
    if (!party->first_item)
        party->last_item = NULL;
    rota->count--;
    end_turn(rota, party);
    return item;
}

void rota_free(struct rota *rota)
{
    for (struct rota_party *next, *party = rota->spare; party; party = next) {
        next = party->next;
        free(party);
    }
    rota->spare = NULL;
    rota->spare_count = 0;
}
