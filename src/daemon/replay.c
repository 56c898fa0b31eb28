/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct replaying {
    struct core *core;
    struct failure *failure;
    uint64_t records;
    bool checks_each; /* the state is held against core_check after each record */
};

/* Drops the effects of the record: the last worker ran them, and looking at the state finds the
 * ones that it did not finish. */
static void forget_effects(struct core *core)
{
    struct effect effect;
    struct core_garbage garbage;

    while (core_next_effect(core, &effect))
        ;
    if (core_take_garbage(core, &garbage))
        core_garbage_free(&garbage);
}

/* Checks the state after this record, or the state that was read if NULL; names the record. */
static int check_state(const struct replaying *replaying, const struct record *record)
{
    struct failure why = {.text = ""};
    int error = replaying->checks_each ? core_check(replaying->core, &why) : 0;

    if (error && record)
        return failure_set(replaying->failure, error, "record %" PRIu64 " (%s): %s",
                           replaying->records, record_type_name(record->type), why.text);
    return error ? failure_set(replaying->failure, error, "the state before the first record: %s",
                               why.text)
                 : 0;
}

/* The state includes its options: those of this process may differ, by another limit of
 * descriptors, for example. */
static int begin_with_state(struct replaying *replaying, const struct journal_entry *entry)
{
    if (replaying->core)
        return failure_set(replaying->failure, -EPROTO,
                           "the journal is damaged: it begins a second time");
    int error = core_decode(entry->bytes, entry->size, &replaying->core, replaying->failure);
    return error ? error : check_state(replaying, NULL);
}

static int apply_record(struct replaying *replaying, const struct journal_entry *entry)
{
    struct record record;
    struct record_arena *arena = NULL;
    struct outcome outcome = {0};

    if (!replaying->core)
        return failure_set(replaying->failure, -EPROTO,
                           "the journal is damaged: it does not begin with a state");
    int error = record_decode(entry->bytes, entry->size, &record, &arena);
    if (error)
        return failure_set(replaying->failure, error == -EINVAL ? -EPROTO : error,
                           "the journal is damaged: record %" PRIu64 " cannot be decoded",
                           replaying->records);
    error = core_apply(replaying->core, &record, &outcome);
    forget_effects(replaying->core);
    if (error && outcome.noted)
        error = 0;
    if (error)
        error = failure_set(replaying->failure, error == -ENOMEM ? error : -EPROTO,
                            "the journal's record %" PRIu64 " (%s) cannot be applied: %s",
                            replaying->records, record_type_name(record.type), strerror(-error));
    else
        error = check_state(replaying, &record);
    record_decode_free(arena);
    if (error)
        return error;
    replaying->records++;
    return 0;
}

static int on_entry(void *context, const struct journal_entry *entry)
{
    struct replaying *replaying = context;

    switch (entry->type) {
    case TRANSACTION_STATE:
        return begin_with_state(replaying, entry);
    case TRANSACTION_RECORD:
        return apply_record(replaying, entry);
    case TRANSACTION_ANSWER:
    case TRANSACTION_NOTE:
    case TRANSACTION_CONNECTION:
        return 0; /* no part of the state */
    default:
        return failure_set(replaying->failure, -EPROTONOSUPPORT,
                           "the journal has an entry of type %" PRIu32
                           ", which this gmsfs does not know",
                           entry->type);
    }
}

int replay_begin(struct transaction *transaction, const struct core_options *options)
{
    struct core *core = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    int error = core_new(options, &core);

    if (error)
        return error;
    error = core_encode(core, &bytes, &size);
    core_free(core);
    if (error)
        return error;
    const struct iovec part = {bytes, size};
    error = transaction_note(transaction, TRANSACTION_STATE, &part, 1);
    free(bytes);
    return error;
}

static int replay(const struct journal *journal, struct replaying *replaying)
{
    struct failure *failure = replaying->failure;
    size_t size = 0;
    const void *snapshot = journal_get_snapshot(journal, &size);
    int error = snapshot ? core_decode(snapshot, size, &replaying->core, failure) : 0;

    if (!error && snapshot)
        error = check_state(replaying, NULL);
    if (!error)
        error = journal_read(journal, on_entry, replaying, failure);
    if (!error && !replaying->core)
        error = failure_set(failure, -EPROTO, "the journal is damaged: it has no state");
    if (error && replaying->core)
        core_free(replaying->core);
    return error;
}

int replay_journal(const struct journal *journal, struct core **core, struct failure *failure)
{
    struct replaying replaying = {.failure = failure};
    int error = replay(journal, &replaying);

    if (!error)
        *core = replaying.core;
    return error;
}

int replay_check_each(const struct journal *journal, uint64_t *records, struct failure *failure)
{
    struct replaying replaying = {.failure = failure, .checks_each = true};
    int error = replay(journal, &replaying);

    if (!error)
        core_free(replaying.core);
    *records = replaying.records;
    return error;
}
