/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transaction.h"

#include "base/array.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest answer of an ioctl, with its head. Requests with longer answers change nothing. */
#define ANSWER_BYTES (16384u + 128)

struct transaction_answer {
    int fd;
    const void *bytes; /* in the journal */
    size_t size;
    uint64_t tag;
};

void transaction_init(struct transaction *transaction, struct journal *journal,
                      struct helpers *helpers)
{
    *transaction = (struct transaction){.journal = journal, .helpers = helpers};
    for (unsigned i = 0; i < SERVICE_POOL_COUNT; i++)
        transaction->last_job[i] = &transaction->jobs[i];
    transaction->last_held = &transaction->held;
}

void transaction_free(struct transaction *transaction)
{
    free(transaction->answers);
    transaction->answers = NULL;
}

static void tell_refusal(struct transaction *transaction)
{
    bool is_at_bound = journal_is_at_bound(transaction->journal);

    if (is_at_bound && !transaction->told_refusal)
        log_warning("the journal waits for a snapshot of the state, which takes too long or cannot "
                    "be made: requests with much to record are refused (ENOMEM) until there is "
                    "one");
    transaction->told_refusal = is_at_bound;
}

/* Reserves room for the answer to the record too: if the answer were lost, the kernel would ask
 * again, and the next worker would make the record once more. */
int transaction_record(struct transaction *transaction, const struct record *record, size_t *mark)
{
    size_t most_bytes = record_most_bytes(record);
    int error = journal_reserve_with(transaction->journal, journal_entry_room(most_bytes),
                                     journal_entry_room(ANSWER_BYTES));

    if (error) {
        tell_refusal(transaction);
        return error;
    }
    *mark = journal_get_mark(transaction->journal);
    uint8_t *bytes = journal_begin_entry(transaction->journal);
    size_t size = (size_t)(record_pack(bytes, record) - bytes);
    journal_end_entry(transaction->journal, TRANSACTION_RECORD, size);
    return 0;
}

int transaction_note(struct transaction *transaction, enum transaction_entry type,
                     const struct iovec *parts, int count)
{
    size_t size = 0;

    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    room_spend(transaction->room, size);
    int error = journal_reserve(transaction->journal, journal_entry_room(size));
    if (error)
        tell_refusal(transaction);
    else
        journal_add(transaction->journal, type, parts, count);
    return error;
}

/* ---- release -------------------------------------------------------------------------------- */

static void hold_job(struct transaction *transaction, enum service_pool pool, struct job *job)
{
    job->next = NULL;
    *transaction->last_job[pool] = job;
    transaction->last_job[pool] = &job->next;
    transaction->has_jobs = true;
}

int transaction_submit(struct transaction *transaction, enum service_pool pool, struct job *job)
{
    int error = helpers_promise(transaction->helpers, pool, job);

    if (error)
        return error;
    if (journal_has_transaction(transaction->journal))
        hold_job(transaction, pool, job);
    else
        helpers_submit_promised(transaction->helpers, pool, job);
    return 0;
}

/* Takes the jobs held so far; later ones belong to the next transaction. */
static void take_jobs(struct transaction *transaction, struct job *jobs[SERVICE_POOL_COUNT])
{
    for (unsigned pool = 0; pool < SERVICE_POOL_COUNT; pool++) {
        jobs[pool] = transaction->jobs[pool];
        transaction->jobs[pool] = NULL;
        transaction->last_job[pool] = &transaction->jobs[pool];
    }
    transaction->has_jobs = false;
}

static void release_jobs(struct transaction *transaction, struct job *jobs[SERVICE_POOL_COUNT])
{
    for (unsigned pool = 0; pool < SERVICE_POOL_COUNT; pool++) {
        for (struct job *next, *job = jobs[pool]; job; job = next) {
            next = job->next;
            helpers_submit_promised(transaction->helpers, pool, job);
        }
    }
}

static int hold_answer(struct transaction *transaction, const struct transaction_answer *answer)
{
    int error = ARRAY_RESERVE(transaction->answers, transaction->answer_room,
                              transaction->answer_count + 1);

    if (!error)
        transaction->answers[transaction->answer_count++] = *answer;
    return error;
}

/* Adds all of it as one entry: /dev/fuse takes an answer whole. */
static const void *add_answer(struct transaction *transaction, const struct iovec *parts, int count,
                              size_t size)
{
    size_t room = journal_entry_room(size);

    if (journal_reserve(transaction->journal, room) &&
        !journal_has_room(transaction->journal, room))
        return NULL;
    return journal_add(transaction->journal, TRANSACTION_ANSWER, parts, count);
}

static ssize_t send_now(int fd, const struct iovec *parts, int count)
{
    ssize_t put = writev(fd, parts, count);

    return put < 0 ? -errno : put;
}

ssize_t transaction_answer(struct transaction *transaction, int fd, const struct iovec *parts,
                           int count, uint64_t tag)
{
    struct transaction_answer answer = {.fd = fd, .tag = tag};

    if (!journal_has_transaction(transaction->journal))
        return send_now(fd, parts, count);
    size_t mark = journal_get_mark(transaction->journal);
    for (int i = 0; i < count; i++)
        answer.size += parts[i].iov_len;
    answer.bytes = add_answer(transaction, parts, count, answer.size);
    if (answer.bytes && hold_answer(transaction, &answer) == 0)
        return (ssize_t)answer.size;
    /* There is no room to keep the answer, so it is sent after the records: the next worker would
     * be asked again. */
    if (answer.bytes)
        journal_rewind(transaction->journal, mark);
    transaction_end(transaction);
    return send_now(fd, parts, count);
}

static void send_answer(struct transaction *transaction, const struct transaction_answer *answer)
{
    ssize_t put = write(answer->fd, answer->bytes, answer->size);

    if (put >= 0 || errno == ENODEV)
        return;
    if (errno == ENOENT && answer->tag)
        transaction->on_unwanted(transaction->context, answer->tag);
    else if (errno != ENOENT)
        log_warning("an answer to the kernel failed: %s", strerror(errno));
}

/* Records and answers that on_unwanted makes meanwhile belong to the next transaction. */
static void send_answers(struct transaction *transaction)
{
    struct transaction_answer *answers = transaction->answers;
    size_t count = transaction->answer_count, room = transaction->answer_room;

    if (count == 0)
        return;
    transaction->answers = NULL;
    transaction->answer_count = transaction->answer_room = 0;
    for (size_t i = 0; i < count; i++)
        send_answer(transaction, &answers[i]);
    journal_set_delivered(transaction->journal);
    if (transaction->answers) {
        free(answers);
    } else {
        transaction->answers = answers;
        transaction->answer_room = room;
    }
}

bool transaction_hold(struct transaction *transaction, struct event_held *held)
{
    if (!journal_has_transaction(transaction->journal))
        return false;
    if (held->link)
        return true;
    held->next = NULL;
    held->link = transaction->last_held;
    *transaction->last_held = held;
    transaction->last_held = &held->next;
    return true;
}

void transaction_unhold(struct transaction *transaction, struct event_held *held)
{
    if (!held->link)
        return;
    *held->link = held->next;
    if (held->next)
        held->next->link = held->link;
    else if (transaction->last_held == &held->next)
        transaction->last_held = held->link;
    held->link = NULL;
}

/* Items that are held from here on wait for the next transaction; items that are cancelled
 * meanwhile leave the list. */
static void release_held(struct transaction *transaction)
{
    struct event_held *due = transaction->held, *held;

    if (!due)
        return;
    due->link = &due;
    transaction->held = NULL;
    transaction->last_held = &transaction->held;
    while ((held = due)) {
        transaction_unhold(transaction, held);
        held->released(held);
    }
}

void transaction_end(struct transaction *transaction)
{
    struct job *jobs[SERVICE_POOL_COUNT];

    while (transaction->journal && journal_has_transaction(transaction->journal)) {
        bool has_jobs = transaction->has_jobs;
        journal_publish(transaction->journal);
        if (has_jobs)
            take_jobs(transaction, jobs);
        send_answers(transaction);
        if (has_jobs)
            release_jobs(transaction, jobs);
        release_held(transaction);
    }
}
