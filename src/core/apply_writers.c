/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that may still write a store's memory: a sealed layout gets its next writer only after
 * their exit. */
#include "core/core_internal.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_below(struct core_process a, struct core_process b)
{
    return a.pid != b.pid ? a.pid < b.pid : a.start < b.start;
}

/* Returns the index of the first writer that is not below this process. */
static size_t find_place(const struct core_store *store, struct core_process process)
{
    size_t at = 0;

    ARRAY_SEARCH(at, store->writer_count, is_below(store->writers[at], process));
    return at;
}

bool core_is_writer_of(const struct core_store *store, struct core_process process)
{
    size_t at = find_place(store, process);

    return at < store->writer_count && core_same_process(store->writers[at], process);
}

bool core_is_writer(const struct core *core, struct core_process process)
{
    for (size_t i = 0; i < core->index.lent.count; i++) {
        if (core_is_writer_of(core->index.lent.items[i], process))
            return true;
    }
    return false;
}

static int add_writer(struct core_store *store, struct core_process process)
{
    size_t at = find_place(store, process);
    struct core_process *writers;

    if (store->writer_count >= CORE_MAX_WRITERS)
        return -ENOSPC;
    writers = realloc(store->writers, (store->writer_count + 1) * sizeof *writers);
    if (!writers)
        return -ENOMEM;
    memmove(writers + at + 1, writers + at, (store->writer_count - at) * sizeof *writers);
    writers[at] = process;
    store->writers = writers;
    store->writer_count++;
    return 0;
}

int apply_lend(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct core_session *session = core_session(apply->core, record->session);
    struct core_store *store;

    if (!session)
        return -ESTALE;
    if (session->mode == LOCK_MODE_RO)
        return -ENOLCK;
    store = core_store(apply->core, session->store);
    if (record->process.pid == 0 && session->mode == LOCK_MODE_RW_DATA)
        return -EOPNOTSUPP;
    if (record->process.pid == 0) {
        apply->out->count = !store->unseen_writer;
        store->unseen_writer = true;
        return 0;
    }
    if (core_is_writer_of(store, record->process))
        return 0;
    int error = add_writer(store, record->process);
    core_note_writers(apply->core, store);
    apply->out->count = error == 0;
    return error;
}

int apply_exit(struct apply *apply)
{
    struct core_process process = apply->record->process;
    struct core_store *store;

    for (uint64_t id = 0; (store = idvec_find_after(&apply->core->index.lent, id));
         id = store->id) {
        size_t at = find_place(store, process);

        if (!core_is_writer_of(store, process))
            continue;
        store->writer_count--;
        memmove(store->writers + at, store->writers + at + 1,
                (store->writer_count - at) * sizeof *store->writers);
        if (store->writer_count == 0) {
            free(store->writers);
            store->writers = NULL;
        }
        core_note_writers(apply->core, store);
        apply_grant_waiters(apply, store);
    }
    return 0;
}
