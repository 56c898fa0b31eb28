/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the image of a store. */
#include "base/failure.h"
#include "cli/image_save.h"

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
static int plan_read_layout(struct image_save *save)
{
    const char *hash = save->reader.layout->hash;
    char text[DIGEST_TEXT_BYTES];
    char *path = store_file_path(save->reader.store, IMAGE_LAYOUT);
    int error =
        path ? store_read_bytes(path, IMAGE_MAX_LAYOUT_BYTES, &save->layout, &save->layout_bytes)
             : -ENOMEM;

    free(path);
    if (error) {
        store_explain(save->reader.store, "read the layout", error);
        return CLI_FAILURE;
    }
    digest_make(save->layout, save->layout_bytes, save->manifest.layout_hash);
    if (strcmp(digest_text(save->manifest.layout_hash, text), hash) == 0)
        return CLI_OK;
    cli_error("%s: was renamed while it was read; save it again under its new name",
              save->reader.store);
    return CLI_FAILURE;
}

/* ---- allocations --------------------------------------------------------------------------- */

static bool plan_is_zero(const uint8_t *bytes, size_t size_bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size_bytes - 1) == 0;
}

/* Finds bytes of clients behind the size: mappings reach to the aligned size, and such bytes are
 * saved too. */
static int plan_look_behind(void *context, const struct work_piece *piece, void *own)
{
    struct image_save *save = context;
    struct image_allocation *allocation = &save->manifest.allocations[piece->item];
    const struct gmsfs_mapping *mapping = &save->reader.mappings[piece->item];
    const uint8_t *part;
    size_t step = 1;
    int error = staging_fetch(own, &save->reader.memory,
                              (const uint8_t *)mapping->ptr + mapping->size_bytes,
                              piece->size_bytes, WORK_PIECE_BYTES);

    while (!error && step > 0) {
        error = staging_next(own, &part, &step);
        if (!error && step > 0 && !plan_is_zero(part, step))
            allocation->stored_bytes = mapping->aligned_bytes;
    }
    return error;
}

static int plan_behind(struct image_save *save)
{
    size_t count = save->reader.mapping_count;
    uint64_t *sizes = calloc(count + 1, sizeof(*sizes));
    struct work work = {.item_bytes = sizes,
                        .item_count = count,
                        .whole = true,
                        .context = save,
                        .piece = plan_look_behind};
    int error = sizes ? 0 : -ENOMEM;

    for (size_t i = 0; !error && i < count; i++)
        sizes[i] = save->reader.mappings[i].aligned_bytes - save->reader.mappings[i].size_bytes;
    staging_equip(save->reader.staging, &work, &save->reader.memory, save->request->threads);
    if (!error)
        error = work_run(&work);
    free(sizes);
    if (error && !store_explain_staging(save->reader.staging))
        cli_error("%s: cannot read the memory: %s", save->reader.store,
                  failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

static int plan_allocations(struct image_save *save)
{
    struct image_manifest *manifest = &save->manifest;
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int error = gmsfs_list_handles(save->reader.handle, NULL, &list, &count);

    if (!error && count != save->reader.mapping_count)
        error = -ESTALE;
    if (error) {
        store_explain(save->reader.store, "list the allocations", error);
        free(list);
        return CLI_FAILURE;
    }
    manifest->allocations = calloc(count + 1, sizeof(*manifest->allocations));
    for (size_t i = 0; manifest->allocations && i < count; i++) {
        struct image_allocation *allocation = &manifest->allocations[i];
        allocation->size_bytes = list[i].size_bytes;
        allocation->stored_bytes = list[i].size_bytes;
        allocation->name = strdup(list[i].name);
        manifest->allocation_count++;
        if (!allocation->name)
            break;
    }
    free(list);
    if (!manifest->allocations ||
        (count && !manifest->allocations[manifest->allocation_count - 1].name))
        return cli_out_of_memory();
    return plan_behind(save);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int plan_describe(struct image_save *save)
{
    struct image_manifest *manifest = &save->manifest;
    size_t length = strlen(save->request->store);
    struct gmsfs_info info;
    int error = gmsfs_get_info(save->reader.handle, &info);

    if (error) {
        store_explain(save->reader.store, "look at the store", error);
        return CLI_FAILURE;
    }
    manifest->layout_bytes = save->layout_bytes;
    manifest->granularity_bytes = info.granularity_bytes;
    manifest->generation = gmsfs_generation(save->reader.handle);
    memcpy(manifest->group, info.group, sizeof(manifest->group));
    memcpy(manifest->store_id, info.store_id, sizeof(manifest->store_id));
    manifest->saved_s = (uint64_t)time(NULL);
    manifest->store =
        strndup(save->request->store,
                length < IMAGE_MAX_STORE_BYTES ? length : (size_t)IMAGE_MAX_STORE_BYTES);
    manifest->file_bytes =
        save->request->file_bytes ? save->request->file_bytes : IMAGE_DEFAULT_FILE_BYTES;
    manifest->piece_bytes =
        manifest->file_bytes < IMAGE_PIECE_BYTES ? manifest->file_bytes : IMAGE_PIECE_BYTES;
    return manifest->store ? CLI_OK : cli_out_of_memory();
}

int image_save_plan(struct image_save *save)
{
    int status = plan_read_layout(save), error;

    if (status == CLI_OK)
        status = plan_describe(save);
    if (status == CLI_OK)
        status = plan_allocations(save);
    if (status != CLI_OK)
        return status;
    error = image_manifest_plan(&save->manifest);
    if (error == -ENOMEM)
        return cli_out_of_memory();
    if (error) {
        cli_error("%s: more than %u pieces would be made; choose a larger --file-size",
                  save->request->path, IMAGE_MAX_PIECES);
        return CLI_FAILURE;
    }
    return CLI_OK;
}
