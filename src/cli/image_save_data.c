/* SPDX-License-Identifier: Apache-2.0 */
/* From the mapped memory into the data files, piece by piece; and the manifest at the end. */
#include "cli/image_save.h"

#include "base/digest.h"
#include "base/file_io.h"
#include "base/thread.h"
#include "cli/signals.h"
#include "mover/sink.h"
#include "mover/work.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One of the files. Open while pieces of it are being written. */
struct data_file {
    struct sink sink;
    int fd;             /* negative: not open; its user may read this without the lock */
    size_t pieces_left; /* not finished yet */
};

struct data_run {
    struct image_save *save;
    struct progress progress;
    atomic_ullong done_bytes, kept_bytes;
    pthread_mutex_t lock; /* of the fields below */
    struct data_file *files;
    int notes_fd; /* the unfinished manifest, at its end */
    bool has_failed;
    char failed[IMAGE_NAME_BYTES];
};

/* ---- the files ----------------------------------------------------------------------------- */

static int files_begin(struct data_run *run)
{
    const struct image_manifest *manifest = &run->save->made.manifest;

    run->files = calloc(manifest->file_count + 1, sizeof(*run->files));
    if (!run->files)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->file_count; i++)
        run->files[i].fd = -1;
    for (size_t i = 0; i < manifest->piece_count; i++)
        run->files[manifest->pieces[i].file].pieces_left++;
    return 0;
}

/* Shared by the threads that write to it: pieces are taken in order, so few are open at once. */
static int file_take(struct data_run *run, uint64_t number, struct data_file **taken)
{
    const struct image_save *save = run->save;
    struct data_file *file = &run->files[number];
    char name[IMAGE_NAME_BYTES];
    int error = 0;

    pthread_mutex_lock(&run->lock);
    if (file->fd < 0) {
        file->fd = image_dir_open_file(&save->dir, image_data_name(number, name), O_RDWR);
        if (file->fd >= 0)
            sink_open(&file->sink, file->fd, save->made.manifest.file_sizes[number], &save->way);
        else
            error = file->fd;
    }
    pthread_mutex_unlock(&run->lock);
    *taken = file;
    return error;
}

static int file_close(struct data_file *file)
{
    int fd = file->fd;

    if (fd < 0)
        return 0;
    sink_close(&file->sink);
    file->fd = -1;
    return close(fd) < 0 ? -errno : 0;
}

/* A piece of it is done with. */
static int file_give_back(struct data_run *run, struct data_file *file)
{
    int error = 0;

    SCOPED_LOCK(&run->lock);
    if (--file->pieces_left == 0)
        error = file_close(file);
    return error;
}

static void files_end(struct data_run *run)
{
    for (size_t i = 0; run->files && i < run->save->made.manifest.file_count; i++)
        file_close(&run->files[i]);
    free(run->files);
}

/* ---- one piece ----------------------------------------------------------------------------- */

static const uint8_t *data_source(const struct image_save *save, const struct image_piece *piece)
{
    return (const uint8_t *)save->reader.mappings[piece->rank].ptr + piece->offset_bytes;
}

static int data_fetch(const struct image_save *save, const struct image_piece *piece,
                      struct staging_lane *lane, size_t step_bytes)
{
    return staging_fetch(lane, &save->reader.memory, data_source(save, piece), piece->size_bytes,
                         step_bytes);
}

/* Copies the bytes first: a writer may still change its store's memory after its commit, and the
 * sum has to be of the written bytes. */
static int data_put(struct sink_stream *stream, const uint8_t *part, size_t size_bytes,
                    bool is_copied, XXH3_state_t *state)
{
    const uint8_t *copy;
    size_t done = 0, copied;
    int error = 0;

    if (is_copied) {
        XXH3_128bits_update(state, part, size_bytes);
        return sink_put(stream, part, size_bytes);
    }
    while (!error && done < size_bytes) {
        error = sink_copy(stream, part + done, size_bytes - done, &copy, &copied);
        if (!error)
            XXH3_128bits_update(state, copy, copied);
        done += copied;
    }
    return error;
}

static int data_write(struct data_run *run, const struct image_piece *piece, struct data_file *file,
                      struct staging_lane *lane, XXH3_state_t *state)
{
    bool is_copied = staging_is_copied(&run->save->reader.memory);
    size_t step = is_copied ? SINK_ROOM_BYTES : IMAGE_STEP_BYTES;
    uint8_t *room = staging_scratch(lane, SINK_ROOM_BYTES);
    struct sink_stream stream;
    const uint8_t *part;
    int error = room ? data_fetch(run->save, piece, lane, step) : -ENOMEM;

    sink_begin(&stream, &file->sink, piece->file_offset_bytes, room);
    while (!error && step > 0) {
        error = staging_next(lane, &part, &step);
        if (error || step == 0)
            break;
        error = data_put(&stream, part, step, is_copied, state);
        atomic_fetch_add(&run->done_bytes, step);
    }
    return error ? error : sink_end(&stream);
}

/* 1: the file has the piece already, and it is summed. 0: it has not, and the counted bytes are
 * subtracted again. */
static int data_is_there(struct data_run *run, const struct image_piece *piece, int fd,
                         struct staging_lane *lane, XXH3_state_t *state)
{
    uint8_t *buffer = staging_scratch(lane, IMAGE_STEP_BYTES);
    const uint8_t *part;
    uint64_t at = 0;
    size_t step = 1;
    int error = buffer ? data_fetch(run->save, piece, lane, IMAGE_STEP_BYTES) : -ENOMEM;

    while (!error && step > 0) {
        error = staging_next(lane, &part, &step);
        if (error || step == 0)
            break;
        if (file_read_at(fd, buffer, step, piece->file_offset_bytes + at) != 0 ||
            memcmp(buffer, part, step) != 0) {
            atomic_fetch_sub(&run->done_bytes, at);
            return 0;
        }
        XXH3_128bits_update(state, buffer, step);
        atomic_fetch_add(&run->done_bytes, step);
        at += step;
    }
    return error ? error : 1;
}

/* Writes it, unless it is there; its sum. */
static int data_copy_to(struct data_run *run, struct image_piece *piece, struct data_file *file,
                        struct staging_lane *lane, XXH3_state_t *state)
{
    int is_there = 0; /* or a negative errno */

    XXH3_128bits_reset(state);
    if (piece->done)
        is_there = data_is_there(run, piece, file->fd, lane, state);
    if (is_there < 0)
        return is_there;
    if (is_there) {
        atomic_fetch_add(&run->kept_bytes, piece->size_bytes);
        return 0;
    }
    XXH3_128bits_reset(state);
    return data_write(run, piece, file, lane, state);
}

static int data_copy(struct data_run *run, struct image_piece *piece, struct staging_lane *lane,
                     XXH3_state_t *state)
{
    struct data_file *file;
    int error = file_take(run, piece->file, &file), closed;

    if (error)
        return error;
    error = data_copy_to(run, piece, file, lane, state);
    closed = file_give_back(run, file);
    if (!error)
        error = closed;
    digest_put(XXH3_128bits_digest(state), piece->sum);
    piece->done = error == 0;
    return error;
}

/* Notes a finished piece, for `gmsfs image ls` and for a save that resumes. */
static int data_note(struct data_run *run, const struct image_piece *piece)
{
    char line[IMAGE_PIECE_LINE_BYTES];
    size_t length = image_manifest_piece_line(piece, line);

    SCOPED_LOCK(&run->lock);
    return file_write(run->notes_fd, line, length);
}

static int data_piece(void *context, const struct work_piece *work_piece, void *own)
{
    struct data_run *run = context;
    struct image_piece *piece = &run->save->made.manifest.pieces[work_piece->item];
    XXH3_state_t *state = XXH3_createState();
    int error = state ? data_copy(run, piece, own, state) : -ENOMEM;

    XXH3_freeState(state);
    if (!error)
        return data_note(run, piece);
    SCOPED_LOCK(&run->lock);
    if (!run->has_failed)
        image_data_name(piece->file, run->failed);
    run->has_failed = true;
    return error;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int data_tick(void *context, uint64_t done_bytes)
{
    struct data_run *run = context;

    (void)done_bytes; /* counts whole pieces only */
    progress_show(&run->progress, atomic_load(&run->done_bytes));
    return signals_get() ? -EINTR : 0;
}

static int data_work(struct data_run *run)
{
    const struct image_manifest *manifest = &run->save->made.manifest;
    SCOPED_FREE uint64_t *sizes = calloc(manifest->piece_count + 1, sizeof(*sizes));
    struct work work = {.item_bytes = sizes,
                        .item_count = manifest->piece_count,
                        .whole = true,
                        .context = run,
                        .piece = data_piece,
                        .tick = data_tick};

    if (!sizes)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->piece_count; i++)
        sizes[i] = manifest->pieces[i].size_bytes;
    staging_equip(
        run->save->reader.staging, &work, &run->save->reader.memory,
        direct_threads(run->save->request->threads, run->save->request->direct != DIRECT_NEVER));
    progress_begin(&run->progress, "saving", manifest->stored_bytes, run->save->request->quiet);
    int error = work_run(&work);
    progress_end(&run->progress);
    run->save->kept_bytes = atomic_load(&run->kept_bytes);
    return error;
}

static int data_fill(struct image_save *save)
{
    struct data_run run = {
        .save = save, .lock = PTHREAD_MUTEX_INITIALIZER, .failed = IMAGE_UNFINISHED};

    run.notes_fd = image_dir_open_file(&save->dir, IMAGE_UNFINISHED, O_WRONLY | O_APPEND);
    if (run.notes_fd < 0)
        return image_save_fail(save, IMAGE_UNFINISHED, run.notes_fd);
    int error = files_begin(&run);
    if (!error)
        error = data_work(&run);
    files_end(&run);
    close(run.notes_fd);
    return error ? image_save_fail(save, run.failed, error) : CLI_OK;
}

static int data_sync(const struct image_save *save)
{
    char name[IMAGE_NAME_BYTES];

    for (size_t i = 0; i < save->made.manifest.file_count; i++) {
        int fd = signals_get() ? -EINTR
                               : image_dir_open_file(&save->dir, image_data_name(i, name), O_RDWR);
        int error = fd < 0 ? fd : 0;
        if (!error && fsync(fd) < 0)
            error = -errno;
        if (fd >= 0 && close(fd) < 0 && !error)
            error = -errno;
        if (error)
            return image_save_fail(save, image_data_name(i, name), error);
    }
    return signals_get() ? CLI_SIGNALED + signals_get() : CLI_OK;
}

/* With it in place, the directory is an image. */
static int data_finish(const struct image_save *save)
{
    int status = image_save_manifest(save, false), error;

    if (status != CLI_OK)
        return status;
    error = image_dir_remove(&save->dir, IMAGE_UNFINISHED);
    if (!error)
        error = image_dir_sync(&save->dir);
    return error ? image_save_fail(save, IMAGE_MANIFEST, error) : CLI_OK;
}

int image_save_write(struct image_save *save)
{
    uint64_t start_ms = clock_now_ms();
    int status = data_fill(save);

    if (status == CLI_OK)
        status = data_sync(save);
    save->copied_ms = clock_now_ms() - start_ms;
    return status == CLI_OK ? data_finish(save) : status;
}
