/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda - memory of a GPU, created by the CUDA driver and exported once
 *
 * The driver's handle is released as soon as the descriptor is there; from then on the memory is
 * the descriptor's, as on the host. Nothing here makes a context or maps memory of the device, so
 * the process is charged for none of it. The driver clears memory that another process gets; `make
 * gpu-check` tests that. gpu.c has all that needs no driver.
 */
#include "vmm/cuda_internal.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Logs the driver's error, and returns the client's. */
static int fail(struct cuda *cuda, const char *call, enum drv_result result, uint64_t bytes)
{
    char why[256], size[SIZE_TEXT_BYTES];
    int error = drv_explain(cuda->driver, call, result, why, sizeof(why));

    if (error == -ENOMEM)
        return error;
    if (complaints_may_log(&cuda->complaints))
        log_error("device cuda: %s, for %s", why, size_format(bytes, size));
    return error == -ENODEV ? error : -EIO;
}

/* The driver does not report that descriptors have run out. */
static int why_no_descriptor(int error)
{
    SCOPED_CLOSE int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return errno == EMFILE ? -EMFILE : error;
    return error;
}

static int create_in_turn(struct cuda *cuda, uint64_t bytes, int *fd)
{
    const struct drv *driver = cuda->driver;
    drv_memory memory;
    int error = 0;

    patience_begin(cuda->patience, "cuMemCreate");
    enum drv_result result = driver->cuMemCreate(&memory, bytes, &cuda->prop, 0);
    if (result != DRV_SUCCESS)
        return fail(cuda, "cuMemCreate", result, bytes);
    patience_begin(cuda->patience, "cuMemExportToShareableHandle");
    result = driver->cuMemExportToShareableHandle(fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != DRV_SUCCESS)
        error = why_no_descriptor(fail(cuda, "cuMemExportToShareableHandle", result, bytes));
    patience_begin(cuda->patience, "cuMemRelease");
    result = driver->cuMemRelease(memory);
    if (result != DRV_SUCCESS)
        /* the memory would stay until this process ends */
        fail(cuda, "cuMemRelease", result, bytes);
    if (error == 0)
        fcntl(*fd, F_SETFD, FD_CLOEXEC);
    return error;
}

int cuda_create_memory(void *context, uint64_t bytes, int *fd)
{
    struct cuda *cuda = context;
    int error = cuda_await(cuda);

    if (error < 0)
        return error;
    SCOPED_LOCK(&cuda->turn);
    error = create_in_turn(cuda, bytes, fd);
    patience_end(cuda->patience);
    return error;
}
