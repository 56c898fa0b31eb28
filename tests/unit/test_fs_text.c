/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that grow as they are written: each part of one is asked for before. */
#include "fs/fs_internal.h"
#include "service_fixture.h"

#include "service/bounds.h"
#include "service/service_internal.h"

#define OTHER   1001u
#define KIB     UINT64_C(1024)
#define MIB     (KIB * KIB)
#define RESERVE (16 * MIB)
#define LEAST   (UINT64_C(64) * KIB) /* most bytes that the charge may be above the text */

static struct room room;
static uint64_t free_bytes;
static struct fs fs;

static int look(void *context, struct room_view *view)
{
    uint64_t taken = service ? service->bounds.shares[SERVICE_BOUND_TEXTS].taken : 0;

    (void)context;
    *view = (struct room_view){.free_bytes = free_bytes - taken, .reserve_bytes = RESERVE};
    return 0;
}

/* Starts with `bytes` of memory left for users. */
static void start(uint64_t bytes)
{
    fixture_host.room = &room;
    room_init(&room, look, NULL);
    free_bytes = 1024 * MIB;
    service = NULL; /* it is about to begin */
    service_start();
    fs = (struct fs){.service = service, .core = service_get_core(service)};
    free_bytes = RESERVE / 2 + bytes;
    fixture_now_ms += 2000;
}

static void end(void)
{
    check_int((long long)service->bounds.shares[SERVICE_BOUND_TEXTS].taken, 0);
    service_end();
    fixture_host.room = NULL;
}

/* Writes `bytes` in lines. Returns the most bytes of texts charged meanwhile. */
static uint64_t write_many(FILE *out, uint64_t bytes)
{
    char line[1024];
    uint64_t most = 0;

    memset(line, 'x', sizeof line);
    for (uint64_t i = 0; i < bytes / sizeof line; i++) {
        fwrite(line, sizeof line, 1, out);
        if (service->bounds.shares[SERVICE_BOUND_TEXTS].taken > most)
            most = service->bounds.shares[SERVICE_BOUND_TEXTS].taken;
    }
    return most;
}

TAP_TEST(a_text_is_what_was_written_and_was_asked_for_before)
{
    struct fs_text text = {.uid = OTHER};

    start(64 * MIB);
    FILE *out = fs_text_begin(&fs, &text);
    require(out != NULL);
    uint64_t most = write_many(out, 3 * MIB);
    check(most >= 3 * MIB - LEAST && most <= 4 * MIB);
    check_int(fs_text_end(&text, out), 0);
    check_int((long long)text.size, (long long)(3 * MIB));
    check(text.data[0] == 'x' && text.data[text.size - 1] == 'x');
    free(text.data);
    end();
}

TAP_TEST(a_text_that_has_no_room_ends_before_it_takes_any)
{
    struct fs_text text = {.uid = OTHER};

    start(MIB);
    FILE *out = fs_text_begin(&fs, &text);
    require(out != NULL);
    check(write_many(out, 8 * MIB) <= MIB / 2 + LEAST);
    check_int(fs_text_end(&text, out), -EDQUOT);
    check(text.data == NULL);
    end();
}

TAP_TEST(a_text_beyond_its_user_s_share_is_refused_as_that)
{
    struct fs_text text = {.uid = OTHER};

    start(1024 * MIB);
    FILE *out = fs_text_begin(&fs, &text);
    require(out != NULL);
    check(write_many(out, SERVICE_MAX_TEXT_BYTES) <= SERVICE_MAX_TEXT_BYTES / 2);
    check_int(fs_text_end(&text, out), -EDQUOT);
    end();
}

/* A LOOKUP tells it, of a text that is not made yet. */
TAP_TEST(no_text_is_told_to_be_longer_than_one_can_be)
{
    struct node node;
    struct stat stat;
    unsigned found = 0;

    start(64 * MIB);
    for (enum node_kind kind = NODE_NONE; kind < NODE_KIND_COUNT; kind++) {
        if (!fs_is_costly_text(kind))
            continue;
        if (node_find(fs.core, node_make_id(kind, store_id()), &node) &&
            node_find(fs.core, node_make_id(kind, 0), &node))
            continue; /* a region's: there is none */
        fs_stat(&fs, &node, &stat);
        found++;
        check(stat.st_size > 0 && stat.st_size <= (off_t)SERVICE_MAX_TEXT_BYTES);
    }
    check(found >= 5);
    end();
}

TAP_TEST(a_file_s_text_is_made_for_who_reads_it)
{
    struct fs_text text = {.uid = OTHER};
    const struct core_store *store;

    start(0);
    store = core_find_store(fs.core, store_id());
    check_int(fs_text_sessions(&fs, store, OTHER, &text), -ENOMEM);
    text = (struct fs_text){.uid = 0};
    check_int(fs_text_sessions(&fs, store, 0, &text), 0);
    free(text.data);
    end();
}
