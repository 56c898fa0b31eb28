/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: copies, fills, ordinary allocations, pinned host memory. Everything needs a context. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL_BYTES 4096u

#define NEED_CONTEXT()                  \
    do {                                \
        ENTER();                        \
        if (!context_current())         \
            return DRV_INVALID_CONTEXT; \
    } while (0)

static void *host(drv_pointer address)
{
    return (void *)(uintptr_t)address;
}

/* ---- copies -------------------------------------------------------------------------------- */

/* Finds the device of an address, in either direction; zero for host memory, which needs no
 * check. */
static enum drv_result move(void *to, const void *from, size_t bytes, drv_pointer device_to,
                            drv_pointer device_from)
{
    if (device_to && !map_allows(device_to, bytes, true))
        return DRV_INVALID_VALUE;
    if (device_from && !map_allows(device_from, bytes, false))
        return DRV_INVALID_VALUE;
    memmove(to, from, bytes);
    return DRV_SUCCESS;
}

static enum drv_result move_now(void *to, const void *from, size_t bytes, drv_pointer device_to,
                                drv_pointer device_from)
{
    enum drv_result result = capture_check_legacy();

    return result == DRV_SUCCESS ? move(to, from, bytes, device_to, device_from) : result;
}

static enum drv_result move_by(struct drv_stream *stream, void *to, const void *from, size_t bytes,
                               drv_pointer device_to, drv_pointer device_from)
{
    struct machine machine;
    bool capturing;
    enum drv_result result = capture_check_stream(stream, &capturing);

    if (result != DRV_SUCCESS || capturing)
        return result;
    machine_read(&machine);
    if (device_from && machine.poison_bytes &&
        map_get_memory_bytes(device_from) == machine.poison_bytes)
        return DRV_ECC_UNCORRECTABLE;
    if (!machine.lazy)
        return move(to, from, bytes, device_to, device_from);
    if ((device_to && !map_allows(device_to, bytes, true)) ||
        (device_from && !map_allows(device_from, bytes, false)))
        return DRV_INVALID_VALUE;
    return queue_add(stream, to, from, bytes) ? DRV_SUCCESS : DRV_OPERATING_SYSTEM;
}

enum drv_result cuMemcpyHtoD_v2(drv_pointer to, const void *from, size_t bytes)
{
    NEED_CONTEXT();
    return move_now(host(to), from, bytes, to, 0);
}

enum drv_result cuMemcpyDtoH_v2(void *to, drv_pointer from, size_t bytes)
{
    NEED_CONTEXT();
    return move_now(to, host(from), bytes, 0, from);
}

enum drv_result cuMemcpyDtoD_v2(drv_pointer to, drv_pointer from, size_t bytes)
{
    NEED_CONTEXT();
    return move_now(host(to), host(from), bytes, to, from);
}

enum drv_result cuMemcpyPeer(drv_pointer to, struct drv_context *to_context, drv_pointer from,
                             struct drv_context *from_context, size_t bytes)
{
    (void)to_context;
    (void)from_context;
    return cuMemcpyDtoD_v2(to, from, bytes);
}

enum drv_result cuMemcpyHtoDAsync_v2(drv_pointer to, const void *from, size_t bytes,
                                     struct drv_stream *stream)
{
    NEED_CONTEXT();
    return move_by(stream, host(to), from, bytes, to, 0);
}

enum drv_result cuMemcpyDtoHAsync_v2(void *to, drv_pointer from, size_t bytes,
                                     struct drv_stream *stream)
{
    NEED_CONTEXT();
    return move_by(stream, to, host(from), bytes, 0, from);
}

enum drv_result cuMemcpyDtoDAsync_v2(drv_pointer to, drv_pointer from, size_t bytes,
                                     struct drv_stream *stream)
{
    NEED_CONTEXT();
    return move_by(stream, host(to), host(from), bytes, to, from);
}

enum drv_result cuMemsetD8_v2(drv_pointer to, unsigned char value, size_t count)
{
    enum drv_result result;

    NEED_CONTEXT();
    result = capture_check_legacy();
    if (result == DRV_SUCCESS && !map_allows(to, count, true))
        result = DRV_INVALID_VALUE;
    if (result == DRV_SUCCESS)
        memset(host(to), value, count);
    return result;
}

enum drv_result cuMemsetD32_v2(drv_pointer to, unsigned value, size_t count)
{
    enum drv_result result;
    unsigned *words = host(to);

    NEED_CONTEXT();
    result = capture_check_legacy();
    if (result == DRV_SUCCESS && (to % sizeof(value) || count > SIZE_MAX / sizeof(value) ||
                                  !map_allows(to, count * sizeof(value), true)))
        result = DRV_INVALID_VALUE;
    for (size_t i = 0; result == DRV_SUCCESS && i < count; i++)
        words[i] = value;
    return result;
}

/* ---- ordinary allocations ------------------------------------------------------------------ */

/* Carves a small one from memory that the context has anyway: it costs the device nothing. */
static enum drv_result allocate_small(drv_pointer *address, size_t bytes)
{
    const struct account_memory none = {.gpu = context_current()->gpu, .bytes = FAKE_GRANULARITY};
    void *at =
        mmap(NULL, FAKE_GRANULARITY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED || map_add_allocation(at, &none, context_current()) < 0)
        return DRV_OPERATING_SYSTEM;
    *address = (uintptr_t)at;
    map_set_asked(*address, bytes);
    return DRV_SUCCESS;
}

enum drv_result cuMemAlloc_v2(drv_pointer *address, size_t bytes)
{
    size_t aligned = (bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1);
    struct account_memory memory;
    enum drv_result result;
    void *at;
    int fd;

    NEED_CONTEXT();
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS || !bytes || aligned < bytes)
        return result == DRV_SUCCESS ? DRV_INVALID_VALUE : result;
    if (bytes <= SMALL_BYTES)
        return allocate_small(address, bytes);
    fd = account_create(context_current()->gpu, aligned, &memory);
    if (fd < 0)
        return fd == -ENOMEM ? DRV_OUT_OF_MEMORY : DRV_OPERATING_SYSTEM;
    at = mmap(NULL, aligned, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED || map_add_allocation(at, &memory, context_current()) < 0)
        return DRV_OPERATING_SYSTEM;
    madvise(at, aligned, MADV_DONTFORK);
    *address = (uintptr_t)at;
    map_set_asked(*address, bytes);
    return DRV_SUCCESS;
}

static enum drv_result give_back(drv_pointer address)
{
    struct map_allocation allocation;
    struct account_memory memory;

    if (map_get_allocation(address, &allocation))
        ipc_forget(&allocation);
    if (map_remove_allocation(address, &memory) < 0)
        return DRV_INVALID_VALUE;
    munmap(host(address), memory.bytes);
    if (memory.seq != 0)
        account_settle(&memory);
    return DRV_SUCCESS;
}

/* Waits for all work, and breaks no capture in relaxed mode: measured on an H200. */
enum drv_result cuMemFree_v2(drv_pointer address)
{
    enum drv_result result;

    NEED_CONTEXT();
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS)
        return result;
    queue_run(NULL, queue_mark());
    return give_back(address);
}

void copy_drop_all(const struct drv_context *context)
{
    drv_pointer address;

    while ((address = map_find_allocation(context)))
        give_back(address);
}

/* Returns the allocation of an address, with the size that was asked for. */
enum drv_result cuMemGetAddressRange_v2(drv_pointer *start, size_t *bytes, drv_pointer address)
{
    struct map_allocation allocation;

    NEED_CONTEXT();
    if (!map_get_allocation(address, &allocation))
        return DRV_INVALID_VALUE;
    *start = allocation.address;
    *bytes = allocation.bytes;
    return DRV_SUCCESS;
}

enum drv_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct machine machine;
    uint64_t taken;

    NEED_CONTEXT();
    machine_read(&machine);
    taken = account_used(context_current()->gpu) + machine.others_bytes;
    *total_bytes = machine.memory_bytes;
    *free_bytes = taken < machine.memory_bytes ? machine.memory_bytes - taken : 0;
    return DRV_SUCCESS;
}

/* ---- pinned host memory -------------------------------------------------------------------- */

struct pinned {
    void *address;
    size_t bytes;
    bool registered; /* the caller's own memory */
    struct pinned *next;
};

static struct pinned *pinned;

static enum drv_result pin(void *address, size_t bytes, bool registered)
{
    struct pinned *made = calloc(1, sizeof(*made));

    if (!made)
        return DRV_OPERATING_SYSTEM;
    *made = (struct pinned){.address = address, .bytes = bytes, .registered = registered};
    pthread_mutex_lock(&fake_mutex);
    made->next = pinned;
    pinned = made;
    pthread_mutex_unlock(&fake_mutex);
    return DRV_SUCCESS;
}

static struct pinned *unpin(void *address, bool registered)
{
    struct pinned **link, *found;

    pthread_mutex_lock(&fake_mutex);
    for (link = &pinned; *link; link = &(*link)->next)
        if ((*link)->address == address && (*link)->registered == registered)
            break;
    found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&fake_mutex);
    return found;
}

bool copy_has_pinned(void)
{
    bool has;

    pthread_mutex_lock(&fake_mutex);
    has = pinned != NULL;
    pthread_mutex_unlock(&fake_mutex);
    return has;
}

enum drv_result cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    enum drv_result result;
    void *at;

    NEED_CONTEXT();
    (void)flags;
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS || !bytes)
        return result == DRV_SUCCESS ? DRV_INVALID_VALUE : result;
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return DRV_OUT_OF_MEMORY;
    result = pin(at, bytes, false);
    if (result == DRV_SUCCESS)
        *address = at;
    else
        munmap(at, bytes);
    return result;
}

enum drv_result cuMemFreeHost(void *address)
{
    enum drv_result result;
    struct pinned *found;

    NEED_CONTEXT();
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS)
        return result;
    found = unpin(address, false);
    if (!found)
        return DRV_INVALID_VALUE;
    munmap(found->address, found->bytes);
    free(found);
    return DRV_SUCCESS;
}

enum drv_result cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    enum drv_result result;

    NEED_CONTEXT();
    (void)flags;
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS || !address || !bytes)
        return result == DRV_SUCCESS ? DRV_INVALID_VALUE : result;
    return pin(address, bytes, true);
}

enum drv_result cuMemHostUnregister(void *address)
{
    enum drv_result result;
    struct pinned *found;

    NEED_CONTEXT();
    result = capture_check_unsafe();
    if (result != DRV_SUCCESS)
        return result;
    found = unpin(address, true);
    free(found);
    return found ? DRV_SUCCESS : DRV_INVALID_VALUE;
}
