/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all bytes of an image by several threads, sums them, and puts them into their sinks. */
#include "image/image.h"

#include "base/failure.h"
#include "mover/fill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

_Static_assert(DIGEST_BYTES == FILL_SUM_BYTES, "a piece's sum is as the engine makes it");

/* Each piece is one range and one part. */
struct check_run {
    const struct image_check *check;
    struct fill_range *ranges;
    struct fill_part *parts;
    uint64_t *sizes; /* 0: the piece is not done */
    struct fill_crew crew;
    struct fill fill;
    struct failure *failure; /* of the first error */
};

static const struct image_piece *check_find_piece(const struct check_run *run,
                                                  const struct fill_range *range)
{
    return &run->check->image->manifest.pieces[range - run->ranges];
}

/* Reports an error of the device first, because it may have caused the error of a piece. */
static void check_fail(void *context, const struct fill_failure *failed)
{
    const struct check_run *run = context;
    const struct image *image = run->check->image;
    const struct image_piece *piece = check_find_piece(run, failed->range);
    const char *allocation = image->manifest.allocations[piece->rank].name;
    const char *shown = source_get(image->dir.source, failed->range->file)->shown;
    char name[IMAGE_NAME_BYTES];
    bool is_told;

    if (run->check->staging && staging_get_failure(run->check->staging, run->failure, &is_told))
        return;
    if (failed->doing)
        failure_set(run->failure, failed->error, "%s: cannot %s the memory of allocation '%s': %s",
                    run->check->store ? run->check->store : image->dir.path, failed->doing,
                    allocation, failure_reason(failed->error));
    else if (failed->error == -EBADMSG && !*failed->why)
        failure_set(run->failure, failed->error,
                    "%s: the %" PRIu64 " bytes from %" PRIu64 " on (allocation %" PRIu64
                    ", '%s') are not the saved bytes: the image is damaged",
                    shown, piece->size_bytes, piece->file_offset_bytes, piece->rank, allocation);
    else if (*failed->why)
        failure_set(run->failure, failed->error, "%s: cannot read: %s", shown, failed->why);
    else
        image_dir_explain(&image->dir, image_data_name(piece->file, name), "read", failed->error,
                          run->failure);
}

static int check_tick(void *context, size_t crew, uint64_t done_bytes)
{
    const struct check_run *run = context;

    (void)crew;
    return run->check->tick ? run->check->tick(run->check->context, done_bytes) : 0;
}

static int check_plan(struct check_run *run)
{
    const struct image *image = run->check->image;
    const struct image_manifest *manifest = &image->manifest;

    run->ranges = calloc(manifest->piece_count + 1, sizeof(*run->ranges));
    run->parts = calloc(manifest->piece_count + 1, sizeof(*run->parts));
    run->sizes = calloc(manifest->piece_count + 1, sizeof(*run->sizes));
    if (!run->ranges || !run->parts || !run->sizes)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->piece_count; i++) {
        const struct image_piece *piece = &manifest->pieces[i];

        run->ranges[i] =
            (struct fill_range){.file = image->files[piece->file],
                                .from = piece->file_offset_bytes,
                                .into = run->check->into ? run->check->into[piece->rank] : NULL,
                                .item = (size_t)piece->rank,
                                .to = piece->offset_bytes,
                                .size_bytes = piece->size_bytes};
        run->parts[i] = (struct fill_part){i, i + 1, piece->sum};
        run->sizes[i] = piece->done ? piece->size_bytes : 0;
    }
    return 0;
}

/* Adds the files that have pieces; of an unfinished image not all of them are there. */
static int check_add_files(const struct image *image, struct failure *failure)
{
    size_t file;
    int error = 0;

    for (size_t i = 0; !error && i < image->manifest.piece_count; i++)
        if (image->manifest.pieces[i].done)
            error = image_find_file(image, image->manifest.pieces[i].file, &file, failure);
    return error;
}

static int check_work(struct check_run *run)
{
    const struct image_check *check = run->check;
    struct staging *own = check->staging ? NULL : staging_new();
    int error = check->staging || own ? check_plan(run) : -ENOMEM;

    run->crew =
        (struct fill_crew){.memory = check->memory,
                           .parts = run->parts,
                           .part_bytes = run->sizes,
                           .part_count = check->image->manifest.piece_count,
                           .threads = source_threads(check->image->dir.source, check->threads)};
    run->fill = (struct fill){.source = check->image->dir.source,
                              .ranges = run->ranges,
                              .crews = &run->crew,
                              .crew_count = 1,
                              .staging = own ? own : check->staging,
                              .supply = check->supply,
                              .fail = check_fail,
                              .tick = check_tick,
                              .context = run};
    if (!error)
        error = fill_run(&run->fill);
    staging_free(own);
    free(run->ranges);
    free(run->parts);
    free(run->sizes);
    return error;
}

int image_check(const struct image_check *check, struct failure *failure)
{
    struct check_run run = {.check = check, .failure = failure};
    uint64_t whole_bytes;
    bool is_told;

    *failure->text = '\0';
    image_manifest_count_done(&check->image->manifest, &whole_bytes);
    int error = check_add_files(check->image, failure);
    if (error)
        return error;
    source_prepare(check->image->dir.source, check->direct, whole_bytes, check->taken_bytes);
    error = check_work(&run);
    if (!error || run.fill.failure ||
        (check->staging && staging_get_failure(check->staging, failure, &is_told)))
        return error;
    return failure_set(failure, error, "%s: cannot read the image: %s", check->image->dir.path,
                       failure_thread_reason(error));
}
