/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/abi.h"

#include "core/core.h"
#include "daemon/audit.h"
#include "daemon/fdstore.h"
#include "daemon/handover.h"
#include "daemon/transaction.h"
#include "daemon/wire.h"
#include "fs/fs.h"
#include "journal/journal.h"
#include "rpc/rpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A module that reads formats of an older build has a constant for the oldest number beside its
 * own, which stands here as the oldest. */
#define ONLY(number) (number), (number)

static const struct abi_number numbers[] = {
    {"handover", "the handover from process to process", ONLY(HANDOVER_VERSION)},
    {"wire", "messages of keeper and worker", ONLY(WIRE_VERSION)},
    {"journal", "the journal's files", ONLY(JOURNAL_VERSION)},
    {"entries", "the contents of the journal's entries", ONLY(TRANSACTION_VERSION)},
    {"state", "an encoded state", CORE_STATE_VERSION, CORE_STATE_OLDEST},
    {"record", "an encoded record", ONLY(CORE_RECORD_VERSION)},
    {"ledger", "requests and handles in shared memory", ONLY(FS_LEDGER_VERSION)},
    {"connections", "the state of GMS connections in shared memory", ONLY(RPC_MEMORY_VERSION)},
    {"store", "the index of the service manager's descriptor store", ONLY(FDSTORE_VERSION)},
    {"audit", "how far the audit has come", ONLY(AUDIT_VERSION)},
    {"kernel", "the kernel's memory of a mount", ONLY(FS_KERNEL_VERSION)},
};

#define ABI_COUNT (sizeof numbers / sizeof numbers[0])

const struct abi_number *abi_at(size_t index)
{
    return index < ABI_COUNT ? &numbers[index] : NULL;
}

void abi_write(char text[ABI_TEXT_BYTES])
{
    size_t bytes = 0;

    for (size_t i = 0; i < ABI_COUNT; i++)
        bytes +=
            (size_t)snprintf(text + bytes, ABI_TEXT_BYTES - bytes, "%s%s=%u", i == 0 ? "" : " ",
                             numbers[i].name, abi_own_numbers(&numbers[i]).number);
}

/* Returns the number after "NAME="; 0 if there is none. */
static uint32_t find_number(const char *text, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = text; (at = strstr(at, name)); at += bytes)
        if ((at == text || at[-1] == ' ') && at[bytes] == '=')
            return (uint32_t)strtoul(at + bytes + 1, NULL, 10);
    return 0;
}

static size_t count_numbers(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += *text == '=';
    return count;
}

static int check_number(const struct abi_number *own, uint32_t there, struct failure *failure)
{
    char range[32] = "";

    if (there >= own->oldest && there <= own->number)
        return 0;
    if (own->oldest < own->number)
        snprintf(range, sizeof range, "s %u to", own->oldest);
    return failure_set(failure, -EPROTONOSUPPORT,
                       "%s: the mount has version %u of it, this gmsfs (" GMSFS_VERSION
                       ") version%s %u",
                       own->meaning, there, range, own->number);
}

int abi_check(const char *text, struct failure *failure)
{
    for (size_t i = 0; i < ABI_COUNT; i++) {
        struct abi_number own = abi_own_numbers(&numbers[i]);
        int error = check_number(&own, find_number(text, own.name), failure);
        if (error)
            return error;
    }
    if (count_numbers(text) == ABI_COUNT)
        return 0;
    return failure_set(
        failure, -EPROTONOSUPPORT,
        "the mount has formats that this gmsfs (" GMSFS_VERSION ") does not know: %s", text);
}
