/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk - a document of several slices, where each call for memory fails once, or all of them
 *
 * Applied is the whole document or nothing of it. A service on host memory, with a host that does
 * jobs at once and a clock that stands still but for its timer.
 */
#include "fault.h"
#include "service/service.h"

#include "../unit/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS  2500u /* three slices */
#define STEPS 10000u

static struct fault_control *control;
static struct vmm *vmm;
static struct service *service;
static uint64_t now_ms = 1000, timer_ms = UINT64_MAX, store_id, session;
static bool idle;

struct client {
    struct service_request request; /* first */
    unsigned answers;
    int error;
    struct service_answer answer;
};

/* ---- a host -------------------------------------------------------------------------------- */

static uint64_t host_now(void *context)
{
    (void)context;
    return now_ms;
}

static int host_random(void *context, void *bytes, size_t size)
{
    static uint8_t next;
    (void)context;
    memset(bytes, ++next, size);
    return 0;
}

static int host_submit(void *context, enum service_pool pool, struct job *job)
{
    (void)context;
    (void)pool;
    job->run(job);
    job->done(job);
    return 0;
}

static void host_set_timer(void *context, uint64_t at_ms)
{
    (void)context;
    timer_ms = at_ms;
}

static void host_set_idle(void *context)
{
    (void)context;
    idle = true;
}

static void host_nothing(void *context)
{
    (void)context;
}

static int host_watch(void *context, struct core_process process, uint64_t watched)
{
    (void)context;
    (void)process;
    (void)watched;
    return 0;
}

static void host_number(void *context, uint64_t number)
{
    (void)context;
    (void)number;
}

static const struct service_host host = {
    .now_ms = host_now,
    .wall_ms = host_now,
    .get_random = host_random,
    .submit = host_submit,
    .set_timer = host_set_timer,
    .set_idle = host_set_idle,
    .watch_process = host_watch,
    .unwatch_process = host_number,
    .on_state = host_number,
    .on_event = host_nothing,
};

/* ---- a writer ------------------------------------------------------------------------------ */

static void on_answer(struct service_request *request, int error,
                      const struct service_answer *answer)
{
    struct client *client = (struct client *)request;

    client->answers++;
    client->error = error;
    client->answer = answer ? *answer : (struct service_answer){0};
}

static void start(void)
{
    struct vmm_options memory = {.backend = "host", .size_bytes = 1 << 20};
    struct service_options options = {.patience_ms = 1000, .parking_max_ms = UINT64_MAX};
    struct service_caller caller = {.processes = {{.pid = 1, .start = 1}}, .process_count = 1};
    struct service_acquire acquire = {.wish = LOCK_WISH_RW};
    struct client client = {.request.done = on_answer};
    char error[256];

    control = fault_start();
    require(control != NULL);
    memory.granularity_bytes = 1 << 16;
    require(vmm_open(&memory, &vmm, error, sizeof error) == 0);
    require(service_new(vmm, &options, &host, &service) == 0);
    store_id = core_find_store_name(service_get_core(service), "weights")->id;
    struct service_open open = {
        .store = store_id, .kind = CORE_KIND_CTL, .read = true, .write = true};
    require(service_open(service, &open, &caller, &client.request) == 0 && client.error == 0);
    uint64_t file = client.answer.file;
    require(service_acquire(service, file, &acquire, &caller, &client.request) == 0);
    require(client.error == 0);
    session = client.answer.session;
}

static void end(void)
{
    service_free(service);
    vmm_close(vmm);
}

static size_t count_entries(void)
{
    const struct core *core = service_get_core(service);

    return layout_count_entries(core_get_layout(core, core_find_store(core, store_id)));
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
        snprintf(key, sizeof key, "k%04u", i);
        memcpy(at, "\x94\xa5", 2);
        memcpy(at + 2, key, 5);
        memcpy(at + 7, "\xc0\x00\xc4\x01x", 5);
        at += 12;
    }
    *bytes = (size_t)(at - document);
    return document;
}

enum failing {
    ONE_CALL,
    ALL_AFTER_A_SLICE, /* each call that comes when the first slice is in */
};

/* What the loop does, until the document is answered. */
static void run(struct client *client, int32_t after, enum failing failing)
{
    size_t bytes = 0;
    uint8_t *document = make_document(&bytes);

    *client = (struct client){.request.done = on_answer};
    control->fired = false;
    control->after = after;
    control->armed = failing == ONE_CALL;
    require(service_apply(service, session, document, bytes, &client->request) == 0);
    for (unsigned step = 0; step < STEPS && client->answers == 0; step++) {
        if (failing == ALL_AFTER_A_SLICE && count_entries() > 0) {
            control->after = 0;
            control->armed = true;
        }
        if (idle) {
            idle = false;
            service_on_idle(service);
        } else if (timer_ms != UINT64_MAX) {
            now_ms = timer_ms > now_ms ? timer_ms : now_ms + 1;
            service_on_timer(service);
        }
    }
    control->armed = false;
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
        require(service_entry_delete(service, session, key, 5) == 0);
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

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
    end();
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
    check(!core_find_store(core, store_id)->committed);
    check(now_ms >= 1000 + 20000);
    end();
}
