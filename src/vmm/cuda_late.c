/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_late - a driver that is opened while clients are already served
 *
 * cuInit takes a quarter of a second, and hangs if a kernel module does. A worker that follows
 * another one knows the device already, and has its memory by descriptors; so a thread opens the
 * driver, and calls that make memory wait here. That thread may outlive the struct's other users:
 * the last one frees.
 */
#include "vmm/cuda_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_MS 10000 /* for one call of the driver */
#define AWAIT_MS    30000
#define RETRY_MS    5000
#define STACK_BYTES (1024u * 1024) /* for cuInit; untouched pages cost nothing */
#define WHY_BYTES   256

/* ---- beginning and end --------------------------------------------------------------------- */

struct cuda *cuda_new(void)
{
    struct cuda *cuda = calloc(1, sizeof(*cuda));

    if (!cuda)
        return NULL;
    pthread_mutex_init(&cuda->turn, NULL);
    pthread_mutex_init(&cuda->late.mutex, NULL);
    thread_init_condition(&cuda->late.changed);
    complaints_init(&cuda->complaints, "device cuda", "complaints of the driver");
    if (patience_new("device cuda", PATIENCE_MS, &cuda->patience) < 0)
        cuda->patience = NULL;
    return cuda;
}

static void destroy(struct cuda *cuda)
{
    patience_free(cuda->patience);
    complaints_end(&cuda->complaints);
    pthread_cond_destroy(&cuda->late.changed);
    pthread_mutex_destroy(&cuda->late.mutex);
    pthread_mutex_destroy(&cuda->turn);
    free(cuda);
}

void cuda_close(void *context)
{
    struct cuda *cuda = context;

    pthread_mutex_lock(&cuda->late.mutex);
    cuda->late.abandoned = true;
    bool is_last = cuda->late.state != CUDA_OPENING;
    pthread_mutex_unlock(&cuda->late.mutex);
    if (is_last)
        destroy(cuda);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Under the mutex. */
static void settle(struct cuda *cuda, int error)
{
    cuda->late.state = error ? CUDA_FAILED : CUDA_OPEN;
    cuda->late.error = error == -ENODEV ? error : -EIO;
    cuda->late.failed_ms = clock_now_ms();
    pthread_cond_broadcast(&cuda->late.changed);
}

static void *run(void *argument)
{
    struct cuda *cuda = argument;
    char why[WHY_BYTES] = "";

    patience_begin(cuda->patience, "cuInit");
    int error = drv_open(&cuda->driver, why, sizeof(why));
    patience_begin(cuda->patience, "cuDeviceGet");
    if (error == 0)
        error = drv_find(cuda->driver, cuda->late.uuid, &cuda->device, why, sizeof(why));
    patience_end(cuda->patience);
    if (error)
        log_error("device cuda: %s; existing memory is served, and no more is made until it opens",
                  why);
    cuda->prop.location.id = cuda->device;
    pthread_mutex_lock(&cuda->late.mutex);
    settle(cuda, error);
    bool is_last = cuda->late.abandoned;
    pthread_mutex_unlock(&cuda->late.mutex);
    if (is_last)
        destroy(cuda);
    return NULL;
}

/* Under the mutex. */
static void begin(struct cuda *cuda)
{
    cuda->late.state = CUDA_OPENING;
    cuda->late.told = false;
    int error = thread_start(NULL, STACK_BYTES, run, cuda);
    if (error) {
        log_error("device cuda: no thread to open the driver: %s", strerror(-error));
        settle(cuda, error);
    }
}

void cuda_begin(struct cuda *cuda, const uint8_t uuid[16], const struct drv_memory_prop *prop)
{
    SCOPED_LOCK(&cuda->late.mutex);
    memcpy(cuda->late.uuid, uuid, sizeof(cuda->late.uuid));
    cuda->prop = *prop;
    begin(cuda);
}

/* Under the mutex. */
static int await(struct cuda *cuda)
{
    unsigned wait_ms = (unsigned)hook_number("GMSFS_DRIVER_AWAIT_MS", AWAIT_MS);
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, wait_ms);
    int late = 0;

    while (cuda->late.state == CUDA_OPENING && late == 0)
        late = pthread_cond_timedwait(&cuda->late.changed, &cuda->late.mutex, &until);
    if (cuda->late.state == CUDA_OPEN)
        return 0;
    if (cuda->late.state == CUDA_FAILED)
        return cuda->late.error;
    if (!cuda->late.told)
        log_error("device cuda: the driver has not opened; no memory is made until it does");
    cuda->late.told = true;
    return -EIO;
}

int cuda_await(struct cuda *cuda)
{
    uint64_t retry_ms = hook_number("GMSFS_DRIVER_RETRY_MS", RETRY_MS);

    SCOPED_LOCK(&cuda->late.mutex);
    if (cuda->late.state == CUDA_FAILED && clock_now_ms() - cuda->late.failed_ms >= retry_ms)
        begin(cuda);
    return await(cuda);
}
