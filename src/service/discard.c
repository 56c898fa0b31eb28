/* SPDX-License-Identifier: Apache-2.0 */
#include "service/discard.h"

#include "base/blob.h"
#include "base/pages.h"
#include "service/service_internal.h"

#include <stdlib.h>

#define SMALL_BYTES (1u << 20) /* freed at once: that takes less time than a helper thread */

struct discard {
    struct task task; /* first */
    void (*free_it)(void *object);
    void *object;
};

static void run_discard(struct job *job)
{
    struct discard *discard = (struct discard *)job;
    discard->free_it(discard->object);
}

void service_discard(struct service *s, void (*free_it)(void *object), void *object)
{
    struct discard *discard = object && !s->ending ? malloc(sizeof *discard) : NULL;
    if (discard) {
        *discard = (struct discard){.task = {.job.run = run_discard, .end = service_free_task},
                                    .free_it = free_it,
                                    .object = object};
        if (service_submit(s, SERVICE_POOL_FREE, &discard->task) == 0)
            return;
    }
    free(discard);
    if (object)
        free_it(object);
}

static void unref_blob(void *object)
{
    struct blob *blob = object;
    if (!blob_is_shared(blob))
        pages_drop(blob->bytes, blob->size);
    blob_unref(blob);
}

void service_discard_blob(struct service *s, struct blob *blob)
{
    if (blob_is_shared(blob) || blob->size <= SMALL_BYTES)
        blob_unref(blob);
    else
        service_discard(s, unref_blob, blob);
}

static void free_garbage(void *object)
{
    struct core_garbage *garbage = object;
    for (size_t i = 0; i < garbage->blob_count; i++)
        unref_blob(garbage->blobs[i]);
    garbage->blob_count = 0;
    core_garbage_free(garbage);
    free(garbage);
}

void service_discard_garbage(struct service *s)
{
    struct core_garbage garbage, *kept;
    if (!core_take_garbage(s->core, &garbage))
        return;
    kept = malloc(sizeof *kept);
    if (!kept) {
        core_garbage_free(&garbage);
        return;
    }
    *kept = garbage;
    service_discard(s, free_garbage, kept);
}
