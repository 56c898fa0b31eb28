/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the records and the answer of one step are both there for the next worker, or
 * neither. */
#include "daemon/transaction.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"

#define FILE_BYTES (1 << 20)
#define LONGEST    16384u /* of an ioctl's answer */

static struct journal_files files;
static struct journal *journal;
static struct transaction transaction;

static void begin(void)
{
    struct failure failure = {.text = ""};

    require(journal_make_files(&files) == 0);
    for (unsigned i = 0; i < 2; i++)
        require(ftruncate(files.transactions[i], FILE_BYTES) == 0);
    require(journal_open(&files, &journal, &failure) == 0);
    transaction_init(&transaction, journal, NULL);
}

static int count_answers(void *context, const struct journal_entry *entry)
{
    size_t *count = context;

    *count += entry->type == TRANSACTION_ANSWER && entry->size == LONGEST;
    return 0;
}

/* If the last record fits, its answer does. */
TAP_TEST(every_recorded_step_has_its_answer_kept_up_to_a_full_journal)
{
    static char answer[LONGEST];
    const struct iovec part = {answer, sizeof answer};
    struct failure failure;
    const struct record record = {.type = RECORD_TIME};
    size_t mark, recorded = 0, kept = 0;
    int ends[2];

    begin();
    require(pipe(ends) == 0);
    while (transaction_record(&transaction, &record, &mark) == 0) {
        check_int((long long)transaction_answer(&transaction, ends[1], &part, 1, 0), LONGEST);
        recorded++;
        transaction_end(&transaction);
        require(read(ends[0], answer, sizeof answer) == (ssize_t)sizeof answer);
    }
    check(recorded > FILE_BYTES / LONGEST / 2);
    check_int(journal_read(journal, count_answers, &kept, &failure), 0);
    check_int((long long)kept, (long long)recorded);
}
