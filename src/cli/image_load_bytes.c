/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an image, and its bytes.
 *
 * Memory that is files is asked for in order, by the thread that was called, and filled meanwhile
 * by several others, as a load does it (mover/fill.h). A GPU's is there, and mapped, before it is
 * filled.
 */
#include "cli/image_load.h"

#include "base/failure.h"
#include "cli/signals.h"
#include "cli/store_explain.h"
#include "cli/store_memory.h"
#include "cli/store_space.h"
#include "model/pack.h"
#include "mover/supply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_OPEN    64u                      /* at once */
#define FILES_AT_ONCE PACK_CHUNKS_BEFORE_LARGE /* that are made at once */

/* ---- the hash ------------------------------------------------------------------------------ */

int image_load_check_hash(struct image_load *load, const uint64_t *aligned)
{
    const struct image_manifest *manifest = &load->image.manifest;
    char was[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];
    int error = image_layout_hash(&load->image.layout, aligned, load->hash);

    if (error == -ENOMEM)
        return cli_out_of_memory();
    if (error == 0 &&
        (load->request->realign || memcmp(load->hash, manifest->layout_hash, DIGEST_BYTES) == 0))
        return CLI_OK;
    cli_error("%s: its allocations get other sizes in %s, so the layout would be another one (%s, "
              "not %s); --realign accepts that",
              load->image.dir.path, load->request->store,
              error ? "none" : digest_text(load->hash, is),
              digest_text(manifest->layout_hash, was));
    return CLI_FAILURE;
}

/* ---- memory -------------------------------------------------------------------------------- */

static int load_explain_allocation(const struct image_load *load, size_t rank, int error)
{
    struct store_space space;

    store_get_space(load->request->store, load->handle, &space);
    if (error == -ENOMEM && space.is_known)
        return store_say_full(load->request->store, &space, load->needed_bytes);
    if (error == -ENOSPC)
        return store_say_too_many(load->request->store, load->image.manifest.allocation_count,
                                  "mount");
    cli_error("%s: cannot allocate '%s' (%" PRIu64 " bytes): %s", load->request->store,
              load->image.manifest.allocations[rank].name,
              load->image.manifest.allocations[rank].size_bytes, failure_reason(error));
    return CLI_FAILURE;
}

/* So many from a rank on, at the same time. flags: as gmsfs_allocate_each has them. slots: NULL, or
 * of each. -ECANCELED: a signal. */
static int load_try_some(const struct image_load *load, size_t rank, size_t count, unsigned flags,
                         uint64_t *slots)
{
    struct gmsfs_new_allocation wanted[GMSFS_ALLOCATE_EACH_MAX];
    char tags[GMSFS_ALLOCATE_EACH_MAX][GMSFS_NAME_MAX + 1];

    if (signals_get())
        return -ECANCELED;
    for (size_t i = 0; i < count; i++) {
        const struct image_allocation *allocation = &load->image.manifest.allocations[rank + i];
        struct image_layout_allocation laid_out;

        image_layout_get(&load->image.layout, rank + i, &laid_out);
        snprintf(tags[i], sizeof(tags[i]), "%.*s", (int)laid_out.tag_bytes, laid_out.tag);
        wanted[i] =
            (struct gmsfs_new_allocation){allocation->size_bytes, tags[i], allocation->name};
    }
    return gmsfs_allocate_each(load->handle, wanted, count, flags, slots);
}

/* None was made: one after the other, without waiting, tells which is refused. */
static int load_explain_some(const struct image_load *load, size_t rank, size_t count, int error)
{
    bool is_one = error == -ENOMEM || error == -ENOSPC || count == 1;

    for (size_t i = 0; !is_one && i < count; i++) {
        int refusal = load_try_some(load, rank + i, 1, GMSFS_ALLOC_NOWAIT, NULL);
        if (refusal)
            return load_explain_some(load, rank + i, 1, refusal);
    }
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    return load_explain_allocation(load, rank, error);
}

static struct image_check load_get_check(const struct image_load *load)
{
    return (struct image_check){.image = &load->image,
                                .store = load->request->store,
                                .staging = load->staging,
                                .memory = &load->memory,
                                .threads = load->request->threads,
                                .direct = load->request->direct};
}

/* ---- memory that is mapped ----------------------------------------------------------------- */

static int mapped_allocate(struct image_load *load)
{
    size_t count = load->image.manifest.allocation_count, some;
    int status = CLI_OK, error;

    signals_defer(false); /* they cannot end a wait for memory otherwise */
    for (size_t i = 0; status == CLI_OK && i < count; i += some) {
        some = count - i < GMSFS_ALLOCATE_EACH_MAX ? count - i : GMSFS_ALLOCATE_EACH_MAX;
        error = load_try_some(load, i, some, 0, NULL);
        status = error ? load_explain_some(load, i, some, error) : CLI_OK;
    }
    signals_defer(true);
    if (status != CLI_OK)
        return status;
    error =
        gmsfs_attach_all(load->handle, GMSFS_ACCESS_WRITE, &load->mappings, &load->mapping_count);
    if (!error && load->mapping_count != count)
        error = -ESTALE;
    if (error) {
        store_explain_call(load->handle, &load->memory, "map the memory", error);
        return CLI_FAILURE;
    }
    for (size_t i = 0; i < count; i++)
        load->aligned[i] = load->mappings[i].aligned_bytes;
    return image_load_check_hash(load, load->aligned);
}

static int mapped_fill(struct image_load *load)
{
    struct image_check check = load_get_check(load);
    void **into = calloc(load->mapping_count + 1, sizeof(*into));
    int status;

    if (!into)
        return cli_out_of_memory();
    for (size_t i = 0; i < load->mapping_count; i++)
        into[i] = load->mappings[i].ptr;
    check.into = into;
    status = image_check_shown(&check, "loading", load->request->quiet, &load->copied_ms);
    free(into);
    return status;
}

/* ---- memory that is files ------------------------------------------------------------------ */

struct files {
    struct image_load *load;
    struct supply supply; /* by rank */
    bool is_made;         /* the last call made its memory, and failed behind that */
};

/* The kernel makes a file's pages by one thread at a time. */
static bool files_are_alike(const void *context, size_t rank, size_t other)
{
    const struct files *files = context;
    const struct image_allocation *allocations = files->load->image.manifest.allocations;

    return (allocations[rank].size_bytes > PACK_LEAST_CHUNK_BYTES) ==
           (allocations[other].size_bytes > PACK_LEAST_CHUNK_BYTES);
}

static int files_get(void *context, size_t rank, size_t count)
{
    uint64_t slots[FILES_AT_ONCE];
    struct files *files = context;
    int error = load_try_some(files->load, rank, count, 0, slots), fds[FILES_AT_ONCE];
    struct stat status;

    files->is_made = error == 0;
    if (!error)
        error = gmsfs_export_each(files->load->handle, slots, count, GMSFS_ACCESS_WRITE, fds);
    for (size_t i = 0; !error && i < count; i++) {
        if (fstat(fds[i], &status) == 0)
            files->load->aligned[rank + i] = (uint64_t)status.st_size;
        supply_put(&files->supply, rank + i, fds[i]);
    }
    return error;
}

/* A signal came, or an image that is damaged: this load waits for no more memory. */
static void files_cancel(void *context)
{
    const struct files *files = context;

    gmsfs_cancel(files->load->handle);
}

/* Memory is asked for by this thread; the ticks of the others see signals, which are deferred. */
static int files_fill(struct files *files)
{
    struct image_load *load = files->load;
    const struct supply *supply = &files->supply;
    struct image_check check = load_get_check(load);
    int status;

    check.supply = &files->supply;
    check.taken_bytes = load->needed_bytes;
    status = image_check_shown(&check, "loading", load->request->quiet, &load->copied_ms);
    if (!supply->refusal || signals_get())
        return status;
    if (!files->is_made)
        return load_explain_some(load, supply->refused, supply->refused_count, supply->refusal);
    store_explain_call(load->handle, &load->memory, "open its memory", supply->refusal);
    return CLI_FAILURE;
}

static int files_load(struct image_load *load)
{
    struct files files = {.load = load,
                          .supply = {.count = load->image.manifest.allocation_count,
                                     .most = FILES_OPEN,
                                     .at_once = FILES_AT_ONCE,
                                     .alike = files_are_alike,
                                     .get = files_get,
                                     .cancel = files_cancel,
                                     .context = &files}};
    int status;

    if (supply_begin(&files.supply) != 0)
        return cli_out_of_memory();
    status = files_fill(&files);
    supply_end(&files.supply);
    return status == CLI_OK ? image_load_check_hash(load, load->aligned) : status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int image_load_bytes(struct image_load *load)
{
    int status, error = gmsfs_clear_all_handles(load->handle);

    if (error) {
        store_explain(load->request->store, "clear its contents", error);
        return CLI_FAILURE;
    }
    if (staging_is_file(&load->memory))
        return files_load(load);
    status = mapped_allocate(load);
    return status == CLI_OK ? mapped_fill(load) : status;
}
