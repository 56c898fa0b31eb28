/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/*
 * States from bytes: a decoded state behaves like the original, and damaged bytes are refused or
 * are another valid state. GMSFS_WALKS and GMSFS_SEED choose other walks than the usual ones.
 */
#include "core_random.h"
#include "core_states.h"
#include "core_wind.h"

#include <dirent.h>

#define USUAL_WALKS  20
#define WALK_RECORDS 2000

/* ---- decoded states -------------------------------------------------------------------------- */

static struct core *back; /* the core of the fixture, decoded */

static void bring_back(void)
{
    core_free(back);
    back = reborn(core);
}

TAP_TEST(a_fresh_core_comes_back_with_its_options)
{
    core_start_limits = (struct core_limits){.events = 3, .files = 20, .waiters = 5};
    core_start_admin = 42;
    core_start();
    core_start_limits = (struct core_limits){.events = 16};
    core_start_admin = 0;
    bring_back();
    check(memcmp(&back->options, &core->options, sizeof core->options) == 0);
    check_int(back->shares[CORE_BOUND_FILES].limit, 20);
    check_int(back->next_id, 1);
}

TAP_TEST(layouts_come_back_with_slots_serials_and_what_follows_from_them)
{
    make_rich();
    bring_back();
    const struct core_store *was = core_find_store(core, rich.next);
    const struct core_store *is = core_find_store(back, rich.next);

    check_bytes(is->encoding->bytes, is->encoding->size, was->encoding->bytes, was->encoding->size);
    check_bytes(is->hash, 16, was->hash, 16);
    check_str(is->last_error, was->last_error);
    check(is->last_error[0] != '\0');
    check_int(layout_next_slot(is->working), layout_next_slot(was->working));
    check_int(layout_count_changes(is->working), layout_count_changes(was->working));
    check_int(layout_total_bytes(is->working), layout_total_bytes(was->working));
    check(layout_find_serial(is->working, rich.spool)->spool);
    check_str(layout_find_serial(is->working, rich.allocation)->name, "fresh");
    check_int(layout_find_wire_id(is->working, "allocation-1")->serial, rich.allocation);
    check(layout_find_wire_id(is->fixed, "allocation-1") == NULL);
    check_str(layout_find_wire_id(is->fixed, "allocation-\xc3\xa4")->name, "w");
    check(layout_find_serial(is->working, rich.spool)->wire_id == NULL);
    check_int(core_count_given_up_bytes(back, is), core_count_given_up_bytes(core, was));
    check(core_count_given_up_bytes(back, is) > 0);
    check_int(is->history.count, 3); /* a writer, its commit, and the next one */
    check_int(core_history_get(&is->history, 1)->type, CORE_EVENT_COMMITTED);
    was = core_find_store(core, rich.weights);
    is = core_find_store(back, rich.weights);
    check_bytes(is->group, 16, was->group, 16);
    check_int(is->group[3], 9);
    check_int(layout_at_rank(is->fixed, 1)->slot, 2);
    check_int(layout_at_rank(is->fixed, 1)->bound_entries, 1);
}

TAP_TEST(sessions_come_back_with_their_files_tickets_and_reservations)
{
    make_rich();
    bring_back();
    const struct core_session *reader = core_find_session(back, rich.reader);
    const struct core_session *writer = core_find_session(back, rich.writer);

    check_int(reader->files, 2);
    check_int(reader->owner.pid, P1.pid);
    check(core_find_session(back, rich.ending)->ending);
    check(writer->touched && writer->exclusive);
    check_int(writer->reserved_bytes, 3 * GRAIN);
    check_int(back->reserved_bytes, core->reserved_bytes);
    check_int(core_find_file(back, rich.document)->gathered_bytes, 1234);
    check_int(back->shares[CORE_BOUND_GATHERED].taken, 1234);
    check_int(back->tickets.count, 2);
    check_int(back->shares[CORE_BOUND_TICKETS].taken, 2);
    check(core_find_store(back, core_find_file(back, rich.gone)->store) == NULL);
}

TAP_TEST(waiters_come_back_in_their_order_with_their_times)
{
    make_rich();
    bring_back();
    const struct lock *was = &core_find_store(core, rich.weights)->lock;
    const struct lock *is = &core_find_store(back, rich.weights)->lock;

    require(is->waiter_count == 2 && was->waiter_count == 2);
    for (size_t i = 0; i < 2; i++) {
        check_int(is->waiters[i].id, was->waiters[i].id);
        check_int(is->waiters[i].since_ms, was->waiters[i].since_ms);
        check_int(is->waiters[i].hold_since_ms, was->waiters[i].hold_since_ms);
        check_int(is->waiters[i].kept_until_ms, was->waiters[i].kept_until_ms);
        check_int(is->waiters[i].looking, was->waiters[i].looking);
    }
    check(core_find_waiter(back, rich.away)->away && !is->waiters[0].looking);
    check(core_find_waiter(back, rich.looking)->away && is->waiters[1].looking);
    check_int(core_find_waiter(back, rich.waiting)->reserve_bytes, GRAIN);
    check_int(back->reserving, 1);
    check_int(lock_find_waiter(&core_find_store(back, rich.next)->lock, rich.waiting)->deadline_ms,
              now + 70000);
}

TAP_TEST(health_and_events_come_back)
{
    make_rich();
    bring_back();
    check_int(core_get_health(back), CORE_HEALTH_SUSPECT);
    check_str(back->health_reason, "Xid 48");
    check_int(core_find_store(back, rich.weights)->suspect, 2);
    check_int(core_find_store(back, rich.next)->suspect, 0);
    check(core_find_event(back, core->next_event - 17) == NULL);
    for (uint64_t seq = core->next_event - 16; seq < core->next_event; seq++) {
        const struct core_event *was = core_find_event(core, seq);
        const struct core_event *is = core_find_event(back, seq);
        require(was && is && was->seq == is->seq && was->type == is->type);
        check_str(is->store, was->store);
        check_str(is->bound, was->bound);
        check_int(is->is_share, was->is_share);
        check_int(is->resolved_by, was->resolved_by);
    }
}

TAP_TEST(a_mount_that_drains_and_a_device_that_is_lost_come_back_as_that)
{
    make_rich();
    require(apply(RECORD(DRAIN, .flags = CORE_DRAIN_ON)) == 0);
    bring_back();
    check(back->draining && back->waiters.count == 0);
    make_rich();
    require(apply(named(RECORD(HEALTH, .flags = CORE_NOTE_LOST), "gone")) == 0);
    bring_back();
    check_int(core_get_health(back), CORE_HEALTH_LOST);
    check_str(back->health_reason, "gone");
    check(core_find_store(back, rich.weights)->fixed != NULL); /* its reader is still there */
}

TAP_TEST(what_came_back_can_be_brought_to_its_end)
{
    make_rich();
    bring_back();
    check(wind_down(back));
}

TAP_TEST(a_fence_comes_back_up_and_keeps_no_store_from_its_end)
{
    struct record raise = RECORD(FENCE, .flags = CORE_FENCE_ON, .tag = "kv_cache", .tag_bytes = 8);

    start_committed(NULL);
    raise.bytes16[3] = 7;
    require(apply(named(raise, "weights")) == 0);
    bring_back();
    check(core_is_fenced(back, "weights") && core_is_fenced(back, "kv_cache"));
    check(!core_is_fenced(back, "other"));
    check_int(back->fence.token[3], 7);
    check(wind_down(back));
}

/* ---- walks ---------------------------------------------------------------------------------- */

static uint64_t walk_seed, walk_record;

static void tell_where(void)
{
    if (tap_failed)
        fprintf(stderr, "# GMSFS_SEED=%" PRIu64 " GMSFS_WALKS=1, record %" PRIu64 "\n", walk_seed,
                walk_record);
}

static uint64_t number_from(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : usual;
}

TAP_TEST(a_walk_goes_on_as_if_nothing_was_when_each_record_meets_a_core_that_came_back)
{
    uint64_t walks = number_from("GMSFS_WALKS", USUAL_WALKS);
    uint64_t seed = number_from("GMSFS_SEED", 1);

    atexit(tell_where);
    mirror_is_reborn = true;
    for (walk_seed = seed; walk_seed < seed + walks && !tap_failed; walk_seed++) {
        random_state = walk_seed * 0x9e3779b97f4a7c15u + 1;
        memset(&model, 0, sizeof model);
        choose_limits(walk_seed);
        start_store();
        for (walk_record = 0; walk_record < WALK_RECORDS; walk_record++) {
            memset(&out, 0, sizeof out);
            check_step(random_step());
        }
        bring_back();
        check(wind_down(back));
    }
    mirror_is_reborn = false;
    core_start_limits = (struct core_limits){.events = 16};
}

/* A waiter asleep for memory holds no other off; its sleep is not in the bytes. */
TAP_TEST(who_sleeps_is_found_anew_before_it_is_looked_at)
{
    uint64_t store;

    store = start_committed(NULL);
    device_free = 0;
    must_open(store, LOCK_WISH_RO, P1);
    require(acquire_reserving(open_ctl(store, P2), 5 * GRAIN, P2, LOCK_FOREVER) == 0);
    mirror_is_reborn = true;
    check_int(open_lock(store, LOCK_WISH_RO, P1), 0); /* or P1 would wait for itself: EDEADLK */
    check(out.session != 0);
    mirror_is_reborn = false;
}

TAP_TEST(flags_that_are_not_known_are_refused_before_they_are_kept)
{
    struct record record;
    uint64_t store;

    store = start_store();
    record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RW, P1);
    record.flags |= 1u << 12;
    check_int(apply(record), -EINVAL);
    check_int(open_file(store, CORE_KIND_CTL, 0, RW | 1u << 31, 0, P1), -EINVAL);
    record = RECORD(ACQUIRE, .wish = LOCK_WISH_RW, .flags = 1u << 12);
    record.file = open_ctl(store, P1);
    check_int(apply(record), -EINVAL);
}

/* ---- damage --------------------------------------------------------------------------------- */

/* Decodes it in a block of its own size, so that a step over its end is seen. */
static int decode_exact(const uint8_t *bytes, size_t size, struct core **decoded,
                        struct failure *failure)
{
    uint8_t *exact = malloc(size ? size : 1);
    int error;

    require(exact != NULL);
    memcpy(exact, bytes, size);
    *decoded = NULL;
    memset(failure->text, 0, 64);
    error = core_decode(exact, size, decoded, failure);
    free(exact);
    check((error == 0) == (*decoded != NULL) && (error == 0) == (failure->text[0] == '\0'));
    return error;
}

TAP_TEST(a_version_that_is_not_known_is_refused_by_its_number)
{
    struct core *decoded;
    struct failure failure;
    struct state state;

    make_rich();
    state = state_of(core);
    state.bytes[8] = 77;
    check_int(decode_exact(state.bytes, state.size, &decoded, &failure), -EPROTONOSUPPORT);
    check_str(failure.text,
              "the saved state is of version 77, and this gmsfs reads versions 11 to 14 only");
    state.bytes[0] ^= 1;
    check_int(decode_exact(state.bytes, state.size, &decoded, &failure), -EINVAL);
    check_str(failure.text, "byte 8 of the saved state, its head: this is not a state of gmsfs");
    free(state.bytes);
}

TAP_TEST(a_state_that_is_cut_short_anywhere_or_too_long_is_refused)
{
    struct core *decoded;
    struct failure failure;
    struct state state;
    uint8_t *longer;

    make_rich();
    state = state_of(core);
    for (size_t size = 0; size < state.size; size++)
        require(decode_exact(state.bytes, size, &decoded, &failure) == -EINVAL);
    longer = calloc(1, state.size + 1);
    require(longer != NULL);
    memcpy(longer, state.bytes, state.size);
    check_int(decode_exact(longer, state.size + 1, &decoded, &failure), -EINVAL);
    check(strstr(failure.text, "1 bytes follow after the end") != NULL);
    free(longer);
    free(state.bytes);
}

/* Whether it was taken. */
static bool try_damaged(const uint8_t *bytes, size_t size)
{
    struct core *decoded;
    struct failure failure;
    struct state again;
    int error = decode_exact(bytes, size, &decoded, &failure);

    if (error < 0) {
        require(error == -EINVAL || error == -EPROTONOSUPPORT);
        return false;
    }
    again = state_of(decoded);
    require(check_bytes(again.bytes, again.size, bytes, size));
    require(core_check(decoded, &failure) == 0);
    require(wind_down(decoded));
    core_free(decoded);
    free(again.bytes);
    return true;
}

TAP_TEST(a_byte_that_is_damaged_is_noticed_or_makes_another_state_that_holds)
{
    static const uint8_t values[] = {0x01, 0x08, 0x40, 0xff};
    size_t taken = 0, tried = 0;
    struct state state;

    make_rich();
    state = state_of(core);
    require(try_damaged(state.bytes, state.size));
    for (size_t at = 0; at < state.size; at++) {
        for (size_t i = 0; i < sizeof values; i++, tried++) {
            state.bytes[at] ^= values[i];
            taken += try_damaged(state.bytes, state.size);
            state.bytes[at] ^= values[i];
        }
    }
    fprintf(stderr, "# %zu of %zu damaged states are states\n", taken, tried);
    check(taken > 0 && taken < tried * 2 / 3);
    free(state.bytes);
}

TAP_TEST(parts_that_are_moved_doubled_or_lost_are_noticed_or_make_another_state_that_holds)
{
    size_t taken = 0, tried = 0;
    struct state state;
    uint8_t *changed;

    make_rich();
    state = state_of(core);
    changed = malloc(2 * state.size);
    require(changed != NULL);
    random_state = 4711;
    for (; tried < 8000; tried++) {
        size_t from = below(state.size), to = below(state.size);
        size_t bytes = 1 + below(state.size - (from > to ? from : to));
        /* replaces the bytes there, or is inserted before them */
        size_t cut = one_in(2) ? 0 : bytes;

        memcpy(changed, state.bytes, to);
        memcpy(changed + to, state.bytes + from, bytes);
        memcpy(changed + to + bytes, state.bytes + to + cut, state.size - to - cut);
        taken += try_damaged(changed, state.size + bytes - cut);
    }
    fprintf(stderr, "# %zu of %zu damaged states are states\n", taken, tried);
    check(taken < tried);
    free(changed);
    free(state.bytes);
}

/* The state of the core, where another text of the same length stands first instead of this one. */
static int decode_with(const char *text, const char *instead)
{
    struct core *decoded;
    struct failure failure;
    struct state state = state_of(core);
    size_t bytes = strlen(text);
    uint8_t *at = memmem(state.bytes, state.size, text, bytes);
    int error;

    require(at && strlen(instead) == bytes);
    memcpy(at, instead, bytes);
    error = decode_exact(state.bytes, state.size, &decoded, &failure);
    core_free(decoded);
    free(state.bytes);
    return error;
}

TAP_TEST(a_wire_id_that_could_not_be_there_is_refused)
{
    uint64_t store, session;

    store = start_store();
    session = must_open(store, LOCK_WISH_RW, P1);
    require(add_wired(session, "", "first") == 0);
    require(add_wired(session, "", "other") == 0);
    check_int(decode_with("first", "third"), 0);
    check_int(decode_with("first", "other"), -EINVAL);
    check_int(decode_with("other", "oth\xffr"), -EINVAL);
    require(commit(session) == 0);
    session = must_open(store, LOCK_WISH_RW, P1);
    require(put_entry(session, "k", LAYOUT_UNBOUND, 0) == 0);
    check_int(decode_with("first", "third"), -EINVAL); /* only in the committed layout */
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static bool decodes(const char *directory, const char *name)
{
    static uint8_t bytes[1 << 20];
    char path[512];
    struct core *decoded = NULL;
    struct failure failure = {0};

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    int error = core_decode(bytes, size, &decoded, &failure);
    if (error < 0)
        fprintf(stderr, "# %s: %s\n", path, failure.text);
    core_free(decoded);
    return error == 0;
}

/* A fuzzer that begins with states of another version learns nothing from them. */
TAP_TEST(the_fuzzers_seeds_are_states)
{
    static const char directory[] = "tests/fuzz/corpus/core";
    DIR *seeds = opendir(directory);
    const struct dirent *entry;
    int count = 0;

    check(seeds != NULL);
    while (seeds && (entry = readdir(seeds))) {
        if (entry->d_name[0] == '.')
            continue;
        check(decodes(directory, entry->d_name));
        count++;
    }
    check(count > 0);
    if (seeds)
        closedir(seeds);
}
