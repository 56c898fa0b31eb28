/* SPDX-License-Identifier: Apache-2.0 */
/* made - makes the file of a store's tensors, on a helper thread if it has many */
#include "service/allocations.h"

#include "service/discard.h"
#include "service/transfers.h"

#include <errno.h>
#include <stdlib.h>

struct making {
    struct task task; /* first */
    struct service_request *request;
    struct layout *layout;
    struct file_plan *made;
    int error;
};

static void run_making(struct job *job)
{
    struct making *making = (struct making *)job;
    making->error = made_file_plan(making->layout, &making->made);
}

static void free_layout(void *layout)
{
    layout_free(layout);
}

static void end_making(struct service *s, struct task *task)
{
    struct making *making = (struct making *)task;
    struct service_request *request = making->request;
    struct service_answer answer = {.made = making->made};
    int error = making->error;
    service_discard(s, free_layout, making->layout);
    free(making);
    service_answer(request, error, &answer);
}

/* Finds the layout of the file. It stays while the reader's session does. */
static int find_layout(const struct service *s, uint64_t file, uint64_t *session,
                       struct layout **layout)
{
    const struct core_file *opened = core_find_file(s->core, file);
    if (!opened || opened->kind != CORE_KIND_ALLOCATION || !(opened->flags & CORE_OPEN_READ))
        return -EBADF;
    const struct core_session *reader = core_find_session(s->core, opened->session);
    const struct core_store *store = core_find_store(s->core, opened->store);
    if (!reader || !store || !store->fixed)
        return -ESTALE;
    *session = reader->id;
    *layout = store->fixed;
    return reader->mode == LOCK_MODE_RO ? 0 : -EAGAIN;
}

int service_make_file(struct service *s, uint64_t file, struct service_request *request)
{
    struct layout *layout;
    uint64_t session;
    int error = find_layout(s, file, &session, &layout);
    struct making *making = error ? NULL : calloc(1, sizeof *making);
    if (!making) {
        service_answer(request, error ? error : -ENOMEM, NULL);
        return 0;
    }
    *making = (struct making){.task = {.job.run = run_making, .end = end_making},
                              .request = request,
                              .layout = layout_ref(layout)};
    if (core_commit_is_slow(s->core, session) &&
        service_submit(s, SERVICE_POOL_COMPUTE, &making->task) == 0)
        return 0;
    run_making(&making->task.job);
    end_making(s, &making->task);
    return 0;
}
