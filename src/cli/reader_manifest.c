/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/reader_manifest.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_memory.h"
#include "mover/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the layout's bytes -------------------------------------------------------------------- */

/* Read by name, so another store may have come under it since: the hash tells. */
static int read_layout(const struct reader *reader, struct reader_manifest *made)
{
    const char *hash = reader->layout->hash;
    char text[DIGEST_TEXT_BYTES];
    SCOPED_FREE char *path = store_file_path(reader->store, IMAGE_LAYOUT);
    int error = store_read_bytes(path, IMAGE_MAX_LAYOUT_BYTES, &made->layout, &made->layout_bytes);

    if (error)
        return store_explain(reader->store, "read the layout", error);
    digest_make(made->layout, made->layout_bytes, made->manifest.layout_hash);
    if (strcmp(digest_text(made->manifest.layout_hash, text), hash) == 0)
        return CLI_OK;
    return cli_error("%s: was renamed while it was read; call the command again with its new name",
                     reader->store);
}

/* ---- allocations --------------------------------------------------------------------------- */

struct tails {
    const struct reader *reader;
    struct image_manifest *manifest;
};

static bool is_zero(const uint8_t *bytes, size_t size_bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size_bytes - 1) == 0;
}

/* Finds bytes of clients behind the size: mappings reach to the aligned size, and such bytes are
 * contents too. */
static int look_behind(void *context, const struct work_piece *piece, void *own)
{
    const struct tails *tails = context;
    struct image_allocation *allocation = &tails->manifest->allocations[piece->item];
    const struct gmsfs_mapping *mapping = &tails->reader->mappings[piece->item];
    const uint8_t *part;
    size_t step = 1;
    int error = staging_fetch(own, &tails->reader->memory,
                              (const uint8_t *)mapping->ptr + mapping->size_bytes,
                              piece->size_bytes, WORK_PIECE_BYTES);

    while (!error && step > 0) {
        error = staging_next(own, &part, &step);
        if (!error && step > 0 && !is_zero(part, step))
            allocation->stored_bytes = mapping->aligned_bytes;
    }
    return error;
}

static int find_tails(const struct reader *reader, uint64_t threads,
                      struct image_manifest *manifest)
{
    size_t count = reader->mapping_count;
    SCOPED_FREE uint64_t *sizes = cli_need(calloc(count + 1, sizeof(*sizes)));
    struct tails tails = {reader, manifest};
    struct work work = {.item_bytes = sizes,
                        .item_count = count,
                        .whole = true,
                        .context = &tails,
                        .piece = look_behind};

    for (size_t i = 0; i < count; i++)
        sizes[i] = reader->mappings[i].aligned_bytes - reader->mappings[i].size_bytes;
    staging_equip(reader->staging, &work, &reader->memory, threads);
    int error = work_run(&work);
    if (error && !store_explain_staging(reader->staging))
        cli_error("%s: cannot read the memory: %s", reader->store, failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

static int list_allocations(const struct reader *reader, struct image_manifest *manifest)
{
    SCOPED_FREE struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int error = gmsfs_list_handles(reader->handle, NULL, &list, &count);

    if (!error && count != reader->mapping_count)
        error = -ESTALE;
    if (error)
        return store_explain(reader->store, "list the allocations", error);
    manifest->allocations = cli_need(calloc(count + 1, sizeof(*manifest->allocations)));
    manifest->allocation_count = count;
    for (size_t i = 0; i < count; i++) {
        struct image_allocation *allocation = &manifest->allocations[i];
        allocation->size_bytes = list[i].size_bytes;
        allocation->stored_bytes = list[i].size_bytes;
        allocation->name = cli_need(strdup(list[i].name));
    }
    return CLI_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int describe(const struct reader *reader, struct reader_manifest *made)
{
    struct image_manifest *manifest = &made->manifest;
    struct gmsfs_info info;
    int error = gmsfs_get_info(reader->handle, &info);

    if (error)
        return store_explain(reader->store, "look at the store", error);
    manifest->layout_bytes = made->layout_bytes;
    manifest->granularity_bytes = info.granularity_bytes;
    manifest->generation = gmsfs_generation(reader->handle);
    memcpy(manifest->group, info.group, sizeof(manifest->group));
    memcpy(manifest->store_id, info.store_id, sizeof(manifest->store_id));
    manifest->saved_s = (uint64_t)time(NULL);
    manifest->store = cli_need(strndup(reader->store, IMAGE_MAX_STORE_BYTES));
    return CLI_OK;
}

int reader_make_manifest(const struct reader *reader, uint64_t threads,
                         struct reader_manifest *made)
{
    int status = read_layout(reader, made);

    if (status == CLI_OK)
        status = describe(reader, made);
    if (status == CLI_OK)
        status = list_allocations(reader, &made->manifest);
    return status == CLI_OK ? find_tails(reader, threads, &made->manifest) : status;
}
