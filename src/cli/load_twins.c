/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores of a group that get the same files at the same places: one is filled from the files, the
 * others from its memory (mover/spread.h), where reading the files twice would cost more. Between
 * GPUs that reach each other, all allocations but the last are passed on while the last is filled,
 * and the driver is prepared for that while they are filled.
 */
#include "cli/load.h"

#include "base/failure.h"
#include "base/scope.h"
#include "base/thread.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "mover/spread.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TWINS_AT_ONCE PACK_CHUNKS_BEFORE_LARGE

static bool twins_have_same_files(const struct model *one, const struct model *other)
{
    if (one->file_count != other->file_count || one->tensor_count != other->tensor_count)
        return false;
    for (size_t i = 0; i < one->file_count; i++)
        if (one->files[i].number != other->files[i].number)
            return false;
    return true;
}

static bool twins_have_same_plan(const struct pack_plan *one, const struct pack_plan *other)
{
    if (one->place_count != other->place_count || one->allocation_count != other->allocation_count)
        return false;
    for (size_t i = 0; i < one->place_count; i++)
        if (one->places[i].allocation != other->places[i].allocation ||
            one->places[i].offset_bytes != other->places[i].offset_bytes)
            return false;
    return memcmp(one->allocation_bytes, other->allocation_bytes,
                  one->allocation_count * sizeof(*one->allocation_bytes)) == 0;
}

/* Files in the page cache are read as quickly as memory is copied, but not as GPUs copy. */
static bool twins_are_cheaper(const struct load *first, const struct load *load)
{
    return source_is_slow(load->source) || spread_reaches(&first->memory, &load->memory);
}

bool load_is_passed_on(const struct load *load)
{
    return load->twin && spread_reaches(&load->twin->memory, &load->memory);
}

/* Returns true if copy engines fill all loads on the device of this one. */
static bool twins_fill_device(const struct load *loads, size_t count, const struct load *of)
{
    for (const struct load *load = loads; load < loads + count; load++)
        if (load->memory.device == of->memory.device && !load_is_passed_on(load))
            return false;
    return true;
}

void load_find_twins(struct load *loads, size_t count)
{
    for (struct load *load = loads + 1; load < loads + count; load++)
        for (struct load *first = loads; !load->twin && first < load; first++)
            if (!first->twin && first->plan.allocation_count > 0 &&
                twins_are_cheaper(first, load) &&
                twins_have_same_files(first->model, load->model) &&
                twins_have_same_plan(&first->plan, &load->plan))
                load->twin = first;
    for (struct load *load = loads; load < loads + count; load++)
        if (twins_fill_device(loads, count, load))
            staging_set_idle(&load->memory);
}

/* ---- one load and its twins ---------------------------------------------------------------- */

struct load_ahead {
    struct load *loads;
    size_t count;
    pthread_t thread;
    sem_t filled; /* posted when all but the last allocations are filled, and at the end */
    bool has_begun;
    atomic_bool stopped;
    atomic_int error;
    struct load *failed; /* the first of the twins at the error */
};

struct twins {
    struct load *first;
    struct load **others;
    size_t count;
    uint32_t end; /* allocations from first->passed to this one */
    struct spread_target *targets;
    struct gmsfs_mapping *mappings; /* of the first */
    struct progress progress;
    struct load_ahead *ahead;   /* NULL: all is filled */
    const struct load *refused; /* memory for it was refused; NULL: none */
    int refusal;
};

/* Signals are this thread's: while it waits for memory they end the process at once. */
static int twins_get(void *context, size_t target, size_t item, size_t count, int *fds)
{
    struct gmsfs_new_allocation wanted[TWINS_AT_ONCE];
    struct twins *twins = context;
    struct load *load = twins->others[target];

    item += twins->first->passed;
    for (size_t i = 0; i < count; i++)
        wanted[i] = (struct gmsfs_new_allocation){
            .size_bytes = load->plan.allocation_bytes[item + i], .tag = LOAD_TAG};
    signals_defer(false);
    int error = gmsfs_allocate_each(load->handle, wanted, count, load_alloc_flags(load),
                                    &load->slots[item]);
    signals_defer(true);
    if (!error)
        error = gmsfs_export_each(load->handle, &load->slots[item], count, GMSFS_ACCESS_WRITE, fds);
    if (error) {
        twins->refused = load;
        twins->refusal = error;
    }
    return error;
}

static int twins_tick(void *context, uint64_t done_bytes)
{
    struct twins *twins = context;

    progress_show(&twins->progress, done_bytes);
    return signals_get() || (twins->ahead && atomic_load(&twins->ahead->stopped)) ? -ECANCELED : 0;
}

/* Waits for the bytes that are passed on ahead. */
static void twins_await_bytes(void *context)
{
    struct load_ahead *ahead = ((const struct twins *)context)->ahead;

    while (ahead && !ahead->has_begun)
        ahead->has_begun = sem_wait(&ahead->filled) == 0;
}

static int twins_explain_passing(const struct load *first, int error)
{
    if (!store_explain_staging(first->staging))
        return cli_error("%s: cannot pass on its bytes: %s", first->store,
                         failure_thread_reason(error));
    return CLI_FAILURE;
}

static int twins_explain(const struct twins *twins, const struct spread *spread, int error)
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (!error)
        return CLI_OK;
    if (twins->refused)
        return load_explain_allocation(twins->refused, twins->refusal);
    if (!spread->failure)
        return twins_explain_passing(twins->first, error);
    return cli_error("%s: cannot write to its memory: %s",
                     twins->others[spread->failed_target]->store, strerror(-spread->failure));
}

static uint64_t twins_count_bytes(const struct twins *twins)
{
    uint64_t bytes = 0;

    for (uint32_t i = twins->first->passed; i < twins->end; i++)
        bytes += twins->first->plan.allocation_bytes[i] * twins->count;
    return bytes;
}

/* Passes the bytes on, and returns the error of spread_run(); *status: the exit status of a pass
 * that is not ahead. */
static int twins_fill(struct twins *twins, int *status)
{
    const uint32_t passed = twins->first->passed;
    const struct load *first = twins->first;
    struct spread spread = {.staging = first->staging,
                            .from = &first->memory,
                            .items = twins->mappings + passed,
                            .item_bytes = first->plan.allocation_bytes + passed,
                            .item_count = twins->end - passed,
                            .targets = twins->targets,
                            .target_count = twins->count,
                            .threads = first->threads,
                            .engines_only = twins->ahead != NULL,
                            .at_once = TWINS_AT_ONCE,
                            .begin = twins_await_bytes,
                            .get = twins_get,
                            .tick = twins_tick,
                            .context = twins};

    for (size_t i = 0; i < twins->count; i++) {
        const struct load *other = twins->others[i];
        twins->targets[i] = (struct spread_target){
            &other->memory, other->mappings ? other->mappings + passed : NULL, false};
    }
    progress_begin(&twins->progress, "passing on", twins_count_bytes(twins),
                   first->quiet || twins->ahead);
    int error = spread_run(&spread);
    progress_end(&twins->progress);
    *status = twins->ahead ? CLI_OK : twins_explain(twins, &spread, error);
    return error;
}

/* A GPU's memory is mapped already. */
static int twins_map(struct twins *twins)
{
    size_t mapped;
    int error;

    twins->mappings = twins->first->mappings;
    if (twins->mappings)
        return CLI_OK;
    error = gmsfs_attach_all(twins->first->handle, GMSFS_ACCESS_READ, &twins->mappings, &mapped);
    if (!error && mapped != twins->first->plan.allocation_count)
        error = -ESTALE;
    if (error)
        store_explain_call(twins->first->handle, &twins->first->memory, "map the memory", error);
    return error ? CLI_FAILURE : CLI_OK;
}

static int twins_copy(struct load *loads, size_t count, struct load *first)
{
    SCOPED_FREE struct load **others = cli_need(calloc(count, sizeof(struct load *)));
    SCOPED_FREE struct spread_target *targets = cli_need(calloc(count, sizeof(*targets)));
    struct twins twins = {
        .first = first, .others = others, .end = first->plan.allocation_count, .targets = targets};

    for (size_t i = 0; i < count; i++)
        if (loads[i].twin == first)
            others[twins.count++] = &loads[i];
    if (twins.count == 0)
        return CLI_OK;
    int status = twins_map(&twins);
    if (status == CLI_OK)
        twins_fill(&twins, &status);
    if (twins.mappings != first->mappings)
        free(twins.mappings);
    return status;
}

int load_copy_twins(struct load *loads, size_t count)
{
    uint64_t start_us = clock_now_us();
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = twins_copy(loads, count, &loads[i]);
    loads->copied_us += clock_now_us() - start_us;
    return status;
}

/* ---- ahead of the last allocation ---------------------------------------------------------- */

/* Lists the twins of a load that copy engines fill; 0: all but the last allocation of it cannot be
 * passed on ahead. others: NULL, or room for each. */
static size_t ahead_list(const struct load *loads, size_t count, const struct load *first,
                         struct load **others)
{
    size_t listed = 0;

    for (size_t i = 0; first->plan.allocation_count > 1 && i < count; i++) {
        if (loads[i].twin != first)
            continue;
        if (!load_is_passed_on(&loads[i]))
            return 0; /* its bytes go through threads, as those of the last allocation */
        if (others)
            others[listed] = (struct load *)&loads[i];
        listed++;
    }
    return listed;
}

bool load_passes_ahead(const struct load *loads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ahead_list(loads, count, &loads[i], NULL) > 0)
            return true;
    return false;
}

static int ahead_pass(struct load_ahead *ahead, struct load *first)
{
    SCOPED_FREE struct load **others = calloc(ahead->count, sizeof(struct load *));
    SCOPED_FREE struct spread_target *targets = calloc(ahead->count, sizeof(*targets));
    struct twins twins = {.first = first,
                          .others = others,
                          .end = first->plan.allocation_count - 1,
                          .targets = targets,
                          .mappings = first->mappings,
                          .ahead = ahead};
    int status, error;

    if (!others || !targets)
        return -ENOMEM;
    twins.count = ahead_list(ahead->loads, ahead->count, first, others);
    error = twins.count > 0 ? twins_fill(&twins, &status) : -EOPNOTSUPP;
    if (!error)
        first->passed = twins.end;
    return error == -EOPNOTSUPP ? 0 : error;
}

static void *ahead_run(void *context)
{
    struct load_ahead *ahead = context;
    int error = 0;

    for (size_t i = 0; !error && i < ahead->count; i++) {
        error = ahead_pass(ahead, &ahead->loads[i]);
        ahead->failed = &ahead->loads[i];
    }
    atomic_store(&ahead->error, error);
    return NULL;
}

struct load_ahead *load_ahead_begin(struct load *loads, size_t count)
{
    struct load_ahead *ahead = calloc(1, sizeof(*ahead));

    if (!ahead)
        return NULL;
    for (size_t i = 0; i < count; i++)
        staging_await(&loads[i].memory);
    ahead->loads = loads;
    ahead->count = count;
    sem_init(&ahead->filled, 0, 0);
    if (thread_start(&ahead->thread, 0, ahead_run, ahead) == 0)
        return ahead;
    sem_destroy(&ahead->filled);
    free(ahead);
    return NULL;
}

void load_ahead_go(struct load_ahead *ahead)
{
    if (ahead)
        sem_post(&ahead->filled);
}

bool load_ahead_has_failed(const struct load_ahead *ahead)
{
    return atomic_load(&ahead->error) != 0;
}

int load_ahead_end(struct load_ahead *ahead, bool stops)
{
    int error, status = CLI_OK;

    if (!ahead)
        return CLI_OK;
    stops = stops && !load_ahead_has_failed(ahead);
    atomic_store(&ahead->stopped, stops);
    sem_post(&ahead->filled);
    pthread_join(ahead->thread, NULL);
    sem_destroy(&ahead->filled);
    error = atomic_load(&ahead->error);
    if (error && !stops && !signals_get())
        status = twins_explain_passing(ahead->failed, error);
    free(ahead);
    return status;
}
