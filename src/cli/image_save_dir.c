/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether and how to write to the directory. Files that are not of an image stay. */
#include "cli/image_save.h"

#include "base/failure.h"
#include "base/scope.h"
#include "base/size.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "cli/ui.h"
#include "mover/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCK_BYTES 512u /* of st_blocks */

/* Notes the free bytes before files reserve some of them. */
static void prepare_note_room(struct image_save *save)
{
    char name[IMAGE_NAME_BYTES];
    struct statvfs disk;
    struct stat known;

    save->knows_free = fstatvfs(save->dir.fd, &disk) == 0;
    save->free_bytes = save->knows_free ? (uint64_t)disk.f_bavail * disk.f_frsize : 0;
    save->there_bytes = 0;
    for (size_t i = 0; save->resumes && i < save->made.manifest.file_count; i++)
        if (fstatat(save->dir.fd, image_data_name(i, name), &known, AT_SYMLINK_NOFOLLOW) == 0)
            save->there_bytes += (uint64_t)known.st_blocks * BLOCK_BYTES;
}

static void prepare_say_full(const struct image_save *save, const char *name)
{
    char needed[SIZE_TEXT_BYTES], available[SIZE_TEXT_BYTES] = "?", there[SIZE_TEXT_BYTES];

    size_format(save->made.manifest.stored_bytes, needed);
    if (save->knows_free)
        size_format_apart((struct size_text[]){{save->made.manifest.stored_bytes, needed},
                                               {save->free_bytes, available}},
                          2);
    size_format(save->there_bytes, there);
    cli_error("%s/%s: the disk is full, or a quota is: the image has %s, %s%sand %s were free at "
              "the start; free some, or save elsewhere",
              save->dir.path, name, needed, save->there_bytes ? there : "",
              save->there_bytes ? " were there, " : "", available);
}

int image_save_fail(const struct image_save *save, const char *name, int error)
{
    struct failure failure;

    if (error == -EINTR && signals_get())
        return CLI_SIGNALED + signals_get();
    if (store_explain_staging(save->reader.staging))
        return CLI_FAILURE;
    if (error == -EFBIG) {
        cli_error("%s/%s: larger than a file may be here ('ulimit -f', or the file system); "
                  "--file-size makes smaller ones",
                  save->dir.path, name);
    } else if (error == -ENOSPC || error == -EDQUOT) {
        prepare_say_full(save, name);
    } else {
        image_dir_explain(&save->dir, name, "write", error, &failure);
        return cli_failure(&failure);
    }
    return CLI_FAILURE;
}

int image_save_manifest(const struct image_save *save, bool unfinished)
{
    const char *name = unfinished ? IMAGE_UNFINISHED : IMAGE_MANIFEST;
    SCOPED_FREE char *text = NULL;
    size_t text_bytes;
    int error = image_manifest_encode(&save->made.manifest, unfinished, &text, &text_bytes);

    if (!error)
        error = text_bytes > IMAGE_MANIFEST_MAX_BYTES
                    ? -EFBIG
                    : image_dir_write(&save->dir, name, text, text_bytes);
    return error ? image_save_fail(save, name, error) : CLI_OK;
}

/* ---- contents of the directory ------------------------------------------------------------- */

/* Refuses a directory that the user would not expect to be changed. */
static int prepare_refuse(const struct image_save *save, const struct image_dir_content *content)
{
    const struct image_request *request = save->request;
    const char *path = request->path;

    if (content->unfinished && !request->force && !request->resume) {
        cli_error("%s: has an image that was not finished; --resume goes on with it, --force "
                  "begins anew",
                  path);
    } else if (content->manifest && !content->unfinished && !request->force) {
        cli_error("%s: has an image already, a whole one; --force replaces it", path);
    } else if (content->others && !content->manifest && !content->unfinished && !request->force) {
        cli_error("%s: is not empty; choose another directory, or --force, which leaves its "
                  "files alone",
                  path);
    } else if (*content->in_the_way && !content->manifest && !content->unfinished) {
        cli_error("%s/%s: is in the way, and of no image; remove it, or choose another directory",
                  path, content->in_the_way);
    } else {
        return CLI_OK;
    }
    return CLI_FAILURE;
}

/* ---- going on ------------------------------------------------------------------------------ */

static bool prepare_same_sizes(const struct image_manifest *a, const struct image_manifest *b)
{
    if (a->allocation_count != b->allocation_count || a->piece_bytes != b->piece_bytes ||
        a->file_bytes != b->file_bytes)
        return false;
    for (size_t i = 0; i < a->allocation_count; i++)
        if (a->allocations[i].size_bytes != b->allocations[i].size_bytes ||
            a->allocations[i].stored_bytes != b->allocations[i].stored_bytes)
            return false;
    return true;
}

/* Files stay as large as they were begun, unless another size was asked for. */
static void prepare_plan_again(struct image_save *save, const struct image_manifest *before)
{
    struct image_manifest *manifest = &save->made.manifest;

    if (save->request->file_bytes || manifest->file_bytes == before->file_bytes)
        return;
    free(manifest->pieces);
    free(manifest->file_sizes);
    manifest->pieces = NULL;
    manifest->file_sizes = NULL;
    manifest->file_count = 0;
    manifest->piece_bytes = before->piece_bytes;
    manifest->file_bytes = before->file_bytes;
    if (image_manifest_plan(manifest) != 0)
        cli_out_of_memory();
}

static int prepare_take_over(struct image_save *save, const struct image_manifest *before)
{
    struct image_manifest *manifest = &save->made.manifest;
    char was[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];

    prepare_plan_again(save, before);
    if (memcmp(before->layout_hash, manifest->layout_hash, DIGEST_BYTES) != 0)
        return cli_error(
            "%s: has the begun image of another layout (%s, and %s is in %s); --force begins anew",
            save->dir.path, digest_text(before->layout_hash, was),
            digest_text(manifest->layout_hash, is), save->reader.store);
    if (!prepare_same_sizes(before, manifest))
        return cli_error(
            "%s: has an image begun with other sizes of files or memory; --force begins anew",
            save->dir.path);
    /* The same sizes make the same pieces. */
    memcpy(manifest->pieces, before->pieces, manifest->piece_count * sizeof(*manifest->pieces));
    save->resumes = true;
    return CLI_OK;
}

static int prepare_resume(struct image_save *save)
{
    struct image_manifest before;
    struct failure failure;
    int error = image_dir_read_manifest(&save->dir, true, &before, &failure);
    int status = error ? CLI_FAILURE : prepare_take_over(save, &before);

    if (error == -ENOENT)
        cli_error("%s/" IMAGE_UNFINISHED ": is gone", save->dir.path);
    else if (error)
        cli_failure(&failure);
    image_manifest_free(&before);
    return status;
}

/* ---- files --------------------------------------------------------------------------------- */

static int prepare_file(const struct image_save *save, size_t file, uint64_t *promised_bytes)
{
    char name[IMAGE_NAME_BYTES];
    int fd = signals_get()
                 ? -EINTR
                 : image_dir_open_file(&save->dir, image_data_name(file, name), O_WRONLY | O_CREAT);
    int error = fd < 0 ? fd : 0;

    if (fd >= 0)
        do
            error =
                sink_reserve(fd, save->made.manifest.file_sizes[file], &save->way, promised_bytes);
        while (error == -EINTR && !signals_get());

    if (fd >= 0 && close(fd) < 0 && !error)
        error = -errno;
    return error ? image_save_fail(save, image_data_name(file, name), error) : CLI_OK;
}

/* The unfinished manifest comes first and an older image's goes next: from here on no load accepts
 * the directory as an image. Until then the older image is whole, also after a failure. */
static int prepare_begin(struct image_save *save)
{
    int status = image_save_manifest(save, true), error;

    if (status != CLI_OK)
        return status;
    error = image_dir_remove(&save->dir, IMAGE_MANIFEST);
    if (!error)
        error = image_dir_sync(&save->dir);
    return error ? image_save_fail(save, IMAGE_MANIFEST, error) : CLI_OK;
}

static int prepare_files(struct image_save *save)
{
    uint64_t promised_bytes = 0;

    /* Removes data of an older image, but no planned files, which a resumed save may continue. */
    int status = CLI_OK,
        error =
            image_dir_remove_data(&save->dir, save->resumes ? save->made.manifest.file_count : 0);

    if (error)
        return image_save_fail(save, "", error);
    prepare_note_room(save);
    error = image_dir_write(&save->dir, IMAGE_LAYOUT, save->made.layout, save->made.layout_bytes);
    if (error)
        return image_save_fail(save, IMAGE_LAYOUT, error);
    for (size_t i = 0; status == CLI_OK && i < save->made.manifest.file_count; i++)
        status = prepare_file(save, i, &promised_bytes);
    return status;
}

static void prepare_undo(const struct image_save *save, const struct image_dir_content *content)
{
    image_dir_undo(&save->dir, true);
    if (content->manifest || content->unfinished)
        ui_line(stderr, "the image that was in %s is gone", save->dir.path);
}

int image_save_prepare(struct image_save *save)
{
    struct image_dir_content content;
    struct failure failure;
    int status, error = image_dir_open(&save->dir, save->request->path, IMAGE_DIR_WRITE, &failure);

    if (error)
        return cli_failure(&failure);
    error = image_dir_look(&save->dir, &content);
    if (error)
        return cli_error("%s: cannot list it: %s", save->dir.path, failure_reason(error));
    status = prepare_refuse(save, &content);
    if (status == CLI_OK && save->request->resume && content.unfinished)
        status = prepare_resume(save);
    if (status != CLI_OK)
        return status;
    save->began = save->resumes;
    prepare_note_room(save);
    status = prepare_begin(save);
    if (status != CLI_OK) {
        if (!content.unfinished)
            /* an older unfinished manifest has to stay */
            image_dir_undo(&save->dir, false);
        return status;
    }
    status = prepare_files(save);
    if (status != CLI_OK && !save->began)
        prepare_undo(save, &content);
    return status;
}
