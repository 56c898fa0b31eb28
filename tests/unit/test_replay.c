/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a journal alone gives the state that it led to, to any reader. */
#include "daemon/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

static struct journal_files files;
static struct journal *journal;
static struct transaction transaction;

static void begin(const struct core_options *options)
{
    struct failure failure = {.text = ""};

    journal_close(journal);
    if (files.head > 0)
        journal_close_files(&files);
    require(journal_make_files(&files) == 0);
    require(journal_open(&files, &journal, &failure) == 0);
    transaction_init(&transaction, journal, NULL);
    if (options)
        require(replay_begin(&transaction, options) == 0);
}

/* Appends to the journal, and applies to `core` if there is one. */
static void record(struct core *core, const struct record *record)
{
    struct outcome outcome = {0};
    size_t mark = 0;

    require(transaction_record(&transaction, record, &mark) == 0);
    if (core)
        require(core_apply(core, record, &outcome) == 0);
}

static void check_same(const struct core *one, const struct core *other)
{
    uint8_t *bytes[2];
    size_t sizes[2];

    require(core_encode(one, &bytes[0], &sizes[0]) == 0);
    require(core_encode(other, &bytes[1], &sizes[1]) == 0);
    check(sizes[0] == sizes[1] && memcmp(bytes[0], bytes[1], sizes[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
}

TAP_TEST(bounds_and_options_are_those_that_the_journal_began_with)
{
    const struct core_options options = {.granularity_bytes = 8192,
                                         .patience_ms = 77,
                                         .admin_uid = 1234,
                                         .limits = {.regions = 3, .files = 5}};
    const struct record created = {
        .type = RECORD_STORE_CREATE, .name = "weights", .name_bytes = 7, .mode = 0755};
    struct core *core = NULL, *replayed = NULL;
    struct failure failure = {.text = ""};

    begin(&options);
    require(core_new(&options, &core) == 0);
    record(core, &created);
    transaction_end(&transaction);
    check_int(replay_journal(journal, &replayed, &failure), 0);
    require(replayed != NULL);
    check_int((long long)replayed->options.limits.regions, 3);
    check_same(core, replayed);
    core_free(core);
    core_free(replayed);
}

TAP_TEST(a_journal_that_does_not_begin_with_a_state_is_refused)
{
    const struct record time = {.type = RECORD_TIME};
    struct core *replayed = NULL;
    struct failure failure = {.text = ""};

    begin(NULL);
    check_int(replay_journal(journal, &replayed, &failure), -EPROTO);
    record(NULL, &time);
    transaction_end(&transaction);
    check_int(replay_journal(journal, &replayed, &failure), -EPROTO);
    check(strstr(failure.text, "does not begin with a state") != NULL);
    check(replayed == NULL);
}

TAP_TEST(a_journal_begins_once)
{
    const struct core_options options = {.granularity_bytes = 8192};
    struct core *replayed = NULL;
    struct failure failure = {.text = ""};

    begin(&options);
    require(replay_begin(&transaction, &options) == 0);
    transaction_end(&transaction);
    check_int(replay_journal(journal, &replayed, &failure), -EPROTO);
    check(replayed == NULL);
}
