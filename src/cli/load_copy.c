/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into memory that is files: the host's. It is asked for in order, by the thread that was called,
 * and filled meanwhile by several others, each an allocation of its own: the kernel lets one at a
 * time write to a memfd.
 *
 * Bytes go by splice(2) from the page cache, or by write(2) through a buffer that stays in the
 * processor's cache: a page that is written whole is never cleared, while one that is touched
 * through a mapping is cleared first, after a fault.
 */
#include "base/failure.h"
#include "cli/load.h"

#include "base/file_io.h"
#include "base/thread.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "mover/pipe_copy.h"
#include "mover/staging_file.h"
#include "mover/supply.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define US_PER_MS         1000u
#define COPY_BUFFER_BYTES ((size_t)256 << 10)
#define COPY_DIRECT_BYTES ((size_t)2 << 20) /* of a read past the page cache */
#define COPY_PAGE_BYTES   ((size_t)4096)
#define COPY_PART_BYTES   ((uint64_t)16 << 20) /* of an allocation, which threads fill in turns */
#define COPY_AHEAD        64u                  /* allocations whose descriptors are open at once */
#define COPY_ABREAST      (COPY_AHEAD / 2) /* that are filled at once: the next ones come meanwhile */
/* That are made at once: while they are filled, the next ones are. */
#define COPY_AT_ONCE PACK_CHUNKS_BEFORE_LARGE

/* One allocation of one load. They are numbered load after load, as in each plan. */
struct copy_item {
    struct load *load;
    uint32_t allocation;
    size_t first, end; /* its tensors: copy.tensors[first] to [end - 1] */
};

/* What one thread fills. */
struct copy_part {
    size_t item;
    uint64_t begin, end; /* of its bytes */
};

struct copy {
    struct copy_item *items;
    uint64_t *sizes;  /* of each */
    size_t *parts_of; /* how many parts each has */
    size_t *turns;    /* items as they are asked for */
    size_t item_count;
    size_t *tensors;         /* of the item's load, by item, as they lie in the files */
    struct copy_part *parts; /* item by item, in the turns of these */
    uint64_t *part_sizes;
    size_t *part_order; /* parts as they are taken */
    size_t part_count;
    struct supply supply;
    struct progress progress;
    struct work work;
    int result;
    atomic_ullong moved_bytes;
    atomic_bool stopped;

    pthread_mutex_t said; /* one error is printed, the first; and of the progress */
    bool has_said;
};

/* Where the bytes of one allocation go. */
struct target {
    int fd;
    struct pipe_copy pipe; /* to the file, where that is written */
    uint8_t *map;          /* NULL: it is written, by splice(2) or write(2) */
    size_t map_bytes;
};

static int copy_fail(struct copy *copy, const struct load *load, size_t index, const char *verb,
                     int error)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    const char *path = load->model->files[tensor->file].path;

    pthread_mutex_lock(&copy->said);
    if (!copy->has_said) {
        copy->has_said = true;
        progress_end(&copy->progress);
        if (error == -ENODATA)
            cli_error("%s: tensor '%s': the file became shorter while it was read", path,
                      tensor->name);
        else
            cli_error("%s: tensor '%s': cannot %s: %s", path, tensor->name, verb,
                      failure_reason(error));
    }
    pthread_mutex_unlock(&copy->said);
    return error;
}

/* ---- one allocation ------------------------------------------------------------------------ */

static int target_open(int fd, struct target *target)
{
    struct stat status;
    void *map;

    *target = (struct target){.fd = fd, .pipe.ends = {-1, -1}};
    if (fstat(fd, &status) < 0)
        return -errno;
    if (staging_file_is_written(fd, (uint64_t)status.st_size)) {
        pipe_copy_open(&target->pipe);
        return 0;
    }
    map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    target->map = map;
    target->map_bytes = (size_t)status.st_size;
    return 0;
}

static void target_close(struct target *target)
{
    if (target->map)
        munmap(target->map, target->map_bytes);
    pipe_copy_close(&target->pipe);
}

/* One step, through a buffer from a place in a tensor on, of `left` bytes or less; *size_bytes is
 * what was copied. Steps end at a page of the memory, or at one of the file where that is read past
 * the page cache.
 */
static int copy_buffered(struct copy *copy, const struct load *load, size_t index,
                         const struct target *target, struct staging_lane *lane, uint64_t at,
                         uint64_t left, size_t *size_bytes)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    struct direct_file *file = &load->inputs[tensor->file];
    uint64_t from = tensor->offset_bytes + at;
    uint64_t to = load->plan.places[index].offset_bytes + at;
    bool is_direct = direct_is_on(file), is_mapped = target->map && !is_direct;
    size_t room_bytes = is_direct ? COPY_DIRECT_BYTES : COPY_BUFFER_BYTES;
    size_t part =
        is_direct ? COPY_DIRECT_BYTES : COPY_BUFFER_BYTES - (size_t)(to % COPY_PAGE_BYTES);
    uint8_t *room = is_mapped ? target->map + to : staging_scratch(lane, room_bytes), *bytes;
    int error;

    if (!room)
        return copy_fail(copy, load, index, "read", -ENOMEM);
    *size_bytes = direct_fit(file, from, part < left ? part : (size_t)left, room_bytes);
    error = direct_read(file, room, from, *size_bytes, &bytes);
    if (error)
        return copy_fail(copy, load, index, "read", error);
    if (target->map && !is_mapped)
        memcpy(target->map + to, bytes, *size_bytes);
    else if (!is_mapped)
        error = file_write_at(target->fd, bytes, *size_bytes, to);
    return error ? copy_fail(copy, load, index, "write it to the store's memory", error) : 0;
}

/* The same by the pipe, where both files can. */
static int copy_step(struct copy *copy, const struct load *load, size_t index,
                     struct target *target, struct staging_lane *lane, uint64_t at, uint64_t left,
                     size_t *size_bytes)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    struct direct_file *file = &load->inputs[tensor->file];
    uint64_t to = load->plan.places[index].offset_bytes + at;
    size_t part = COPY_BUFFER_BYTES - (size_t)(to % COPY_PAGE_BYTES);
    int error = -EOPNOTSUPP;

    if (!target->map && !direct_is_on(file))
        error = pipe_copy_some(&target->pipe, file->fd, tensor->offset_bytes + at, target->fd, to,
                               part < left ? part : (size_t)left, size_bytes);
    if (error == -EOPNOTSUPP)
        return copy_buffered(copy, load, index, target, lane, at, left, size_bytes);
    return error ? copy_fail(copy, load, index, "copy it to the store's memory", error) : 0;
}

/* Whether a tensor goes on where another one ends, in the file and in the store. */
static bool copy_is_next(const struct load *load, size_t index, size_t next)
{
    const struct model_tensor *a = &load->model->tensors[index], *b = &load->model->tensors[next];
    const struct pack_place *places = load->plan.places;

    return b->file == a->file && b->offset_bytes == a->offset_bytes + a->size_bytes &&
           places[next].offset_bytes == places[index].offset_bytes + a->size_bytes;
}

/* How many of the tensors are one run of bytes in both, and how long it is: what is small is not
 * read and written one by one. */
static size_t copy_find_run(const struct load *load, const size_t *tensors, size_t count,
                            uint64_t *size_bytes)
{
    size_t length = 1;

    *size_bytes = load->model->tensors[tensors[0]].size_bytes;
    for (; length < count && copy_is_next(load, tensors[length - 1], tensors[length]); length++)
        *size_bytes += load->model->tensors[tensors[length]].size_bytes;
    return length;
}

/* The bytes from `at` to `end` of a run. */
static int copy_run_of(struct copy *copy, const struct load *load, const size_t *tensors,
                       uint64_t at, uint64_t end, struct target *target, struct staging_lane *lane)
{
    uint64_t begin = 0; /* of the tensor that a step begins in */
    size_t step = 0;
    int error = 0;

    while (!error && at < end) {
        if (atomic_load(&copy->stopped))
            return -ECANCELED;
        while (at - begin >= load->model->tensors[*tensors].size_bytes)
            begin += load->model->tensors[*tensors++].size_bytes;
        error = copy_step(copy, load, *tensors, target, lane, at - begin, end - at, &step);
        at += step;
        atomic_fetch_add(&copy->moved_bytes, step);
    }
    return error;
}

/* What of the item's tensors lies in the part. */
static int copy_tensors_of(struct copy *copy, const struct copy_part *part, struct target *target,
                           struct staging_lane *lane)
{
    const struct copy_item *item = &copy->items[part->item];
    int error = 0;

    for (size_t i = item->first, length; !error && i < item->end; i += length) {
        uint64_t size_bytes, from, begin = 0, end;

        length = copy_find_run(item->load, copy->tensors + i, item->end - i, &size_bytes);
        from = item->load->plan.places[copy->tensors[i]].offset_bytes;
        if (from + size_bytes <= part->begin || from >= part->end)
            continue;
        if (part->begin > from)
            begin = part->begin - from;
        end = part->end - from < size_bytes ? part->end - from : size_bytes;
        error = copy_run_of(copy, item->load, copy->tensors + i, begin, end, target, lane);
    }
    return error;
}

static int copy_part_of(void *context, const struct work_piece *piece, void *own)
{
    struct copy *copy = context;
    const struct copy_part *part = &copy->parts[piece->item];
    const struct copy_item *item = &copy->items[part->item];
    struct target target;
    int fd = supply_take(&copy->supply, part->item), error;

    if (fd < 0)
        return fd;
    error = target_open(fd, &target);
    if (error)
        error = copy_fail(copy, item->load, copy->tensors[item->first],
                          "map the store's memory for it", error);
    else
        error = copy_tensors_of(copy, part, &target, own);
    target_close(&target);
    if (error)
        atomic_store(&copy->stopped, true);
    supply_give_back(&copy->supply, part->item);
    return error;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int copy_tick(void *context, uint64_t done_bytes)
{
    struct copy *copy = context;

    (void)done_bytes; /* in whole parts */
    pthread_mutex_lock(&copy->said);
    if (!copy->has_said)
        progress_show(&copy->progress, atomic_load(&copy->moved_bytes));
    pthread_mutex_unlock(&copy->said);
    if (!signals_get())
        return 0;
    atomic_store(&copy->stopped, true);
    return -ECANCELED;
}

static void *copy_thread(void *context)
{
    struct copy *copy = context;

    copy->result = work_run(&copy->work);
    supply_stop(&copy->supply);
    return NULL;
}

/* Some of the items, all of one load. */
struct copy_some {
    struct load *load;
    size_t count, at[GMSFS_ALLOCATE_EACH_MAX]; /* among those that are asked for */
};

/* Of one tensor that no chunk has room for. The kernel lets one thread at a time make the pages of
 * a file, so that takes longer than for all the others of a call. */
static bool copy_is_large(const struct copy *copy, size_t item)
{
    return copy->sizes[item] > copy->items[item].load->chunk_bytes;
}

/* The first of the items that was not gathered yet, and those of the same load behind it, as long
 * as they take about as long: all of a call are there when the last one is. */
static void copy_gather(const struct copy *copy, const size_t *items, size_t count, bool *gathered,
                        struct copy_some *some)
{
    some->load = NULL;
    some->count = 0;
    for (size_t i = 0; i < count && some->count < GMSFS_ALLOCATE_EACH_MAX; i++) {
        struct load *load = copy->items[items[i]].load;

        if (gathered[i] || (some->load && some->load != load))
            continue;
        if (some->load && copy_is_large(copy, items[i]) != copy_is_large(copy, items[some->at[0]]))
            break; /* what is behind it waits, too: the order of a load's is the plan's */
        some->load = load;
        some->at[some->count++] = i;
        gathered[i] = true;
    }
}

static int copy_get_some(struct copy *copy, const size_t *items, const struct copy_some *some)
{
    struct gmsfs_new_allocation wanted[GMSFS_ALLOCATE_EACH_MAX];
    uint64_t slots[GMSFS_ALLOCATE_EACH_MAX];
    struct load *load = some->load;
    int error, fds[GMSFS_ALLOCATE_EACH_MAX];

    for (size_t i = 0; i < some->count; i++)
        wanted[i] = (struct gmsfs_new_allocation){.size_bytes = copy->sizes[items[some->at[i]]],
                                                  .tag = LOAD_TAG};
    error = gmsfs_allocate_each(load->handle, wanted, some->count, 0, slots);
    if (!error)
        error = gmsfs_export_each(load->handle, slots, some->count, GMSFS_ACCESS_WRITE, fds);
    for (size_t i = 0; !error && i < some->count; i++) {
        size_t item = items[some->at[i]];

        load->slots[copy->items[item].allocation] = slots[i];
        supply_put(&copy->supply, item, fds[i]);
    }
    return error;
}

/* In the order of the plan, so the slots, and the ranks, are those of the plan. */
static int copy_get_memory(void *context, const size_t *items, size_t count, size_t *refused)
{
    struct copy *copy = context;
    bool gathered[SUPPLY_MOST_AT_ONCE] = {false};
    struct copy_some some;
    int error = 0;

    for (size_t done = 0; !error && done < count; done += some.count) {
        copy_gather(copy, items, count, gathered, &some);
        error = copy_get_some(copy, items, &some);
        if (error)
            *refused = items[some.at[0]];
    }
    return error;
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* The items of one load, and their tensors: behind those that there are. */
static void copy_add_load(struct copy *copy, struct load *load)
{
    struct copy_item *items = &copy->items[copy->item_count];
    const struct pack_place *places = load->plan.places;
    size_t at = copy->item_count ? items[-1].end : 0;

    for (uint32_t i = 0; i < load->plan.allocation_count; i++) {
        items[i] = (struct copy_item){.load = load, .allocation = i};
        copy->sizes[copy->item_count++] = load->plan.allocation_bytes[i];
    }
    for (size_t i = 0; i < load->model->tensor_count; i++)
        items[places[i].allocation].end++;
    for (uint32_t i = 0; i < load->plan.allocation_count; i++) {
        size_t count = items[i].end;

        items[i].first = items[i].end = at;
        at += count;
    }
    for (size_t i = 0; i < load->model->tensor_count; i++) {
        size_t tensor = load->order[i];
        copy->tensors[items[places[tensor].allocation].end++] = tensor;
    }
}

/* The loads take turns: their devices work at the same time. */
static void copy_take_turns(struct copy *copy, const struct load *loads, size_t count)
{
    size_t taken = 0;

    for (uint32_t at = 0; taken < copy->item_count; at++) {
        size_t before = 0;

        for (size_t i = 0; i < count; i++) {
            if (at < loads[i].plan.allocation_count)
                copy->turns[taken++] = before + at;
            before += loads[i].plan.allocation_count;
        }
    }
}

static void copy_add_parts(struct copy *copy, size_t item)
{
    for (uint64_t at = 0; at < copy->sizes[item]; at += COPY_PART_BYTES) {
        uint64_t left = copy->sizes[item] - at,
                 size = left < COPY_PART_BYTES ? left : COPY_PART_BYTES;

        copy->part_sizes[copy->part_count] = size;
        copy->parts[copy->part_count++] = (struct copy_part){item, at, at + size};
        copy->parts_of[item]++;
    }
}

static int copy_cut(struct copy *copy)
{
    unsigned threads = copy->work.threads;
    size_t count = 0, *file;

    for (size_t i = 0; i < copy->item_count; i++)
        count += (size_t)(copy->sizes[i] / COPY_PART_BYTES) + 1;
    file = calloc(count + 1, sizeof(*file));
    copy->parts = calloc(count + 1, sizeof(*copy->parts));
    copy->part_sizes = calloc(count + 1, sizeof(*copy->part_sizes));
    copy->part_order = calloc(count + 1, sizeof(*copy->part_order));
    if (!file || !copy->parts || !copy->part_sizes || !copy->part_order) {
        free(file);
        return -ENOMEM;
    }
    for (size_t i = 0; i < copy->item_count; i++)
        copy_add_parts(copy, copy->turns[i]);
    for (size_t i = 0; i < copy->part_count; i++)
        file[i] = copy->parts[i].item;
    work_order_abreast(file, copy->part_count, threads < COPY_ABREAST ? threads : COPY_ABREAST,
                       copy->part_order);
    free(file);
    return 0;
}

static int copy_prepare(struct copy *copy, struct load *loads, size_t count)
{
    size_t allocations = 0, tensors = 0;

    for (size_t i = 0; i < count; i++) {
        allocations += loads[i].plan.allocation_count;
        tensors += loads[i].model->tensor_count;
    }
    copy->items = calloc(allocations + 1, sizeof(*copy->items));
    copy->sizes = calloc(allocations + 1, sizeof(*copy->sizes));
    copy->parts_of = calloc(allocations + 1, sizeof(*copy->parts_of));
    copy->turns = calloc(allocations + 1, sizeof(*copy->turns));
    copy->tensors = calloc(tensors + 1, sizeof(*copy->tensors));
    if (!copy->items || !copy->sizes || !copy->parts_of || !copy->turns || !copy->tensors)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        copy_add_load(copy, &loads[i]);
    copy_take_turns(copy, loads, count);
    return copy_cut(copy);
}

static void copy_free(struct copy *copy)
{
    free(copy->items);
    free(copy->sizes);
    free(copy->parts_of);
    free(copy->turns);
    free(copy->tensors);
    free(copy->parts);
    free(copy->part_sizes);
    free(copy->part_order);
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Signals are this thread's: while it waits for memory they end the process at once. */
static int copy_supply(struct copy *copy)
{
    pthread_t thread;
    int error = thread_start(&thread, 0, copy_thread, copy);

    if (error)
        return error;
    supply_run(&copy->supply);
    signals_defer(true);
    pthread_join(thread, NULL);
    return copy->result;
}

static int copy_run(struct copy *copy)
{
    int error;

    copy->work.item_bytes = copy->part_sizes;
    copy->work.order = copy->part_order;
    copy->work.item_count = copy->part_count;
    copy->supply = (struct supply){.count = copy->item_count,
                                   .order = copy->turns,
                                   .parts = copy->parts_of,
                                   .most = COPY_AHEAD,
                                   .at_once = COPY_AT_ONCE,
                                   .get = copy_get_memory,
                                   .context = copy};
    error = supply_begin(&copy->supply);
    if (error)
        return error;
    error = copy_supply(copy);
    supply_end(&copy->supply);
    return error;
}

static int copy_explain(struct copy *copy, int error)
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (copy->supply.refusal)
        return load_explain_allocation(copy->items[copy->supply.refused].load,
                                       copy->supply.refusal);
    if (error && !copy->has_said)
        cli_error("cannot copy: %s", failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

static int load_copy_host(struct load *loads, size_t count)
{
    struct copy copy = {
        .work = {.whole = true, .context = &copy, .piece = copy_part_of, .tick = copy_tick},
        .said = PTHREAD_MUTEX_INITIALIZER};
    uint64_t bytes = 0;
    int error, status;

    staging_equip(loads->staging, &copy.work, NULL, load_threads(loads, count));
    error = copy_prepare(&copy, loads, count);
    for (size_t i = 0; i < count; i++)
        bytes += loads[i].model->tensor_bytes;
    progress_begin(&copy.progress, "copying", bytes, loads->quiet);
    if (!error)
        error = copy_run(&copy);
    loads->copied_us = progress_end(&copy.progress) * US_PER_MS;
    status = copy_explain(&copy, error);
    copy_free(&copy);
    return status;
}

int load_copy(struct load *loads, size_t count)
{
    bool are_files = true;

    if (load_open_inputs(loads, count) != 0)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        are_files = are_files && staging_is_file(&loads[i].memory);
    return are_files ? load_copy_host(loads, count) : load_copy_staged(loads, count);
}
