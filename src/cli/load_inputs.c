/* SPDX-License-Identifier: Apache-2.0 */
/* Through the page cache, or past it: one decision for all that one command loads. */
#include "cli/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* A store on the host takes from the memory that the cache would have. */
static enum direct_use inputs_choose(const struct load *loads, size_t count)
{
    uint64_t files_bytes = 0, taken_bytes = 0;

    for (size_t i = 0; i < count; i++) {
        files_bytes += loads[i].model->tensor_bytes;
        if (staging_is_file(&loads[i].memory))
            taken_bytes += loads[i].needed_bytes;
    }
    return direct_choose(loads->direct, files_bytes, taken_bytes);
}

static void inputs_open(const struct model_file *from, struct direct_file *file,
                        enum direct_use use)
{
    direct_open(file, from->fd, use, 0, from->size_bytes);
    if (!direct_is_on(file))
        posix_fadvise(from->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

int load_open_inputs(struct load *loads, size_t count)
{
    enum direct_use use = inputs_choose(loads, count);

    for (size_t i = 0; i < count; i++) {
        const struct model *model = loads[i].model;

        loads[i].inputs = calloc(model->file_count + 1, sizeof(*loads[i].inputs));
        if (!loads[i].inputs)
            return -ENOMEM;
        for (size_t file = 0; file < model->file_count; file++)
            inputs_open(&model->files[file], &loads[i].inputs[file], use);
    }
    return 0;
}

void load_close_inputs(struct load *load)
{
    for (size_t file = 0; load->inputs && file < load->model->file_count; file++)
        direct_close(&load->inputs[file]);
    free(load->inputs);
    load->inputs = NULL;
}

uint64_t load_threads(const struct load *loads, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count && loads[i].inputs; i++)
        for (size_t file = 0; file < loads[i].model->file_count; file++)
            any = any || direct_is_on(&loads[i].inputs[file]);
    return direct_threads(loads->threads, any);
}
