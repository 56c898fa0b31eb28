/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Into memory that is files: the host's. It is asked for in order, by the thread that was called,
 * and filled meanwhile by several others, each an allocation of its own: the kernel lets one at a
 * time write to a memfd.
 *
 * Bytes go by write(2) through a buffer that stays in the cache: a page that is written whole is
 * never cleared, while one that is touched through a mapping is cleared first, after a fault.
 */
#include "cli/load.h"

#include "base/file_io.h"
#include "base/thread.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define US_PER_MS         1000u
#define COPY_BUFFER_BYTES ((size_t)256 << 10)
#define COPY_DIRECT_BYTES ((size_t)2 << 20) /* of a read past the page cache */
#define COPY_PAGE_BYTES   ((size_t)4096)
#define COPY_AHEAD        64u /* allocations whose descriptors are open at once */

/* One allocation of one load. */
struct copy_item {
    struct load *load;
    uint32_t allocation;
    size_t first, end; /* its tensors: copy.tensors[first] to [end - 1] */
    int fd;            /* of its memory; -1: not here, or no longer. Under the mutex */
};

struct copy {
    struct copy_item *items; /* as they are taken */
    uint64_t *sizes;         /* of each */
    size_t item_count;
    size_t *tensors;
    struct progress progress;
    struct work work;
    int result;
    atomic_ullong moved_bytes;
    atomic_bool stopped;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    size_t ready, ended;  /* items that have memory, that are filled */
    struct load *refused; /* gets no memory, so nothing goes on */
    int refusal;
    bool over;     /* nobody fills any more */
    bool has_said; /* one error is printed, the first */
};

/* Where the bytes of one allocation go. */
struct target {
    int fd;
    uint8_t *map; /* NULL: by write(2) */
    size_t map_bytes;
};

static int copy_fail(struct copy *copy, const struct load *load, size_t index, const char *verb,
                     int error)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    const char *path = load->model->files[tensor->file].path;

    pthread_mutex_lock(&copy->mutex);
    if (!copy->has_said) {
        copy->has_said = true;
        progress_end(&copy->progress);
        if (error == -ENODATA)
            cli_error("%s: tensor '%s': the file became shorter while it was read", path,
                      tensor->name);
        else
            cli_error("%s: tensor '%s': cannot %s: %s", path, tensor->name, verb, strerror(-error));
    }
    pthread_mutex_unlock(&copy->mutex);
    return error;
}

/* ---- one allocation ------------------------------------------------------------------------ */

/* Huge pages have no write(2), and beyond RLIMIT_FSIZE it is refused. */
static bool target_is_written(int fd, size_t size_bytes)
{
    struct rlimit limit;
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type != HUGETLBFS_MAGIC &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes <= limit.rlim_cur;
}

static int target_open(int fd, struct target *target)
{
    struct stat status;
    void *map;

    *target = (struct target){.fd = fd};
    if (fstat(fd, &status) < 0)
        return -errno;
    if (target_is_written(fd, (size_t)status.st_size))
        return 0;
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
    close(target->fd);
}

/* One step of a tensor, or less; *size_bytes is what was copied. Steps end at a page of the memory,
 * or at one of the file where that is read past the page cache. */
static int copy_step(struct copy *copy, const struct load *load, size_t index,
                     const struct target *target, struct staging_lane *lane, uint64_t at,
                     size_t *size_bytes)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    struct direct_file *file = &load->inputs[tensor->file];
    uint64_t from = tensor->offset_bytes + at, left = tensor->size_bytes - at;
    uint64_t to = load->plan.places[index].offset_bytes + at;
    bool is_direct = direct_is_on(file), is_mapped = target->map && !is_direct;
    size_t room_bytes = is_direct ? COPY_DIRECT_BYTES : COPY_BUFFER_BYTES;
    size_t part =
        is_direct ? COPY_DIRECT_BYTES : COPY_BUFFER_BYTES - (size_t)(to % COPY_PAGE_BYTES);
    uint8_t *room = is_mapped ? target->map + to : staging_scratch(lane, room_bytes), *bytes;
    int r;

    if (!room)
        return copy_fail(copy, load, index, "read", -ENOMEM);
    *size_bytes = direct_fit(file, from, part < left ? part : (size_t)left, room_bytes);
    r = direct_read(file, room, from, *size_bytes, &bytes);
    if (r)
        return copy_fail(copy, load, index, "read", r);
    if (target->map && !is_mapped)
        memcpy(target->map + to, bytes, *size_bytes);
    else if (!is_mapped)
        r = file_write_at(target->fd, bytes, *size_bytes, to);
    return r ? copy_fail(copy, load, index, "write it to the store's memory", r) : 0;
}

static int copy_tensor(struct copy *copy, const struct load *load, size_t index,
                       const struct target *target, struct staging_lane *lane)
{
    uint64_t size_bytes = load->model->tensors[index].size_bytes, at = 0;
    size_t step = 0;
    int r = 0;

    while (!r && at < size_bytes) {
        if (atomic_load(&copy->stopped))
            return -ECANCELED;
        r = copy_step(copy, load, index, target, lane, at, &step);
        at += step;
        atomic_fetch_add(&copy->moved_bytes, step);
    }
    return r;
}

/* Waits for the allocation's memory. Its descriptor, or -ECANCELED. */
static int copy_take(struct copy *copy, size_t item)
{
    int fd = -ECANCELED;

    pthread_mutex_lock(&copy->mutex);
    while (copy->ready <= item && !copy->refused)
        pthread_cond_wait(&copy->changed, &copy->mutex);
    if (copy->ready > item) {
        fd = copy->items[item].fd;
        copy->items[item].fd = -1;
    }
    pthread_mutex_unlock(&copy->mutex);
    return fd;
}

static void copy_count_ended(struct copy *copy)
{
    pthread_mutex_lock(&copy->mutex);
    copy->ended++;
    pthread_cond_broadcast(&copy->changed);
    pthread_mutex_unlock(&copy->mutex);
}

static int copy_allocation(void *context, const struct work_piece *piece, void *own)
{
    struct copy *copy = context;
    const struct copy_item *item = &copy->items[piece->item];
    struct target target;
    int fd = copy_take(copy, piece->item), r;

    if (fd < 0)
        return fd;
    r = target_open(fd, &target);
    if (r)
        r = copy_fail(copy, item->load, copy->tensors[item->first], "map the store's memory for it",
                      r);
    for (size_t i = item->first; !r && i < item->end; i++)
        r = copy_tensor(copy, item->load, copy->tensors[i], &target, own);
    target_close(&target);
    if (r)
        atomic_store(&copy->stopped, true);
    copy_count_ended(copy);
    return r;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int copy_tick(void *context, uint64_t done_bytes)
{
    struct copy *copy = context;

    (void)done_bytes; /* in whole allocations */
    pthread_mutex_lock(&copy->mutex);
    if (!copy->has_said)
        progress_show(&copy->progress, atomic_load(&copy->moved_bytes));
    pthread_mutex_unlock(&copy->mutex);
    if (!signals_get())
        return 0;
    atomic_store(&copy->stopped, true);
    return -ECANCELED;
}

static void *copy_thread(void *context)
{
    struct copy *copy = context;

    copy->result = work_run(&copy->work);
    pthread_mutex_lock(&copy->mutex);
    copy->over = true;
    pthread_cond_broadcast(&copy->changed);
    pthread_mutex_unlock(&copy->mutex);
    return NULL;
}

static bool copy_wants_more(struct copy *copy)
{
    bool over;

    pthread_mutex_lock(&copy->mutex);
    while (copy->ready - copy->ended >= COPY_AHEAD && !copy->over)
        pthread_cond_wait(&copy->changed, &copy->mutex);
    over = copy->over;
    pthread_mutex_unlock(&copy->mutex);
    return !over;
}

static int copy_get_memory(const struct copy_item *item, int *fd)
{
    struct load *load = item->load;
    uint64_t *slot = &load->slots[item->allocation];
    int r = gmsfs_allocate_handle(load->handle, load->plan.allocation_bytes[item->allocation],
                                  LOAD_TAG, NULL, slot);

    return r ? r : gmsfs_export_handle(load->handle, *slot, GMSFS_ACCESS_WRITE, fd);
}

/* In order: the slots, and so the ranks, are those of the plan. */
static void copy_get_all_memory(struct copy *copy)
{
    int r = 0;

    for (size_t i = 0; !r && i < copy->item_count && copy_wants_more(copy); i++) {
        struct copy_item *item = &copy->items[i];
        int fd = -1;

        r = copy_get_memory(item, &fd);
        pthread_mutex_lock(&copy->mutex);
        if (r) {
            copy->refused = item->load;
            copy->refusal = r;
        } else {
            item->fd = fd;
            copy->ready++;
        }
        pthread_cond_broadcast(&copy->changed);
        pthread_mutex_unlock(&copy->mutex);
    }
}

/* ---- the plan ------------------------------------------------------------------------------ */

/* The tensors of one load to its items, as they lie in the files; items[numbers[a]] is the one of
 * allocation a. Returns how many places of `tensors` are taken then. */
static size_t copy_assign(struct copy *copy, const struct load *load, const size_t *numbers,
                          size_t at)
{
    const struct pack_place *places = load->plan.places;

    for (size_t i = 0; i < load->model->tensor_count; i++)
        copy->items[numbers[places[i].allocation]].end++;
    for (uint32_t i = 0; i < load->plan.allocation_count; i++) {
        struct copy_item *item = &copy->items[numbers[i]];
        size_t count = item->end;

        item->first = item->end = at;
        at += count;
    }
    for (size_t i = 0; i < load->model->tensor_count; i++) {
        size_t tensor = load->order[i];
        copy->tensors[copy->items[numbers[places[tensor].allocation]].end++] = tensor;
    }
    return at;
}

/* The loads take turns: their devices work at the same time. numbers: see copy_assign, for one load
 * after the other. */
static void copy_order(struct copy *copy, struct load *loads, size_t count, size_t *numbers)
{
    bool more = true;

    for (uint32_t at = 0; more; at++) {
        size_t before = 0;

        more = false;
        for (size_t i = 0; i < count; i++) {
            uint32_t allocations = loads[i].plan.allocation_count;

            if (at < allocations) {
                numbers[before + at] = copy->item_count;
                copy->sizes[copy->item_count] = loads[i].plan.allocation_bytes[at];
                copy->items[copy->item_count++] =
                    (struct copy_item){.load = &loads[i], .allocation = at, .fd = -1};
                more = true;
            }
            before += allocations;
        }
    }
}

static int copy_prepare(struct copy *copy, struct load *loads, size_t count)
{
    size_t allocations = 0, tensors = 0, *numbers;

    for (size_t i = 0; i < count; i++) {
        allocations += loads[i].plan.allocation_count;
        tensors += loads[i].model->tensor_count;
    }
    numbers = calloc(allocations + 1, sizeof(*numbers));
    copy->items = calloc(allocations + 1, sizeof(*copy->items));
    copy->sizes = calloc(allocations + 1, sizeof(*copy->sizes));
    copy->tensors = calloc(tensors + 1, sizeof(*copy->tensors));
    if (!numbers || !copy->items || !copy->sizes || !copy->tensors) {
        free(numbers);
        return -ENOMEM;
    }
    copy_order(copy, loads, count, numbers);
    allocations = tensors = 0;
    for (size_t i = 0; i < count; i++) {
        tensors = copy_assign(copy, &loads[i], numbers + allocations, tensors);
        allocations += loads[i].plan.allocation_count;
    }
    free(numbers);
    return 0;
}

static void copy_free(struct copy *copy)
{
    for (size_t i = 0; i < copy->item_count; i++) {
        if (copy->items[i].fd >= 0)
            close(copy->items[i].fd);
    }
    free(copy->items);
    free(copy->sizes);
    free(copy->tensors);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int copy_run(struct copy *copy)
{
    pthread_t thread;
    int r;

    copy->work.item_bytes = copy->sizes;
    copy->work.item_count = copy->item_count;
    /* Signals are this thread's: while it waits for memory they end the process at once. */
    r = thread_start(&thread, 0, copy_thread, copy);
    if (r)
        return r;
    copy_get_all_memory(copy);
    signals_defer(true);
    pthread_join(thread, NULL);
    return copy->result;
}

static int load_copy_host(struct load *loads, size_t count)
{
    struct copy copy = {
        .work = {.whole = true, .context = &copy, .piece = copy_allocation, .tick = copy_tick},
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER};
    uint64_t bytes = 0;
    int r;

    r = copy_prepare(&copy, loads, count);
    staging_equip(loads->staging, &copy.work, NULL, load_threads(loads, count));
    for (size_t i = 0; i < count; i++)
        bytes += loads[i].model->tensor_bytes;
    progress_begin(&copy.progress, "copying", bytes, loads->quiet);
    if (!r)
        r = copy_run(&copy);
    loads->copied_us = progress_end(&copy.progress) * US_PER_MS;
    copy_free(&copy);
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (copy.refused)
        return load_explain_allocation(copy.refused, copy.refusal);
    if (r && !copy.has_said)
        cli_error("cannot copy: %s", strerror(-r));
    return r ? CLI_FAILURE : CLI_OK;
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
