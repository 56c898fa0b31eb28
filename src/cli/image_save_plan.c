/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the image of a store. */
#include "cli/image_save.h"

#include <errno.h>

int image_save_plan(struct image_save *save)
{
    struct image_manifest *manifest = &save->made.manifest;
    int status = reader_make_manifest(&save->reader, save->request->threads, &save->made), error;

    if (status != CLI_OK)
        return status;
    manifest->file_bytes =
        save->request->file_bytes ? save->request->file_bytes : IMAGE_DEFAULT_FILE_BYTES;
    manifest->piece_bytes =
        manifest->file_bytes < IMAGE_PIECE_BYTES ? manifest->file_bytes : IMAGE_PIECE_BYTES;
    error = image_manifest_plan(manifest);
    if (error == -ENOMEM)
        cli_out_of_memory();
    if (error)
        return cli_error("%s: more than %u pieces would be made; choose a larger --file-size",
                         save->request->path, IMAGE_MAX_PIECES);
    return CLI_OK;
}
