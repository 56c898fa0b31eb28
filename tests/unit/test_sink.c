/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a file filled by streams that meet anywhere, on a disk and on a tmpfs, in every way. */
#include "mover/sink.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES    ((size_t)21 * 1000 * 1000 + 3)
#define STREAMS       4u
#define RANDOM_FACTOR UINT64_C(6364136223846793005)

static const struct sink_way ways[] = {
    {DIRECT_AUTO, 8}, {DIRECT_ALWAYS, 1}, {DIRECT_NEVER, 8}, {DIRECT_NEVER, 1}};

#define WAYS (sizeof ways / sizeof *ways)

struct part {
    struct sink *sink;
    const uint8_t *from; /* the whole content */
    size_t begin, end;
    uint64_t random;
    bool is_aligned; /* of the parts that are put */
    bool is_copied;
    int result;
};

static uint64_t next_random(uint64_t *random)
{
    *random = *random * RANDOM_FACTOR + 1442695040888963407u;
    return *random >> 33;
}

static int make_file(const char *dir, size_t size_bytes, const struct sink_way *way)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    uint64_t promised = 0;

    if (fd >= 0)
        require(sink_reserve(fd, size_bytes, way, &promised) == 0);
    return fd;
}

/* Checks that the reported copy is a copy. */
static int copy_some(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
                     size_t *copied)
{
    const uint8_t *copy;
    int r = sink_copy(stream, bytes, size_bytes, &copy, copied);

    return r || memcmp(copy, bytes, *copied) == 0 ? r : -EBADMSG;
}

static void *fill_part(void *context)
{
    struct part *part = context;
    void *room = aligned_alloc(DIRECT_ALIGN_BYTES, SINK_ROOM_BYTES);
    struct sink_stream stream;
    size_t at = part->begin;

    part->result = room ? 0 : -ENOMEM;
    sink_begin(&stream, part->sink, at, room);
    while (!part->result && at < part->end) {
        size_t size = (size_t)next_random(&part->random) % (3u << 20) + 1;
        if (part->is_aligned)
            size = (size + DIRECT_ALIGN_BYTES - 1) / DIRECT_ALIGN_BYTES * DIRECT_ALIGN_BYTES;
        if (size > part->end - at)
            size = part->end - at;
        if (part->is_copied)
            part->result = copy_some(&stream, part->from + at, size, &size);
        else
            part->result = sink_put(&stream, part->from + at, size);
        at += size;
    }
    if (!part->result)
        part->result = sink_end(&stream);
    free(room);
    return NULL;
}

static uint8_t *make_bytes(void)
{
    uint8_t *bytes =
        aligned_alloc(DIRECT_ALIGN_BYTES,
                      FILE_BYTES / DIRECT_ALIGN_BYTES * DIRECT_ALIGN_BYTES + DIRECT_ALIGN_BYTES);
    uint64_t random = 5;

    require(bytes);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (uint8_t)next_random(&random);
    return bytes;
}

static bool file_is(int fd, const uint8_t *bytes)
{
    uint8_t *got = malloc(FILE_BYTES + 1);
    bool same = got && pread(fd, got, FILE_BYTES + 1, 0) == (ssize_t)FILE_BYTES &&
                memcmp(got, bytes, FILE_BYTES) == 0;

    free(got);
    return same;
}

/* ends: offsets at which the streams meet. */
static void fill(const char *dir, const struct sink_way *way, const size_t ends[STREAMS],
                 bool is_aligned, bool is_copied)
{
    int fd = make_file(dir, FILE_BYTES, way);
    struct part parts[STREAMS];
    pthread_t threads[STREAMS];
    struct sink sink;
    uint8_t *bytes;

    if (fd < 0)
        return; /* no such directory, or no files without a name */
    bytes = make_bytes();
    sink_open(&sink, fd, FILE_BYTES, way);
    for (size_t i = 0; i < STREAMS; i++) {
        parts[i] = (struct part){&sink, bytes,      i ? ends[i - 1] : 0, ends[i],
                                 i + 1, is_aligned, is_copied,           0};
        require(pthread_create(&threads[i], NULL, fill_part, &parts[i]) == 0);
    }
    for (size_t i = 0; i < STREAMS; i++) {
        pthread_join(threads[i], NULL);
        check(parts[i].result == 0);
    }
    sink_close(&sink);
    check(file_is(fd, bytes));
    close(fd);
    free(bytes);
}

static const char *disk(void)
{
    const char *dir = getenv("TMPDIR");

    return dir ? dir : "/tmp";
}

TAP_TEST(streams_may_meet_within_a_block)
{
    static const size_t ends[STREAMS] = {5000001, 5000002, 12345678, FILE_BYTES};

    for (size_t i = 0; i < WAYS; i++) {
        fill(disk(), &ways[i], ends, false, false);
        fill("/dev/shm", &ways[i], ends, false, false);
    }
}

TAP_TEST(streams_of_whole_blocks_arrive_whole)
{
    static const size_t ends[STREAMS] = {4u << 20, 12u << 20, 16u << 20, FILE_BYTES};

    for (size_t i = 0; i < WAYS; i++) {
        fill(disk(), &ways[i], ends, true, false);
        fill("/dev/shm", &ways[i], ends, true, false);
    }
}

TAP_TEST(the_copied_bytes_are_the_written_ones)
{
    static const size_t ends[STREAMS] = {4u << 20, 9999999, 16u << 20, FILE_BYTES};

    for (size_t i = 0; i < WAYS; i++) {
        fill(disk(), &ways[i], ends, i % 2, true);
        fill("/dev/shm", &ways[i], ends, i % 2, true);
    }
}

/* An error in place of a SIGBUS. */
TAP_TEST(a_file_that_is_cut_off_while_it_is_filled_is_an_error)
{
    static const struct sink_way way = {DIRECT_AUTO, 8};
    auto_fd fd = make_file("/dev/shm", FILE_BYTES, &way);
    struct sink_stream stream;
    struct sink sink;
    auto_free uint8_t *bytes = NULL;
    auto_free void *room = NULL;

    if (fd < 0)
        return;
    bytes = make_bytes();
    room = aligned_alloc(DIRECT_ALIGN_BYTES, SINK_ROOM_BYTES);
    require(room);
    sink_open(&sink, fd, FILE_BYTES, &way);
    require(ftruncate(fd, 1 << 20) == 0);
    sink_begin(&stream, &sink, 8u << 20, room);
    atomic_flag_test_and_set(&sink.writing); /* as if another thread wrote by write(2) */
    check(!sink.map || sink_put(&stream, bytes, 1 << 20) == -EIO);
    sink_close(&sink);
}

TAP_TEST(an_empty_file_takes_nothing)
{
    for (size_t i = 0; i < WAYS; i++) {
        int fd = make_file(disk(), 0, &ways[i]);
        struct sink_stream stream;
        struct sink sink;

        if (fd < 0)
            return;
        sink_open(&sink, fd, 0, &ways[i]);
        sink_begin(&stream, &sink, 0, NULL);
        check(sink_put(&stream, NULL, 0) == 0);
        check(sink_end(&stream) == 0);
        sink_close(&sink);
        close(fd);
    }
}
