/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that continues where another one ended: it reads the journal and takes the descriptors
 * that the keeper holds. */
#include "daemon/worker_internal.h"

#include "base/log.h"
#include "daemon/replay.h"
#include "fs/fs.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- the device ---- */

int worker_open_device(struct worker *worker, char *text, size_t text_bytes)
{
    const struct vmm_options *options = &worker->setup->options->vmm;
    struct worker_own *own = journal_get_own(worker->journal);

    if (own->has_device)
        return vmm_reopen(options, &own->device, &worker->vmm, text, text_bytes);
    int error = vmm_open(options, &worker->vmm, text, text_bytes);
    if (!error) {
        vmm_describe(worker->vmm, &own->device);
        atomic_store(&own->has_device, 1);
    }
    return error;
}

/* ---- the service ---- */

static void close_kept(struct service_kept *kept, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (kept[i].fd >= 0)
            close(kept[i].fd);
        kept[i].fd = -1;
    }
}

/* Counts the descriptors before the first with at least this number: they are in order. */
static size_t count_below(const struct worker *worker, uint64_t id)
{
    size_t count = 0;

    while (count < worker->kept_count && worker->kept[count].id < id)
        count++;
    return count;
}

static int take_holdings(struct worker *worker)
{
    int error = holdings_take(worker->setup->holdings, &worker->kept, &worker->kept_count);

    worker->kept_memories = count_below(worker, WIRE_CONNECTION);
    return error;
}

int worker_restore_service(struct worker *worker, const struct service_options *options,
                           const struct service_host *host)
{
    struct core *core = NULL;
    struct failure failure;

    int error = replay_journal(worker->journal, &core, &failure);
    if (error) {
        log_error("%s: the worker cannot resume: %s", worker->setup->mountpoint, failure.text);
        return error;
    }
    error = take_holdings(worker);
    if (!error)
        error = service_restore(worker->vmm, options, host, core, worker->kept,
                                worker->kept_memories, &worker->service);
    else
        core_free(core);
    close_kept(worker->kept, worker->kept_memories);
    return error;
}

static bool is_claimed(void *context, uint64_t file)
{
    const struct worker *worker = context;

    return gms_has_file(worker->gms, file);
}

void worker_resume_connections(struct worker *worker)
{
    struct service_kept *connections = worker->kept + worker->kept_memories;
    size_t count = count_below(worker, WIRE_UNREAD) - worker->kept_memories;

    if (worker->gms)
        gms_resume(worker->gms, worker->journal, connections, count);
    else
        close_kept(connections, count);
    service_close_connections(worker->service, is_claimed, worker);
}

/* ---- requests of the kernel ---- */

/* Sends the last worker's answers again that may not have reached the kernel, and restores its
 * notes. */
static int answer_again(void *context, const struct journal_entry *entry)
{
    struct worker *worker = context;

    if (entry->type == TRANSACTION_ANSWER && !entry->is_delivered)
        fs_answer_again(worker->fs, entry->bytes, entry->size);
    if (entry->type == TRANSACTION_NOTE)
        fs_restore_note(worker->fs, entry->bytes, entry->size);
    return 0;
}

/* Takes the remaining descriptors, which are connections of `.fds`. */
static void take_unread(struct worker *worker)
{
    for (size_t i = count_below(worker, WIRE_UNREAD); i < worker->kept_count; i++)
        fs_take_unread(worker->fs, worker->kept[i].id & ~WIRE_UNREAD, worker->kept[i].fd);
    free(worker->kept);
    worker->kept = NULL;
    worker->kept_count = 0;
}

int worker_resume_fuse(struct worker *worker)
{
    struct failure failure;
    int error = journal_read(worker->journal, answer_again, worker, &failure);

    if (error)
        return error;
    take_unread(worker);
    journal_set_delivered(worker->journal);
    if (fs_resume(worker->fs))
        log_warning("%s: this kernel does not send requests again (Linux 6.9 does): requests in "
                    "flight have failed with EIO",
                    worker->setup->mountpoint);
    return 0;
}
