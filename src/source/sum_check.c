/* SPDX-License-Identifier: Apache-2.0 */
#include "source/sum_check.h"

#include "base/array.h"
#include "base/file_io.h"
#include "base/hex.h"
#include "source/crc.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nettle/md5.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>

#define MOST_EXTENTS 256u                /* each has a descriptor */
#define STEP_BYTES   ((size_t)256 << 10) /* stays in the processor's cache */
#define MISSED_BYTES \
    ((uint64_t)128 << 20) /* headers and padding, that a model's reader leaves out */

/* Bytes that are in store memory and not summed yet. */
struct extent {
    uint64_t from, end; /* in the file */
    uint64_t at;        /* in the memory */
    int fd;             /* a duplicate */
    ino_t inode;
};

struct sum_check {
    pthread_mutex_t lock;
    struct source_sum sum;
    const atomic_bool *is_cancelled;
    union {
        struct sha256_ctx sha256;
        struct sha1_ctx sha1;
        struct md5_ctx md5;
        uint64_t crc;
    } state;
    uint64_t size_bytes;
    uint64_t next;   /* offset of the next byte to sum */
    bool is_busy;    /* a thread sums, without the lock */
    bool has_failed; /* the sum cannot be known any more, or was compared */
    struct extent *extents;
    size_t count, room;
};

/* ---- kinds of sums --------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    size_t bytes;
    bool is_crc;
    enum crc_kind crc;
} kinds[] = {
    [SOURCE_SUM_MD5] = {"md5", MD5_DIGEST_SIZE, false, 0},
    [SOURCE_SUM_SHA1] = {"sha1", SHA1_DIGEST_SIZE, false, 0},
    [SOURCE_SUM_SHA256] = {"sha256", SHA256_DIGEST_SIZE, false, 0},
    [SOURCE_SUM_CRC32] = {"crc32", 4, true, CRC_32},
    [SOURCE_SUM_CRC32C] = {"crc32c", 4, true, CRC_32C},
    [SOURCE_SUM_CRC64NVME] = {"crc64nvme", 8, true, CRC_64NVME},
};

static void begin(struct sum_check *check)
{
    if (check->sum.kind == SOURCE_SUM_SHA256)
        sha256_init(&check->state.sha256);
    else if (check->sum.kind == SOURCE_SUM_SHA1)
        sha1_init(&check->state.sha1);
    else if (check->sum.kind == SOURCE_SUM_MD5)
        md5_init(&check->state.md5);
}

static void add(struct sum_check *check, const uint8_t *bytes, size_t size_bytes)
{
    const struct kind *kind = &kinds[check->sum.kind];

    if (kind->is_crc)
        check->state.crc = crc_add(kind->crc, check->state.crc, bytes, size_bytes);
    else if (check->sum.kind == SOURCE_SUM_SHA256)
        sha256_update(&check->state.sha256, size_bytes, bytes);
    else if (check->sum.kind == SOURCE_SUM_SHA1)
        sha1_update(&check->state.sha1, size_bytes, bytes);
    else
        md5_update(&check->state.md5, size_bytes, bytes);
}

static void end(struct sum_check *check, uint8_t sum[SOURCE_SUM_BYTES])
{
    const struct kind *kind = &kinds[check->sum.kind];
    uint64_t crc = htobe64(check->state.crc);

    if (kind->is_crc)
        memcpy(sum, (const uint8_t *)&crc + sizeof(crc) - kind->bytes, kind->bytes);
    else if (check->sum.kind == SOURCE_SUM_SHA256)
        sha256_digest(&check->state.sha256, kind->bytes, sum);
    else if (check->sum.kind == SOURCE_SUM_SHA1)
        sha1_digest(&check->state.sha1, kind->bytes, sum);
    else
        md5_digest(&check->state.md5, kind->bytes, sum);
}

/* ---- one check ------------------------------------------------------------------------------- */

struct sum_check *sum_check_new(const struct source_sum *sum, uint64_t size_bytes,
                                const atomic_bool *is_cancelled, int *error)
{
    struct sum_check *check;

    *error = 0;
    if (sum->kind == SOURCE_SUM_NONE)
        return NULL;
    check = calloc(1, sizeof(*check));
    *error = check ? 0 : -ENOMEM;
    if (!check)
        return NULL;
    pthread_mutex_init(&check->lock, NULL);
    check->sum = *sum;
    check->size_bytes = size_bytes;
    check->is_cancelled = is_cancelled;
    begin(check);
    return check;
}

void sum_check_free(struct sum_check *check)
{
    for (size_t i = 0; check && i < check->count; i++)
        close(check->extents[i].fd);
    if (check) {
        free(check->extents);
        pthread_mutex_destroy(&check->lock);
    }
    free(check);
}

/* ---- summing --------------------------------------------------------------------------------- */

/* Takes out the extent whose turn has come. False: none. */
static bool take_extent(struct sum_check *check, struct extent *extent)
{
    for (size_t i = 0; i < check->count; i++)
        if (check->extents[i].from <= check->next) {
            *extent = check->extents[i];
            check->extents[i] = check->extents[--check->count];
            return true;
        }
    return false;
}

static int add_extent(struct sum_check *check, const struct extent *extent)
{
    uint64_t from = check->next;
    SCOPED_FREE uint8_t *bytes = malloc(STEP_BYTES);
    int error = bytes ? 0 : -ENOMEM;

    for (size_t step; error == 0 && from < extent->end; from += step) {
        step = extent->end - from < STEP_BYTES ? (size_t)(extent->end - from) : STEP_BYTES;
        error = atomic_load(check->is_cancelled)
                    ? -ECANCELED
                    : file_read_at(extent->fd, bytes, step, extent->at + (from - extent->from));
        if (error == 0)
            add(check, bytes, step);
    }
    return error;
}

/* Sums all extents whose turn has come. Locked, and busy; unlocks meanwhile. */
static void drain(struct sum_check *check)
{
    struct extent extent;

    while (!check->has_failed && take_extent(check, &extent)) {
        int error = 0;

        pthread_mutex_unlock(&check->lock);
        if (extent.end > check->next)
            error = add_extent(check, &extent);
        close(extent.fd);
        pthread_mutex_lock(&check->lock);
        check->next = extent.end > check->next ? extent.end : check->next;
        check->has_failed = check->has_failed || error;
    }
}

/* ---- bytes ahead ----------------------------------------------------------------------------- */

/* Notes bytes in store memory, and joins them with those before. Bytes that cannot be noted are
 * missing at the end. */
static void note(struct sum_check *check, const struct extent *extent)
{
    struct stat status;
    struct extent *noted;

    if (extent->fd < 0 || fstat(extent->fd, &status) != 0)
        return;
    for (size_t i = 0; i < check->count; i++) {
        noted = &check->extents[i];
        if (noted->end == extent->from && noted->inode == status.st_ino &&
            noted->at + (noted->end - noted->from) == extent->at) {
            noted->end = extent->end;
            return;
        }
    }
    if (check->count == MOST_EXTENTS ||
        ARRAY_RESERVE(check->extents, check->room, check->count + 1))
        return;
    noted = &check->extents[check->count];
    *noted = *extent;
    noted->inode = status.st_ino;
    noted->fd = fcntl(extent->fd, F_DUPFD_CLOEXEC, 0);
    check->count += noted->fd >= 0;
}

void sum_check_pass(struct sum_check *check, uint64_t offset_bytes, const uint8_t *bytes,
                    size_t size_bytes, int fd, uint64_t at_bytes)
{
    const uint64_t end = offset_bytes + size_bytes;
    const struct extent extent = {offset_bytes, end, at_bytes, fd, 0};

    pthread_mutex_lock(&check->lock);
    if (check->has_failed || end <= check->next) {
        pthread_mutex_unlock(&check->lock); /* too late, or seen before */
        return;
    }
    if (check->is_busy || offset_bytes > check->next) {
        note(check, &extent);
    } else {
        check->is_busy = true;
        pthread_mutex_unlock(&check->lock);
        add(check, bytes + (check->next - offset_bytes), (size_t)(end - check->next));
        pthread_mutex_lock(&check->lock);
        check->next = end;
        drain(check);
        check->is_busy = false;
    }
    pthread_mutex_unlock(&check->lock);
}

/* ---- the end --------------------------------------------------------------------------------- */

bool sum_check_misses(struct sum_check *check, uint64_t *offset_bytes, uint64_t *size_bytes)
{
    uint64_t end = check->size_bytes, passed, missing;

    pthread_mutex_lock(&check->lock);
    drain(check);
    passed = check->next;
    for (size_t i = 0; i < check->count; i++) {
        end = check->extents[i].from < end ? check->extents[i].from : end;
        passed += check->extents[i].end - check->extents[i].from;
    }
    *offset_bytes = check->next;
    *size_bytes = end - check->next;
    missing = passed < check->size_bytes ? check->size_bytes - passed : 0;
    bool is_little = missing <= MISSED_BYTES && missing <= passed;
    check->has_failed = check->has_failed || !is_little;
    pthread_mutex_unlock(&check->lock);
    return !check->has_failed && *size_bytes > 0;
}

int sum_check_compare(struct sum_check *check, struct failure *failure)
{
    const struct kind *kind = &kinds[check->sum.kind];
    uint8_t sum[SOURCE_SUM_BYTES];
    char promised[2 * sizeof(sum) + 1], found[2 * sizeof(sum) + 1];

    if (check->has_failed || check->next < check->size_bytes)
        return 0;
    end(check, sum);
    check->has_failed = true; /* compared, once */
    if (memcmp(sum, check->sum.bytes, kind->bytes) == 0)
        return 0;
    hex_format(sum, kind->bytes, found);
    hex_format(check->sum.bytes, kind->bytes, promised);
    return failure_set(
        failure, -EBADMSG,
        "its bytes are not those that were promised: their %s is %s, not %s; load it "
        "again, or ask its owner",
        kind->name, found, promised);
}
