/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_fixture - a service whose device is full of stores of one allocation each, "a" to "d"
 *
 * Its host memory has room for all of them. Jobs run when the test settles.
 */
#ifndef GMSFS_TESTS_EVICT_FIXTURE_H
#define GMSFS_TESTS_EVICT_FIXTURE_H

#include "service_fixture.h"

#include "service/moves.h"
#include "service/plan.h"

#define STORE_BYTES (FIXTURE_BYTES / 4)

static const char *const names[] = {"a", "b", "c", "d"};

#define STORES (sizeof names / sizeof names[0])

__attribute__((unused)) static const struct core_store *store_of(const char *name)
{
    return core_find_store_name(service_get_core(service), name);
}

__attribute__((unused)) static enum core_place place_of(const char *name)
{
    return store_of(name)->places.place;
}

/* Runs jobs one after the other, and the jobs that they begin. */
__attribute__((unused)) static void settle(void)
{
    settle_step();
    run_jobs();
}

__attribute__((unused)) static void make_store(const char *name)
{
    struct record record = RECORD(STORE_CREATE, .name = name, .name_bytes = strlen(name),
                                  .mode = 0755, .bytes16 = {(uint8_t)name[0], 1});

    require(in_step(service_apply_record(service, &record, NULL)) == 0);
}

__attribute__((unused)) static void open_ctl_of(struct client *client, const char *name,
                                                uint64_t pid)
{
    struct service_open open = {
        .store = store_of(name)->id, .kind = CORE_KIND_CTL, .read = true, .write = true};

    *client = new_client(pid, 0);
    require(in_step(service_open(service, &open, &client->caller, &client->request)) == 0);
    require(client->answers == 1 && client->error == 0);
    client->answers = 0;
}

__attribute__((unused)) static void alloc(struct client *client, uint64_t bytes, bool wait)
{
    struct service_actor by = {.file = client->ctl};
    struct service_alloc wanted = {
        .size_bytes = bytes, .count = 1, .name = "", .tag = "", .wait = wait};

    client->answers = 0;
    require(in_step(service_alloc(service, &by, &wanted, &client->request)) == 0);
    settle();
}

__attribute__((unused)) static void commit(struct client *client)
{
    struct record record =
        RECORD(COMMIT, .session = core_find_file(service_get_core(service), client->ctl)->session);

    require(in_step(service_apply_record(service, &record, NULL)) == 0);
}

/* Makes a store of one allocation, and lets time pass: the order of last uses is that of the calls.
 */
__attribute__((unused)) static void fill(const char *name)
{
    struct client client;

    make_store(name);
    open_ctl_of(&client, name, 10);
    acquire(&client, LOCK_WISH_RW, 0);
    alloc(&client, STORE_BYTES, true);
    require(client.answers == 1 && client.error == 0);
    commit(&client);
    close_file(client.ctl);
    fixture_now_ms += 10;
}

__attribute__((unused)) static void start(void)
{
    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    defers = true;
    for (size_t i = 0; i < STORES; i++)
        fill(names[i]);
    require(vmm_get_free(vmm) == 0);
}

__attribute__((unused)) static void end(void)
{
    settle();
    service_end();
    fixture_host_bytes = 0;
}

__attribute__((unused)) static void pin(const char *name, bool pinned)
{
    struct record record =
        RECORD(STORE_PIN, .store = store_of(name)->id, .flags = pinned ? CORE_PIN_ON : 0);

    require(in_step(service_apply_record(service, &record, NULL)) == 0);
}

/* Each store gets a reader. */
__attribute__((unused)) static void hold_all(struct client holders[STORES])
{
    for (size_t i = 0; i < STORES; i++) {
        open_ctl_of(&holders[i], names[i], 20 + i);
        acquire(&holders[i], LOCK_WISH_RO, 0);
        require(holders[i].answers == 1);
    }
}

__attribute__((unused)) static void ask_for_more(struct client *writer, const char *name,
                                                 uint64_t pid)
{
    open_ctl_of(writer, name, pid);
    acquire(writer, LOCK_WISH_RW, 0);
    settle();
    alloc(writer, STORE_BYTES, true);
}

#endif
