/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger in a program that has no end of a step, no planner and no answers: the linker takes
 * the objects that the ledger needs out of the archive, and no others. So nothing but the record
 * can happen while it is applied.
 */
#include "tap.h"

#include "service/cost.h"
#include "service/parked.h"
#include "service/plan.h"

#include <string.h>

/* A weak symbol takes no object out of an archive: its address is NULL. */
#pragma weak service_end_step
#pragma weak service_do
#pragma weak plan_heal
#pragma weak plan_promotion
#pragma weak plan_shortfall
#pragma weak plan_writer
#pragma weak plan_alloc
#pragma weak plan_move
#pragma weak plan_spare
#pragma weak service_on_granted
#pragma weak service_on_refused
#pragma weak piece_free_doomed

#define GRAIN      65536u
#define SIZE_BYTES (1u << 20)

static struct service service;
static uint64_t next_token = 1;
static unsigned recorded, stores_before; /* stores_before: when the last record was written */

static uint64_t host_now(void *context)
{
    (void)context;
    return 1;
}

static int host_record(void *context, const struct record *record, size_t *mark)
{
    (void)context;
    (void)record;
    *mark = recorded++;
    stores_before = (unsigned)service.core->stores.count;
    return 0;
}

static struct outcome apply(struct record record)
{
    struct outcome outcome;

    memcpy(record.bytes16, &next_token, sizeof next_token);
    next_token++;
    require(service_apply_record(&service, &record, &outcome) == 0);
    return outcome;
}

static uint64_t open_ctl(uint64_t store, uint64_t pid)
{
    return apply((struct record){.type = RECORD_FILE_OPEN,
                                 .store = store,
                                 .kind = CORE_KIND_CTL,
                                 .flags = CORE_OPEN_READ | CORE_OPEN_WRITE,
                                 .process = {pid, 1}})
        .file;
}

static struct outcome acquire(uint64_t ctl, uint64_t pid, uint64_t reserve_bytes)
{
    return apply((struct record){.type = RECORD_ACQUIRE,
                                 .file = ctl,
                                 .wish = LOCK_WISH_RW,
                                 .process = {pid, 1},
                                 .size_bytes = reserve_bytes,
                                 .deadline_ms = LOCK_FOREVER});
}

static void start(void)
{
    struct vmm_options memory = {
        .backend = "host", .size_bytes = SIZE_BYTES, .granularity_bytes = GRAIN};
    struct core_options options = {.patience_ms = 1000, .granularity_bytes = GRAIN};
    char error[256];

    service.host =
        (struct service_host){.now_ms = host_now, .wall_ms = host_now, .record = host_record};
    service.counts = &service.numbers.counts;
    require(vmm_open(&memory, &service.vmm, error, sizeof error) == 0);
    service_init_bounds(&service);
    require(core_new(&options, &service.core) == 0);
}

TAP_TEST(this_program_has_no_end_of_a_step_no_planner_and_no_answers)
{
    check(!service_end_step && !service_do && !service_on_granted && !service_on_refused);
    check(!plan_heal && !plan_promotion && !plan_shortfall && !plan_writer && !plan_alloc);
    check(!plan_move && !plan_spare && !piece_free_doomed);
}

TAP_TEST(a_record_is_written_and_applied_and_the_account_follows_and_effects_wait)
{
    const struct effect *effect;
    uint64_t store, holder, waiter;
    bool is_granted = false;

    start();
    store = apply((struct record){.type = RECORD_STORE_CREATE,
                                  .name = "weights",
                                  .name_bytes = strlen("weights"),
                                  .mode = 0755})
                .id;
    check_int(recorded, 1);
    check_int(stores_before, 0); /* the journal comes first */
    check_int(service.core->stores.count, 1);
    holder = open_ctl(store, 1);
    waiter = open_ctl(store, 2);
    check(acquire(holder, 1, GRAIN).session != 0);
    check_int(vmm_get_aside(service.vmm), GRAIN);
    check(acquire(waiter, 2, 2 * GRAIN).waiter != 0);
    check_int(vmm_get_aside(service.vmm), GRAIN);
    apply((struct record){.type = RECORD_FILE_CLOSE, .file = holder});
    check(core_find_file(service.core, waiter)->session != 0);
    check_int(vmm_get_aside(service.vmm), 2 * GRAIN);
    check_int(recorded, 6);
    for (size_t i = 0; (effect = core_peek_effect(service.core, i)); i++)
        is_granted |= effect->type == EFFECT_GRANTED;
    check(is_granted);
    check(service.step.has_changed && service.step.is_unsettled);
    core_free(service.core);
    vmm_close(service.vmm);
    service_free_bounds(&service);
}
