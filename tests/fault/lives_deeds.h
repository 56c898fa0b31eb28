/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives_deeds - requests of clients, made while the worker of lives_world.h dies
 *
 * Each deed begins with the same store `weights`: committed, with `a` (100 bytes that begin with
 * "committed"), `b` (70,000) and the entry `key`. Some deed calls each function of the service that
 * changes something.
 */
#ifndef GMSFS_TESTS_FAULT_LIVES_DEEDS_H
#define GMSFS_TESTS_FAULT_LIVES_DEEDS_H

#include "lives_world.h"
#include "service/admin.h"
#include "service/move.h"
#include "service/stores.h"
#include "service/tickets.h"

#define READ   1u
#define WRITE  2u
#define NOWAIT 4u

static struct service_actor actor_of(struct call *call, const struct ask *ask)
{
    return (struct service_actor){.file = call->player->files[ask->file],
                                  .caller = &call->player->caller};
}

static uint64_t file_of(const struct call *call, const struct ask *ask)
{
    return call->player->files[ask->file];
}

/* Returns 0 if none has this name. */
static uint64_t serial_of(const char *name)
{
    const struct core *core = service_get_core(service);
    const struct core_store *store = core_find_store_name(core, "weights");
    const struct layout *layout = core_get_layout(core, store);

    for (size_t rank = 0; rank < layout_count_allocations(layout); rank++)
        if (strcmp(layout_at_rank(layout, rank)->name, name) == 0)
            return layout_at_rank(layout, rank)->serial;
    return 0;
}

static int done(int error)
{
    return error ? error : 1;
}

/* ---- files and the lock ---- */

/* a: kind, b: READ…; text: the allocation */
static int open_it(struct call *call, const struct ask *ask)
{
    struct service_open open = {.store = store_id(),
                                .kind = (enum core_kind)ask->a,
                                .serial = ask->text ? serial_of(ask->text) : 0,
                                .read = ask->b & READ,
                                .write = ask->b & WRITE,
                                .nonblock = ask->b & NOWAIT};
    return service_open(service, &open, &call->player->caller, &call->request);
}

static int create_it(struct call *call, const struct ask *ask)
{
    struct service_open open = {
        .store = store_id(), .kind = CORE_KIND_ALLOCATION, .read = true, .write = true};
    return service_create(service, store_id(), ask->text, &open, &call->player->caller,
                          &call->request);
}

static int create_entry(struct call *call, const struct ask *ask)
{
    struct service_open open = {
        .store = store_id(), .kind = CORE_KIND_ENTRY, .read = true, .write = true};
    return service_create_entry(service, store_id(), ask->text, strlen(ask->text), &open,
                                &call->player->caller, &call->request);
}

static int close_it(struct call *call, const struct ask *ask)
{
    service_close(service, file_of(call, ask));
    return 1;
}

static int flush_it(struct call *call, const struct ask *ask)
{
    return done(service_flush(service, file_of(call, ask), &call->player->caller));
}

/* a: wish, b: bytes to reserve */
static int acquire_it(struct call *call, const struct ask *ask)
{
    struct service_acquire wanted = {.wish = (enum lock_wish)ask->a,
                                     .timeout_ms = 20000,
                                     .reserve_bytes = ask->b,
                                     .owned = true};
    return service_acquire(service, file_of(call, ask), &wanted, &call->player->caller,
                           &call->request);
}

static int release_it(struct call *call, const struct ask *ask)
{
    return service_release(service, file_of(call, ask), &call->request);
}

static int commit_it(struct call *call, const struct ask *ask)
{
    static const uint8_t group[16] = {7};
    struct service_actor by = actor_of(call, ask);
    return service_commit(service, &by, (uint32_t)ask->a, group, &call->request);
}

static int abort_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return service_abort(service, &by, &call->request);
}

/* Revokes the session or (a) the only waiter. */
static int revoke_it(struct call *call, const struct ask *ask)
{
    const struct core *core = service_get_core(service);
    const struct idvec *all = ask->a ? &core->waiters : &core->sessions;
    uint64_t number = all->count ? *(const uint64_t *)all->items[0] : 0;
    return service_revoke(service, file_of(call, ask), number, ask->a, &call->request);
}

/* ---- memory ---- */

/* a: size, b: count */
static int alloc_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    struct service_alloc wanted = {
        .size_bytes = ask->a, .count = (uint32_t)ask->b, .name = ask->text, .tag = "tag"};
    return service_alloc(service, &by, &wanted, &call->request);
}

static int alloc_each(struct call *call, const struct ask *ask)
{
    static const struct service_alloc_item items[] = {{10, "x", "t"}, {70000, "", "u"}};
    struct service_actor by = actor_of(call, ask);
    struct service_alloc wanted = {.count = 2, .items = items, .name = "", .tag = ""};
    return service_alloc(service, &by, &wanted, &call->request);
}

static int set_aside(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    struct service_set_aside wanted = {.bytes = ask->a};
    return service_set_aside(service, &by, &wanted, &call->request);
}

static int free_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return done(service_remove_slot(service, &by, ask->a));
}

static int clear_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return done(service_clear(service, &by));
}

static int resize_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return service_resize(service, &by, serial_of(ask->text), ask->a, &call->request);
}

static int rename_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return done(service_rename(service, &by, serial_of(ask->text), "renamed", 0));
}

static int tag_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return done(service_set_tag(service, &by, serial_of(ask->text), "other"));
}

static int write_it(struct call *call, const struct ask *ask)
{
    return service_write(service, file_of(call, ask), ask->text, strlen(ask->text), ask->a,
                         &call->request);
}

static int append_it(struct call *call, const struct ask *ask)
{
    return service_append(service, file_of(call, ask), ask->text, strlen(ask->text),
                          &call->request);
}

static int read_it(struct call *call, const struct ask *ask)
{
    return service_read(service, file_of(call, ask), ask->b, ask->a, &call->request);
}

static int settle_it(struct call *call, const struct ask *ask)
{
    return service_settle(service, file_of(call, ask), &call->request);
}

static int sync_it(struct call *call, const struct ask *ask)
{
    return service_sync(service, file_of(call, ask), &call->request);
}

static int export_it(struct call *call, const struct ask *ask)
{
    struct service_export *export = calloc(1, sizeof *export);
    require(export != NULL);
    export->writable = ask->a;
    return service_export(service, file_of(call, ask), export, &call->request);
}

/* ---- entries ---- */

static int put_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    struct service_entry entry = {.key = ask->text,
                                  .key_bytes = strlen(ask->text),
                                  .slot = ask->a,
                                  .offset = ask->b,
                                  .value = "value",
                                  .value_bytes = 5};
    return done(service_entry_put(service, &by, &entry));
}

static int delete_it(struct call *call, const struct ask *ask)
{
    struct service_actor by = actor_of(call, ask);
    return done(service_entry_delete(service, &by, ask->text, strlen(ask->text)));
}

/* {"v": 1, "metadata": [["k5", nil, 0, "vv"], ["k6", nil, 0, "w"]]} */
static int apply_it(struct call *call, const struct ask *ask)
{
    static const uint8_t document[] = "\x82\xa1v\x01\xa8metadata\x92\x94\xa2k5\xc0\x00\xc4\x02vv"
                                      "\x94\xa2k6\xc0\x00\xc4\x01w";
    struct service_actor by = actor_of(call, ask);
    return service_apply(service, &by, document, sizeof document - 1, &call->request);
}

/* ---- stores and the mount ---- */

static int make_store(struct call *call, const struct ask *ask)
{
    uint64_t id;
    return done(service_store_create(service, ask->text, &call->player->caller, 0755, &id));
}

static uint64_t named(const char *name)
{
    const struct core_store *store = core_find_store_name(service_get_core(service), name);
    return store ? store->id : 0;
}

static int remove_store(struct call *call, const struct ask *ask)
{
    return done(service_store_remove(service, named(ask->text), &call->player->caller));
}

static int rename_store(struct call *call, const struct ask *ask)
{
    return done(service_store_rename(service, named(ask->text), "s3", 0, &call->player->caller));
}

static int set_mode(struct call *call, const struct ask *ask)
{
    struct service_store_attr attr = {.which = CORE_ATTR_MODE, .mode = (uint32_t)ask->a};
    return done(service_store_set_attr(service, named(ask->text), &attr, &call->player->caller));
}

static struct service_peer peer_of(const struct call *call)
{
    return (struct service_peer){.process = call->player->caller.processes[0]};
}

static int drain_it(struct call *call, const struct ask *ask)
{
    struct service_peer peer = peer_of(call);
    return done(service_drain(service, &peer, ask->a));
}

static int serve_it(struct call *call, const struct ask *ask)
{
    struct service_peer peer = peer_of(call);
    (void)ask;
    return done(service_serve(service, &peer));
}

static bool is_by_connection(const struct ask *ask)
{
    return ask->act == drain_it || ask->act == serve_it;
}

static int move_it(struct call *call, const struct ask *ask)
{
    struct service_move_order order = {.act = (enum service_move_act)ask->b,
                                       .place = (enum core_place)ask->a};
    return done(service_order_move(service, file_of(call, ask), &order));
}

/* ---- the deeds ---- */

#define ASKS_MAX 12u

struct deed {
    const char *name;
    struct ask asks[CLIENTS][ASKS_MAX];
};

#define OPEN_LOCK(how)                          \
    {                                           \
        open_it, 0, CORE_KIND_LOCK, (how), NULL \
    }
#define OPEN_A(how)                                  \
    {                                                \
        open_it, 1, CORE_KIND_ALLOCATION, (how), "a" \
    }
#define COMMIT                   \
    {                            \
        commit_it, 0, 0, 0, NULL \
    }
#define CLOSE(file)                  \
    {                                \
        close_it, (file), 0, 0, NULL \
    }

static const struct ask BEGINNING[] = {OPEN_LOCK(READ | WRITE),
                                       {alloc_it, 0, 100, 1, "a"},
                                       {alloc_it, 0, 70000, 1, "b"},
                                       OPEN_A(READ | WRITE),
                                       {write_it, 1, 0, 0, "committed"},
                                       {put_it, 0, 0, 8, "key"},
                                       COMMIT,
                                       CLOSE(1),
                                       CLOSE(0),
                                       {0}};

static const struct deed DEEDS[] = {
    {"writer", {{OPEN_LOCK(READ | WRITE), CLOSE(0)}}},
    {"readers", {{OPEN_LOCK(READ), CLOSE(0)}, {OPEN_LOCK(READ), CLOSE(0)}}},
    {"acquire",
     {{{open_it, 0, CORE_KIND_CTL, READ | WRITE, NULL},
       {acquire_it, 0, LOCK_WISH_RW, 0, NULL},
       {release_it, 0, 0, 0, NULL},
       {acquire_it, 0, LOCK_WISH_RO, 0, NULL},
       {export_it, 0, 0, 0, NULL},
       CLOSE(0)}}},
    {"reserve",
     {{{open_it, 0, CORE_KIND_CTL, READ | WRITE, NULL},
       {acquire_it, 0, LOCK_WISH_RW, 131072, NULL},
       {set_aside, 0, 262144, 0, NULL},
       {alloc_it, 0, 10, 2, ""},
       {set_aside, 0, 0, 0, NULL},
       COMMIT,
       CLOSE(0)}}},
    {"wait",
     {{OPEN_LOCK(READ | WRITE), {alloc_it, 0, 10, 1, "n"}, COMMIT, CLOSE(0)},
      {OPEN_LOCK(READ | WRITE), {put_it, 0, 0, 0, "k2"}, COMMIT, CLOSE(0)}}},
    {"wait-acquire",
     {{OPEN_LOCK(READ), CLOSE(0)},
      {{open_it, 0, CORE_KIND_CTL, READ | WRITE, NULL},
       {acquire_it, 0, LOCK_WISH_RW, 65536, NULL},
       {abort_it, 0, 0, 0, NULL},
       CLOSE(0)}}},
    {"refused", {{OPEN_LOCK(READ | WRITE), CLOSE(0)}, {OPEN_LOCK(READ | NOWAIT)}}},
    {"alloc", {{OPEN_LOCK(READ | WRITE), {alloc_it, 0, 10, 3, ""}, COMMIT, CLOSE(0)}}},
    {"alloc-each", {{OPEN_LOCK(READ | WRITE), {alloc_each, 0, 0, 0, NULL}, COMMIT, CLOSE(0)}}},
    {"free",
     {{OPEN_LOCK(READ | WRITE),
       {free_it, 0, 0, 0, NULL},
       {free_it, 0, 0, 0, NULL},
       COMMIT,
       CLOSE(0)}}},
    {"clear", {{OPEN_LOCK(READ | WRITE), {clear_it, 0, 0, 0, NULL}, COMMIT, CLOSE(0)}}},
    {"clear-abort",
     {{OPEN_LOCK(READ | WRITE), {clear_it, 0, 0, 0, NULL}, {abort_it, 0, 0, 0, NULL}, CLOSE(0)}}},
    {"names",
     {{OPEN_LOCK(READ | WRITE),
       {rename_it, 0, 0, 0, "a"},
       {tag_it, 0, 0, 0, "b"},
       COMMIT,
       CLOSE(0)}}},
    {"resize",
     {{OPEN_LOCK(READ | WRITE),
       {create_it, 1, 0, 0, "n"},
       {resize_it, 0, 100000, 0, "n"},
       {write_it, 1, 70000, 0, "hello"},
       {resize_it, 0, 0, 0, "a"},
       {resize_it, 0, 10, 0, "a"},
       CLOSE(1),
       COMMIT,
       CLOSE(0)}}},
    {"spool",
     {{OPEN_LOCK(READ | WRITE),
       {create_it, 1, 0, 0, "n"},
       {write_it, 1, 0, 0, "hello"},
       {write_it, 1, 66000, 0, "world"},
       {settle_it, 1, 0, 0, NULL},
       {write_it, 1, 66005, 0, "more"},
       {sync_it, 1, 0, 0, NULL},
       {read_it, 1, 66000, 20, NULL},
       CLOSE(1),
       COMMIT,
       CLOSE(0)}}},
    {"append",
     {{OPEN_LOCK(READ | WRITE),
       {create_it, 1, 0, 0, "n"},
       {append_it, 1, 0, 0, "hello"},
       {append_it, 1, 0, 0, "world"},
       COMMIT,
       CLOSE(1),
       CLOSE(0)}}},
    {"implicit",
     {{{create_it, 1, 0, 0, "n"},
       {write_it, 1, 0, 0, "hello"},
       {flush_it, 1, 0, 0, NULL},
       CLOSE(1)}}},
    {"overwrite",
     {{OPEN_LOCK(READ | WRITE),
       OPEN_A(READ | WRITE),
       {write_it, 1, 0, 0, "COMMITTED"},
       COMMIT,
       CLOSE(1),
       CLOSE(0)}}},
    {"overwrite-abort",
     {{OPEN_LOCK(READ | WRITE),
       OPEN_A(READ | WRITE),
       {write_it, 1, 0, 0, "x"},
       {abort_it, 0, 0, 0, NULL},
       CLOSE(1),
       CLOSE(0)}}},
    {"read", {{OPEN_A(READ), {read_it, 1, 0, 9, NULL}, CLOSE(1)}}},
    {"entries",
     {{OPEN_LOCK(READ | WRITE),
       {put_it, 0, 1, 0, "k2"},
       {delete_it, 0, 0, 0, "key"},
       {delete_it, 0, 0, 0, "key"},
       {create_entry, 1, 0, 0, "k3"},
       CLOSE(1),
       COMMIT,
       CLOSE(0)}}},
    {"apply", {{OPEN_LOCK(READ | WRITE), {apply_it, 0, 0, 0, NULL}, COMMIT, CLOSE(0)}}},
    {"commit-stay",
     {{OPEN_LOCK(READ | WRITE),
       {put_it, 0, 1, 0, "k2"},
       {commit_it, 0, CORE_COMMIT_STAY | CORE_COMMIT_GROUP, 0, NULL},
       CLOSE(0)},
      {OPEN_LOCK(READ), CLOSE(0)}}},
    {"seal",
     {{{open_it, 0, CORE_KIND_DATA, READ | WRITE, NULL},
       OPEN_A(READ | WRITE),
       {commit_it, 0, CORE_COMMIT_SEAL, 0, NULL},
       {write_it, 1, 0, 0, "SEALED"},
       CLOSE(1),
       CLOSE(0),
       {open_it, 0, CORE_KIND_DATA, READ | WRITE, NULL},
       CLOSE(0)}}},
    {"export",
     {{OPEN_LOCK(READ | WRITE), {export_it, 0, 1, 0, NULL}, {abort_it, 0, 0, 0, NULL}, CLOSE(0)}}},
    {"revoke",
     {{OPEN_LOCK(READ | WRITE), {alloc_it, 0, 10, 1, "n"}},
      {{open_it, 1, CORE_KIND_ABORT, WRITE, NULL}, {revoke_it, 1, 0, 0, NULL}, CLOSE(1)}}},
    {"stores",
     {{{make_store, 0, 0, 0, "s2"},
       {set_mode, 0, 0700, 0, "s2"},
       {rename_store, 0, 0, 0, "s2"},
       {make_store, 0, 0, 0, "s2"},
       {remove_store, 0, 0, 0, "s3"}}}},
    {"drain",
     {{OPEN_LOCK(READ | WRITE), {drain_it, 0, 1, 0, NULL}, {serve_it, 0, 0, 0, NULL}, CLOSE(0)},
      {OPEN_LOCK(READ | WRITE), CLOSE(0)}}},
    {"move",
     {{{open_it, 0, CORE_KIND_RESIDENCY, READ | WRITE, NULL},
       {move_it, 0, CORE_PLACE_HOST, SERVICE_MOVE_TO, NULL}}}},
    {"spare",
     {{{open_it, 0, CORE_KIND_RESIDENCY, READ | WRITE, NULL},
       {move_it, 0, CORE_PLACE_HOST, SERVICE_MOVE_COPY, NULL}}}},
};

#endif
