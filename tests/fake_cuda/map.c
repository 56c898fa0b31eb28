/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: reservations, their mappings, and the access to those. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A reservation, or a mapping; both tables are sorted by address without overlaps. */
struct range {
    drv_pointer address;
    uint64_t bytes;
    struct account_memory memory;      /* of a mapping */
    uint8_t access[FAKE_MAX_DEVICES];  /* for each GPU: enum drv_access */
    bool is_allocation;                /* by cuMemAlloc, or opened by its handle */
    uint64_t asked_bytes;              /* of an allocation */
    const struct drv_context *context; /* of an allocation */
    unsigned long long id;             /* of a mapping or an allocation */
};

struct ranges {
    struct range *items;
    size_t count, room;
};

static struct ranges reserved, mapped;
static unsigned long long last_id; /* guarded by fake_mutex */

/* ---- tables -------------------------------------------------------------------------------- */

/* Finds the first that ends beyond `address`. */
static size_t range_at(const struct ranges *ranges, drv_pointer address)
{
    size_t low = 0, high = ranges->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ranges->items[middle].address + ranges->items[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct range *range_over(const struct ranges *ranges, drv_pointer address)
{
    size_t at = range_at(ranges, address);

    return at < ranges->count && ranges->items[at].address <= address ? &ranges->items[at] : NULL;
}

static bool range_insert(struct ranges *ranges, const struct range *range)
{
    size_t at = range_at(ranges, range->address);

    if (ranges->count == ranges->room) {
        size_t room = ranges->room ? 2 * ranges->room : 64;
        struct range *more = realloc(ranges->items, room * sizeof(*more));

        if (!more)
            return false;
        ranges->items = more;
        ranges->room = room;
    }
    memmove(&ranges->items[at + 1], &ranges->items[at],
            (ranges->count - at) * sizeof(*ranges->items));
    ranges->items[at] = *range;
    ranges->count++;
    return true;
}

static void range_remove(struct ranges *ranges, size_t at, size_t count)
{
    memmove(&ranges->items[at], &ranges->items[at + count],
            (ranges->count - at - count) * sizeof(*ranges->items));
    ranges->count -= count;
}

/* Returns the number of adjacent mappings that make up exactly this range; 0 if they do not. */
static size_t count_mapped(drv_pointer address, uint64_t bytes, size_t *first)
{
    drv_pointer next = address;
    size_t at = range_at(&mapped, address);

    *first = at;
    while (at < mapped.count && next < address + bytes && mapped.items[at].address == next &&
           !mapped.items[at].is_allocation) {
        next += mapped.items[at].bytes;
        at++;
    }
    return next == address + bytes ? at - *first : 0;
}

static bool is_free(drv_pointer address, uint64_t bytes)
{
    size_t at = range_at(&mapped, address);

    return at == mapped.count || mapped.items[at].address >= address + bytes;
}

/* ---- reservations -------------------------------------------------------------------------- */

static void *reserve(uint64_t bytes, uint64_t alignment, drv_pointer hint)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *raw, *address;

    if (hint) {
        raw = mmap((void *)(uintptr_t)hint, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (raw == (void *)(uintptr_t)hint)
            return raw;
        if (raw != MAP_FAILED)
            munmap(raw, bytes);
    }
    raw = mmap(NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    address = (uint8_t *)(((uintptr_t)raw + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (address > raw)
        munmap(raw, (size_t)(address - raw));
    munmap(address + bytes, alignment - (size_t)(address - raw));
    return address;
}

enum drv_result cuMemAddressReserve(drv_pointer *address, size_t bytes, size_t alignment,
                                    drv_pointer hint, unsigned long long flags)
{
    struct range range = {.bytes = bytes};
    enum drv_result result = DRV_SUCCESS;
    void *at;

    ENTER();
    if (!bytes || bytes % FAKE_GRANULARITY || flags || hint % FAKE_GRANULARITY ||
        (alignment & (alignment - 1)))
        return DRV_INVALID_VALUE;
    at = reserve(bytes, alignment > FAKE_GRANULARITY ? alignment : FAKE_GRANULARITY, hint);
    if (!at)
        return DRV_OUT_OF_MEMORY;
    range.address = (uintptr_t)at;
    pthread_mutex_lock(&fake_mutex);
    if (!range_insert(&reserved, &range))
        result = DRV_OPERATING_SYSTEM;
    pthread_mutex_unlock(&fake_mutex);
    if (result == DRV_SUCCESS)
        *address = range.address;
    else
        munmap(at, bytes);
    return result;
}

enum drv_result cuMemAddressFree(drv_pointer address, size_t bytes)
{
    enum drv_result result = DRV_INVALID_VALUE;
    size_t at;

    ENTER();
    pthread_mutex_lock(&fake_mutex);
    at = range_at(&reserved, address);
    if (at < reserved.count && reserved.items[at].address == address &&
        reserved.items[at].bytes == bytes && is_free(address, bytes)) {
        range_remove(&reserved, at, 1);
        munmap((void *)(uintptr_t)address, bytes);
        result = DRV_SUCCESS;
    }
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

/* ---- mappings ------------------------------------------------------------------------------ */

static bool is_reserved(drv_pointer address, uint64_t bytes)
{
    const struct range *range = range_over(&reserved, address);

    return range && range->address + range->bytes - address >= bytes;
}

/* Maps a copy of the handle's mapping at the address. */
static enum drv_result map_handle(const struct handle *handle, drv_pointer address)
{
    struct range range = {.address = address,
                          .bytes = handle->memory.bytes,
                          .memory = handle->memory,
                          .id = ++last_id};
    void *at = mremap(handle->hold, 0, handle->memory.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                      (void *)(uintptr_t)address);

    if (at == MAP_FAILED)
        return DRV_OPERATING_SYSTEM;
    madvise(at, handle->memory.bytes, MADV_DONTFORK);
    return range_insert(&mapped, &range) ? DRV_SUCCESS : DRV_OPERATING_SYSTEM;
}

enum drv_result cuMemMap(drv_pointer address, size_t bytes, size_t offset, drv_memory memory,
                         unsigned long long flags)
{
    enum drv_result result = capture_check_unsafe();
    const struct handle *handle;

    ENTER();
    if (result != DRV_SUCCESS)
        return result;
    if (offset)
        return DRV_NOT_SUPPORTED;
    pthread_mutex_lock(&fake_mutex);
    handle = handle_find(memory);
    if (!handle || flags || address % FAKE_GRANULARITY || bytes != handle->memory.bytes ||
        !is_reserved(address, bytes) || !is_free(address, bytes))
        result = DRV_INVALID_VALUE;
    else
        result = map_handle(handle, address);
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

/* Whole mappings only. Afterwards the addresses are reserved as before. */
enum drv_result cuMemUnmap(drv_pointer address, size_t bytes)
{
    enum drv_result result = capture_check_unsafe();
    struct account_memory *gone = NULL;
    size_t first, count;

    ENTER();
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_mutex);
    count = count_mapped(address, bytes, &first);
    gone = calloc(count ? count : 1, sizeof(*gone));
    for (size_t i = 0; gone && i < count; i++)
        gone[i] = mapped.items[first + i].memory;
    if (!count || !gone)
        result = DRV_INVALID_VALUE;
    else if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        result = DRV_OPERATING_SYSTEM;
    else
        range_remove(&mapped, first, count);
    pthread_mutex_unlock(&fake_mutex);
    for (size_t i = 0; result == DRV_SUCCESS && i < count; i++)
        account_settle(&gone[i]);
    free(gone);
    return result;
}

/* ---- access: each GPU's own ---------------------------------------------------------------- */

/* A device may be named only once. */
static bool is_named_before(const struct drv_access_desc *access, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (access[i].location.id == access[at].location.id)
            return true;
    return false;
}

static enum drv_result check_access(const struct drv_access_desc *access, size_t count,
                                    unsigned gpus[FAKE_MAX_DEVICES])
{
    enum drv_result result = count ? DRV_SUCCESS : DRV_INVALID_VALUE;

    for (size_t i = 0; result == DRV_SUCCESS && i < count; i++) {
        if (access[i].location.type != DRV_LOCATION_DEVICE || i == FAKE_MAX_DEVICES ||
            (access[i].flags & ~DRV_ACCESS_READWRITE) || access[i].flags == 2 ||
            is_named_before(access, i))
            result = DRV_INVALID_VALUE;
        else
            result = device_find(access[i].location.id, &gpus[i]);
    }
    return result;
}

/* The host has no rights of its own: it has the rights of any GPU, for tests that look at the
 * bytes. */
static int protection_of(const struct range *range)
{
    unsigned any = DRV_ACCESS_NONE;

    for (unsigned gpu = 0; gpu < FAKE_MAX_DEVICES; gpu++)
        any |= range->access[gpu];
    return any == DRV_ACCESS_NONE   ? PROT_NONE
           : any == DRV_ACCESS_READ ? PROT_READ
                                    : PROT_READ | PROT_WRITE;
}

/* One call for neighbours with the same rights. */
static enum drv_result protect_mapped(size_t first, size_t count)
{
    const struct range *ranges = mapped.items + first;
    size_t from = 0;

    for (size_t i = 1; i <= count; i++) {
        drv_pointer start = ranges[from].address;

        if (i < count && protection_of(&ranges[i]) == protection_of(&ranges[from]))
            continue;
        if (mprotect((void *)(uintptr_t)start, ranges[i - 1].address + ranges[i - 1].bytes - start,
                     protection_of(&ranges[from])) < 0)
            return DRV_OPERATING_SYSTEM;
        from = i;
    }
    return DRV_SUCCESS;
}

static bool are_let_in(size_t first, size_t ranges, const unsigned *gpus, size_t count)
{
    struct machine machine;

    machine_read(&machine);
    for (size_t i = 0; i < ranges && !machine.peers; i++)
        for (size_t j = 0; j < count; j++)
            if (mapped.items[first + i].memory.gpu != gpus[j])
                return false;
    return true;
}

/* GPUs that are not named keep their rights. */
enum drv_result cuMemSetAccess(drv_pointer address, size_t bytes,
                               const struct drv_access_desc *access, size_t count)
{
    enum drv_result result = capture_check_unsafe();
    unsigned gpus[FAKE_MAX_DEVICES];
    size_t first, ranges;

    ENTER();
    if (result == DRV_SUCCESS)
        result = check_access(access, count, gpus);
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_mutex);
    ranges = count_mapped(address, bytes, &first);
    if (!are_let_in(first, ranges, gpus, count)) {
        pthread_mutex_unlock(&fake_mutex);
        return DRV_PEER_ACCESS_UNSUPPORTED;
    }
    for (size_t i = 0; i < ranges; i++)
        for (size_t j = 0; j < count; j++)
            mapped.items[first + i].access[gpus[j]] = (uint8_t)access[j].flags;
    result = ranges ? protect_mapped(first, ranges) : DRV_INVALID_VALUE;
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

enum drv_result cuMemGetAccess(unsigned long long *flags, const struct drv_location *location,
                               drv_pointer address)
{
    enum drv_result result;
    const struct range *range;
    unsigned gpu;

    ENTER();
    if (location->type != DRV_LOCATION_DEVICE)
        return DRV_INVALID_VALUE;
    result = device_find(location->id, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_mutex);
    range = range_over(&mapped, address);
    if (range)
        *flags = range->access[gpu]; /* for an allocation: none */
    else
        result = DRV_INVALID_VALUE;
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

enum drv_result cuPointerGetAttribute(void *value, enum drv_pointer_attribute attribute,
                                      drv_pointer address)
{
    enum drv_result result = DRV_SUCCESS;
    const struct range *range;

    ENTER();
    pthread_mutex_lock(&fake_mutex);
    range = range_over(&mapped, address);
    if (!range)
        result = DRV_INVALID_VALUE;
    else if (attribute == DRV_POINTER_MEMORY_TYPE)
        *(unsigned *)value = DRV_MEMORY_DEVICE;
    else if (attribute == DRV_POINTER_DEVICE_ORDINAL)
        *(int *)value = device_ordinal(range->memory.gpu);
    else if (attribute == DRV_POINTER_RANGE_START_ADDR)
        *(drv_pointer *)value = range->address;
    else if (attribute == DRV_POINTER_RANGE_SIZE)
        *(size_t *)value = range->bytes;
    else if (attribute == DRV_POINTER_CONTEXT)
        *(const struct drv_context **)value = range->context; /* mapped memory belongs to none */
    else if (attribute == DRV_POINTER_BUFFER_ID)
        *(unsigned long long *)value = range->id;
    else
        result = DRV_INVALID_VALUE;
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

/* ---- for the other files ------------------------------------------------------------------- */

bool map_allows(drv_pointer address, size_t bytes, bool to_write)
{
    unsigned gpu = context_current()->gpu;
    bool allowed = true;

    pthread_mutex_lock(&fake_mutex);
    while (allowed && bytes) {
        const struct range *range = range_over(&mapped, address);
        uint64_t part = range ? range->address + range->bytes - address : 0;

        allowed =
            range && (range->is_allocation || (to_write ? range->access[gpu] == DRV_ACCESS_READWRITE
                                                        : range->access[gpu] != DRV_ACCESS_NONE));
        part = part < bytes ? part : bytes;
        address += part;
        bytes -= part;
    }
    pthread_mutex_unlock(&fake_mutex);
    return allowed;
}

uint64_t map_get_memory_bytes(drv_pointer address)
{
    const struct range *range;
    uint64_t bytes;

    pthread_mutex_lock(&fake_mutex);
    range = range_over(&mapped, address);
    bytes = range ? range->memory.bytes : 0;
    pthread_mutex_unlock(&fake_mutex);
    return bytes;
}

int map_add_allocation(void *address, const struct account_memory *memory,
                       const struct drv_context *context)
{
    struct range range = {.address = (uintptr_t)address,
                          .bytes = memory->bytes,
                          .memory = *memory,
                          .is_allocation = true,
                          .context = context};
    bool done;

    pthread_mutex_lock(&fake_mutex);
    range.id = ++last_id;
    done = range_insert(&mapped, &range);
    pthread_mutex_unlock(&fake_mutex);
    return done ? 0 : -ENOMEM;
}

bool map_get_allocation(drv_pointer address, struct map_allocation *allocation)
{
    const struct range *range;
    bool found;

    pthread_mutex_lock(&fake_mutex);
    range = range_over(&mapped, address);
    found = range && range->is_allocation;
    if (found)
        *allocation = (struct map_allocation){.address = range->address,
                                              .bytes = range->asked_bytes,
                                              .memory = range->memory,
                                              .id = range->id};
    pthread_mutex_unlock(&fake_mutex);
    return found;
}

void map_set_asked(drv_pointer address, uint64_t bytes)
{
    struct range *range;

    pthread_mutex_lock(&fake_mutex);
    range = range_over(&mapped, address);
    if (range)
        range->asked_bytes = bytes;
    pthread_mutex_unlock(&fake_mutex);
}

int map_remove_allocation(drv_pointer address, struct account_memory *memory)
{
    int rc = -EINVAL;
    size_t at;

    pthread_mutex_lock(&fake_mutex);
    at = range_at(&mapped, address);
    if (at < mapped.count && mapped.items[at].address == address &&
        mapped.items[at].is_allocation) {
        *memory = mapped.items[at].memory;
        range_remove(&mapped, at, 1);
        rc = 0;
    }
    pthread_mutex_unlock(&fake_mutex);
    return rc;
}

drv_pointer map_find_allocation(const struct drv_context *context)
{
    drv_pointer address = 0;

    pthread_mutex_lock(&fake_mutex);
    for (size_t i = 0; i < mapped.count && !address; i++)
        if (mapped.items[i].is_allocation && mapped.items[i].context == context)
            address = mapped.items[i].address;
    pthread_mutex_unlock(&fake_mutex);
    return address;
}
