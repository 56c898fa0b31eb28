/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the files into memory that only staging can reach, a GPU's: mapped whole, filled by ranges.
 * Each device has a crew of threads, so that all are filled at the same time.
 */
#include "base/failure.h"
#include "cli/load.h"

#include "base/thread.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "mover/staging_file.h"
#include "mover/work.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGED_VERB_BYTES 80

/* Tensors that lie side by side in the file and in memory alike: one range of both. */
struct staged_range {
    const struct load *load;
    size_t first; /* tensor, in the order of the files */
    uint32_t file;
    uint32_t allocation;
    uint64_t file_offset_bytes;
    uint64_t offset_bytes; /* in the allocation */
};

struct staged;

/* What goes to one device, by threads of its own. */
struct staged_crew {
    struct staged *copy;
    const struct staging_memory *memory;
    struct staged_range *ranges;
    uint64_t *sizes; /* of each */
    size_t range_count;
    uint64_t bytes;
    char verb[STAGED_VERB_BYTES];
    struct work work;
    pthread_t thread;
    int result;
};

struct staged {
    struct load *loads;
    size_t count;
    struct staged_crew *crews; /* one for each device */
    struct progress *lines;    /* and its line */
    uint64_t *done_bytes;      /* and how far it is */
    size_t crew_count;
    pthread_mutex_t said; /* one error is printed, the first; and of the lines */
    bool has_said;
    bool is_stopped;
};

/* The tensor that this byte of the file belongs to. */
static const struct model_tensor *staged_find(const struct staged_range *range,
                                              uint64_t offset_bytes)
{
    const struct load *load = range->load;
    const struct model_tensor *found = NULL;

    for (size_t i = range->first; i < load->model->tensor_count; i++) {
        const struct model_tensor *tensor = &load->model->tensors[load->order[i]];
        if (found && (tensor->file != range->file || tensor->offset_bytes > offset_bytes))
            break;
        if (!found || tensor->size_bytes > 0)
            found = tensor;
    }
    return found;
}

static int staged_fail(struct staged *copy, const struct staged_range *range, uint64_t offset_bytes,
                       int error)
{
    const char *path = range->load->model->files[range->file].path;
    const char *name = staged_find(range, offset_bytes)->name;

    pthread_mutex_lock(&copy->said);
    if (!copy->has_said) {
        copy->has_said = true;
        progress_end_lines(copy->lines, copy->crew_count);
        if (store_explain_staging(range->load->staging))
            ;
        else if (error == -ENODATA)
            cli_error("%s: tensor '%s': the file became shorter while it was read", path, name);
        else
            cli_error("%s: tensor '%s': cannot read: %s; check the disk", path, name,
                      strerror(-error));
    }
    pthread_mutex_unlock(&copy->said);
    return error;
}

static int staged_step(const struct staged_range *range, struct staging_lane *lane, uint8_t *to,
                       uint64_t from, size_t *size_bytes)
{
    const struct load *load = range->load;
    const uint8_t *bytes;
    int error = staging_read(lane, &load->memory, to, &load->inputs[range->file], from, *size_bytes,
                             &bytes, size_bytes);

    return error ? error : staging_send(lane, &load->memory, to, bytes, *size_bytes);
}

static int staged_piece(void *context, const struct work_piece *piece, void *own)
{
    struct staged_crew *crew = context;
    const struct staged_range *range = &crew->ranges[piece->item];
    uint8_t *to = (uint8_t *)range->load->mappings[range->allocation].ptr + range->offset_bytes;
    uint64_t at = piece->offset_bytes, end = at + piece->size_bytes;
    size_t step;
    int error = 0;

    direct_align(range->file_offset_bytes, crew->sizes[piece->item], &at, &end);
    while (!error && at < end) {
        step = (size_t)(end - at);
        error = staged_step(range, own, to + at, range->file_offset_bytes + at, &step);
        if (!error)
            at += step;
    }
    return error ? staged_fail(crew->copy, range, range->file_offset_bytes + at, error) : 0;
}

/* Of one crew; it shows all. */
static int staged_tick(void *context, uint64_t done_bytes)
{
    struct staged *copy = ((struct staged_crew *)context)->copy;
    bool is_stopped;

    (void)done_bytes;
    pthread_mutex_lock(&copy->said);
    for (size_t i = 0; i < copy->crew_count; i++)
        copy->done_bytes[i] = atomic_load(&copy->crews[i].work.done_bytes);
    if (!copy->has_said)
        progress_show_lines(copy->lines, copy->done_bytes, copy->crew_count);
    is_stopped = copy->is_stopped || signals_get();
    pthread_mutex_unlock(&copy->said);
    return is_stopped ? -ECANCELED : 0;
}

/* The range that ends where the tensor begins is longer by it; or it begins another. */
static void staged_add(struct staged_crew *crew, const struct load *load, size_t at, bool is_first)
{
    const struct model_tensor *tensor = &load->model->tensors[load->order[at]];
    const struct pack_place *place = &load->plan.places[load->order[at]];
    struct staged_range *range = &crew->ranges[crew->range_count];
    uint64_t *size = &crew->sizes[crew->range_count];

    if (!is_first && range[-1].file == tensor->file && range[-1].allocation == place->allocation &&
        range[-1].file_offset_bytes + size[-1] == tensor->offset_bytes &&
        range[-1].offset_bytes + size[-1] == place->offset_bytes) {
        size[-1] += tensor->size_bytes;
        return;
    }
    *range = (struct staged_range){
        load, at, tensor->file, place->allocation, tensor->offset_bytes, place->offset_bytes};
    *size = tensor->size_bytes;
    crew->range_count++;
}

/* Of all loads to this device, one after the other. */
static int staged_gather(struct staged_crew *crew)
{
    const struct staged *copy = crew->copy;
    size_t total = 0;

    for (size_t i = 0; i < copy->count; i++)
        if (copy->loads[i].memory.device == crew->memory->device)
            total += copy->loads[i].model->tensor_count;
    crew->ranges = calloc(total + 1, sizeof(*crew->ranges));
    crew->sizes = calloc(total + 1, sizeof(*crew->sizes));
    if (!crew->ranges || !crew->sizes)
        return -ENOMEM;
    for (size_t i = 0; i < copy->count; i++) {
        const struct load *load = &copy->loads[i];
        if (load->memory.device != crew->memory->device)
            continue;
        for (size_t at = 0; at < load->model->tensor_count; at++)
            staged_add(crew, load, at, at == 0);
        crew->bytes += load->model->tensor_bytes;
    }
    return 0;
}

static bool staged_has_crew(const struct staged *copy, const struct staging_device *device)
{
    for (size_t i = 0; i < copy->crew_count; i++)
        if (copy->crews[i].memory->device == device)
            return true;
    return false;
}

static int staged_plan(struct staged *copy)
{
    int error = 0;

    copy->crews = calloc(copy->count, sizeof(*copy->crews));
    copy->lines = calloc(copy->count, sizeof(*copy->lines));
    copy->done_bytes = calloc(copy->count, sizeof(*copy->done_bytes));
    if (!copy->crews || !copy->lines || !copy->done_bytes)
        return -ENOMEM;
    for (size_t i = 0; !error && i < copy->count; i++) {
        struct staged_crew *crew = &copy->crews[copy->crew_count];
        if (staged_has_crew(copy, copy->loads[i].memory.device))
            continue;
        *crew = (struct staged_crew){
            .copy = copy,
            .memory = &copy->loads[i].memory,
            .work = {.tapers = true, .context = crew, .piece = staged_piece, .tick = staged_tick}};
        snprintf(crew->verb, sizeof(crew->verb), "copying to %s", copy->loads[i].store);
        copy->crew_count++;
        error = staged_gather(crew);
        crew->work.item_bytes = crew->sizes;
        crew->work.item_count = crew->range_count;
    }
    return error;
}

static void staged_free(struct staged *copy)
{
    for (size_t i = 0; i < copy->crew_count; i++) {
        free(copy->crews[i].ranges);
        free(copy->crews[i].sizes);
    }
    free(copy->crews);
    free(copy->lines);
    free(copy->done_bytes);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* One mapping call for all of it is cheaper than one for each. Ranks are as in the plan, for
 * nothing else is in the store. */
int load_get_staged(struct load *load)
{
    uint32_t count = load->plan.allocation_count;
    size_t mapped = 0;
    int error = 0;

    for (uint32_t i = 0; !error && i < count; i++)
        error = gmsfs_allocate_handle(load->handle, load->plan.allocation_bytes[i], LOAD_TAG, NULL,
                                      &load->slots[i]);
    if (!error)
        error = gmsfs_attach_all(load->handle, GMSFS_ACCESS_WRITE, &load->mappings, &mapped);
    if (!error && mapped != count)
        error = -ESTALE;
    return error ? load_explain_allocation(load, error) : CLI_OK;
}

/* ---- threads ------------------------------------------------------------------------------- */

static bool staged_has_several(const struct load *loads, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (loads[i].memory.device != loads->memory.device)
            return true;
    return false;
}

/* Devices share the processors: a thread that waits for one spins. */
static uint64_t staged_threads(const struct load *loads, size_t count,
                               const struct staging_memory *memory)
{
    uint64_t share = staging_count_processors(memory);

    if (loads->threads || !staged_has_several(loads, count))
        return load_threads(loads, count);
    return share < 2 ? 2 : share < STAGING_GPU_THREADS ? share : STAGING_GPU_THREADS;
}

void load_warm_staged(struct load *loads, size_t count)
{
    for (size_t i = 0; i < count; i++)
        staging_warm(&loads[i].memory, staged_threads(loads, count, &loads[i].memory),
                     loads[i].model->tensor_bytes);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void *staged_run_crew(void *context)
{
    struct staged_crew *crew = context;
    struct staged *copy = crew->copy;

    staging_equip(copy->loads->staging, &crew->work, crew->memory,
                  staged_threads(copy->loads, copy->count, crew->memory));
    crew->result = work_run(&crew->work);
    if (crew->result) {
        pthread_mutex_lock(&copy->said);
        copy->is_stopped = true;
        pthread_mutex_unlock(&copy->said);
    }
    return NULL;
}

/* The crews that have a thread: the others run on this one. */
static size_t staged_start(struct staged *copy)
{
    size_t started = 1;

    while (started < copy->crew_count && thread_start(&copy->crews[started].thread, 0,
                                                      staged_run_crew, &copy->crews[started]) == 0)
        started++;
    return started;
}

static int staged_run(struct staged *copy)
{
    uint64_t start_us;
    size_t started;
    int error = 0;

    for (size_t i = 0; i < copy->crew_count; i++)
        progress_begin(&copy->lines[i], copy->crew_count == 1 ? "copying" : copy->crews[i].verb,
                       copy->crews[i].bytes, copy->loads->quiet);
    start_us = cli_now_us();
    started = staged_start(copy);
    staged_run_crew(&copy->crews[0]);
    for (size_t i = started; i < copy->crew_count; i++)
        staged_run_crew(&copy->crews[i]);
    for (size_t i = 1; i < started; i++)
        pthread_join(copy->crews[i].thread, NULL);
    copy->loads->copied_us = cli_now_us() - start_us;
    progress_end_lines(copy->lines, copy->crew_count);
    for (size_t i = 0; i < copy->crew_count && (!error || error == -ECANCELED); i++)
        error = copy->crews[i].result ? copy->crews[i].result : error;
    return error;
}

int load_fill_staged(struct load *loads, size_t count)
{
    struct staged copy = {.loads = loads, .count = count, .said = PTHREAD_MUTEX_INITIALIZER};
    int error = staged_plan(&copy);

    if (!error)
        error = staged_run(&copy);
    staged_free(&copy);
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (error && !copy.has_said && !store_explain_staging(loads->staging))
        cli_error("cannot copy: %s", failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

int load_copy_staged(struct load *loads, size_t count)
{
    int status = CLI_OK;

    load_warm_staged(loads, count);
    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = load_get_staged(&loads[i]);
    signals_defer(true);
    return status == CLI_OK ? load_fill_staged(loads, count) : status;
}
