/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of memory, the devices of a command, and the calls that a work makes on them. */
#include "mover/staging_parts.h"

#include "base/failure.h"
#include "base/near.h"
#include "base/thread.h"
#include "mover/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A row for each kind of memory. */
static const struct staging_kind *const kinds[] = {
    [GMSFS_MEMORY_HOST] = &staging_host,
    [GMSFS_MEMORY_CUDA] = &staging_cuda,
};

static const struct staging_kind *find_kind(enum gmsfs_memory memory)
{
    return (size_t)memory < sizeof(kinds) / sizeof(kinds[0]) ? kinds[memory] : NULL;
}

/* ---- stores -------------------------------------------------------------------------------- */

static struct staging_device *
staging_make_device(struct staging *staging, const struct staging_kind *kind, const char *store)
{
    struct staging_device *device = calloc(1, sizeof(*device) + kind->device_bytes);

    if (device) {
        device->kind = kind;
        device->staging = staging;
        device->store = store;
    }
    return device;
}

/* devices[0] is the machine, for work that concerns no store. */
struct staging *staging_new(void)
{
    struct staging *staging = calloc(1, sizeof(*staging));

    if (!staging)
        return NULL;
    staging->devices[0] = staging_make_device(staging, &staging_host, "");
    if (!staging->devices[0]) {
        free(staging);
        return NULL;
    }
    staging->device_count = 1;
    pthread_mutex_init(&staging->lock, NULL);
    return staging;
}

void staging_free(struct staging *staging)
{
    struct staging_lane *lane;

    if (!staging)
        return;
    for (size_t i = 0; i < staging->device_count; i++)
        staging_await_warm(staging->devices[i]);
    while ((lane = staging->lanes)) {
        staging->lanes = lane->next;
        if (lane->device->kind->release)
            lane->device->kind->release(lane);
        free(lane->scratch);
        free(lane);
    }
    for (size_t i = 0; i < staging->device_count; i++) {
        if (staging->devices[i]->kind->close)
            staging->devices[i]->kind->close(staging->devices[i]);
        free(staging->devices[i]);
    }
    pthread_mutex_destroy(&staging->lock);
    free(staging);
}

static int staging_open_device(struct staging_device *device, char text[STAGING_ERROR_BYTES])
{
    const struct staging_kind *kind = device->kind;
    int error = kind->find ? kind->find(device, text) : 0;

    if (error || !kind->open)
        return error;
    staging_begin_pages(device);
    error = kind->open(device, text);
    if (error) {
        staging_await_warm(device);
        kind->close(device);
    }
    return error;
}

static int staging_add_device(struct staging *staging, const struct staging_kind *kind,
                              const uint8_t uuid[16], const char *store,
                              struct staging_device **added, struct failure *failure)
{
    char text[STAGING_ERROR_BYTES] = "";

    if (staging->device_count > STAGING_MAX_DEVICES)
        return failure_set(failure, -E2BIG, "%s: one command works on at most %u GPUs", store,
                           STAGING_MAX_DEVICES);
    struct staging_device *device = staging_make_device(staging, kind, store);
    if (!device)
        return failure_no_memory(failure);
    memcpy(device->uuid, uuid, sizeof(device->uuid));
    staging->devices[staging->device_count++] = device;
    int error = staging_open_device(device, text);
    if (error) {
        staging_explain_open(device, text, error, failure);
        staging->device_count--;
        free(device);
        return error;
    }
    *added = device;
    return 0;
}

int staging_open_memory(struct staging *staging, enum gmsfs_memory kind, const uint8_t uuid[16],
                        const char *store, struct staging_memory *memory, struct failure *failure)
{
    const struct staging_kind *wanted = find_kind(kind);

    *memory = (struct staging_memory){.store = store};
    if (!wanted)
        return failure_set(failure, -EOPNOTSUPP,
                           "%s: its memory is of a kind (%d) that this command does not know; use "
                           "the command of the release that mounted it",
                           store, (int)kind);
    for (size_t i = 0; i < staging->device_count && !memory->device; i++) {
        struct staging_device *device = staging->devices[i];
        if (device->kind == wanted &&
            (wanted->is_single || memcmp(device->uuid, uuid, sizeof(device->uuid)) == 0))
            memory->device = device;
    }
    return memory->device
               ? 0
               : staging_add_device(staging, wanted, uuid, store, &memory->device, failure);
}

/* ---- differences of kinds -------------------------------------------------------------------- */

bool staging_is_copied(const struct staging_memory *memory)
{
    return memory->device->kind->is_copied;
}

bool staging_is_file(const struct staging_memory *memory)
{
    return memory->device->kind->is_file;
}

bool staging_wants_few(enum gmsfs_memory kind)
{
    const struct staging_kind *known = find_kind(kind);

    return known && known->wants_few;
}

/* ---- works --------------------------------------------------------------------------------- */

static int staging_begin_lane(void *shared, void **own)
{
    return staging_take_lane(shared, false, own);
}

static int staging_end_lane(void *shared, void *own)
{
    (void)shared;
    return staging_settle_lane(own);
}

void staging_equip(struct staging *staging, struct work *work, const struct staging_memory *memory,
                   uint64_t threads)
{
    struct staging_device *device = memory ? memory->device : staging->devices[0];

    staging_await_warm(device);
    work->threads = staging_prepare(device, threads);
    work->shared = device;
    work->begin = staging_begin_lane;
    work->end = staging_end_lane;
}

/* ---- threads --------------------------------------------------------------------------------- */

void staging_set_idle(const struct staging_memory *memory)
{
    memory->device->is_idle = true;
}

/* Devices without processors of their own may run on all. */
unsigned staging_count_processors(const struct staging_memory *memory)
{
    const struct staging_device *device = memory->device;
    const struct staging *staging = device->staging;
    unsigned count = device->has_near ? near_count(&device->near) : 0, sharing = 0;

    for (size_t i = 1; i < staging->device_count; i++) {
        const struct staging_device *other = staging->devices[i];
        bool is_apart = count && other->has_near && !CPU_EQUAL(&other->near, &device->near);

        sharing += other == device || (!other->is_idle && !is_apart);
    }
    count = count ? count : thread_count_processors();
    return sharing && count > sharing ? count / sharing : 1;
}

void *staging_scratch(struct staging_lane *lane, size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (lane->scratch_bytes < size_bytes) {
        free(lane->scratch);
        size_bytes = (size_bytes + page - 1) & ~(page - 1);
        lane->scratch = aligned_alloc(page, size_bytes);
        lane->scratch_bytes = lane->scratch ? size_bytes : 0;
    }
    return lane->scratch;
}

/* ---- bytes --------------------------------------------------------------------------------- */

int staging_room(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 size_t most_bytes, uint8_t **room, size_t *size_bytes)
{
    return memory->device->kind->room(lane, to, most_bytes, room, size_bytes);
}

int staging_send(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 const uint8_t *room, size_t size_bytes)
{
    const struct staging_kind *kind = memory->device->kind;

    return kind->send ? kind->send(lane, to, room, size_bytes) : 0;
}

int staging_fetch(struct staging_lane *lane, const struct staging_memory *memory, const void *from,
                  uint64_t size_bytes, size_t step_bytes)
{
    const struct staging_kind *kind = memory->device->kind;

    lane->from = from;
    lane->left_bytes = size_bytes;
    lane->step_bytes = step_bytes;
    return kind->fetch ? kind->fetch(lane) : 0;
}

int staging_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes)
{
    size_t step = lane->left_bytes < lane->step_bytes ? (size_t)lane->left_bytes : lane->step_bytes;
    int error = 0;

    *part = lane->from;
    *size_bytes = step;
    if (step > 0)
        error = lane->device->kind->next(lane, step, part);
    lane->from += step;
    lane->left_bytes -= step;
    return error;
}
