/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes written today are read by every later build of the same version, and mean the same.
 *
 * States and records as bytes, of each version that there was, are kept in tests/data. A change of
 * the format that these tests notice is another version: CORE_STATE_VERSION in src/core/core.h or
 * CORE_RECORD_VERSION in src/core/record.h, and then `tests/data/freeze`. A type of record that is
 * added behind the others is none: `tests/data/freeze` alone adds it.
 */
#include "core_states.h"
#include "frozen_file.h"

#include "core/core_internal.h"

#include <dirent.h>

#define DIRECTORY "tests/data"
#define ROWS      "rows" /* of an ENTRY_PUT_MANY that was recorded with them */

static struct frozen frozen;

/* ---- frozen bytes ------------------------------------------------------------------------- */

/* Makes a record whose fields all have different values. */
static struct record make_record(enum record_type type)
{
    static const uint64_t memories[3] = {30, 300, UINT64_MAX};
    struct record record = {.type = type,
                            .now_ms = 1001,
                            .wall_ms = 1700000000002,
                            .store = 3,
                            .file = 4,
                            .session = 5,
                            .waiter = 6,
                            .serial = 7,
                            .slot = 8,
                            .count = 9,
                            .offset = 10,
                            .size_bytes = 11,
                            .aligned_bytes = 12,
                            .memory = 13,
                            .deadline_ms = 14,
                            .free_bytes = 15,
                            .flags = 16,
                            .kind = 17,
                            .wish = 18,
                            .uid = 19,
                            .gid = 20,
                            .mode = 21,
                            .process = {22, 23},
                            .bytes16 = {24, 25},
                            .comm = "comm",
                            .name = "name",
                            .name_bytes = 4,
                            .tag = "tag",
                            .tag_bytes = 3,
                            .value = (const uint8_t *)"value",
                            .value_bytes = 5,
                            .memories = memories,
                            .memory_count = 3};

    return record;
}

static const struct layout_put rows[] = {
    {.key = "bound", .key_bytes = 5, .slot = 3, .offset = 4, .value = "v", .value_bytes = 1},
    {.key = "free",
     .key_bytes = 4,
     .slot = LAYOUT_UNBOUND,
     .offset = 0,
     .value = "",
     .value_bytes = 0},
};

static struct record make_rows(void)
{
    struct record record = make_record(RECORD_ENTRY_PUT_MANY);

    record.puts = rows;
    record.put_count = sizeof rows / sizeof rows[0];
    return record;
}

static void make_places(void)
{
    struct record move = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);
    uint64_t memory = next_memory++;

    move.store = make_committed("elsewhere", NULL);
    require(apply(move) == 0);
    require(apply(RECORD(MOVE_END, .store = move.store, .count = out.id, .memories = &memory,
                         .memory_count = 1)) == 0);
    move.kind = CORE_PLACE_DISK;
    move.flags = CORE_MOVE_SPARE;
    memory = next_memory++;
    require(apply(move) == 0);
    require(apply(RECORD(MOVE_END, .store = move.store, .count = out.id, .memories = &memory,
                         .memory_count = 1)) == 0);
    move.kind = CORE_PLACE_DEVICE;
    move.flags = 0;
    now += 5;
    require(apply(move) == 0);
}

static void make_pool(uint64_t store)
{
    struct record pool = RECORD(POOL_SET,
                                .flags = CORE_POOL_MIN | CORE_POOL_MAX | CORE_POOL_SLOTS |
                                         CORE_POOL_CLASS | CORE_POOL_SM,
                                .offset = 2 * GRAIN, .size_bytes = 90 * GRAIN, .count = 7,
                                .kind = POOL_CLASS_COUNT - 1, .mode = 60);

    require(apply(named(pool, "chat")) == 0);
    require(apply(named(RECORD(STORE_POOL, .store = store), "chat")) == 0);
    require(apply(RECORD(STORE_PIN, .store = store, .flags = CORE_PIN_ON)) == 0);
}

static void make_regions(void)
{
    static const uint8_t handle[REGION_HANDLE_BYTES] = {1, 2, 3};
    struct record region =
        RECORD(REGION_REGISTER, .kind = REGION_CUDA, .uid = 5, .size_bytes = 64, .offset = 0,
               .count = 2, .value = handle, .value_bytes = sizeof handle);

    require(apply(named(region, "cuda")) == 0);
    region = RECORD(REGION_REGISTER, .kind = REGION_SYSTEM, .uid = 6, .size_bytes = 1000,
                    .offset = 24, .memory = next_memory++, .flags = CORE_REGION_WRITABLE,
                    .tag = "/key", .tag_bytes = 4);
    require(apply(named(region, "object")) == 0);
    require(apply(RECORD(FILE_OPEN, .kind = CORE_KIND_REGION, .flags = CORE_OPEN_READ,
                         .serial = out.id)) == 0);
    require(apply(RECORD(REGION_REFER, .file = out.file)) == 0);
}

/* Something of everything that can be there at a time. */
static void make_full(void)
{
    struct record record = RECORD(RESUME);
    uint64_t store;

    make_rich();
    require(apply(record) == 0);
    make_places();
    store = make_committed("pooled", NULL);
    make_pool(store);
    must_open(store, LOCK_WISH_RO, P2);
    require(apply(RECORD(FILE_CLOSE, .file = out.file, .flags = CORE_CLOSE_LINGER)) == 0);
    make_regions();
    require(apply(RECORD(STORE_DRAIN, .store = store, .bytes16 = {41, 42}, .process = {43, 44},
                         .uid = 45, .deadline_ms = 46)) == 0);
    require(apply(RECORD(CONTENTS, .store = make_committed("summed", NULL), .count = 1, .offset = 1,
                         .bytes16 = {57, 58})) == 0);
    store = make_committed("fenced", NULL);
    require(apply(named(RECORD(FENCE, .flags = CORE_FENCE_ON, .tag = "not there", .tag_bytes = 9,
                               .bytes16 = {47}),
                        "fenced")) == 0);
    record = RECORD(COMMIT, .flags = CORE_COMMIT_IMMUTABLE);
    store = make_store("immutable");
    record.session = must_open(store, LOCK_WISH_RW, P1);
    require(add_memory(record.session, "file") == 0);
    require(apply(record) == 0);
    record = RECORD(SESSION_END);
    store = make_store("sealed");
    record.session = must_open(store, LOCK_WISH_RW, P1);
    require(add_memory(record.session, "kv") == 0);
    require(apply(RECORD(LEND, .session = record.session, .process = {51, 52})) == 0);
    require(apply(RECORD(COMMIT, .session = record.session, .flags = CORE_COMMIT_SEAL)) == 0);
    require(apply(RECORD(RESERVE, .session = rich.writer, .size_bytes = GRAIN, .count = 2 * GRAIN,
                         .offset = 4 * GRAIN, .slot = 3 * GRAIN)) == 0);
    record = RECORD(TIMES, .session = rich.writer, .kind = CORE_KIND_ALLOCATION,
                    .serial = rich.spool, .offset = 53, .size_bytes = 54);
    require(apply(record) == 0);
    record.serial = 0;
    record.offset = (uint64_t)-55;
    record.size_bytes = 56;
    require(apply(record) == 0);
}

static void make_drained(void)
{
    start_committed(NULL);
    require(apply(RECORD(DRAIN, .flags = CORE_DRAIN_ON, .bytes16 = {61, 62}, .process = {63, 64},
                         .uid = 65)) == 0);
}

static const struct {
    const char *name;
    void (*make)(void);
} states[] = {{"fresh", core_start}, {"full", make_full}, {"drained", make_drained}};

#define STATES (sizeof states / sizeof states[0])

/* ---- writing them -----------------------------------------------------------------------------*/

static FILE *open_kept(const char *kind, unsigned version, const char *mode)
{
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, DIRECTORY "/%s-%u", kind, version);
    file = fopen(path, mode);
    if (!file)
        fprintf(stderr, "# %s: %s\n", path, strerror(errno));
    return file;
}

static void freeze_states(void)
{
    FILE *file = open_kept("states", CORE_STATE_VERSION, "wx");

    for (size_t i = 0; file && i < STATES; i++) {
        states[i].make();
        frozen_write(file, states[i].name, last.bytes, last.size);
    }
    require(!file || fclose(file) == 0);
}

static void write_record(FILE *file, const char *name, struct record record)
{
    uint8_t *bytes;
    size_t size;

    require(record_encode(&record, &bytes, &size) == 0);
    frozen_write(file, name, bytes, size);
    free(bytes);
}

/* Those of the types that have come since, behind the others. */
static void freeze_records(void)
{
    FILE *file = open_kept("records", CORE_RECORD_VERSION, "a+");
    char line[256] = "";
    int count = 0;

    require(file != NULL);
    while (frozen_read(file, line, &frozen))
        count++;
    if (count == 0)
        write_record(file, ROWS, make_rows());
    for (int type = count > 1 ? count : RECORD_STORE_CREATE; type < RECORD_TYPE_COUNT; type++)
        write_record(file, record_type_name((enum record_type)type),
                     make_record((enum record_type)type));
    require(fclose(file) == 0);
}

/* ---- reading them -----------------------------------------------------------------------------*/

#define SAME(expression)                                             \
    do {                                                             \
        struct core *of_ = core;                                     \
        uint64_t now_ = (uint64_t)(expression);                      \
        core = decoded;                                              \
        if ((uint64_t)(expression) != now_)                          \
            fprintf(stderr, "# another one now: %s\n", #expression); \
        check_int((uint64_t)(expression), now_);                     \
        core = of_;                                                  \
    } while (0)
#define STORE(name)     core_find_store_name(core, name)
#define WRITER          core_find_session(core, rich.writer)
#define WAITING         core_find_waiter(core, rich.waiting)
#define QUEUED          lock_find_waiter(&STORE("next \xc3\xa4")->lock, rich.waiting)
#define POOL            core_find_pool_name(core, "chat")
#define MOVE            STORE("elsewhere")->places.move
#define REGION(index)   ((const struct region *)core->regions.items.items[index])
#define TICKET          ((const struct core_ticket *)core->tickets.items[0])
#define DIRECTORY_TIMES layout_get_times(STORE("next \xc3\xa4")->working)
#define SPOOL           layout_find_serial(STORE("next \xc3\xa4")->working, rich.spool)

/* Fields with neighbours of the same width, so that a swap would go unnoticed. */
static void compare_full(struct core *decoded)
{
    SAME(core->options.patience_ms);
    SAME(core->options.granularity_bytes);
    SAME(core->options.limits.events);
    SAME(core->next_id);
    SAME(core->next_session);
    SAME(core->next_waiter);
    SAME(core->next_ticket);
    SAME(core->next_contents);
    SAME(core->next_event);
    SAME(core->draining);
    SAME(core->lost);
    SAME(core->resumes);
    SAME(core->suspect);
    SAME(core->fence.is_up);
    SAME(core->fence.names[1][0]);
    SAME(STORE("weights")->mode);
    SAME(STORE("weights")->created_ms);
    SAME(STORE("weights")->changed_ms);
    SAME(STORE("weights")->generation);
    SAME(STORE("weights")->version);
    SAME(STORE("weights")->grants_rw);
    SAME(STORE("weights")->grants_ro);
    SAME(STORE("sealed")->lock.sealed);
    SAME(layout_is_immutable(STORE("immutable")->fixed));
    SAME(layout_is_immutable(STORE("weights")->fixed));
    SAME(STORE("sealed")->writers[0].pid);
    SAME(STORE("pooled")->use.pinned);
    SAME(STORE("pooled")->drain.id);
    SAME(STORE("pooled")->drain.since_ms);
    SAME(STORE("pooled")->drain.deadline_ms);
    SAME(STORE("pooled")->drain.by.token[1]);
    SAME(STORE("pooled")->drain.by.process.start);
    SAME(STORE("pooled")->drain.by.uid);
    SAME(STORE("elsewhere")->places.place);
    SAME(STORE("elsewhere")->places.spares[CORE_PLACE_DISK] != NULL);
    SAME(STORE("elsewhere")->places.moves);
    SAME(STORE("elsewhere")->places.moved_ms);
    SAME(MOVE.id);
    SAME(MOVE.to);
    SAME(MOVE.spare);
    SAME(MOVE.since_ms);
    SAME(SPOOL->slot);
    SAME(SPOOL->memory);
    SAME(SPOOL->size_bytes);
    SAME(SPOOL->aligned_bytes);
    SAME(SPOOL->times.access_ns);
    SAME(SPOOL->times.change_ns);
    SAME(DIRECTORY_TIMES.access_ns);
    SAME(DIRECTORY_TIMES.change_ns);
    SAME(POOL->class);
    SAME(POOL->sm_percent);
    SAME(POOL->evictions);
    SAME(POOL->min_bytes);
    SAME(POOL->max_bytes);
    SAME(POOL->slots);
    SAME(WRITER->mode);
    SAME(WRITER->exclusive);
    SAME(WRITER->touched);
    SAME(WRITER->holds);
    SAME(WRITER->opener);
    SAME(WRITER->owner.pid);
    SAME(WRITER->owner.start);
    SAME(WRITER->since_ms);
    SAME(WRITER->reserved_bytes);
    SAME(WRITER->due_bytes);
    SAME(WRITER->making_bytes);
    SAME(WRITER->drawn_bytes);
    SAME(core_find_file(core, rich.document)->gathered_bytes);
    SAME(core_find_file(core, rich.document)->kind);
    SAME(REGION(0)->device_id);
    SAME(REGION(0)->raw_handle[2]);
    SAME(REGION(1)->offset);
    SAME(REGION(1)->byte_size);
    SAME(REGION(1)->memory);
    SAME(REGION(1)->writable);
    SAME(REGION(1)->references);
    SAME(WAITING->file);
    SAME(WAITING->wish);
    SAME(WAITING->reserve_bytes);
    SAME(QUEUED->since_ms);
    SAME(QUEUED->deadline_ms);
    for (uint64_t seq = core->next_event - 16; seq < core->next_event; seq++) {
        SAME(core_find_event(core, seq)->type);
        SAME(core_find_event(core, seq)->wall_ms);
        SAME(core_find_event(core, seq)->allocations);
        SAME(core_find_event(core, seq)->bytes);
        SAME(core_find_event(core, seq)->generation);
    }
    SAME(TICKET->session);
    SAME(TICKET->uid);
    SAME(TICKET->count);
    SAME(TICKET->expires_ms);
}

static void check_state(const struct frozen *kept, size_t index)
{
    struct core *decoded = NULL;
    struct failure failure = {0};
    struct state again;

    if (core_decode(kept->bytes, kept->size, &decoded, &failure) < 0)
        fprintf(stderr, "# %s: %s\n", kept->name, failure.text);
    require(decoded != NULL);
    again = state_of(decoded);
    check_bytes(again.bytes, again.size, kept->bytes, kept->size);
    states[index].make();
    if (states[index].make == make_full)
        compare_full(decoded);
    if (states[index].make == make_drained) {
        check(core_is_drainer(decoded, (const uint8_t[16]){61, 62}));
        check_int(decoded->drainer.process.pid, 63);
        check_int(decoded->drainer.process.start, 64);
        check_int(decoded->drainer.uid, 65);
    }
    core_free(decoded);
    free(again.bytes);
}

TAP_TEST(states_come_back_from_what_was_frozen)
{
    char line[256] = "";
    size_t count = 0;
    FILE *file;

    if (getenv("GMSFS_FREEZE")) {
        freeze_states();
        freeze_records();
    }
    file = open_kept("states", CORE_STATE_VERSION, "r");
    require(file != NULL);
    for (; frozen_read(file, line, &frozen); count++) {
        require(count < STATES);
        check_str(frozen.name, states[count].name);
        check_state(&frozen, count);
    }
    check_int(count, STATES);
    fclose(file);
}

/* Each field says which it is, so their order is frozen with them. */
static void check_record(const struct frozen *kept, struct record wanted)
{
    struct record_arena *arena = NULL;
    struct record decoded;
    uint8_t *bytes;
    size_t size;

    require(record_decode(kept->bytes, kept->size, &decoded, &arena) == 0);
    check_int(decoded.type, wanted.type);
    require(record_encode(&decoded, &bytes, &size) == 0);
    check_bytes(bytes, size, kept->bytes, kept->size);
    free(bytes);
    record_decode_free(arena);
    require(record_encode(&wanted, &bytes, &size) == 0);
    check_bytes(bytes, size, kept->bytes, kept->size);
    free(bytes);
}

TAP_TEST(records_of_each_type_come_back_from_what_was_frozen)
{
    FILE *file = open_kept("records", CORE_RECORD_VERSION, "r");
    char line[256] = "";
    int type = RECORD_STORE_CREATE;

    require(file && frozen_read(file, line, &frozen));
    check_str(frozen.name, ROWS);
    check_record(&frozen, make_rows());
    for (; type < RECORD_TYPE_COUNT && frozen_read(file, line, &frozen); type++) {
        check_str(frozen.name, record_type_name((enum record_type)type));
        check_record(&frozen, make_record((enum record_type)type));
    }
    check_int(type, RECORD_TYPE_COUNT);
    check(!frozen_read(file, line, &frozen));
    fclose(file);
}

/* They only grow at their ends. */
TAP_TEST(numbers_that_are_written_stay_what_they_are)
{
    check_int(RECORD_RESUME, 54);
    check_int(RECORD_TIMES, 55);
    check_int(CORE_EVENT_RECOVERED, 41);
    check_int(CORE_KIND_RESIDENCY, 13);
    check_int(CORE_PLACE_NONE, 3);
    check_int(LOCK_MODE_RW_DATA, 3);
    check_int(LOCK_WISH_DATA, 4);
    check_int(REGION_CUDA, 2);
    check_int(POOL_CLASS_COUNT, 4);
}

/* ---- unknown versions --------------------------------------------------------------------- */

static int decode_state(const uint8_t *bytes, size_t size)
{
    struct failure failure = {0};
    struct core *decoded = NULL;
    int error = core_decode(bytes, size, &decoded, &failure);

    core_free(decoded);
    return error;
}

static int decode_record(const uint8_t *bytes, size_t size)
{
    struct record_arena *arena;
    struct record record;
    int error = record_decode(bytes, size, &record, &arena);

    record_decode_free(arena);
    return error;
}

static int wanted_of_old(bool of_states, unsigned version)
{
    return of_states && version >= CORE_STATE_OLDEST ? 0 : -EPROTONOSUPPORT;
}

static void check_old(const char *name)
{
    bool of_states = strncmp(name, "states-", 7) == 0;
    unsigned version;
    char path[512], line[256] = "";
    FILE *file;

    if (!of_states && strncmp(name, "records-", 8) != 0)
        return;
    version = (unsigned)strtoul(strchr(name, '-') + 1, NULL, 10);
    if (version == (of_states ? CORE_STATE_VERSION : CORE_RECORD_VERSION))
        return;
    snprintf(path, sizeof path, DIRECTORY "/%s", name);
    file = fopen(path, "r");
    require(file != NULL);
    while (frozen_read(file, line, &frozen))
        check_int(of_states ? decode_state(frozen.bytes, frozen.size)
                            : decode_record(frozen.bytes, frozen.size),
                  wanted_of_old(of_states, version));
    fclose(file);
}

TAP_TEST(what_was_frozen_of_other_versions_is_read_or_refused_as_that)
{
    DIR *directory = opendir(DIRECTORY);
    const struct dirent *entry;

    require(directory != NULL);
    while ((entry = readdir(directory)))
        check_old(entry->d_name);
    closedir(directory);
}

TAP_TEST(a_record_of_a_later_version_or_type_is_refused_as_that)
{
    struct record record = make_record(RECORD_TIME);
    auto_free uint8_t *bytes = NULL;
    size_t size;

    require(record_encode(&record, &bytes, &size) == 0);
    require(bytes[0] == 0xdc && bytes[3] == CORE_RECORD_VERSION && bytes[4] == RECORD_TIME);
    bytes[4] = RECORD_TYPE_COUNT;
    check_int(decode_record(bytes, size), -EPROTONOSUPPORT);
    bytes[4] = 0;
    check_int(decode_record(bytes, size), -EINVAL);
    bytes[4] = RECORD_TIME;
    bytes[3]++;
    check_int(decode_record(bytes, size), -EPROTONOSUPPORT);
    bytes[2]++; /* with another field */
    check_int(decode_record(bytes, size), -EPROTONOSUPPORT);
    bytes[3]--;
    check_int(decode_record(bytes, size), -EINVAL);
}
