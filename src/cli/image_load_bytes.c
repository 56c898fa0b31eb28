/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an image, and its bytes.
 *
 * Memory that is files is asked for in order, by the thread that was called, and filled meanwhile
 * by several others, as a load does it (mover/fill.h). A GPU's is there, and mapped, before it is
 * filled.
 */
#include "cli/image_load.h"

#include "base/scope.h"
#include "cli/signals.h"
#include "mover/supply.h"

#include <stdlib.h>

#define FILES_OPEN 64u /* at once */

static struct image_check load_get_check(const struct image_load *load)
{
    return (struct image_check){.image = &load->image,
                                .store = load->request->store,
                                .staging = load->target.staging,
                                .memory = &load->target.memory,
                                .threads = load->request->threads,
                                .direct = load->request->direct};
}

/* ---- memory that is mapped ----------------------------------------------------------------- */

static int mapped_fill(struct image_load *load)
{
    struct image_check check = load_get_check(load);
    SCOPED_FREE void **into = cli_need(calloc(load->target.mapping_count + 1, sizeof(*into)));

    for (size_t i = 0; i < load->target.mapping_count; i++)
        into[i] = load->target.mappings[i].ptr;
    check.into = into;
    return image_check_shown(&check, "loading", load->request->quiet, &load->copied_ms);
}

/* ---- memory that is files ------------------------------------------------------------------ */

struct files {
    struct image_load *load;
    struct supply supply; /* by rank */
    bool is_made;         /* the last call made its memory, and failed behind that */
};

static bool files_are_alike(const void *context, size_t rank, size_t other)
{
    const struct files *files = context;

    return target_are_alike(&files->load->target, rank, other);
}

static int files_get(void *context, size_t rank, size_t count)
{
    struct files *files = context;
    int fds[TARGET_FILES_AT_ONCE];
    int error = target_get_files(&files->load->target, rank, count, fds, &files->is_made);

    for (size_t i = 0; !error && i < count; i++)
        supply_put(&files->supply, rank + i, fds[i]);
    return error;
}

/* A signal came, or an image that is damaged: this load waits for no more memory. */
static void files_cancel(void *context)
{
    const struct files *files = context;

    gmsfs_cancel(files->load->target.handle);
}

/* Memory is asked for by this thread; the ticks of the others see signals, which are deferred. */
static int files_fill(struct files *files)
{
    struct image_load *load = files->load;
    const struct supply *supply = &files->supply;
    struct image_check check = load_get_check(load);

    check.supply = &files->supply;
    check.taken_bytes = load->target.needed_bytes;
    int status = image_check_shown(&check, "loading", load->request->quiet, &load->copied_ms);
    if (!supply->refusal || signals_get())
        return status;
    return target_explain_files(&load->target, supply->refused, supply->refused_count,
                                files->is_made, supply->refusal);
}

static int files_load(struct image_load *load)
{
    struct files files = {.load = load,
                          .supply = {.count = load->image.manifest.allocation_count,
                                     .most = FILES_OPEN,
                                     .at_once = TARGET_FILES_AT_ONCE,
                                     .alike = files_are_alike,
                                     .get = files_get,
                                     .cancel = files_cancel,
                                     .context = &files}};

    if (supply_begin(&files.supply) != 0)
        cli_out_of_memory();
    int status = files_fill(&files);
    supply_end(&files.supply);
    return status == CLI_OK ? target_check_hash(&load->target) : status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int image_load_bytes(struct image_load *load)
{
    if (staging_is_file(&load->target.memory))
        return files_load(load);
    int status = target_map(&load->target);
    return status == CLI_OK ? mapped_fill(load) : status;
}
