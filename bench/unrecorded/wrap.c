/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap - a worker without a journal, for bench/recorded.c alone
 *
 * Replacements that the linker puts for these calls (--wrap): the objects are those of the command
 * but for this one. Records are neither encoded nor kept, so nothing is held until they are
 * published.
 */
#include "daemon/transaction.h"

int __wrap_transaction_record(struct transaction *transaction, const struct record *record,
                              size_t *mark);
void __wrap_transaction_unrecord(struct transaction *transaction, size_t mark);
int __wrap_transaction_note(struct transaction *transaction, const struct iovec *parts, int count);

int __wrap_transaction_record(struct transaction *transaction, const struct record *record,
                              size_t *mark)
{
    (void)transaction;
    (void)record;
    *mark = 0;
    return 0;
}

void __wrap_transaction_unrecord(struct transaction *transaction, size_t mark)
{
    (void)transaction;
    (void)mark;
}

int __wrap_transaction_note(struct transaction *transaction, const struct iovec *parts, int count)
{
    (void)transaction;
    (void)parts;
    (void)count;
    return 0;
}
