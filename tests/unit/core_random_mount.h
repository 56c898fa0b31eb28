/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_random_mount - random records of regions, drains, fences, health, pools, moves and another
 * worker; for core_random.h
 */
#ifndef GMSFS_TESTS_UNIT_CORE_RANDOM_MOUNT_H
#define GMSFS_TESTS_UNIT_CORE_RANDOM_MOUNT_H

#include "core_random_clients.h"

/* A ctl whose session could keep an allocation, if there is one. */
static uint64_t random_reading_ctl(void)
{
    for (size_t tries = 0; tries < 8 && core->sessions.count > 0; tries++) {
        const struct core_session *session = core->sessions.items[below(core->sessions.count)];

        if (session->mode == LOCK_MODE_RO && session->exclusive)
            return session->opener;
    }
    return random_id(&core->files);
}

static int register_region(struct record record)
{
    static const uint8_t handle[REGION_HANDLE_BYTES] = {1, 2, 3};
    const struct core_file *file;

    record.tag = one_in(20) ? "" : "/key";
    record.offset = one_in(20) ? UINT64_MAX - 100 : below(3) * 1000;
    record.size_bytes = below(12) * 1000;
    record.flags = (uint32_t)one_in(3);
    if (one_in(3)) {
        record.kind = REGION_CUDA;
        record.tag = "";
        record.flags = 0;
        record.value = handle;
        record.value_bytes = sizeof handle - (one_in(20) ? 1 : 0);
        record.count = below(3);
    } else if (one_in(2)) {
        record.file = random_reading_ctl();
        file = core_find_file(core, record.file);
        record.serial = random_serial(file ? file->store : 0);
        record.flags = 0;
    } else {
        record.memory = one_in(20) ? used_memory() : next_memory++;
    }
    record.tag_bytes = strlen(record.tag);
    return apply(record);
}

static int use_region(void)
{
    struct record record = RECORD(FILE_OPEN, .kind = CORE_KIND_REGION, .flags = CORE_OPEN_READ,
                                  .serial = random_id(&core->regions.items));
    const struct region *region = core_find_region(core, record.serial);
    uint64_t file = 0;

    for (size_t i = 0; i < core->files.count; i++) {
        const struct core_file *at = core->files.items[i];
        if (at->kind == CORE_KIND_REGION && (file == 0 || one_in(2)))
            file = at->id;
    }
    if (file == 0 || one_in(3)) {
        record.store = region ? region->store : 0;
        return core->files.count > SOME_FILES ? close_file(random_id(&core->files)) : apply(record);
    }
    record = (struct record){.type = one_in(3) ? RECORD_REGION_RELEASE : RECORD_REGION_REFER,
                             .file = one_in(20) ? random_id(&core->files) : file};
    return apply(record);
}

/* Few names and owners, so that some are taken. */
static int step_region(void)
{
    struct record record = RECORD(REGION_REGISTER, .kind = REGION_SYSTEM, .uid = (uint32_t)below(3),
                                  .process = random_process());

    if (one_in(2))
        return use_region();
    record = with_name(record, random_name());
    if (one_in(3) || core->regions.items.count > SOME_REGIONS) {
        record.type = RECORD_REGION_UNREGISTER;
        record.kind = (uint32_t)below(3);
        record.flags = one_in(8) || core->regions.items.count > SOME_REGIONS ? CORE_REGION_ALL : 0;
        return apply(record);
    }
    return register_region(record);
}

/* Seldom up, and not for long. */
static int step_fence(void)
{
    struct record record = RECORD(FENCE, .flags = CORE_FENCE_ON);

    if (core->fence.is_up || one_in(8))
        record.flags = one_in(2) ? CORE_FENCE_ABORT : CORE_FENCE_COMPLETE;
    record.tag = one_in(2) ? "" : random_name();
    record.tag_bytes = strlen(record.tag);
    record.bytes16[0] = (uint8_t)below(2);
    return apply(with_name(record, random_name()));
}

/* Seldom on, and not for long. */
static int step_drain(void)
{
    struct record record = RECORD(DRAIN);

    if (core->draining && one_in(2))
        record.flags = CORE_DRAIN_DROP;
    else if (!core->draining && one_in(3))
        record.flags = CORE_DRAIN_ON;
    else if (one_in(20))
        record.flags = CORE_DRAIN_ON | CORE_DRAIN_DROP;
    record.process = random_process();
    record.bytes16[0] = (uint8_t)below(3);
    return apply(record);
}

static int step_store_drain(void)
{
    struct record record = {.type = one_in(3) ? RECORD_STORE_DRAIN : RECORD_STORE_SERVE,
                            .store = random_id(&core->stores),
                            .deadline_ms = one_in(2) ? now + below(3000) : 0,
                            .process = random_process(),
                            .uid = (uint32_t)below(3)};

    record.bytes16[0] = (uint8_t)below(3);
    return apply(record);
}

/* Doubt and trust; a loss would be the end of the walk. */
static int step_health(void)
{
    struct record record = RECORD(HEALTH, .flags = CORE_NOTE_SUSPECT);

    if (one_in(2)) {
        record.flags = CORE_NOTE_TRUST;
        record.store = one_in(3) ? 0 : random_id(&core->stores);
    }
    return apply(with_name(record, random_name()));
}

/* Sets budgets of a few pools, narrow and wide, and the pools of stores. */
static int step_pool(void)
{
    static const char *const names[] = {"default", "chat", "batch", "adapters", "-", ""};
    struct record record =
        RECORD(POOL_SET, .flags = (uint32_t)below(32), .offset = one_in(2) ? 0 : below(6) * GRAIN,
               .size_bytes = one_in(3) ? CORE_NO_LIMIT : below(30) * GRAIN,
               .count = one_in(2) ? 0 : below(4), .kind = (uint32_t)below(5),
               .mode = (uint32_t)below(110), .process = random_process());

    record = with_name(record, names[below(one_in(10) ? 6 : 4)]);
    if (one_in(6))
        record.flags = CORE_POOL_REMOVE;
    if (one_in(2))
        return apply(record);
    record.type = one_in(3) ? RECORD_STORE_PIN : one_in(6) ? RECORD_OVER_QUOTA : RECORD_STORE_POOL;
    record.store = random_id(&core->stores);
    record.flags = record.type == RECORD_STORE_PIN ? (uint32_t)one_in(2) : 0;
    return apply(record);
}

static uint64_t random_moving_store(void)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        if (store->places.move.id != 0 && !one_in(3))
            return store->id;
    }
    return random_id(&core->stores);
}

static int end_move(struct record record)
{
    const struct core_store *store = core_find_store(core, record.store);
    size_t count = store && store->fixed ? layout_count_allocations(store->fixed) : below(3);
    uint64_t memories[64];

    require(count < 60);
    record.count = store && !one_in(20) ? store->places.move.id : below(core->next_id);
    if (one_in(4)) {
        record.type = RECORD_MOVE_FAIL;
        record.offset = below(150);
        record.flags = (uint32_t)below(4);
        return apply(record);
    }
    record.type = RECORD_MOVE_END;
    record.flags = (uint32_t)one_in(2) * CORE_MOVE_KEEP;
    record.memory_count = one_in(20) ? below(4) : count;
    if (store && store->places.spares[store->places.move.to] && !one_in(20))
        record.flags = (uint32_t)(record.memory_count = 0);
    record.memories = memories;
    for (size_t i = 0; i < record.memory_count; i++)
        memories[i] = one_in(60) ? used_memory() : next_memory++;
    return apply(record);
}

static int step_move(void)
{
    struct record record = RECORD(MOVE_BEGIN, .store = random_moving_store(),
                                  .kind = (uint32_t)below(one_in(4) ? 5 : 3),
                                  .flags = one_in(3)   ? CORE_MOVE_SPARE
                                           : one_in(3) ? CORE_MOVE_VERIFY
                                                       : 0);

    switch (below(8)) {
    case 0:
        record.type = RECORD_MOVE_CANCEL;
        record.flags = 0;
        return apply(record);
    case 1:
        record.type = RECORD_COPY_DROP;
        record.flags = 0;
        return apply(record);
    case 2:
    case 3:
    case 4:
        return end_move(record);
    default:
        return apply(record);
    }
}

/* ---- another worker ------------------------------------------------------------------------- */

static uint64_t count_aside(void)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];

        if (!session->ending)
            bytes += session->reserved_bytes + session->due_bytes + session->drawn_bytes;
    }
    return bytes;
}

static void check_nothing_is_under_way(void)
{
    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];
        require(!session->ending && session->making_bytes == 0 && session->drawn_bytes == 0);
    }
}

static uint64_t sum_moves(void)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        sum += store->places.move.id * (i + 1);
    }
    return sum;
}

/* Applies the record to a second core: except the counter and its reports, the result is the same.
 */
static void check_resumed_once(uint64_t free_bytes)
{
    struct core *again = reborn(core);
    struct core_event *slot = &again->events[again->next_event % again->options.limits.events];
    struct core_event before = *slot;
    struct effect effect;
    struct state state;

    require(core_apply(again, &RECORD(RESUME, .now_ms = now, .free_bytes = free_bytes), NULL) == 0);
    require(core_next_effect(again, &effect) && effect.type == EFFECT_EVENT);
    require(!core_next_effect(again, &effect));
    require(slot->type == CORE_EVENT_RESUMED && slot->resumes == again->resumes);
    require(again->resumes-- == core->resumes + 1);
    again->measured_event = --again->next_event;
    again->event_bytes = core->event_bytes;
    again->event_text_bytes = core->event_text_bytes;
    *slot = before;
    state = state_of(again);
    require(check_bytes(state.bytes, state.size, last.bytes, last.size));
    free(state.bytes);
    core_free(again);
}

static int step_resume(void)
{
    uint64_t aside_bytes = count_aside(), reserved_bytes = core->reserved_bytes;
    uint64_t moves = sum_moves();
    uint32_t flags = one_in(3);
    struct record record = RECORD(RESUME, .flags = flags | 2 * one_in(20));
    int error = apply(flags && now % 2 ? named(record, "was killed") : record);

    if (error < 0 || flags)
        return error;
    model_note_away();
    require(count_aside() == aside_bytes && sum_moves() == moves);
    check_nothing_is_under_way();
    check_resumed_once(device_free - (core->reserved_bytes > reserved_bytes
                                          ? core->reserved_bytes - reserved_bytes
                                          : 0));
    return 0;
}

#endif
