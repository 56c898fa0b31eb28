/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/*
 * Random runs of records. The fixture compares, after every one of them, the core with a second one
 * that got the same records as bytes; here a model checks more. GMSFS_RUNS and GMSFS_SEED choose
 * other runs than the usual ones.
 */
#include "core_random.h"

#define USUAL_RUNS  100
#define RUN_RECORDS 2000

static uint64_t run_seed, run_record;

static void tell_where(void)
{
    if (tap_failed)
        fprintf(stderr, "# GMSFS_SEED=%" PRIu64 " GMSFS_RUNS=1, record %" PRIu64 "\n", run_seed,
                run_record);
}

static void run_randomly(uint64_t seed)
{
    run_seed = seed;
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    memset(&model, 0, sizeof model);
    choose_limits(seed);
    start_store();
    for (run_record = 0; run_record < RUN_RECORDS; run_record++) {
        memset(&out, 0, sizeof out);
        check_step(random_step());
    }
}

static uint64_t number_from(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : usual;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static struct record full_record(const uint64_t memories[3])
{
    struct record record =
        RECORD(ALLOC_ADD, .now_ms = UINT64_MAX, .wall_ms = 127, .store = 128, .file = 255,
               .session = 256, .waiter = 65535, .serial = 65536, .slot = UINT32_MAX,
               .count = 1ull << 32, .offset = INT64_MAX, .size_bytes = 1, .aligned_bytes = 2,
               .memory = 3, .deadline_ms = 4, .free_bytes = 1ull << 63, .flags = UINT32_MAX,
               .kind = 5, .wish = 6, .uid = 7, .gid = 8, .mode = 9, .process = {10, 11},
               .name = "na\0me", .name_bytes = 5, .tag = "", .value = (const uint8_t *)"value",
               .value_bytes = 5, .memories = memories, .memory_count = 3);

    memset(record.bytes16, 0xab, sizeof record.bytes16);
    memcpy(record.comm, "0123456789abcdef", sizeof record.comm);
    return record;
}

/* Encodes the decoded record: if it decodes at all, the bytes are the same. */
static bool decodes(const uint8_t *bytes, size_t size)
{
    /* A block of its own, so that a sanitizer sees a step over its end. */
    uint8_t *exact = malloc(size ? size : 1);
    struct record_arena *arena, *again_arena;
    struct record record, again;
    uint8_t *first, *second;
    size_t first_size, second_size;

    require(exact != NULL);
    if (size)
        memcpy(exact, bytes, size);
    if (record_decode(exact, size, &record, &arena) < 0) {
        check(arena == NULL);
        free(exact);
        return false;
    }
    require(record_encode(&record, &first, &first_size) == 0);
    require(record_decode(first, first_size, &again, &again_arena) == 0);
    require(record_encode(&again, &second, &second_size) == 0);
    check_bytes(second, second_size, first, first_size);
    record_decode_free(arena);
    record_decode_free(again_arena);
    free(first);
    free(second);
    free(exact);
    return true;
}

TAP_TEST(a_record_comes_back_from_its_bytes_with_every_field)
{
    const uint64_t memories[3] = {1, 300, UINT64_MAX};
    struct record record = full_record(memories), back;
    struct record_arena *arena;
    auto_free uint8_t *bytes = NULL;
    size_t size;

    require(record_encode(&record, &bytes, &size) == 0);
    require(record_decode(bytes, size, &back, &arena) == 0);
    check_bytes(back.name, back.name_bytes, record.name, record.name_bytes);
    check_bytes(back.tag, back.tag_bytes, record.tag, record.tag_bytes);
    check_bytes(back.value, back.value_bytes, record.value, record.value_bytes);
    check_bytes(back.memories, back.memory_count * 8, memories, sizeof memories);
    /* The bytes between those follow, every one of them. */
    back.name = record.name;
    back.tag = record.tag;
    back.value = record.value;
    back.memories = record.memories;
    check(back.type == record.type && back.now_ms == record.now_ms &&
          back.wall_ms == record.wall_ms && back.store == record.store &&
          back.file == record.file && back.session == record.session &&
          back.waiter == record.waiter && back.serial == record.serial &&
          back.slot == record.slot && back.count == record.count && back.offset == record.offset &&
          back.size_bytes == record.size_bytes && back.aligned_bytes == record.aligned_bytes &&
          back.memory == record.memory && back.deadline_ms == record.deadline_ms &&
          back.free_bytes == record.free_bytes);
    check(back.flags == record.flags && back.kind == record.kind && back.wish == record.wish &&
          back.uid == record.uid && back.gid == record.gid && back.mode == record.mode &&
          back.process.pid == 10 && back.process.start == 11);
    check_bytes(back.bytes16, 16, record.bytes16, 16);
    check_bytes(back.comm, 16, record.comm, 16);
    record_decode_free(arena);
}

TAP_TEST(bytes_that_are_cut_short_or_too_long_are_no_record)
{
    const uint64_t memories[3] = {1, 300, UINT64_MAX};
    struct record record = full_record(memories);
    uint8_t *bytes, longer[512];
    size_t size;

    require(record_encode(&record, &bytes, &size) == 0 && size < sizeof longer);
    check(decodes(bytes, size));
    for (size_t cut = 0; cut < size; cut++)
        check(!decodes(bytes, cut));
    memcpy(longer, bytes, size);
    longer[size] = 0;
    check(!decodes(longer, size + 1));
    free(bytes);
}

TAP_TEST(hostile_bytes_are_refused_or_mean_something_and_never_more)
{
    const uint64_t memories[3] = {1, 300, UINT64_MAX};
    struct record record = full_record(memories);
    static const uint8_t huge[] = {0xdd, 0xff, 0xff, 0xff, 0xff, 0x01, 0x01};
    uint8_t *bytes, changed[512];
    size_t size, good = 0;

    require(record_encode(&record, &bytes, &size) == 0 && size < sizeof changed);
    check(!decodes(huge, sizeof huge));
    random_state = 42;
    for (int i = 0; i < 20000; i++) {
        memcpy(changed, bytes, size);
        for (uint64_t n = 1 + below(3); n > 0; n--)
            changed[below(size)] = (uint8_t)below(256);
        good += decodes(changed, size);
    }
    check(good > 0);
    free(bytes);
}

TAP_TEST(hostile_rows_are_refused)
{
    struct layout_put put = {
        .key = "key", .key_bytes = 3, .slot = 1, .value = "v", .value_bytes = 1};
    struct layout_put *rows;
    uint8_t *bytes, *exact;
    size_t size, count;
    static const uint8_t huge[] = {0xdd, 0xff, 0xff, 0xff, 0xff, 0x94, 0xc4, 0, 0xc0, 0, 0xc4, 0};

    require(record_rows_encode(&put, 1, &bytes, &size) == 0);
    check(record_rows_decode(huge, sizeof huge, &rows, &count) == -EINVAL);
    check(record_rows_decode(bytes, 0, &rows, &count) == -EINVAL);
    exact = malloc(size);
    require(exact != NULL);
    random_state = 43;
    for (int i = 0; i < 20000; i++) {
        size_t cut = one_in(3) ? below(size) : size;
        memcpy(exact, bytes, size);
        if (cut > 0)
            exact[below(cut)] = (uint8_t)below(256);
        if (record_rows_decode(exact, cut, &rows, &count) == 0)
            free(rows);
    }
    free(exact);
    free(bytes);
}

/* ---- runs ----------------------------------------------------------------------------------- */

TAP_TEST(random_runs_replayed_from_bytes_give_the_same_state_after_every_record)
{
    uint64_t runs = number_from("GMSFS_RUNS", USUAL_RUNS);
    uint64_t seed = number_from("GMSFS_SEED", 1);

    atexit(tell_where);
    memset(applied, 0, sizeof applied);
    for (uint64_t i = 0; i < runs; i++)
        run_randomly(seed + i);
    check(runs != USUAL_RUNS || prepared_commits > 100);
    for (int type = RECORD_STORE_CREATE; runs == USUAL_RUNS && type < RECORD_TYPE_COUNT; type++) {
        if (!check(applied[type] > 0))
            fprintf(stderr, "# never applied: %s\n", record_type_name((enum record_type)type));
    }
}
