/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of the service: planners name the next deed, and change nothing. */
#include "evict_fixture.h"

#include "service/account.h"
#include "service/evict_table.h"
#include "service/move_op.h"

/* The job does not run yet. */
static void begin_alloc(struct client *client, uint64_t bytes)
{
    struct service_actor by = {.file = client->ctl};
    struct service_alloc wanted = {
        .size_bytes = bytes, .count = 1, .name = "", .tag = "", .wait = true};

    client->answers = 0;
    require(service_alloc(service, &by, &wanted, &client->request) == 0);
}

/* ---- that nothing changes ------------------------------------------------------------------- */

static struct service before; /* with its back-offs, deadlines, numbers and its step */

static void look(void)
{
    memcpy(&before, service, sizeof before);
}

static void check_unchanged(void)
{
    check_int(service->changes, before.changes);
    check(memcmp(&before, service, sizeof before) == 0);
    check(!queued_jobs);
    check_int(service->core->effect_count, 0);
}

static void check_deed(const struct deed *deed, enum deed_type type, const char *store)
{
    check_int(deed->type, type);
    check_int(deed->store, store_of(store)->id);
}

/* ---- victims ------------------------------------------------------------------------------ */

static const char *victim_of(struct evict_plan *plan)
{
    uint64_t victim;
    enum core_place to;

    if (!evict_plan_next(service, plan, &victim, &to))
        return "none";
    check_int(to, CORE_PLACE_HOST);
    return core_find_store(service->core, victim)->name;
}

TAP_TEST(victims_are_named_one_by_one_and_a_victim_that_stays_is_replaced)
{
    struct evict_plan plan;

    start();
    look();
    require(evict_plan_begin(service, &plan, store_of("weights"), 2 * STORE_BYTES, false));
    check_str(victim_of(&plan), "a");
    evict_plan_leaves(&plan);
    check_str(victim_of(&plan), "b");
    evict_plan_stays(service, &plan);
    check_str(victim_of(&plan), "c");
    evict_plan_leaves(&plan);
    check_str(victim_of(&plan), "none");
    check(evict_plan_comes(&plan));
    evict_table_free(&plan.table);
    check_unchanged();
    end();
}

TAP_TEST(where_too_few_can_leave_no_room_comes)
{
    struct evict_plan plan;

    start();
    look();
    require(evict_plan_begin(service, &plan, store_of("weights"), 4 * STORE_BYTES, false));
    for (size_t i = 0; i < STORES; i++) {
        check_str(victim_of(&plan), names[i]);
        if (i == STORES - 1)
            evict_plan_stays(service, &plan);
        else
            evict_plan_leaves(&plan);
    }
    check_str(victim_of(&plan), "none");
    check(!evict_plan_comes(&plan));
    evict_table_free(&plan.table);
    check_unchanged();
    end();
}

/* ---- waiters ------------------------------------------------------------------------------ */

TAP_TEST(room_is_made_for_the_first_writer_and_for_the_next_when_that_has_no_patience_left)
{
    struct client holders[STORES], first, second;
    struct plan plan = {0};
    struct deed deed;

    start();
    hold_all(holders);
    make_store("other");
    open_ctl_of(&first, "weights", 1);
    open_ctl_of(&second, "other", 2);
    acquire(&first, LOCK_WISH_RW, 3 * STORE_BYTES);
    acquire(&second, LOCK_WISH_RW, STORE_BYTES);
    require(first.answers + second.answers == 0);
    look();
    require(plan_take_queue(service, &plan));
    require(plan_writer(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "weights");
    check_int(deed.bytes, 3 * STORE_BYTES);
    check(!plan_writer(service, &plan, &deed)); /* none comes, and it is patient */

    fixture_now_ms += 1000000 - 1;
    plan = (struct plan){0};
    require(plan_take_queue(service, &plan));
    require(plan_writer(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "weights");
    require(plan_writer(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "other");
    check_unchanged();
    plan.comes = true;
    check(!plan_writer(service, &plan, &deed));
    end();
}

TAP_TEST(room_is_made_for_the_first_alloc_that_waits_once)
{
    struct client holders[STORES], writer;
    struct plan plan = {0};
    struct deed deed;

    start();
    hold_all(holders);
    check(!plan_alloc(service, &plan, &deed));
    open_ctl_of(&writer, "weights", 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    begin_alloc(&writer, STORE_BYTES);
    settle();
    require(writer.answers == 0);
    look();
    plan = (struct plan){0};
    require(plan_alloc(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "weights");
    check_int(deed.bytes, STORE_BYTES);
    check(!plan_alloc(service, &plan, &deed));
    check_unchanged();
    end();
}

/* ---- stores with waiters ------------------------------------------------------------------ */

static void send_away(const char *name)
{
    require(in_step(service_evict(service, store_of(name)->id, CORE_PLACE_HOST, store_id())) == 0);
    settle();
    require(store_of(name)->places.place == CORE_PLACE_HOST);
}

/* Asks for the lock in a step that does not end. */
static void ask(struct client *client)
{
    struct service_acquire wanted = {.wish = LOCK_WISH_RO, .timeout_ms = 1000000, .owned = true};
    struct effect effect;

    require(service_acquire(service, client->ctl, &wanted, &client->caller, &client->request) == 0);
    while (core_next_effect(service->core, &effect))
        ;
}

TAP_TEST(stores_with_waiters_come_by_age_and_room_is_made_for_a_store_without_it)
{
    struct client readers[2];
    struct plan plan = {0};
    struct deed deed;

    start();
    send_away("a");
    send_away("b");
    fill("e");
    require(vmm_get_free(vmm) == STORE_BYTES);
    open_ctl_of(&readers[0], "a", 1);
    open_ctl_of(&readers[1], "b", 2);
    ask(&readers[1]);
    ask(&readers[0]);
    look();
    require(plan_take_queue(service, &plan));
    require(plan_promotion(service, &plan, &deed));
    check_deed(&deed, DEED_PROMOTE, "b");
    require(plan_promotion(service, &plan, &deed));
    check_deed(&deed, DEED_PROMOTE, "a"); /* the first was not done */
    check(!plan_promotion(service, &plan, &deed));
    check_unchanged();
    free(plan.queue);

    require(vmm_reserve(vmm, STORE_BYTES) == 0);
    plan = (struct plan){0};
    require(plan_take_queue(service, &plan));
    require(plan_promotion(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "b");
    check_int(deed.bytes, STORE_BYTES);
    plan.comes = true; /* so newer waiters queue behind it */
    check(!plan_promotion(service, &plan, &deed));
    check_unchanged();
    free(plan.queue);
    vmm_unreserve(vmm, STORE_BYTES);
    end();
}

/* ---- spares ------------------------------------------------------------------------------- */

TAP_TEST(a_spare_is_dropped_where_its_tier_is_short_and_not_before)
{
    struct plan plan = {0};
    struct deed deed;
    struct record back = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_DEVICE);
    struct move_op waiting = {.state = MOVE_WAITS, .tier = VMM_TIER_HOST};

    start();
    send_away("a");
    back.store = store_of("a")->id;
    require(in_step(service_move_store(service, &back)) == 0);
    settle();
    require(store_of("a")->places.spares[CORE_PLACE_HOST]);
    look();
    plan_take_spares(service, &plan, CORE_PLACE_HOST);
    check(!plan_spare(service, &plan, &deed));

    waiting.cost_bytes = FIXTURE_BYTES;
    service->moves.all = &waiting;
    plan_take_spares(service, &plan, CORE_PLACE_HOST);
    require(plan_spare(service, &plan, &deed));
    check_deed(&deed, DEED_DROP_SPARE, "a");
    check_int(deed.place, CORE_PLACE_HOST);
    check(!plan_spare(service, &plan, &deed));

    waiting.cost_bytes = 2 * FIXTURE_BYTES; /* more than all spares have */
    plan_take_spares(service, &plan, CORE_PLACE_HOST);
    check(!plan_spare(service, &plan, &deed));
    service->moves.all = NULL;
    free(plan.spares);
    check_unchanged();
    end();
}

/* ---- moves that wait for the device's memory ---------------------------------------------- */

static void note_end(struct move_op *op)
{
    move_op_go(op, MOVE_ENDS);
    service->moves.all = NULL;
}

static void resume(uint64_t freeing_bytes)
{
    service->numbers.freeing_bytes = freeing_bytes;
    service_resume_moves(service);
    service->numbers.freeing_bytes = 0;
}

TAP_TEST(others_leave_for_a_move_until_none_can_and_then_it_waits_for_memory_on_its_way)
{
    struct plan plan = {0};
    struct deed deed;
    struct piece *none = NULL;
    struct move_op op = {
        .state = MOVE_WAITS, .tier = VMM_TIER_DEVICE, .finish = note_end, .pieces = &none};

    start();
    op.service = service;
    op.id = 77;
    op.store = store_of("a")->id;
    op.cost_bytes = STORE_BYTES;
    service->moves.all = &op;
    check(!plan_move(service, &plan, &deed));
    resume(STORE_BYTES);
    check_int(op.state, MOVE_WAITS);
    resume(0);
    look();
    require(plan_move(service, &plan, &deed));
    check_deed(&deed, DEED_MAKE_ROOM, "a");
    check_int(deed.bytes, STORE_BYTES);
    check_int(deed.move, op.id);
    check_unchanged();

    service_settle_short_move(service, op.id, true); /* a store leaves, and stays after all */
    check(!plan_move(service, &plan, &deed));
    resume(0);
    require(plan_move(service, &plan, &deed));
    service_settle_short_move(service, op.id, false);
    resume(STORE_BYTES); /* other memory is being freed, and others take it */
    check_int(op.state, MOVE_WAITS);
    resume(0);
    check_int(op.state, MOVE_ENDS);
    check_int(op.error, -ENOMEM);
    check(!plan_move(service, &plan, &deed));
    end();
}

/* ---- memory that the account had and the device had not ----------------------------------- */

TAP_TEST(room_is_made_once_for_memory_that_the_device_had_not)
{
    struct plan plan = {0};
    struct deed deed;

    start();
    check(!plan_shortfall(service, &plan, &deed));
    service_note_shortfall(service, store_of("weights")->id, STORE_BYTES);
    look();
    require(plan_shortfall(service, &plan, &deed));
    check_deed(&deed, DEED_COVER_SHORTFALL, "weights");
    check_int(deed.bytes, STORE_BYTES);
    check_unchanged();
    check(service_do(service, &deed));
    check(store_of("a")->places.move.id != 0 && store_of("b")->places.move.id == 0);
    check(!plan_shortfall(service, &plan, &deed));
    end();
}

/* ---- suspect memory ----------------------------------------------------------------------- */

TAP_TEST(a_store_whose_copy_was_lost_and_cannot_be_dropped_is_not_healed_for_a_while)
{
    struct plan plan = {0};
    struct deed deed;

    start();
    struct core_store *store = (struct core_store *)store_of("a");
    uint64_t lost = layout_at_rank(store_of("b")->fixed, 0)->memory;
    check(!plan_heal(service, &plan, &deed));
    store->suspect = service->core->suspect = 1;
    store->places.spares[CORE_PLACE_DISK] = store_of("b")->fixed;
    vmm->beside[VMM_TIER_DISK].state = vmm->beside[VMM_TIER_HOST].state;
    struct piece *piece = idvec_remove(&service->pieces.all, lost);
    look();
    require(piece && plan_heal(service, &plan, &deed));
    check_deed(&deed, DEED_HEAL, "a");
    check_unchanged();

    journal_is_full = true;
    service_do(service, &deed);
    journal_is_full = false;
    check(store->places.spares[CORE_PLACE_DISK] != NULL);
    check(!plan_heal(service, &plan, &deed));
    fixture_now_ms += SERVICE_LEAVE_RETRY_MS;
    check(plan_heal(service, &plan, &deed));

    require(idvec_insert(&service->pieces.all, piece) == 0);
    vmm->beside[VMM_TIER_DISK].state = NULL;
    store->places.spares[CORE_PLACE_DISK] = NULL;
    store->suspect = service->core->suspect = 0;
    end();
}
