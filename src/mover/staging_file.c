/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/staging_file.h"

#include "base/file_io.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/vfs.h>

/* Through a buffer. */
static int read_direct_to_host(struct staging_lane *lane, uint8_t *to, struct direct_file *file,
                               uint64_t offset_bytes, size_t most_bytes, size_t *size_bytes)
{
    uint8_t *room = staging_scratch(lane, STAGING_FILE_BYTES), *bytes;
    int error = -ENOMEM;

    *size_bytes = direct_fit(file, offset_bytes, most_bytes, STAGING_FILE_BYTES);
    if (room)
        error = direct_read(file, room, offset_bytes, *size_bytes, &bytes);
    if (!error)
        memcpy(to, bytes, *size_bytes);
    return error;
}

static int read_to_host(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                        struct direct_file *file, uint64_t offset_bytes, size_t most_bytes,
                        const uint8_t **bytes, size_t *size_bytes)
{
    uint8_t *room;
    int error;

    if (direct_is_on(file)) {
        *bytes = to;
        return read_direct_to_host(lane, to, file, offset_bytes, most_bytes, size_bytes);
    }
    error = staging_room(lane, memory, to, most_bytes, &room, size_bytes);
    *bytes = room;
    return error ? error : file_read_at(file->fd, room, *size_bytes, offset_bytes);
}

int staging_read(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 struct direct_file *file, uint64_t offset_bytes, size_t most_bytes,
                 const uint8_t **bytes, size_t *size_bytes)
{
    size_t room_bytes, wide = most_bytes;
    uint8_t *room, *at;
    int error;

    if (!staging_is_copied(memory))
        return read_to_host(lane, memory, to, file, offset_bytes, most_bytes, bytes, size_bytes);
    if (direct_is_on(file))
        wide = direct_room_bytes(most_bytes);
    error = staging_room(lane, memory, to, wide, &room, &room_bytes);
    if (error)
        return error;
    *size_bytes = direct_fit(file, offset_bytes, most_bytes, room_bytes);
    error = direct_read(file, room, offset_bytes, *size_bytes, &at);
    *bytes = at;
    return error;
}

bool staging_file_is_written(int fd, uint64_t size_bytes)
{
    struct rlimit limit;
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type != HUGETLBFS_MAGIC &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes <= limit.rlim_cur;
}
