/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image save - all of a store into a directory, or an unfinished image that can be resumed */
#include "cli/image_save.h"

#include "base/size.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_source.h"
#include "cli/ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void save_print_result(const struct image_save *save, uint64_t start_ms)
{
    const struct image_manifest *manifest = &save->made.manifest;
    char size[SIZE_TEXT_BYTES], hash[DIGEST_TEXT_BYTES], total[PROGRESS_TOTAL_BYTES];

    if (save->request->quiet)
        return;
    ui_line(stdout, "saved %s: %zu allocations and %zu entries in %s, layout %s",
            save->reader.store, manifest->allocation_count, save->reader.layout->entry_count,
            save->dir.path, digest_text(manifest->layout_hash, hash));
    fputs(progress_format_total(total, manifest->stored_bytes, start_ms, save->copied_ms), stdout);
    if (save->resumes)
        printf("; %s of it were there", size_format(save->kept_bytes, size));
    putchar('\n');
}

/* Prints the state of DIR after a failure. */
static void save_print_failure(const struct image_save *save, int status)
{
    if (status > CLI_SIGNALED)
        cli_error("stopped by a signal (%s)", strsignal(status - CLI_SIGNALED));
    if (save->began)
        ui_line(stderr,
                "%s is not finished, and no image yet; 'gmsfs image save --resume' goes on with it",
                save->dir.path);
    else if (status > CLI_SIGNALED)
        fprintf(stderr, "nothing was saved\n");
}

static int save_store(struct image_save *save)
{
    uint64_t start_ms = clock_now_ms();
    int status = image_save_plan(save);

    signals_defer(true);
    if (status == CLI_OK)
        status = image_save_prepare(save);
    if (status == CLI_OK) {
        save->began = true;
        status = image_save_write(save);
    }
    if (status == CLI_OK) {
        output_set_done();
        save_print_result(save, start_ms);
    } else {
        save_print_failure(save, status);
    }
    return status;
}

int image_save(const struct image_request *request)
{
    struct image_save save = {
        .request = request, .way = {request->direct, request->threads}, .dir = {.fd = -1}};

    if (store_source_is_mounted(request->path))
        return cli_error("%s: lies in a gmsfs mount, which has stores and no images; choose a "
                         "directory on a disk",
                         request->path);
    signals_install("\ngmsfs image: ", "; nothing was saved\n");
    int status = reader_open(&save.reader, request->store, request->timeout_ms, request->quiet);
    if (status == CLI_OK)
        status = save_store(&save);
    image_dir_close(&save.dir);
    image_manifest_free(&save.made.manifest);
    free(save.made.layout);
    reader_close(&save.reader);
    return status;
}
