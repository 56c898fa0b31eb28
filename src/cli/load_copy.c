/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of loads, and their bytes into it (mover/fill.h).
 *
 * Host memory is files. The thread that was called asks for the files in order, and several others
 * fill them meanwhile, each an allocation of its own while there are enough: the kernel lets one
 * thread at a time write to a memfd. A GPU's memory is there, and mapped whole, before ranges of
 * bytes fill it.
 */
#include "cli/load.h"

#include "base/failure.h"
#include "base/scope.h"
#include "base/timeline.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "cli/store_source.h"
#include "model/files.h"
#include "mover/fill.h"
#include "mover/supply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_PART_BYTES ((uint64_t)16 << 20) /* of an allocation, for one thread at a time */
#define COPY_AHEAD      64u                  /* allocations with open descriptors at once */
/* Allocations made at once; the next are made while these are filled. */
#define COPY_AT_ONCE    PACK_CHUNKS_BEFORE_LARGE
#define COPY_VERB_BYTES 80

/* One allocation of one load into host memory. */
struct copy_item {
    struct load *load;
    uint32_t allocation;
};

struct copy {
    struct load *loads;
    size_t count;
    struct copy_item *items; /* as they are asked for */
    size_t slice;            /* so many of one load follow one another */
    struct fill_range *ranges;
    struct fill_part *parts;
    uint64_t *part_bytes;
    size_t range_count, part_count;
    struct fill fill; /* a crew for each device */
    struct supply supply;
    struct failure other;     /* bytes that differ from their place's promise */
    struct progress *lines;   /* of each crew */
    uint64_t *done_bytes;     /* and how far it is */
    uint64_t *before_bytes;   /* bytes of each crew that an earlier fill copied */
    struct load_ahead *ahead; /* passes bytes on; NULL: none does */
    bool has_told;            /* that this failed */
    char (*verbs)[COPY_VERB_BYTES];
};

/* ---- the plan ------------------------------------------------------------------------------ */

static uint32_t copy_count_items(const struct load *load)
{
    return staging_is_file(&load->memory) && !load->twin ? load->plan.allocation_count : 0;
}

/* The loads take turns, a slice at a time: their threads work on all of them. */
static size_t copy_find_item(const struct copy *copy, const struct load *load, uint32_t allocation)
{
    size_t item = allocation;

    for (const struct load *other = copy->loads; other < copy->loads + copy->count; other++) {
        size_t before = (allocation / copy->slice + (other < load)) * copy->slice;
        size_t count = copy_count_items(other);

        if (other != load)
            item += before < count ? before : count;
    }
    return item;
}

static bool copy_is_next(const struct fill_range *range, const struct fill_range *next)
{
    return next->file == range->file && next->into == range->into && next->item == range->item &&
           next->from == range->from + range->size_bytes &&
           next->to == range->to + range->size_bytes;
}

/* Adds a tensor; neighbours in both file and memory become one range, up to the end of a part. */
static void copy_add_tensor(struct copy *copy, const struct fill_crew *crew, struct load *load,
                            size_t index)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    const struct pack_place *place = &load->plan.places[index];
    struct fill_range range = {.file = load->model->files[tensor->file].number,
                               .from = tensor->offset_bytes,
                               .to = place->offset_bytes};
    uint64_t left = tensor->size_bytes, room = left;

    if (left == 0)
        return;
    if (crew->cuts)
        range.into = load->mappings[place->allocation].ptr;
    else
        range.item = copy_find_item(copy, load, place->allocation);
    for (; left > 0; left -= range.size_bytes) {
        struct fill_range *last = copy->range_count ? &copy->ranges[copy->range_count - 1] : NULL;
        bool is_next = last && copy_is_next(last, &range);

        if (!crew->cuts)
            room = COPY_PART_BYTES - range.to % COPY_PART_BYTES;
        range.size_bytes = left < room ? left : room;
        if (is_next && (crew->cuts || range.to % COPY_PART_BYTES > 0))
            last->size_bytes += range.size_bytes;
        else
            copy->ranges[copy->range_count++] = range;
        range.from += range.size_bytes;
        range.to += range.size_bytes;
    }
}

static int copy_compare(const void *left, const void *right)
{
    const struct fill_range *a = left, *b = right;

    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    return (a->to > b->to) - (a->to < b->to);
}

static void copy_add_parts(struct copy *copy, struct fill_crew *crew, size_t first)
{
    crew->parts = copy->parts + copy->part_count;
    crew->part_bytes = copy->part_bytes + copy->part_count;
    for (size_t i = first; i < copy->range_count; i++) {
        const struct fill_range *range = &copy->ranges[i];

        if (i == first || crew->cuts || range->item != range[-1].item ||
            range->to / COPY_PART_BYTES != range[-1].to / COPY_PART_BYTES) {
            copy->parts[copy->part_count++].first = i;
            crew->part_count++;
        }
        copy->parts[copy->part_count - 1].end = i + 1;
        copy->part_bytes[copy->part_count - 1] += range->size_bytes;
    }
}

/* True if several devices are filled at the same time. */
static bool copy_has_several(const struct load *loads, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (loads[i].memory.device != loads->memory.device && !load_is_passed_on(&loads[i]))
            return true;
    return false;
}

/* Devices share the processors: a thread that waits for one spins. */
static uint64_t copy_count_threads(const struct load *loads, size_t count,
                                   const struct staging_memory *memory)
{
    uint64_t share = staging_count_processors(memory);

    if (loads->threads || !copy_has_several(loads, count))
        return source_threads(loads->source, loads->threads);
    return share < 2 ? 2 : share < STAGING_GPU_THREADS ? share : STAGING_GPU_THREADS;
}

/* All that goes to the device of a load: a GPU's as it lies in the files, the host's as it is asked
 * for. */
static void copy_add_crew(struct copy *copy, const struct load *of)
{
    size_t index = copy->fill.crew_count++, first = copy->range_count;
    struct fill_crew *crew = &copy->fill.crews[index];
    uint64_t bytes = 0;

    crew->memory = &of->memory;
    crew->threads = copy_count_threads(copy->loads, copy->count, crew->memory);
    crew->cuts = !staging_is_file(crew->memory);
    for (struct load *load = copy->loads; load < copy->loads + copy->count; load++) {
        if (load->memory.device != of->memory.device || load->twin)
            continue;
        for (size_t i = 0; i < load->model->tensor_count; i++)
            copy_add_tensor(copy, crew, load, load->order[i]);
        bytes += load->model->tensor_bytes;
    }
    if (!crew->cuts)
        qsort(copy->ranges + first, copy->range_count - first, sizeof(*copy->ranges), copy_compare);
    copy_add_parts(copy, crew, first);
    snprintf(copy->verbs[index], COPY_VERB_BYTES, "copying%s%s",
             copy_has_several(copy->loads, copy->count) ? " to " : "",
             copy_has_several(copy->loads, copy->count) ? of->store : "");
    progress_begin(&copy->lines[index], copy->verbs[index], bytes, copy->loads->quiet);
}

static bool copy_has_crew(const struct copy *copy, const struct load *load)
{
    for (size_t i = 0; i < copy->fill.crew_count; i++)
        if (copy->fill.crews[i].memory->device == load->memory.device)
            return true;
    return false;
}

static void copy_add_items(struct copy *copy)
{
    size_t sharing = 0;

    for (size_t i = 0; i < copy->count; i++)
        sharing += copy_count_items(&copy->loads[i]) > 0;
    copy->slice = sharing > 1 && sharing < COPY_AT_ONCE ? COPY_AT_ONCE / sharing : COPY_AT_ONCE;
    for (struct load *load = copy->loads; load < copy->loads + copy->count; load++)
        for (uint32_t i = 0; i < copy_count_items(load); i++)
            copy->items[copy_find_item(copy, load, i)] = (struct copy_item){load, i};
}

/* A tensor is one range, and one more wherever a part ends in it. */
static void copy_plan(struct copy *copy)
{
    size_t ranges = 1;

    for (size_t i = 0; i < copy->count; i++) {
        const struct load *load = &copy->loads[i];

        ranges += 2 * load->model->tensor_count;
        ranges += (size_t)(load->model->tensor_bytes / COPY_PART_BYTES);
        copy->supply.count += copy_count_items(load);
    }
    copy->items = cli_need(calloc(copy->supply.count + 1, sizeof(*copy->items)));
    copy->ranges = cli_need(calloc(ranges, sizeof(*copy->ranges)));
    copy->parts = cli_need(calloc(ranges, sizeof(*copy->parts)));
    copy->part_bytes = cli_need(calloc(ranges, sizeof(*copy->part_bytes)));
    copy->fill.crews = cli_need(calloc(copy->count, sizeof(*copy->fill.crews)));
    copy->lines = cli_need(calloc(copy->count, sizeof(*copy->lines)));
    copy->done_bytes = cli_need(calloc(copy->count, sizeof(*copy->done_bytes)));
    copy->before_bytes = cli_need(calloc(copy->count, sizeof(*copy->before_bytes)));
    copy->verbs = cli_need(calloc(copy->count, sizeof(*copy->verbs)));
    copy_add_items(copy);
    for (size_t i = 0; i < copy->count; i++)
        if (!copy->loads[i].twin && !copy_has_crew(copy, &copy->loads[i]))
            copy_add_crew(copy, &copy->loads[i]);
    copy->fill.ranges = copy->ranges;
}

static void copy_free(struct copy *copy)
{
    free(copy->items);
    free(copy->ranges);
    free(copy->parts);
    free(copy->part_bytes);
    free(copy->fill.crews);
    free(copy->lines);
    free(copy->done_bytes);
    free(copy->before_bytes);
    free(copy->verbs);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Of one tensor that no chunk has room for. The kernel lets one thread at a time make the pages of
 * a file, so that takes longer than for all the others of a call. */
static bool copy_is_large(const struct copy_item *item)
{
    return item->load->plan.allocation_bytes[item->allocation] > item->load->chunk_bytes;
}

static bool copy_is_alike(const void *context, size_t item, size_t other)
{
    const struct copy *copy = context;
    const struct copy_item *a = &copy->items[item], *b = &copy->items[other];

    return a->load == b->load && copy_is_large(a) == copy_is_large(b);
}

/* In the order of the plan, so the slots, and the ranks, are those of the plan. Signals are this
 * thread's: while it waits for memory they end the process at once. */
static int copy_get_memory(void *context, size_t first, size_t count)
{
    struct gmsfs_new_allocation wanted[COPY_AT_ONCE];
    struct copy *copy = context;
    const struct copy_item *items = &copy->items[first];
    struct load *load = items->load;
    uint64_t slots[COPY_AT_ONCE];
    int error, fds[COPY_AT_ONCE];

    for (size_t i = 0; i < count; i++)
        wanted[i] = (struct gmsfs_new_allocation){
            .size_bytes = load->plan.allocation_bytes[items[i].allocation], .tag = LOAD_TAG};
    error = gmsfs_allocate_each(load->handle, wanted, count, load_alloc_flags(load), slots);
    if (!error)
        error = gmsfs_export_each(load->handle, slots, count, GMSFS_ACCESS_WRITE, fds);
    if (error)
        return error;
    if (first + count == copy->supply.count)
        signals_defer(true);
    for (size_t i = 0; i < count; i++) {
        load->slots[items[i].allocation] = slots[i];
        supply_put(&copy->supply, first + i, fds[i]);
    }
    return 0;
}

/* Another thread has failed: this one waits for no more memory. */
static void copy_cancel_memory(void *context)
{
    const struct copy *copy = context;

    for (size_t i = 0; i < copy->count; i++)
        gmsfs_cancel(copy->loads[i].handle);
}

/* A GPU's. One mapping call for all of it is cheaper than one for each. Ranks are as in the plan,
 * for nothing else is in the store. */
static int copy_map_memory(struct load *load)
{
    uint32_t count = load->plan.allocation_count;
    uint64_t span_us = timeline_begin();
    size_t mapped = 0;
    int error = 0;

    for (uint32_t i = 0; !error && i < count; i++)
        error = gmsfs_allocate_handle(load->handle, load->plan.allocation_bytes[i], LOAD_TAG, NULL,
                                      &load->slots[i]);
    if (!error)
        error = gmsfs_attach_all(load->handle, GMSFS_ACCESS_WRITE, &load->mappings, &mapped);
    if (!error && mapped != count)
        error = -ESTALE;
    timeline_end("load", "memory", span_us, load->store);
    return error ? load_explain_allocation(load, error) : CLI_OK;
}

int load_map_memory(struct load *loads, size_t count)
{
    int status = CLI_OK;

    for (size_t i = 0; i < count; i++)
        if (!load_is_passed_on(&loads[i]))
            staging_warm(&loads[i].memory, copy_count_threads(loads, count, &loads[i].memory),
                         loads[i].model->tensor_bytes);
    for (size_t i = 0; status == CLI_OK && i < count; i++)
        if (!staging_is_file(&loads[i].memory))
            status = copy_map_memory(&loads[i]);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* True if a range goes to the memory of this tensor's load: loads may share their files. */
static bool copy_goes_to(const struct copy *copy, const struct fill_range *range,
                         const struct load *load, size_t tensor)
{
    if (range->into)
        return load->mappings &&
               load->mappings[load->plan.places[tensor].allocation].ptr == range->into;
    return copy->items[range->item].load == load;
}

/* The tensor that this byte of a range's file belongs to, and its load. */
static const struct model_tensor *copy_find_tensor(const struct copy *copy,
                                                   const struct fill_range *range, uint64_t at,
                                                   const struct load **of)
{
    const struct model_tensor *found = copy->loads->model->tensors;

    *of = copy->loads;
    for (const struct load *load = copy->loads; load < copy->loads + copy->count; load++)
        for (size_t i = 0; i < load->model->tensor_count; i++) {
            const struct model_tensor *tensor = &load->model->tensors[i];

            if (load->model->files[tensor->file].number != range->file ||
                at < tensor->offset_bytes || at - tensor->offset_bytes >= tensor->size_bytes ||
                !copy_goes_to(copy, range, load, i))
                continue;
            *of = load;
            found = tensor;
        }
    return found;
}

static void copy_fail(void *context, const struct fill_failure *failed)
{
    struct copy *copy = context;
    const struct load *load;
    const struct model_tensor *tensor = copy_find_tensor(copy, failed->range, failed->at, &load);
    const char *path = load->model->files[tensor->file].path;

    progress_end_lines(copy->lines, copy->fill.crew_count);
    if (store_explain_staging(load->staging))
        return;
    if (failed->doing)
        cli_error("%s: cannot %s the memory of %s '%s': %s", load->store, failed->doing,
                  tensor->is_file ? "file" : "tensor",
                  tensor->is_file ? files_path(tensor) : tensor->name,
                  failure_reason(failed->error));
    else
        store_source_explain(path, tensor->is_file ? NULL : tensor->name, failed->error,
                             failed->why);
}

/* Of one crew; it shows all. */
static int copy_tick(void *context, size_t crew, uint64_t done_bytes)
{
    struct copy *copy = context;

    copy->done_bytes[crew] = copy->before_bytes[crew] + done_bytes;
    progress_show_lines(copy->lines, copy->done_bytes, copy->fill.crew_count);
    return signals_get() || (copy->ahead && load_ahead_has_failed(copy->ahead)) ? -ECANCELED : 0;
}

/* ---- bytes that are passed on while others are filled ---------------------------------------- */

/* True if a part goes into the last allocation of its load. */
static bool copy_is_late(const struct copy *copy, const struct fill_part *part)
{
    for (const struct load *load = copy->loads; load < copy->loads + copy->count; load++)
        if (load->mappings && load->plan.allocation_count > 0 &&
            copy->ranges[part->first].into == load->mappings[load->plan.allocation_count - 1].ptr)
            return true;
    return false;
}

/* Appends the late parts of a crew, or its other parts. Returns how many. */
static size_t copy_pick(const struct copy *copy, const struct fill_crew *crew, bool late,
                        struct fill_part *parts, uint64_t *bytes)
{
    size_t picked = 0;

    for (size_t i = 0; i < crew->part_count; i++)
        if (copy_is_late(copy, &crew->parts[i]) == late) {
            parts[picked] = crew->parts[i];
            bytes[picked++] = crew->part_bytes[i];
        }
    return picked;
}

/* Fills the late parts of all crews, or the other parts. */
static int copy_fill_some(struct copy *copy, bool late)
{
    SCOPED_FREE struct fill_part *parts = cli_need(calloc(copy->part_count + 1, sizeof(*parts)));
    SCOPED_FREE uint64_t *bytes = cli_need(calloc(copy->part_count + 1, sizeof(*bytes)));
    SCOPED_FREE struct fill_crew *crews = cli_need(calloc(copy->fill.crew_count, sizeof(*crews)));
    struct fill fill = copy->fill;
    size_t picked = 0;

    fill.crews = crews;
    for (size_t i = 0; i < fill.crew_count; i++) {
        crews[i] = copy->fill.crews[i];
        crews[i].parts = parts + picked;
        crews[i].part_bytes = bytes + picked;
        crews[i].part_count =
            copy_pick(copy, &copy->fill.crews[i], late, parts + picked, bytes + picked);
        picked += crews[i].part_count;
    }
    int error = fill_run(&fill);
    copy->fill.failure = fill.failure;
    memcpy(copy->before_bytes, copy->done_bytes, fill.crew_count * sizeof(*copy->before_bytes));
    return error;
}

/* Fills all allocations but the last of each load; then those, while the others are passed on. */
static int copy_fill_in_turn(struct copy *copy)
{
    int error, status;

    copy->ahead = load_ahead_begin(copy->loads, copy->count);
    error = copy_fill_some(copy, false);
    if (!error) {
        load_ahead_go(copy->ahead);
        error = copy_fill_some(copy, true);
    }
    status = load_ahead_end(copy->ahead, error != 0);
    copy->ahead = NULL;
    copy->has_told = status != CLI_OK;
    return error || status == CLI_OK ? error : -EIO;
}

static int copy_run(struct copy *copy)
{
    int error = supply_begin(&copy->supply);

    if (error)
        return error;
    if (copy->supply.count > 0)
        copy->fill.supply = &copy->supply;
    else
        signals_defer(true);
    error = copy->supply.count == 0 && load_passes_ahead(copy->loads, copy->count)
                ? copy_fill_in_turn(copy)
                : fill_run(&copy->fill);
    signals_defer(true);
    supply_end(&copy->supply);
    return error;
}

/* On a thread of its own, so that a signal ends it: it may fetch and sum. */
static int copy_check_sums(void *context, const struct work_piece *piece, void *own)
{
    struct copy *copy = context;

    (void)piece;
    (void)own;
    return source_check(copy->loads->source, &copy->other);
}

static int copy_check_tick(void *context, uint64_t done_bytes)
{
    const struct copy *copy = context;

    (void)done_bytes;
    if (!signals_get())
        return 0;
    source_cancel(copy->loads->source);
    return -ECANCELED;
}

static int copy_check(struct copy *copy)
{
    const uint64_t one = 1;
    struct work work = {.item_bytes = &one,
                        .item_count = 1,
                        .threads = 1,
                        .context = copy,
                        .piece = copy_check_sums,
                        .tick = copy_check_tick};

    return work_run(&work);
}

static int copy_explain(const struct copy *copy, int error)
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (copy->supply.refusal)
        return load_explain_allocation(copy->items[copy->supply.refused].load,
                                       copy->supply.refusal);
    if (copy->other.text[0])
        cli_error("%s", copy->other.text);
    else if (error && !copy->fill.failure && !copy->has_told &&
             !store_explain_staging(copy->loads->staging))
        cli_error("cannot copy: %s", failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

int load_fill_memory(struct load *loads, size_t count)
{
    struct copy copy = {.loads = loads,
                        .count = count,
                        .fill = {.source = loads->source,
                                 .staging = loads->staging,
                                 .fail = copy_fail,
                                 .tick = copy_tick,
                                 .context = &copy},
                        .supply = {.most = COPY_AHEAD,
                                   .at_once = COPY_AT_ONCE,
                                   .alike = copy_is_alike,
                                   .get = copy_get_memory,
                                   .cancel = copy_cancel_memory,
                                   .context = &copy}};

    copy_plan(&copy);
    uint64_t start_us = clock_now_us();
    int error = copy_run(&copy);
    if (!error)
        error = copy_check(&copy);
    loads->copied_us = clock_now_us() - start_us;
    progress_end_lines(copy.lines, copy.fill.crew_count);
    int status = copy_explain(&copy, error);
    copy_free(&copy);
    return status;
}

/* A store on the host takes from the memory that the page cache would have. */
void load_prepare_source(const struct load *loads, size_t count)
{
    uint64_t read_bytes = 0, taken_bytes = 0;

    for (size_t i = 0; i < count; i++) {
        read_bytes += loads[i].model->tensor_bytes;
        if (staging_is_file(&loads[i].memory))
            taken_bytes += loads[i].needed_bytes;
    }
    source_prepare(loads->source, loads->direct, read_bytes, taken_bytes);
}

int load_copy(struct load *loads, size_t count)
{
    load_prepare_source(loads, count);
    load_find_twins(loads, count);
    int status = load_map_memory(loads, count);
    if (status == CLI_OK)
        status = load_fill_memory(loads, count);
    return status == CLI_OK ? load_copy_twins(loads, count) : status;
}
