/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of one process in another one, by 64 bytes that name them. As measured on an H200:
 * the exporter itself gets INVALID_CONTEXT, an unknown handle INVALID_VALUE, and a second open the
 * same address. A file ipc.PID.ID of the machine exists as long as the allocation does; a small
 * allocation lies in it.
 */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      UINT64_C(0x6370695f656b6166)
#define PATH_BYTES 4096

struct ipc {
    uint64_t magic;
    int32_t pid; /* at the driver's place, like the size */
    uint32_t gpu;
    uint64_t bytes, seq, id;
    uint8_t rest[24];
};

_Static_assert(sizeof(struct ipc) == sizeof(struct drv_ipc_handle), "it fills a handle");

struct opened {
    struct ipc ipc;
    drv_pointer address;
    unsigned count;
    struct opened *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened;

static void path_of(char path[PATH_BYTES], int pid, unsigned long long id)
{
    snprintf(path, PATH_BYTES, "%s/ipc.%d.%llu", machine_dir(), pid, id);
}

/* ---- giving -------------------------------------------------------------------------------- */

/* Moves a small allocation with its present contents into the file. */
static enum drv_result move_into(int fd, const struct map_allocation *allocation)
{
    void *at = (void *)(uintptr_t)allocation->address;
    size_t bytes = allocation->memory.bytes;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return DRV_OPERATING_SYSTEM;
    if ((size_t)st.st_size == bytes)
        return DRV_SUCCESS; /* it was exported before */
    if (ftruncate(fd, (off_t)bytes) < 0 ||
        pwrite(fd, at, allocation->bytes, 0) != (ssize_t)allocation->bytes ||
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return DRV_OPERATING_SYSTEM;
    return DRV_SUCCESS;
}

enum drv_result cuIpcGetMemHandle(struct drv_ipc_handle *handle, drv_pointer address)
{
    struct map_allocation allocation;
    enum drv_result result = DRV_SUCCESS;
    char path[PATH_BYTES];
    struct ipc ipc;
    int fd;

    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    if (!map_get_allocation(address, &allocation)) /* memory of cuMemCreate has no handle either */
        return DRV_INVALID_VALUE;
    path_of(path, getpid(), allocation.id);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return DRV_OPERATING_SYSTEM;
    if (allocation.memory.seq == 0)
        result = move_into(fd, &allocation);
    close(fd);
    ipc = (struct ipc){.magic = MAGIC,
                       .pid = getpid(),
                       .gpu = allocation.memory.gpu,
                       .bytes = allocation.bytes,
                       .seq = allocation.memory.seq,
                       .id = allocation.id};
    memcpy(handle, &ipc, sizeof(ipc));
    return result;
}

/* ---- opening ------------------------------------------------------------------------------- */

static struct opened *find_opened(const struct ipc *ipc)
{
    struct opened *at = opened;

    while (at && memcmp(&at->ipc, ipc, sizeof(*ipc)) != 0)
        at = at->next;
    return at;
}

/* Maps the file with its bytes. A process that may not open it gets the error of an unknown
 * handle. */
static enum drv_result map_handle(const struct ipc *ipc, drv_pointer *address)
{
    struct account_memory memory = {
        .gpu = ipc->gpu, .seq = ipc->seq, .bytes = ipc->bytes + FAKE_GRANULARITY - 1};
    char path[PATH_BYTES];
    void *at;
    int fd;

    memory.bytes -= memory.bytes % FAKE_GRANULARITY;
    path_of(path, ipc->pid, ipc->id);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || (kill(ipc->pid, 0) < 0 && errno == ESRCH)) {
        if (fd >= 0)
            close(fd);
        return DRV_INVALID_VALUE;
    }
    if (memory.seq != 0) {
        close(fd);
        fd = account_open(&memory, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return DRV_INVALID_VALUE;
    }
    at = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED || map_add_allocation(at, &memory, context_current()) < 0)
        return DRV_OPERATING_SYSTEM;
    *address = (uintptr_t)at;
    map_set_asked(*address, ipc->bytes);
    return DRV_SUCCESS;
}

static enum drv_result open_first(const struct ipc *ipc, drv_pointer *address)
{
    struct opened *made = calloc(1, sizeof(*made));
    enum drv_result result = made ? map_handle(ipc, address) : DRV_OPERATING_SYSTEM;

    if (result != DRV_SUCCESS) {
        free(made);
        return result;
    }
    *made = (struct opened){.ipc = *ipc, .address = *address, .count = 1, .next = opened};
    opened = made;
    return DRV_SUCCESS;
}

enum drv_result cuIpcOpenMemHandle_v2(drv_pointer *address, struct drv_ipc_handle handle,
                                      unsigned flags)
{
    enum drv_result result;
    struct opened *known;
    struct ipc ipc;
    unsigned gpu;

    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    result = capture_check_unsafe();
    memcpy(&ipc, &handle, sizeof(ipc));
    if (result != DRV_SUCCESS || flags != DRV_IPC_LAZY_ENABLE_PEER_ACCESS || ipc.magic != MAGIC)
        return result == DRV_SUCCESS ? DRV_INVALID_VALUE : result;
    if (ipc.pid == getpid())
        return DRV_INVALID_CONTEXT;
    if (device_ordinal(ipc.gpu) < 0)
        return DRV_INVALID_VALUE;
    result = device_find(device_ordinal(ipc.gpu), &gpu);
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    known = find_opened(&ipc);
    if (known) {
        known->count++;
        *address = known->address;
    } else {
        result = open_first(&ipc, address);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- the end ------------------------------------------------------------------------------- */

enum drv_result cuIpcCloseMemHandle(drv_pointer address)
{
    struct opened **link, *last = NULL;
    struct account_memory memory;
    bool found;

    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    pthread_mutex_lock(&mutex);
    for (link = &opened; *link && (*link)->address != address;)
        link = &(*link)->next;
    found = *link != NULL;
    if (found && --(*link)->count == 0) {
        last = *link;
        *link = last->next;
    }
    pthread_mutex_unlock(&mutex);
    free(last);
    if (!last)
        return found ? DRV_SUCCESS : DRV_INVALID_VALUE;
    if (map_remove_allocation(address, &memory) < 0)
        return DRV_INVALID_VALUE;
    munmap((void *)(uintptr_t)address, memory.bytes);
    if (memory.seq != 0)
        account_settle(&memory);
    return DRV_SUCCESS;
}

void ipc_forget(const struct map_allocation *allocation)
{
    char path[PATH_BYTES];
    struct opened **link, *gone;

    pthread_mutex_lock(&mutex);
    for (link = &opened; *link && (*link)->address != allocation->address;)
        link = &(*link)->next;
    gone = *link;
    if (gone)
        *link = gone->next;
    pthread_mutex_unlock(&mutex);
    free(gone);
    path_of(path, getpid(), allocation->id);
    if (!gone)
        unlink(path);
}
