/* SPDX-License-Identifier: Apache-2.0 */
/* From the files into the mapped memory, by several threads, without a buffer between them. */
#include "cli/load.h"

#include "cli/populate.h"
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

struct copy_item {
    const struct load *load;
    size_t tensor;
};

struct copy {
    struct copy_item *items; /* as they are taken */
    uint64_t *sizes;         /* of each */
    size_t item_count;
    struct progress progress;
    pthread_mutex_t said; /* one error is printed, the first */
    bool has_said;
};

static int copy_fail(struct copy *copy, const struct copy_item *item, int error)
{
    const struct model *model = item->load->model;
    const struct model_tensor *tensor = &model->tensors[item->tensor];
    const char *path = model->files[tensor->file].path;

    pthread_mutex_lock(&copy->said);
    if (!copy->has_said) {
        copy->has_said = true;
        progress_end(&copy->progress);
        if (error == -ENODATA)
            cli_error("%s: tensor '%s': the file became shorter while it was read", path,
                      tensor->name);
        else
            cli_error("%s: tensor '%s': cannot read: %s", path, tensor->name, strerror(-error));
    }
    pthread_mutex_unlock(&copy->said);
    return error;
}

static int copy_piece(void *context, const struct work_piece *piece, void *buffer)
{
    struct copy *copy = context;
    const struct copy_item *item = &copy->items[piece->item];
    const struct load *load = item->load;
    const struct model_tensor *tensor = &load->model->tensors[item->tensor];
    const struct pack_place *place = &load->plan.places[item->tensor];
    uint8_t *to =
        (uint8_t *)load->pointers[place->allocation] + place->offset_bytes + piece->offset_bytes;
    uint64_t from = tensor->offset_bytes + piece->offset_bytes;
    size_t done = 0;

    (void)buffer;
    populate(to, piece->size_bytes);
    while (done < piece->size_bytes) {
        ssize_t got = pread(load->model->files[tensor->file].fd, to + done,
                            piece->size_bytes - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return copy_fail(copy, item, got < 0 ? -errno : -ENODATA);
        done += (size_t)got;
    }
    return 0;
}

static int copy_tick(void *context, uint64_t done_bytes)
{
    struct copy *copy = context;

    pthread_mutex_lock(&copy->said);
    if (!copy->has_said)
        progress_show(&copy->progress, done_bytes);
    pthread_mutex_unlock(&copy->said);
    return signals_get() ? -ECANCELED : 0;
}

static void copy_advise(const struct model *model)
{
    for (size_t i = 0; i < model->file_count; i++)
        posix_fadvise(model->files[i].fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

/* Each rank's files from front to back, and all ranks alike: their devices work at the same time.
 */
static int copy_gather(struct copy *copy, const struct load *loads, size_t count)
{
    size_t total = 0, longest = 0;

    for (size_t i = 0; i < count; i++) {
        size_t tensors = loads[i].model->tensor_count;
        total += tensors;
        longest = tensors > longest ? tensors : longest;
    }
    copy->items = calloc(total ? total : 1, sizeof(*copy->items));
    copy->sizes = calloc(total ? total : 1, sizeof(*copy->sizes));
    if (!copy->items || !copy->sizes)
        return -ENOMEM;
    for (size_t at = 0; at < longest; at++) {
        for (size_t i = 0; i < count; i++) {
            const struct load *load = &loads[i];
            if (at >= load->model->tensor_count)
                continue;
            copy->items[copy->item_count] = (struct copy_item){load, load->order[at]};
            copy->sizes[copy->item_count++] = load->model->tensors[load->order[at]].size_bytes;
        }
    }
    return 0;
}

int load_copy(struct load *loads, size_t count)
{
    struct copy copy = {.said = PTHREAD_MUTEX_INITIALIZER};
    struct work work = {
        .threads = loads->threads, .context = &copy, .piece = copy_piece, .tick = copy_tick};
    uint64_t bytes = 0;
    int r = copy_gather(&copy, loads, count);

    for (size_t i = 0; i < count; i++) {
        bytes += loads[i].model->tensor_bytes;
        copy_advise(loads[i].model);
    }
    work.item_bytes = copy.sizes;
    work.item_count = copy.item_count;
    progress_begin(&copy.progress, "copying", bytes, loads->quiet);
    if (!r)
        r = work_run(&work);
    loads->copied_ms = progress_end(&copy.progress);
    free(copy.items);
    free(copy.sizes);
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (r && !copy.has_said)
        cli_error("cannot copy: %s", strerror(-r));
    return r ? CLI_FAILURE : CLI_OK;
}
