/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/gather.h"

#include "base/number.h"
#include "base/pages.h"
#include "fs/fs_internal.h"
#include "service/discard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAP_BYTES   (2u << 20)  /* of all handles together */
#define HEAP_MAX     (64u << 10) /* of one */
#define FIRST_ROOM   4096u
#define MAPPED_GRAIN (256u << 10) /* mappings are few, so each counts for at least this much */
#define LARGE_BYTES  (4u << 20)
#define AHEAD_BYTES  (4u << 20)

static void unmap(void *context)
{
    struct fs_gathered *gathered = context;
    pages_drop(gathered->bytes, gathered->made); /* the pages behind are untouched */
    munmap(gathered->bytes, gathered->map_bytes);
    free(gathered);
}

/* A large mapping is freed by a job, because giving its pages back takes long. */
void fs_gather_discard(struct fs *fs, struct fs_gathered *gathered)
{
    struct fs_gathered *large = NULL;
    if (!gathered->map_bytes) {
        free(gathered->bytes);
        return;
    }
    if (fs && gathered->room >= LARGE_BYTES)
        large = malloc(sizeof *large);
    if (!large) {
        munmap(gathered->bytes, gathered->map_bytes);
        return;
    }
    *large = *gathered;
    service_discard(fs->service, unmap, large);
}

static void release(struct fs *fs, struct fs_gathered *gathered)
{
    if (!gathered->map_bytes)
        fs->gathered_heap_bytes -= gathered->room;
    fs_gather_discard(fs, gathered);
}

/* Maps memory. Pages are made when they are touched, so a mapping of the largest possible size
 * costs nothing; if the system counts it nevertheless, a smaller one is made. */
static uint8_t *map(size_t bytes, size_t max_bytes, size_t *map_bytes)
{
    for (size_t size = number_round_up(max_bytes, MAPPED_GRAIN);;
         size = number_round_up(size / 2, MAPPED_GRAIN)) {
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *map_bytes = size;
        if (at != MAP_FAILED) {
            madvise(at, size, MADV_DONTFORK);
            return at;
        }
        if (size / 2 < bytes || size <= MAPPED_GRAIN)
            return NULL;
    }
}

/* Makes pages all at once, at half the cost of one by one; if that fails, they are made when
 * touched. */
static void make_pages(struct fs_gathered *gathered, size_t end)
{
    if (end <= gathered->made)
        return;
#ifdef MADV_POPULATE_WRITE
    madvise(gathered->bytes + gathered->made, end - gathered->made, MADV_POPULATE_WRITE);
#endif
    gathered->made = end;
}

static int grow_map(struct fs *fs, struct fs_gathered *gathered, size_t room, size_t max_bytes)
{
    struct fs_gathered grown = {.used = gathered->used, .room = room};
    if (room <= gathered->map_bytes) {
        gathered->room = room;
        return 0;
    }
    grown.bytes = map(room, max_bytes, &grown.map_bytes);
    if (!grown.bytes)
        return -ENOMEM;
    if (gathered->used)
        memcpy(grown.bytes, gathered->bytes, gathered->used);
    release(fs, gathered);
    *gathered = grown;
    return 0;
}

static int grow_heap(struct fs *fs, struct fs_gathered *gathered, size_t room)
{
    uint8_t *bytes = realloc(gathered->bytes, room);
    if (!bytes)
        return -ENOMEM;
    fs->gathered_heap_bytes += room - gathered->room;
    gathered->bytes = bytes;
    gathered->room = room;
    return 0;
}

static size_t heap_room(const struct fs_gathered *gathered, size_t bytes)
{
    size_t room = gathered->room ? gathered->room : FIRST_ROOM;
    while (room < bytes)
        room *= 2;
    return room;
}

/* Leaves room for more writes: a value larger than one write is likely to grow. */
static size_t map_room(size_t bytes, size_t max_bytes)
{
    if (bytes > FS_MAX_WRITE_BYTES)
        bytes = max_bytes - bytes > AHEAD_BYTES ? bytes + AHEAD_BYTES : max_bytes;
    return number_round_up(bytes, MAPPED_GRAIN);
}

static int grow(struct fs *fs, struct fs_handle *handle, size_t bytes, size_t max_bytes)
{
    struct fs_gathered *gathered = &handle->gathered;
    size_t before = gathered->room, room = heap_room(gathered, bytes);
    bool in_heap = !gathered->map_bytes && room <= HEAP_MAX &&
                   fs->gathered_heap_bytes + room - before <= HEAP_BYTES;
    if (!in_heap)
        room = map_room(bytes, max_bytes);
    /* counted first, so that a refused one has not grown */
    int error = service_gather(fs->service, handle->id, handle->counted_bytes + room - before);
    if (error)
        return error;
    error = in_heap ? grow_heap(fs, gathered, room) : grow_map(fs, gathered, room, max_bytes);
    if (error)
        service_gather(fs->service, handle->id, handle->counted_bytes);
    else
        handle->counted_bytes += room - before;
    return error;
}

int fs_gather(struct fs *fs, struct fs_handle *handle, size_t bytes, size_t max_bytes)
{
    struct fs_gathered *gathered = &handle->gathered;
    int error = 0;
    if (bytes > max_bytes)
        return -EFBIG;
    if (bytes > gathered->room)
        error = grow(fs, handle, bytes, max_bytes);
    if (!error && gathered->map_bytes)
        make_pages(gathered, number_round_up(bytes, MAPPED_GRAIN));
    return error;
}

void fs_gather_set_size(struct fs_handle *handle, size_t bytes)
{
    struct fs_gathered *gathered = &handle->gathered;
    if (bytes > gathered->used)
        memset(gathered->bytes + gathered->used, 0, bytes - gathered->used);
    gathered->used = bytes;
}

void fs_gather_write(struct fs_handle *handle, size_t offset, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    if (offset > handle->gathered.used)
        fs_gather_set_size(handle, offset);
    memcpy(handle->gathered.bytes + offset, bytes, size);
    if (offset + size > handle->gathered.used)
        handle->gathered.used = offset + size;
}

/* An empty value is counted too, so that its loss is noticed. */
int fs_gather_begin_value(struct fs *fs, struct fs_handle *handle, const void *value, size_t bytes)
{
    int error = fs_gather(fs, handle, bytes ? bytes : 1, LAYOUT_MAX_VALUE_BYTES);
    if (error)
        return error;
    handle->gathered.used = 0;
    fs_gather_write(handle, 0, value, bytes);
    handle->has_gathered = true;
    handle->dirty = false;
    return 0;
}

void fs_gather_ahead(struct fs_handle *handle)
{
    struct fs_gathered *gathered = &handle->gathered;
    size_t end = number_round_up(gathered->used + FS_MAX_WRITE_BYTES, MAPPED_GRAIN);
    if (gathered->map_bytes)
        make_pages(gathered, end < gathered->room ? end : gathered->room);
}

struct fs_gathered fs_gather_take(struct fs_handle *handle)
{
    struct fs_gathered gathered = handle->gathered;
    handle->gathered = (struct fs_gathered){0};
    return gathered;
}

void fs_gather_free(struct fs *fs, struct fs_handle *handle, struct fs_gathered *gathered)
{
    if (!gathered->room)
        return;
    handle->counted_bytes -= gathered->room;
    service_gather(fs->service, handle->id, handle->counted_bytes);
    release(fs, gathered);
    *gathered = (struct fs_gathered){0};
}
