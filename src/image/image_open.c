/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an image, before a byte of its data is read. */
#include "image/image.h"

#include "base/failure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int open_damaged(const struct image *image, const char *name, const char *why,
                        struct failure *failure)
{
    return failure_set(failure, -EINVAL,
                       "%s/%s: %s: the image is damaged, and nothing of it is used",
                       image->dir.path, name, why);
}

/* ---- the manifest and the layout ----------------------------------------------------------- */

/* Looks once more, because an unfinished manifest may have become a finished one in between. */
static int open_find_manifest(struct image *image, struct failure *failure)
{
    int error = -ENOENT;

    for (int i = 0; error == -ENOENT && i < 3; i++) {
        image->unfinished = i == 1;
        error = image_dir_read_manifest(&image->dir, image->unfinished, &image->manifest, failure);
    }
    return error;
}

static int open_manifest(struct image *image, bool any, struct failure *failure)
{
    int error = open_find_manifest(image, failure);

    if (error == -ENOENT)
        return failure_set(failure, error,
                           "%s: it has no image: there is no file '" IMAGE_MANIFEST
                           "'; 'gmsfs image save' makes an image",
                           image->dir.path);
    if (!error && image->unfinished && !any)
        return failure_set(failure, -EINVAL,
                           "%s: saving this image was not finished; 'gmsfs image save --resume' "
                           "does that",
                           image->dir.path);
    return error;
}

static int open_layout(struct image *image, struct failure *failure)
{
    uint8_t hash[DIGEST_BYTES], *bytes;
    const char *why = NULL;
    size_t size_bytes;
    int error = image_dir_read(&image->dir, IMAGE_LAYOUT, IMAGE_MAX_LAYOUT_BYTES, &bytes,
                               &size_bytes, failure);

    if (error)
        return error;
    digest_make(bytes, size_bytes, hash);
    if (size_bytes != image->manifest.layout_bytes ||
        memcmp(hash, image->manifest.layout_hash, sizeof(hash)) != 0) {
        free(bytes);
        return open_damaged(image, IMAGE_LAYOUT, "it does not match the manifest", failure);
    }
    error = image_layout_open(bytes, size_bytes, &image->layout, &why);
    if (error == -ENOMEM)
        return failure_no_memory(failure);
    return error ? open_damaged(image, IMAGE_LAYOUT, why, failure) : 0;
}

/* Compares sizes that are both in manifest and layout, which may have been edited by hand. */
static int open_compare(const struct image *image, struct failure *failure)
{
    const struct image_manifest *manifest = &image->manifest;
    struct image_layout_allocation allocation;

    if (image->layout.allocation_count != manifest->allocation_count)
        return open_damaged(image, IMAGE_MANIFEST, "'" IMAGE_LAYOUT "' has other allocations",
                            failure);
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        image_layout_get(&image->layout, i, &allocation);
        if (allocation.size_bytes != manifest->allocations[i].size_bytes ||
            allocation.aligned_bytes < manifest->allocations[i].stored_bytes)
            return open_damaged(image, IMAGE_MANIFEST, "'" IMAGE_LAYOUT "' has other sizes",
                                failure);
    }
    return 0;
}

/* ---- data files ---------------------------------------------------------------------------- */

static int open_make_files(struct image *image, struct failure *failure)
{
    size_t count = image->manifest.file_count;

    image->files = calloc(count + 1, sizeof(*image->files));
    if (!image->files)
        return failure_no_memory(failure);
    for (size_t i = 0; i < count; i++)
        image->files[i] = SIZE_MAX;
    return 0;
}

int image_find_file(const struct image *image, size_t index, size_t *file, struct failure *failure)
{
    char name[IMAGE_NAME_BYTES];
    int error = 0;

    if (image->files[index] == SIZE_MAX)
        error =
            image_dir_add(&image->dir, image_data_name(index, name), &image->files[index], failure);
    *file = image->files[index];
    return error;
}

static int open_look_at_file(const struct image *image, size_t index, struct failure *failure)
{
    uint64_t want = image->manifest.file_sizes[index], size_bytes;
    char name[IMAGE_NAME_BYTES];
    size_t file;
    int error = image_find_file(image, index, &file, failure);

    if (error)
        return error;
    size_bytes = source_get(image->dir.source, file)->size_bytes;
    if (size_bytes == want)
        return 0;
    return failure_set(failure, -EINVAL,
                       "%s/%s: has %" PRIu64 " bytes, and the manifest says %" PRIu64
                       ": the image is damaged, and nothing of it is used",
                       image->dir.path, image_data_name(index, name), size_bytes, want);
}

static int open_look_at_files(const struct image *image, struct failure *failure)
{
    int error = 0;

    for (size_t i = 0; !error && i < image->manifest.file_count; i++)
        error = open_look_at_file(image, i, failure);
    return error;
}

/* ---- the image ------------------------------------------------------------------------------- */

static int open_image(struct image *image, const char *path, bool any, struct failure *failure)
{
    memset(image, 0, sizeof(*image));
    int error = image_dir_open(&image->dir, path, any ? IMAGE_DIR_LOOK : IMAGE_DIR_READ, failure);
    if (!error)
        error = open_manifest(image, any, failure);
    if (!error)
        error = open_layout(image, failure);
    if (!error)
        error = open_make_files(image, failure);
    return error ? error : open_compare(image, failure);
}

int image_open(struct image *image, const char *path, struct failure *failure)
{
    int error = open_image(image, path, false, failure);

    return error ? error : open_look_at_files(image, failure);
}

int image_open_any(struct image *image, const char *path, int *damage, struct failure *failure)
{
    int error = open_image(image, path, true, failure);

    *damage = !error && !image->unfinished ? open_look_at_files(image, failure) : 0;
    return error;
}

void image_close(struct image *image)
{
    image_layout_close(&image->layout);
    image_manifest_free(&image->manifest);
    free(image->files);
    image_dir_close(&image->dir);
}

/* ---- contents ------------------------------------------------------------------------------ */

int image_get_contents_id(const struct image *image, uint8_t id[DIGEST_BYTES])
{
    return image->unfinished ? -ENODATA
                             : image_pieces_make_id(&image->manifest, &image->layout, id);
}
