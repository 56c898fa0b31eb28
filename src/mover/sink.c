/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/sink.h"

#include "base/file_io.h"
#include "base/pages.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

/* Few enough pages that, once cleared, they are still in the processor's cache when written. */
#define POPULATE_BYTES    ((size_t)256 << 10)
#define BLOCK_BYTES       512u /* of st_blocks */
#define MAP_LEAST_THREADS 3u

/* Since Linux 5.14. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* ---- room on the disk ---------------------------------------------------------------------- */

static bool is_tmpfs(int fd, struct statfs *system)
{
    return fstatfs(fd, system) == 0 && system->f_type == TMPFS_MAGIC;
}

/* For two threads a mapping is no faster, and costs more. */
static bool is_mapped(int fd, const struct sink_way *way, struct statfs *system)
{
    return is_tmpfs(fd, system) &&
           (way->threads ? way->threads : work_default_threads()) >= MAP_LEAST_THREADS;
}

/* Counts free space; a tmpfs without a limit reports 0 blocks. */
static int reserve_on_tmpfs(int fd, const struct statfs *system, uint64_t size_bytes,
                            uint64_t *promised_bytes)
{
    uint64_t free_bytes = (uint64_t)system->f_bavail * (uint64_t)system->f_bsize, has_bytes;
    struct stat known;

    if (fstat(fd, &known) < 0)
        return -errno;
    has_bytes = (uint64_t)known.st_blocks * BLOCK_BYTES;
    if (size_bytes > has_bytes)
        *promised_bytes += size_bytes - has_bytes;
    return system->f_blocks > 0 && *promised_bytes > free_bytes ? -ENOSPC : 0;
}

int sink_reserve(int fd, uint64_t size_bytes, const struct sink_way *way, uint64_t *promised_bytes)
{
    struct statfs system;

    if (ftruncate(fd, (off_t)size_bytes) < 0)
        return -errno;
    if (size_bytes == 0)
        return 0;
    if (is_mapped(fd, way, &system))
        return reserve_on_tmpfs(fd, &system, size_bytes, promised_bytes);
    if (fallocate(fd, 0, 0, (off_t)size_bytes) < 0 && errno != EOPNOTSUPP)
        return -errno;
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static uint8_t *sink_map(int fd, uint64_t size_bytes, const struct sink_way *way)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct statfs system;

    if (size_bytes == 0 || !is_mapped(fd, way, &system))
        return NULL;
    uint8_t *map = mmap(NULL, (size_t)size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (madvise(map, page, MADV_POPULATE_WRITE) == 0 || errno != EINVAL)
        return map;
    munmap(map, (size_t)size_bytes); /* without it a full disk would raise SIGBUS */
    return NULL;
}

void sink_open(struct sink *sink, int fd, uint64_t size_bytes, const struct sink_way *way)
{
    sink->fd = fd;
    sink->size_bytes = size_bytes;
    sink->map = sink_map(fd, size_bytes, way);
    sink->direct_fd = -1;
    atomic_init(&sink->gave_up, false);
    atomic_flag_clear(&sink->writing);
    if (!sink->map && way->direct != DIRECT_NEVER)
        sink->direct_fd = direct_open_writer(fd);
}

void sink_close(struct sink *sink)
{
    if (sink->map)
        munmap(sink->map, (size_t)sink->size_bytes);
    sink->map = NULL;
    if (sink->direct_fd >= 0)
        close(sink->direct_fd);
    sink->direct_fd = -1;
}

bool sink_is_direct(const struct sink *sink)
{
    return sink->direct_fd >= 0 && !atomic_load(&sink->gave_up);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Explains a page fault that failed: the tmpfs is full, or the file was truncated. */
static int explain_fault(const struct sink *sink, int error)
{
    struct stat known;

    if (error != EFAULT)
        return -error;
    return fstat(sink->fd, &known) == 0 && (uint64_t)known.st_size < sink->size_bytes ? -EIO
                                                                                      : -ENOSPC;
}

/* Makes the pages first, because that fails with an errno. */
static int write_by_map(const struct sink *sink, const uint8_t *bytes, size_t size_bytes,
                        uint64_t at)
{
    while (size_bytes > 0) {
        size_t part = size_bytes < POPULATE_BYTES ? size_bytes : POPULATE_BYTES;
        int error = pages_make(sink->map + at, part);
        if (error)
            return explain_fault(sink, -error);
        memcpy(sink->map + at, bytes, part);
        bytes += part;
        at += part;
        size_bytes -= part;
    }
    return 0;
}

/* Uses write(2), which clears no page before filling it, unless another thread does. */
static int write_mapped(struct sink *sink, const uint8_t *bytes, size_t size_bytes, uint64_t at)
{
    if (atomic_flag_test_and_set(&sink->writing))
        return write_by_map(sink, bytes, size_bytes, at);
    int error = file_write_at(sink->fd, bytes, size_bytes, at);
    atomic_flag_clear(&sink->writing);
    return error;
}

/* Writes whole aligned blocks. Writes that are refused, or cut short within a block, go through the
 * cache. */
static int write_direct(struct sink *sink, const uint8_t *bytes, size_t size_bytes, uint64_t at)
{
    size_t done = 0;

    while (done < size_bytes && done % DIRECT_ALIGN_BYTES == 0 && sink_is_direct(sink)) {
        ssize_t wrote =
            pwrite(sink->direct_fd, bytes + done, size_bytes - done, (off_t)(at + done));
        if (wrote < 0 && (errno == EINVAL || errno == EOPNOTSUPP))
            atomic_store(&sink->gave_up, true);
        else if (wrote < 0 && errno != EINTR)
            return -errno;
        if (wrote == 0)
            break;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return file_write_at(sink->fd, bytes + done, size_bytes - done, at + done);
}

/* Writes the held bytes, which begin at a block, after those already written. */
static int stream_flush(struct sink_stream *stream)
{
    size_t blocks = stream->held_bytes & ~(size_t)(DIRECT_ALIGN_BYTES - 1);
    size_t rest = stream->held_bytes - blocks;
    int error = 0;

    if (blocks)
        error = write_direct(stream->sink, stream->room, blocks, stream->at - stream->held_bytes);
    if (!error && rest)
        error = file_write_at(stream->sink->fd, stream->room + blocks, rest, stream->at - rest);
    stream->held_bytes = 0;
    return error;
}

/* Writes bytes directly from the caller's memory, *passed of them; 0: they must be gathered in the
 * room. */
static int stream_pass(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
                       size_t *passed)
{
    size_t over = (size_t)(stream->at % DIRECT_ALIGN_BYTES), to_block = DIRECT_ALIGN_BYTES - over;

    *passed = 0;
    if (stream->held_bytes > 0)
        return 0;
    if (over) {
        *passed = size_bytes < to_block ? size_bytes : to_block;
        return file_write_at(stream->sink->fd, bytes, *passed, stream->at);
    }
    if ((uintptr_t)bytes % DIRECT_ALIGN_BYTES == 0)
        *passed = size_bytes & ~(size_t)(DIRECT_ALIGN_BYTES - 1);
    return *passed ? write_direct(stream->sink, bytes, *passed, stream->at) : 0;
}

/* Copies bytes into the room. A full room is written only by the next call, so that its content
 * stays readable until then. */
static int stream_hold(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
                       size_t *held)
{
    int error = stream->held_bytes == SINK_ROOM_BYTES ? stream_flush(stream) : 0;
    size_t left = SINK_ROOM_BYTES - stream->held_bytes;

    *held = size_bytes < left ? size_bytes : left;
    memcpy(stream->room + stream->held_bytes, bytes, *held);
    stream->held_bytes += *held;
    stream->at += *held;
    return error;
}

/* Puts some of the bytes, passed or held. */
static int stream_put_some(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
                           size_t *put)
{
    int error = stream_pass(stream, bytes, size_bytes, put);

    stream->at += *put;
    return error || *put ? error : stream_hold(stream, bytes, size_bytes, put);
}

/* Returns true even after the sink gave up meanwhile, because bytes may be held. */
static bool is_stream_direct(const struct sink_stream *stream)
{
    return !stream->sink->map && stream->sink->direct_fd >= 0;
}

void sink_begin(struct sink_stream *stream, struct sink *sink, uint64_t offset_bytes, void *room)
{
    *stream = (struct sink_stream){.sink = sink, .at = offset_bytes, .room = room};
}

int sink_put(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes)
{
    struct sink *sink = stream->sink;
    size_t done = 0, step = 0;
    int error = 0;

    if (is_stream_direct(stream)) {
        while (!error && done < size_bytes) {
            error = stream_put_some(stream, bytes + done, size_bytes - done, &step);
            done += step;
        }
        return error;
    }
    error = sink->map ? write_mapped(sink, bytes, size_bytes, stream->at)
                      : file_write_at(sink->fd, bytes, size_bytes, stream->at);
    stream->at += size_bytes;
    return error;
}

/* Past the cache the bytes are held, unless the offset is within a block; else written from the
 * room. */
int sink_copy(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
              const uint8_t **copy, size_t *copied)
{
    size_t over = (size_t)(stream->at % DIRECT_ALIGN_BYTES), most = SINK_ROOM_BYTES;
    bool is_direct = is_stream_direct(stream);
    int error;

    if (is_direct && (stream->held_bytes > 0 || over == 0)) {
        error = stream_hold(stream, bytes, size_bytes, copied);
        *copy = stream->room + stream->held_bytes - *copied;
        return error;
    }
    if (is_direct)
        most = DIRECT_ALIGN_BYTES - over;
    *copied = size_bytes < most ? size_bytes : most;
    *copy = memcpy(stream->room, bytes, *copied);
    return sink_put(stream, *copy, *copied);
}

int sink_end(struct sink_stream *stream)
{
    return stream->held_bytes ? stream_flush(stream) : 0;
}
