/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk - a document of several slices, where each call for memory fails once, or all of them
 *
 * The document is applied whole or not at all. Its rows come unordered, and are applied in the
 * order of their keys. A service on host memory, with a host that runs jobs at once and a clock
 * that moves only with its timer.
 */
#include "../unit/service_fixture.h"
#include "fault.h"

#include <stdlib.h>

#define ROWS  2500u /* three slices */
#define STEPS 10000u

static struct fault_control *control;
static uint64_t store, session;
static struct service_actor writer;
static unsigned slices; /* number of applied slices */

static void start(void)
{
    struct client client;

    control = fault_start(FAULT_ANYWHERE);
    require(control != NULL);
    service_start();
    store = store_id();
    open_ctl(&client, 1);
    acquire(&client, LOCK_WISH_RW, 0);
    require(client.error == 0);
    session = client.session;
    writer = (struct service_actor){.file = client.ctl};
}

static size_t count_entries(void)
{
    const struct core *core = service_get_core(service);

    return layout_count_entries(core_get_layout(core, core_find_store(core, store)));
}

/* {"v": 1, "metadata": [["k0000", nil, 0, "x"], ...]} */
static uint8_t *make_document(size_t *bytes)
{
    static const char head[] = "\x82\xa1v\x01\xa8metadata\xdc";
    uint8_t *document = malloc(sizeof head + 2 + ROWS * 16), *at = document;
    char key[8];

    require(document != NULL);
    memcpy(at, head, sizeof head - 1);
    at += sizeof head - 1;
    *at++ = ROWS >> 8;
    *at++ = ROWS & 255;
    for (unsigned i = 0; i < ROWS; i++) {
        snprintf(key, sizeof key, "k%04u", (i * 7 + 3) % ROWS);
        memcpy(at, "\x94\xa5", 2);
        memcpy(at + 2, key, 5);
        memcpy(at + 7, "\xc0\x00\xc4\x01x", 5);
        at += 12;
    }
    *bytes = (size_t)(at - document);
    return document;
}

enum failing {
    NONE,
    ONE_CALL,
    ALL_AFTER_A_SLICE, /* each call after the first slice */
};

/* Checks that the rows so far, if there are any, are the first in the order of the keys. */
static bool check_slice(void)
{
    const struct core *core = service_get_core(service);
    const struct layout *layout = core_get_layout(core, core_find_store(core, store));
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    unsigned expected = 0;
    char key[8];

    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor))) {
        snprintf(key, sizeof key, "k%04u", expected++);
        require(entry->key_bytes == 5 && memcmp(entry->key, key, 5) == 0);
    }
    return expected > 0;
}

/* Does the work of the loop, until the document is answered. */
static void run(struct client *client, int32_t after, enum failing failing)
{
    size_t bytes = 0;
    uint8_t *document = make_document(&bytes);

    *client = new_client(1, 0);
    control->fired = false;
    control->after = after;
    control->armed = failing == ONE_CALL;
    require(in_step(service_apply(service, &writer, document, bytes, &client->request)) == 0);
    for (unsigned step = 0; step < STEPS && client->answers == 0; step++) {
        if (failing == ALL_AFTER_A_SLICE && count_entries() > 0) {
            control->after = 0;
            control->armed = true;
        }
        if (fixture_idle) {
            fixture_idle = false;
            service_on_idle(service);
            settle_step();
            slices += check_slice();
        } else if (fixture_timer_ms != UINT64_MAX) {
            fixture_now_ms =
                fixture_timer_ms > fixture_now_ms ? fixture_timer_ms : fixture_now_ms + 1;
            run_timer();
        }
    }
    control->armed = false;
    free(document);
    check_int(client->answers, 1);
}

static void arm(enum fault_point point)
{
    control->processes = FAULT_COMMAND;
    control->point = point;
    control->error = ENOMEM;
}

static void clear(void)
{
    char key[8];

    for (unsigned i = 0; i < ROWS; i++) {
        snprintf(key, sizeof key, "k%04u", i);
        require(in_step(service_entry_delete(service, &writer, key, 5)) == 0);
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

TAP_TEST(slices_are_runs_of_keys_whatever_order_the_rows_have)
{
    struct client client;

    start();
    slices = 0;
    run(&client, 0, NONE);
    check_int(client.error, 0);
    check_int(client.answer.applied, ROWS);
    check_int(slices, 3);
    check_int(count_entries(), ROWS);
    service_end();
}

static void fail_each(enum fault_point point)
{
    unsigned failed = 0, applied = 0;
    struct client client;

    arm(point);
    for (int32_t after = 0;; after += after < 64 ? 1 : 97) {
        run(&client, after, ONE_CALL);
        size_t entries = count_entries();
        if (client.error)
            failed++;
        else
            applied++;
        if (!check_int(entries, client.error ? 0 : ROWS) || !control->fired)
            break;
        if (entries)
            clear();
    }
    if (count_entries())
        clear();
    fprintf(stderr, "# %s: %u documents failed, %u were applied\n", fault_point_name(point), failed,
            applied);
}

TAP_TEST(document_is_applied_whole_or_not_at_all_whatever_fails_once)
{
    start();
    fail_each(FAULT_malloc);
    fail_each(FAULT_calloc);
    fail_each(FAULT_realloc);
    service_end();
}

/* The first slice passes; then there is no memory for a long time. */
TAP_TEST(document_that_can_never_be_finished_ends_the_session)
{
    struct client client;
    const struct core *core;

    start();
    core = service_get_core(service);
    arm(FAULT_malloc);
    run(&client, 0, ALL_AFTER_A_SLICE);
    check_int(client.error, -ENOMEM);
    check(core_find_session(core, session) == NULL);
    check(!core_find_store(core, store)->fixed);
    check(fixture_now_ms >= 1000 + 20000);
    service_end();
}
