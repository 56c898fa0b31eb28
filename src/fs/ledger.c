/* SPDX-License-Identifier: Apache-2.0 */
/* ledger - the unanswered requests, in memory that the keeper and the next workers see */
#include "fs/fs_internal.h"

#include "base/clock.h"

#include <stdlib.h>

void fs_ledger_serve(struct fs *fs, uint64_t unique)
{
    struct fs_ledger *ledger = fs->options.ledger;
    if (!ledger)
        return;
    ledger->requests[0].unique = unique;
    ledger->at[0] = unique & ~FS_RESENT_BIT;
}

/* ---- requests of the last worker --------------------------------------------------------- */

static int compare_former(const void *left, const void *right)
{
    uint64_t a = ((const struct fs_former *)left)->unique;
    uint64_t b = ((const struct fs_former *)right)->unique;
    return (a > b) - (a < b);
}

/* Requests keep their slots until they come, because this worker may end before that. Without
 * memory for the list, their waiting times start anew. */
void fs_ledger_give_back(struct fs *fs, bool come_again)
{
    struct fs_ledger *ledger = fs->options.ledger;
    size_t count = 0;
    for (unsigned i = 1; i < ledger->slots; i++)
        count += ledger->requests[i].unique != 0;
    fs->former = count && come_again ? calloc(count, sizeof *fs->former) : NULL;
    ledger->requests[0].unique = 0;
    for (unsigned i = 1; i < ledger->slots; i++) {
        struct fs_kept_request *kept = &ledger->requests[i];
        uint64_t unique = kept->unique & ~FS_RESENT_BIT;
        if (unique && fs->former) {
            fs->former[fs->former_count++] =
                (struct fs_former){.unique = unique, .since_ms = kept->since_ms, .slot = i};
            fs->ledger_used++;
        } else {
            kept->unique = 0;
        }
    }
    if (fs->former_count)
        qsort(fs->former, fs->former_count, sizeof *fs->former, compare_former);
}

/* Requests that have not come were answered, or given up by their clients. */
void fs_ledger_forget(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;
    for (size_t i = 0; i < fs->former_count; i++) {
        if (!fs->former[i].slot)
            continue;
        ledger->requests[fs->former[i].slot].unique = 0;
        fs->ledger_used--;
    }
    free(fs->former);
    fs->former = NULL;
    fs->former_count = 0;
}

/* NULL: the request comes for the first time, as far as the ledger knows. */
static struct fs_former *find_former(const struct fs *fs, uint64_t unique)
{
    struct fs_former wanted = {.unique = unique & ~FS_RESENT_BIT};
    if (!fs->former || !(unique & FS_RESENT_BIT))
        return NULL;
    return bsearch(&wanted, fs->former, fs->former_count, sizeof wanted, compare_former);
}

/* ---- slots ------------------------------------------------------------------------------- */

/* 0: none is free. */
static uint32_t take_slot(struct fs *fs)
{
    const struct fs_ledger *ledger = fs->options.ledger;
    if (fs->ledger_used == ledger->slots - 1)
        return 0;
    do { /* slots are freed in any order, mostly soon: the next one is mostly free */
        fs->ledger_next = fs->ledger_next % (ledger->slots - 1) + 1;
    } while (ledger->requests[fs->ledger_next].unique);
    fs->ledger_used++;
    return fs->ledger_next;
}

uint32_t fs_ledger_shelve(struct fs *fs, uint64_t unique, uint64_t *since_ms)
{
    struct fs_ledger *ledger = fs->options.ledger;
    uint32_t slot = take_slot(fs);

    *since_ms = clock_now_ms();
    if (!slot)
        return 0;
    ledger->requests[slot].since_ms = *since_ms;
    ledger->requests[slot].unique = unique;
    return slot;
}

void fs_ledger_unshelve(struct fs *fs, uint32_t slot)
{
    if (!slot)
        return;
    fs->options.ledger->requests[slot].unique = 0;
    fs->ledger_used--;
}

void fs_ledger_enter(struct fs *fs, struct fs_request *request)
{
    struct fs_ledger *ledger = fs->options.ledger;
    if (!ledger)
        return;
    struct fs_former *former = find_former(fs, ledger->requests[0].unique);
    uint32_t slot = former ? former->slot : 0;
    if (former && former->since_ms)
        request->service.since_ms = former->since_ms;
    else
        request->service.since_ms = fs->served_since_ms ? fs->served_since_ms : clock_now_ms();
    if (slot)
        former->slot = 0;
    else
        slot = take_slot(fs);
    if (!slot)
        return;
    ledger->requests[slot].since_ms = request->service.since_ms;
    ledger->requests[slot].unique = ledger->requests[0].unique;
    request->ledger_slot = slot;
}

/* The slot is freed at the end of the step, because the answer may wait for the step's records. */
void fs_ledger_leave(struct fs *fs, const struct fs_request *request)
{
    if (request->ledger_slot)
        fs->ledger_left[fs->ledger_left_count++] = request->ledger_slot;
}

void fs_ledger_settle(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;
    if (!ledger)
        return;
    for (uint32_t i = 0; i < fs->ledger_left_count; i++)
        ledger->requests[fs->ledger_left[i]].unique = 0;
    fs->ledger_used -= fs->ledger_left_count;
    fs->ledger_left_count = 0;
    ledger->requests[0].unique = 0;
    ledger->at[0] = 0;
}
