/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards table and is_open */
static struct drv table;
static bool is_open;
static atomic_bool begun; /* this process has called the driver, or is about to */
static bool is_forked;    /* this is a child of such a process */

struct symbol {
    const char *name;
    size_t at; /* in struct drv */
};

static const struct symbol symbols[] = {
#define DRV_FUNCTION(symbol, parameters) {#symbol, offsetof(struct drv, symbol)},
#include "cuda/driver_functions.h"
#undef DRV_FUNCTION
};

/* ---- errors -------------------------------------------------------------------------------- */

int drv_errno(enum drv_result result)
{
    switch (result) {
    case DRV_SUCCESS:
        return 0;
    case DRV_OUT_OF_MEMORY:
        return -ENOMEM;
    case DRV_NO_DEVICE:
    case DRV_INVALID_DEVICE:
    case DRV_DEVICE_UNAVAILABLE:
    case DRV_DEINITIALIZED:
        return -ENODEV;
    case DRV_INVALID_VALUE:
    case DRV_INVALID_HANDLE:
        return -EINVAL;
    case DRV_NOT_SUPPORTED:
        return -EOPNOTSUPP;
    case DRV_NOT_PERMITTED:
        return -EPERM;
    case DRV_NOT_READY:
        return -EAGAIN;
    case DRV_STUB_LIBRARY:
        return -ELIBBAD;
    case DRV_STREAM_CAPTURE_UNSUPPORTED:
    case DRV_STREAM_CAPTURE_INVALIDATED:
    case DRV_STREAM_CAPTURE_ISOLATION:
    case DRV_STREAM_CAPTURE_IMPLICIT:
        return -EBUSY;
    default:
        return -EIO;
    }
}

const char *drv_error_name(const struct drv *driver, enum drv_result result)
{
    const char *name = NULL;

    if (driver->cuGetErrorName(result, &name) != DRV_SUCCESS || !name)
        return "an error that the driver has no name for";
    return name;
}

int drv_explain(const struct drv *driver, const char *call, enum drv_result result, char *why,
                size_t why_bytes)
{
    const char *text = NULL;

    if (driver->cuGetErrorString(result, &text) != DRV_SUCCESS || !text)
        text = "no text";
    if (why)
        snprintf(why, why_bytes, "%s: %s (%s)", call, drv_error_name(driver, result), text);
    return drv_errno(result);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int load(struct drv *driver, char *why, size_t why_bytes)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *reason = dlerror();

        snprintf(why, why_bytes, "no NVIDIA driver: %s", reason ? reason : LIBRARY);
        return -ENODEV;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(library, symbols[i].name);

        if (!address) {
            snprintf(why, why_bytes,
                     LIBRARY " has no %s: the NVIDIA driver is older than CUDA 11.4; update it",
                     symbols[i].name);
            dlclose(library);
            return -ELIBBAD;
        }
        memcpy((char *)driver + symbols[i].at, &address, sizeof(address));
    }
    return 0; /* the library stays: its functions are in the table */
}

/* The driver returns this error if the program itself had used it before it forked. */
static int initialise(char *why, size_t why_bytes)
{
    enum drv_result result = table.cuInit(0);
    int error = drv_explain(&table, "cuInit", result, why, why_bytes);

    return result == DRV_NOT_INITIALIZED ? -ECHILD : error;
}

int drv_open(const struct drv **driver, char *why, size_t why_bytes)
{
    char none[1];
    int error = 0;

    if (!why) {
        why = none;
        why_bytes = sizeof(none);
    }
    atomic_store(&begun, true);
    pthread_mutex_lock(&mutex);
    if (is_forked) {
        snprintf(why, why_bytes,
                 "the CUDA driver was used before fork(): it does not work in the "
                 "child, which has to exec(), or be made before");
        error = -ECHILD;
    } else if (!is_open) {
        error = load(&table, why, why_bytes);
        if (error == 0)
            error = initialise(why, why_bytes);
        is_open = error == 0;
    }
    pthread_mutex_unlock(&mutex);
    if (error == 0) {
        *driver = &table;
        if (why_bytes)
            why[0] = '\0';
    }
    return error;
}

void drv_fork_child(void)
{
    pthread_mutex_init(&mutex, NULL);
    is_forked = is_forked || atomic_load(&begun);
}

/* ---- devices ------------------------------------------------------------------------------- */

int drv_find(const struct drv *driver, const uint8_t uuid[16], drv_device *device, char *why,
             size_t why_bytes)
{
    struct drv_uuid here;
    const char *call = "cuDeviceGetCount";
    int count = 0;
    enum drv_result result = driver->cuDeviceGetCount(&count);

    for (int i = 0; i < count && result == DRV_SUCCESS; i++) {
        call = "cuDeviceGet";
        result = driver->cuDeviceGet(device, i);
        if (result != DRV_SUCCESS)
            break;
        call = "cuDeviceGetUuid_v2";
        result = driver->cuDeviceGetUuid_v2(&here, *device);
        if (result == DRV_SUCCESS && memcmp(here.bytes, uuid, sizeof(here.bytes)) == 0)
            return 0;
    }
    if (result != DRV_SUCCESS)
        return drv_explain(driver, call, result, why, why_bytes);
    snprintf(why, why_bytes,
             "the device is none of the %d that this process sees (CUDA_VISIBLE_DEVICES?)", count);
    return -ENODEV;
}
