/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier - the steps of a copier: requests, files, calls of its driver, results
 *
 * As in hook_kill.c. The driver is a table of functions, so another table has a step before each of
 * them.
 */
#include "copier/copier.h"
#include "copier/files.h"
#include "copier/gpu.h"
#include "copier/lane_file.h"
#include "copier/lanes.h"
#include "kill.h"

#include <stddef.h>

WRAP_STEP(bool, lanes_add, (struct lanes * lanes, const struct copier_request *request, int fd),
          (lanes, request, fd))
WRAP_STEP(struct file_view, files_enter,
          (struct files * files, const struct copier_request *request, int fd),
          (files, request, fd))
WRAP_STEP(void, files_leave, (struct files * files, const struct copier_request *request),
          (files, request))
WRAP_STEP(int, files_forget, (struct files * files, uint64_t file), (files, file))
WRAP_STEP(int, lane_file_read,
          (const struct lane_file *file, void *to, size_t bytes, uint64_t offset),
          (file, to, bytes, offset))
WRAP_STEP(int, lane_file_write,
          (const struct lane_file *file, const void *from, size_t bytes, uint64_t offset),
          (file, from, bytes, offset))
WRAP_STEP(void, copier_put_result,
          (struct copier_result * result, uint32_t sequence, int error, const char *why),
          (result, sequence, error, why))

/* ---- the driver ---------------------------------------------------------------------------- */

static const struct copier_gpu *driver;

#define DRIVER_STEP(name, parameters, arguments) \
    static int step_##name parameters            \
    {                                            \
        kill_meet("driver " #name);              \
        return driver->name arguments;           \
    }

DRIVER_STEP(open, (const uint8_t uuid[16], void *ring, size_t ring_bytes, void **gpu, char *why),
            (uuid, ring, ring_bytes, gpu, why))
DRIVER_STEP(enter, (void *gpu, void **stream, char *why), (gpu, stream, why))
DRIVER_STEP(map, (void *gpu, unsigned window, int fd, uint64_t bytes, char *why),
            (gpu, window, fd, bytes, why))
DRIVER_STEP(unmap, (void *gpu, unsigned window, char *why), (gpu, window, why))
DRIVER_STEP(copy,
            (void *gpu, void *stream, const struct copier_request *request, void *block, char *why),
            (gpu, stream, request, block, why))
DRIVER_STEP(pin, (void *gpu, void *at, size_t bytes), (gpu, at, bytes))
DRIVER_STEP(make_mark, (void *gpu, void **mark, char *why), (gpu, mark, why))
DRIVER_STEP(begin,
            (void *gpu, void *stream, const struct copier_request *part, void *buffer, void *mark,
             char *why),
            (gpu, stream, part, buffer, mark, why))
DRIVER_STEP(await, (void *gpu, void *mark, char *why), (gpu, mark, why))

static copier_find_gpu real_find;

static const struct copier_gpu *find_with_steps(const char *name)
{
    static struct copier_gpu table;

    driver = real_find(name);
    if (!driver)
        return NULL;
    table = *driver;
    table.open = step_open;
    table.enter = step_enter;
    table.map = step_map;
    table.unmap = step_unmap;
    table.copy = step_copy;
    table.pin = step_pin;
    table.make_mark = step_make_mark;
    table.begin = step_begin;
    table.await = step_await;
    return &table;
}

int __wrap_copier_main(int argc, char **argv, copier_find_gpu find);
int __real_copier_main(int argc, char **argv, copier_find_gpu find);
int __wrap_copier_main(int argc, char **argv, copier_find_gpu find)
{
    kill_become(KILL_COPIER);
    real_find = find;
    return __real_copier_main(argc, argv, find_with_steps);
}
