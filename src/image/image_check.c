/* SPDX-License-Identifier: Apache-2.0 */
/* All bytes of an image through several threads: summed, and put where they are wanted. */
#include "image/image.h"

#include "base/failure.h"
#include "base/file_io.h"
#include "base/xxh3.h"
#include "mover/staging_file.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITTEN_STEP_BYTES ((size_t)128 << 10)

struct check_run {
    const struct image_check *check;
    enum direct_use use;
    uint64_t *sizes; /* of the pieces that are done */
    size_t *order;   /* pieces as they are taken; NULL: as they are */
    atomic_ullong read_bytes;
    pthread_mutex_t lock; /* of what follows */
    bool has_failed;
    struct failure *failure; /* the first */
};

/* Where the bytes of a piece go. */
struct check_target {
    uint8_t *base; /* of its rank's, where they are mapped; or else */
    int fd;        /* written to; -1: forgotten */
    void *map;     /* of a file that is not written; or NULL */
    size_t map_bytes;
    bool is_taken;
    const char *failed; /* what could not be done with it, "write"; NULL: nothing has failed */
};

/* What a device says comes before what that made of a piece. */
static int check_explain(const struct check_run *run, const struct image_piece *piece,
                         const struct check_target *target, int error)
{
    const struct image *image = run->check->image;
    char name[IMAGE_NAME_BYTES];
    bool is_told;

    if (run->check->staging && staging_get_failure(run->check->staging, run->failure, &is_told))
        return error;
    if (target->failed)
        return failure_set(run->failure, error, "%s: cannot %s the memory of allocation '%s': %s",
                           run->check->store, target->failed,
                           image->manifest.allocations[piece->rank].name, failure_reason(error));
    if (error == -EBADMSG)
        return failure_set(run->failure, error,
                           "%s/%s: the %" PRIu64 " bytes from %" PRIu64 " on (allocation %" PRIu64
                           ", '%s') are not those that were saved: the image "
                           "is damaged",
                           image->dir.path, image_data_name(piece->file, name), piece->size_bytes,
                           piece->file_offset_bytes, piece->rank,
                           image->manifest.allocations[piece->rank].name);
    return image_dir_explain(&image->dir, image_data_name(piece->file, name), "read", error,
                             run->failure);
}

static void check_stop_files(const struct check_run *run)
{
    if (run->check->stop_files)
        run->check->stop_files(run->check->files);
}

static int check_fail(struct check_run *run, const struct image_piece *piece,
                      const struct check_target *target, int error)
{
    pthread_mutex_lock(&run->lock);
    if (!run->has_failed)
        check_explain(run, piece, target, error);
    run->has_failed = true;
    pthread_mutex_unlock(&run->lock);
    check_stop_files(run);
    return error;
}

/* Reads into a buffer, which is written to a file, or forgotten (-1). */
static int check_step(struct direct_file *file, struct staging_lane *lane, uint64_t from,
                      struct check_target *target, uint64_t to, size_t *size_bytes,
                      XXH3_state_t *state)
{
    uint8_t *room = staging_scratch(lane, STAGING_FILE_BYTES), *bytes;
    int error = -ENOMEM;

    *size_bytes = direct_fit(file, from, *size_bytes, STAGING_FILE_BYTES);
    if (room)
        error = direct_read(file, room, from, *size_bytes, &bytes);
    if (!error)
        XXH3_128bits_update(state, bytes, *size_bytes);
    if (error || target->fd < 0)
        return error;
    error = file_write_at(target->fd, bytes, *size_bytes, to);
    if (error)
        target->failed = "write";
    return error;
}

/* What is summed is what lies in its place, or goes there. */
static int check_step_into(const struct check_run *run, struct direct_file *file,
                           struct staging_lane *lane, uint8_t *to, uint64_t from,
                           size_t *size_bytes, XXH3_state_t *state)
{
    const struct staging_memory *memory = run->check->memory;
    const uint8_t *bytes;
    int error = staging_read(lane, memory, to, file, from, *size_bytes, &bytes, size_bytes);

    if (error)
        return error;
    XXH3_128bits_update(state, bytes, *size_bytes);
    return staging_send(lane, memory, to, bytes, *size_bytes);
}

/* A step that goes through a buffer stays in the processor's cache. */
static size_t check_most(const struct direct_file *file, int to_fd)
{
    if (direct_is_on(file))
        return STAGING_FILE_BYTES;
    return to_fd >= 0 ? WRITTEN_STEP_BYTES : IMAGE_STEP_BYTES;
}

static int check_steps(struct check_run *run, const struct image_piece *piece,
                       struct check_target *target, struct direct_file *file,
                       struct staging_lane *lane, XXH3_state_t *state)
{
    size_t most = check_most(file, target->fd), step;
    int error = 0;

    for (uint64_t at = 0; !error && at < piece->size_bytes; at += step) {
        uint64_t left = piece->size_bytes - at, from = piece->file_offset_bytes + at;
        uint64_t to = piece->offset_bytes + at;
        step = left < most ? (size_t)left : most;
        error = target->base
                    ? check_step_into(run, file, lane, target->base + to, from, &step, state)
                    : check_step(file, lane, from, target, to, &step, state);
        atomic_fetch_add(&run->read_bytes, step);
    }
    return error;
}

static int check_map(struct check_target *target, int fd, size_t size_bytes)
{
    void *map = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) {
        target->failed = "map";
        return -errno;
    }
    target->base = target->map = map;
    target->map_bytes = size_bytes;
    return 0;
}

static int check_open_target(const struct image_check *check, size_t rank,
                             struct check_target *target)
{
    struct stat status;
    int fd;

    *target = (struct check_target){.base = check->into ? check->into[rank] : NULL, .fd = -1};
    if (!check->take_file)
        return 0;
    fd = check->take_file(check->files, rank);
    if (fd < 0)
        return fd;
    target->is_taken = true;
    if (fstat(fd, &status) < 0) {
        target->failed = "look at";
        return -errno;
    }
    if (!staging_file_is_written(fd, (uint64_t)status.st_size))
        return check_map(target, fd, (size_t)status.st_size);
    target->fd = fd;
    return 0;
}

static void check_close_target(const struct image_check *check, size_t rank,
                               const struct check_target *target)
{
    if (target->map)
        munmap(target->map, target->map_bytes);
    if (target->is_taken)
        check->give_file_back(check->files, rank);
}

static int check_read(struct check_run *run, const struct image_piece *piece,
                      struct check_target *target, struct staging_lane *lane, XXH3_state_t *state)
{
    char name[IMAGE_NAME_BYTES];
    struct direct_file file;
    int fd =
        image_dir_open_file(&run->check->image->dir, image_data_name(piece->file, name), O_RDONLY);
    int error;

    if (fd < 0)
        return fd;
    direct_open_part(&file, fd, run->use, piece->file_offset_bytes, piece->size_bytes);
    error = check_steps(run, piece, target, &file, lane, state);
    direct_close(&file);
    close(fd);
    return error;
}

static int check_piece(void *context, const struct work_piece *work_piece, void *own)
{
    struct check_run *run = context;
    const struct image_piece *piece = &run->check->image->manifest.pieces[work_piece->item];
    XXH3_state_t *state = XXH3_createState();
    struct check_target target;
    XXH128_canonical_t sum;
    int error;

    if (!state) {
        check_stop_files(run);
        return -ENOMEM;
    }
    XXH3_128bits_reset(state);
    error = check_open_target(run->check, piece->rank, &target);
    if (!error)
        error = check_read(run, piece, &target, own, state);
    check_close_target(run->check, piece->rank, &target);
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    if (!error && memcmp(sum.digest, piece->sum, IMAGE_DIGEST_BYTES) != 0)
        error = -EBADMSG;
    if (!error || (error == -ECANCELED && run->check->take_file))
        return error; /* why no file came is told elsewhere */
    return check_fail(run, piece, &target, error);
}

static int check_tick(void *context, uint64_t done_bytes)
{
    struct check_run *run = context;
    bool has_failed;
    int error;

    (void)done_bytes; /* counts whole pieces only */
    pthread_mutex_lock(&run->lock);
    has_failed = run->has_failed;
    pthread_mutex_unlock(&run->lock);
    if (has_failed || !run->check->tick)
        return 0;
    error = run->check->tick(run->check->context, atomic_load(&run->read_bytes));
    if (error)
        check_stop_files(run);
    return error;
}

/* What is written to files is taken from several of them in turns. */
static int check_make_order(struct check_run *run, unsigned threads)
{
    const struct image_manifest *manifest = &run->check->image->manifest;
    size_t *rank;

    if (!run->check->take_file)
        return 0;
    rank = calloc(manifest->piece_count + 1, sizeof(*rank));
    run->order = calloc(manifest->piece_count + 1, sizeof(*run->order));
    if (!rank || !run->order) {
        free(rank);
        return -ENOMEM;
    }
    for (size_t i = 0; i < manifest->piece_count; i++)
        rank[i] = (size_t)manifest->pieces[i].rank;
    work_order_abreast(rank, manifest->piece_count,
                       threads < run->check->files_abreast ? threads : run->check->files_abreast,
                       run->order);
    free(rank);
    return 0;
}

static int check_work(struct check_run *run, struct work *work)
{
    struct staging *own = NULL, *staging = run->check->staging;
    int error = -ENOMEM;

    if (!staging)
        staging = own = staging_new();
    if (staging) {
        staging_equip(staging, work, run->check->memory,
                      direct_threads(run->check->threads, run->use != DIRECT_NEVER));
        error = check_make_order(run, work->threads);
        work->order = run->order;
        if (!error)
            error = work_run(work);
    }
    staging_free(own);
    return error;
}

int image_check(const struct image_check *check, struct failure *failure)
{
    const struct image_manifest *manifest = &check->image->manifest;
    struct check_run run = {.check = check, .lock = PTHREAD_MUTEX_INITIALIZER, .failure = failure};
    struct work work = {.item_count = manifest->piece_count,
                        .whole = true,
                        .context = &run,
                        .piece = check_piece,
                        .tick = check_tick};
    uint64_t whole_bytes;
    bool is_told;
    int error;

    *failure->text = '\0';
    run.sizes = calloc(manifest->piece_count + 1, sizeof(*run.sizes));
    if (!run.sizes)
        return failure_no_memory(failure);
    for (size_t i = 0; i < manifest->piece_count; i++)
        run.sizes[i] = manifest->pieces[i].done ? manifest->pieces[i].size_bytes : 0;
    work.item_bytes = run.sizes;
    image_manifest_count_done(manifest, &whole_bytes);
    run.use = direct_choose(check->direct, whole_bytes, check->taken_bytes);
    error = check_work(&run, &work);
    free(run.sizes);
    free(run.order);
    if (!error || run.has_failed ||
        (check->staging && staging_get_failure(check->staging, failure, &is_told)))
        return error;
    return failure_set(failure, error, "%s: cannot read the image: %s", check->image->dir.path,
                       failure_thread_reason(error));
}
