/* SPDX-License-Identifier: Apache-2.0 */
/* From the files into memory that only staging can reach, a GPU's: mapped whole, filled by ranges.
 */
#include "cli/load.h"

#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranks take turns of this size. */
#define STAGED_RANGE_BYTES (64u << 20)

/* Tensors that lie side by side in the file and in memory alike: one range of both. */
struct staged_range {
    const struct load *load;
    size_t first; /* tensor, in the order of the files */
    uint32_t file;
    uint32_t allocation;
    uint64_t file_offset_bytes;
    uint64_t offset_bytes; /* in the allocation */
};

struct staged {
    struct staged_range *ranges; /* of one load after the other */
    uint64_t *sizes;             /* of each */
    size_t *order;               /* as they are taken */
    size_t range_count;
    struct progress progress;
    pthread_mutex_t said; /* one error is printed, the first */
    bool has_said;
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
        progress_end(&copy->progress);
        if (staging_explain(range->load->staging))
            ;
        else if (error == -ENODATA)
            cli_error("%s: tensor '%s': the file became shorter while it was read", path, name);
        else
            cli_error("%s: tensor '%s': cannot read: %s", path, name, strerror(-error));
    }
    pthread_mutex_unlock(&copy->said);
    return error;
}

/* As much as fits into the next room, which is all of it on host memory. */
static int staged_step(const struct staged_range *range, struct staging_lane *lane, uint8_t *to,
                       uint64_t from, size_t *size_bytes)
{
    const struct load *load = range->load;
    size_t done = 0, room_bytes;
    uint8_t *room;
    int r = staging_room(lane, &load->memory, to, *size_bytes, &room, &room_bytes);

    while (!r && done < room_bytes) {
        ssize_t got = pread(load->model->files[range->file].fd, room + done, room_bytes - done,
                            (off_t)(from + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            r = -ENODATA;
        else if (errno != EINTR)
            r = -errno;
    }
    if (!r)
        r = staging_send(lane, &load->memory, to, room, room_bytes);
    *size_bytes = done;
    return r;
}

static int staged_piece(void *context, const struct work_piece *piece, void *own)
{
    struct staged *copy = context;
    const struct staged_range *range = &copy->ranges[piece->item];
    uint8_t *to = (uint8_t *)range->load->mappings[range->allocation].ptr + range->offset_bytes +
                  piece->offset_bytes;
    uint64_t from = range->file_offset_bytes + piece->offset_bytes;
    size_t done = 0, step;
    int r = 0;

    while (!r && done < piece->size_bytes) {
        step = piece->size_bytes - done;
        r = staged_step(range, own, to + done, from + done, &step);
        done += step;
    }
    return r ? staged_fail(copy, range, from + done, r) : 0;
}

static int staged_tick(void *context, uint64_t done_bytes)
{
    struct staged *copy = context;

    pthread_mutex_lock(&copy->said);
    if (!copy->has_said)
        progress_show(&copy->progress, done_bytes);
    pthread_mutex_unlock(&copy->said);
    return signals_get() ? -ECANCELED : 0;
}

static void staged_advise(const struct model *model)
{
    for (size_t i = 0; i < model->file_count; i++)
        posix_fadvise(model->files[i].fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/* The range that ends where the tensor begins is longer by it; or it begins another. */
static void staged_add(struct staged *copy, const struct load *load, size_t at, bool is_first)
{
    const struct model_tensor *tensor = &load->model->tensors[load->order[at]];
    const struct pack_place *place = &load->plan.places[load->order[at]];
    struct staged_range *range = &copy->ranges[copy->range_count];
    uint64_t *size = &copy->sizes[copy->range_count];

    if (!is_first && range[-1].file == tensor->file && range[-1].allocation == place->allocation &&
        range[-1].file_offset_bytes + size[-1] == tensor->offset_bytes &&
        range[-1].offset_bytes + size[-1] == place->offset_bytes && size[-1] < STAGED_RANGE_BYTES) {
        size[-1] += tensor->size_bytes;
        return;
    }
    *range = (struct staged_range){
        load, at, tensor->file, place->allocation, tensor->offset_bytes, place->offset_bytes};
    *size = tensor->size_bytes;
    copy->range_count++;
}

/* Each rank's files from front to back, and all ranks alike: their devices work at the same time.
 */
static void staged_interleave(struct staged *copy, const size_t *first, size_t count)
{
    size_t taken = 0;

    for (size_t at = 0; taken < copy->range_count; at++)
        for (size_t i = 0; i < count; i++)
            if (first[i] + at < first[i + 1])
                copy->order[taken++] = first[i] + at;
}

static int staged_gather(struct staged *copy, const struct load *loads, size_t count)
{
    size_t total = 0, *first = calloc(count + 1, sizeof(*first));
    int r = 0;

    for (size_t i = 0; i < count; i++)
        total += loads[i].model->tensor_count;
    copy->ranges = calloc(total + 1, sizeof(*copy->ranges));
    copy->sizes = calloc(total + 1, sizeof(*copy->sizes));
    copy->order = calloc(total + 1, sizeof(*copy->order));
    if (!first || !copy->ranges || !copy->sizes || !copy->order)
        r = -ENOMEM;
    for (size_t i = 0; !r && i < count; i++) {
        for (size_t at = 0; at < loads[i].model->tensor_count; at++)
            staged_add(copy, &loads[i], at, at == 0);
        first[i + 1] = copy->range_count;
    }
    if (!r)
        staged_interleave(copy, first, count);
    free(first);
    return r;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* One mapping call for all of it is cheaper than one for each. Ranks are as in the plan, for
 * nothing else is in the store. */
static int staged_get_memory(struct load *load)
{
    uint32_t count = load->plan.allocation_count;
    size_t mapped = 0;
    int r = 0;

    for (uint32_t i = 0; !r && i < count; i++)
        r = gmsfs_allocate_handle(load->handle, load->plan.allocation_bytes[i], LOAD_TAG, NULL,
                                  &load->slots[i]);
    if (!r)
        r = gmsfs_attach_all(load->handle, GMSFS_ACCESS_WRITE, &load->mappings, &mapped);
    if (!r && mapped != count)
        r = -ESTALE;
    return r ? load_explain_allocation(load, r) : CLI_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int staged_run(struct staged *copy, struct load *loads, size_t count)
{
    struct work work = {.context = copy, .piece = staged_piece, .tick = staged_tick};
    uint64_t bytes = 0;
    int r = staged_gather(copy, loads, count);

    for (size_t i = 0; i < count; i++) {
        bytes += loads[i].model->tensor_bytes;
        staged_advise(loads[i].model);
    }
    work.item_bytes = copy->sizes;
    work.order = copy->order;
    work.item_count = copy->range_count;
    staging_equip(loads->staging, &work, loads->threads);
    progress_begin(&copy->progress, "copying", bytes, loads->quiet);
    if (!r)
        r = work_run(&work);
    loads->copied_ms = progress_end(&copy->progress);
    return r;
}

int load_copy_staged(struct load *loads, size_t count)
{
    struct staged copy = {.said = PTHREAD_MUTEX_INITIALIZER};
    int status = CLI_OK, r;

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = staged_get_memory(&loads[i]);
    signals_defer(true);
    if (status != CLI_OK)
        return status;
    r = staged_run(&copy, loads, count);
    free(copy.ranges);
    free(copy.sizes);
    free(copy.order);
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (r && !copy.has_said && !staging_explain(loads->staging))
        cli_error("cannot copy: %s", strerror(-r));
    return r ? CLI_FAILURE : CLI_OK;
}
