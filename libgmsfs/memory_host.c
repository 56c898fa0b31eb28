/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: memfds and mmap. A reservation is a PROT_NONE mapping. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define HOST_RESERVE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define HOST_RANGE_PARTS   16 /* a range's reservation is opened in about so many steps */

static int host_protection(enum gmsfs_access access)
{
    return access == GMSFS_ACCESS_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
}

/* ---- addresses ---------------------------------------------------------------------------- */

/* Asks for one granule more than needed, and gives back the unaligned rest on both sides. */
static int host_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base)
{
    uint64_t granularity_bytes = memory->granularity_bytes, head;
    int error = 0;

    gfs_gate_enter();
    char *start = mmap(NULL, size_bytes + granularity_bytes, PROT_NONE, HOST_RESERVE_FLAGS, -1, 0);
    if (start == MAP_FAILED) {
        error = -errno;
    } else {
        head = -(uintptr_t)start & (granularity_bytes - 1);
        if (head)
            munmap(start, head);
        if (head < granularity_bytes)
            munmap(start + head + size_bytes, granularity_bytes - head);
        madvise(start + head, size_bytes, MADV_DONTFORK);
        *base = (uintptr_t)start + head;
    }
    gfs_gate_leave();
    return error;
}

static void host_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes)
{
    (void)memory;
    munmap((void *)base, size_bytes);
}

/* ---- mappings ----------------------------------------------------------------------------- */

static int host_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes)
{
    int error = 0;

    (void)memory;
    gfs_gate_enter();
    if (mmap((void *)va, size_bytes, PROT_NONE, HOST_RESERVE_FLAGS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        error = -errno;
    else
        madvise((void *)va, size_bytes, MADV_DONTFORK);
    gfs_gate_leave();
    return error;
}

/* Puts zeros behind a file that ends before its mapping (GMSFS_ALLOC_EXACT), where an access would
 * raise SIGBUS. The file has at least `used_bytes`. */
static int host_map_tail(char *va, uint64_t size_bytes, uint64_t used_bytes,
                         enum gmsfs_access access, int fd)
{
    uint64_t mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1, end;
    struct stat file;

    if (((used_bytes + mask) & ~mask) >= size_bytes)
        return 0;
    if (fstat(fd, &file) < 0)
        return -errno;
    end = ((uint64_t)file.st_size + mask) & ~mask;
    if (end >= size_bytes || mmap(va + end, size_bytes - end, host_protection(access),
                                  HOST_RESERVE_FLAGS | MAP_FIXED, -1, 0) != MAP_FAILED)
        return 0;
    return -errno;
}

/* The mount has sealed the memfd against resizing: its memory is there, and stays. */
static int host_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                    enum gmsfs_access access, int fd)
{
    int error = 0;

    if (mmap((void *)va, size_bytes, host_protection(access), MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        error = -errno;
    if (!error)
        error = host_map_tail((char *)va, size_bytes, 0, access, fd);
    if (error) /* it may have taken the reservation away first */
        host_unmap(memory, va, size_bytes);
    return error;
}

static int host_settle(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                       enum gmsfs_access access, uint64_t devices)
{
    (void)memory;
    (void)access;
    (void)devices;
    return madvise((void *)va, size_bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

static int host_protect(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                        enum gmsfs_access access, uint64_t devices)
{
    (void)memory;
    (void)devices;
    return mprotect((void *)va, size_bytes, host_protection(access)) < 0 ? -errno : 0;
}

/* ---- ranges ------------------------------------------------------------------------------- */

/* Gives up the reservation of the next part. */
static int host_open_part(struct gfs_range *range, uint64_t size_bytes)
{
    uint64_t part_bytes = range->reserved_bytes / HOST_RANGE_PARTS;
    uint64_t left_bytes = range->reserved_bytes - range->open_bytes;
    uint64_t need_bytes = range->mapped_bytes + size_bytes - range->open_bytes;

    part_bytes = (part_bytes / size_bytes + 1) * size_bytes;
    part_bytes = part_bytes > need_bytes ? part_bytes : need_bytes;
    part_bytes = part_bytes < left_bytes ? part_bytes : left_bytes;
    if (munmap((void *)(range->base + range->open_bytes), part_bytes) < 0)
        return -errno;
    range->open_bytes += part_bytes;
    return 0;
}

/* Each mapping that replaces a bit of a reservation makes the kernel split it, which costs half of
 * a mapping more. Instead a part of the reservation is given up, and mappings are put where it was,
 * if no other thread has mapped something there by then. */
static int host_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                       uint64_t used_bytes, enum gmsfs_access access, int fd)
{
    void *va = (void *)(range->base + range->mapped_bytes), *got;
    int error = 0;

    if (range->careful)
        return host_map(memory, (uintptr_t)va, size_bytes, access, fd);
    if (range->mapped_bytes + size_bytes > range->open_bytes)
        error = host_open_part(range, size_bytes);
    if (error)
        return error;
    got = mmap(va, size_bytes, host_protection(access), MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    if (got == MAP_FAILED)
        return -errno;
    /* kernels before 4.17 take the address for a hint */
    error = got == va ? host_map_tail(got, size_bytes, used_bytes, access, fd) : -EEXIST;
    if (error)
        munmap(got, size_bytes);
    return error;
}

/* Open addresses without a mapping may belong to another thread by now. */
static void host_cancel(struct gfs_memory *memory, const struct gfs_range *range)
{
    uint64_t held_from = range->careful ? range->mapped_bytes : range->open_bytes;

    (void)memory;
    if (range->mapped_bytes)
        munmap((void *)range->base, range->mapped_bytes);
    if (held_from < range->reserved_bytes)
        munmap((void *)(range->base + held_from), range->reserved_bytes - held_from);
}

/* ---- private copies ----------------------------------------------------------------------- */

static int host_copy(struct gfs_memory *memory, uintptr_t from, struct gfs_copy *copy)
{
    uint64_t size_bytes = copy->size_bytes;
    int error = 0;

    (void)memory;
    if (size_bytes > SIZE_MAX / 2)
        return -ENOMEM;
    gfs_gate_enter();
    void *made = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        error = -errno;
    else
        madvise(made, size_bytes, MADV_DONTFORK);
    gfs_gate_leave();
    if (error)
        return error;
    memcpy(made, (const void *)from, size_bytes);
    copy->va = (uintptr_t)made;
    return 0;
}

static void host_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy)
{
    host_release(memory, copy->va, copy->size_bytes);
}

/* ---- memory that is mapped at several places ---------------------------------------------- */

/* A mapping of its own, so that no descriptor is kept. */
static int host_hold(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held)
{
    void *made = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    (void)memory;
    if (made == MAP_FAILED)
        return -errno;
    madvise(made, size_bytes, MADV_DONTFORK);
    held->va = (uintptr_t)made;
    return 0;
}

/* mremap(2) of nothing makes a second mapping of the same pages, as private to this process. */
static int host_map_held(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                         const struct gfs_held *held)
{
    if (mremap((void *)held->va, 0, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)va) !=
        MAP_FAILED)
        return 0;
    int error = -errno;
    /* it may have taken the reservation away first */
    host_unmap(memory, va, size_bytes);
    return error;
}

static void host_let_go(struct gfs_memory *memory, uint64_t size_bytes, const struct gfs_held *held)
{
    host_release(memory, held->va, size_bytes);
}

/* ---- fork --------------------------------------------------------------------------------- */

static void host_after_fork(const struct gfs_range *range, const struct gfs_vmap *map, int waking)
{
    if (range->base)
        host_cancel(NULL, range);
    for (size_t i = 0; waking && i < map->reservation_count; i++)
        munmap((void *)map->reservations[i].base, map->reservations[i].size_bytes);
}

const struct gfs_memory_kind gfs_memory_host = {
    .name = "host",
    .reserve = host_reserve,
    .map = host_map,
    .append = host_append,
    .settle = host_settle,
    .protect = host_protect,
    .unmap = host_unmap,
    .release = host_release,
    .cancel = host_cancel,
    .copy = host_copy,
    .drop_copy = host_drop_copy,
    .hold = host_hold,
    .map_held = host_map_held,
    .let_go = host_let_go,
    .after_fork = host_after_fork,
};
