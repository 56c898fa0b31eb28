/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an image, and its bytes.
 *
 * Memory that is files is asked for in order, by the thread that was called, and filled meanwhile
 * by several others, as a load does it (load_copy.c). A GPU's is there, and mapped, before it is
 * filled.
 */
#include "cli/image_load.h"

#include "base/failure.h"
#include "base/thread.h"
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

#define FILES_OPEN    64u              /* at once */
#define FILES_ABREAST (FILES_OPEN / 2) /* that are filled at once: the next ones come meanwhile */
#define FILES_AT_ONCE PACK_CHUNKS_BEFORE_LARGE /* that are made at once */

/* ---- the hash ------------------------------------------------------------------------------ */

int image_load_check_hash(struct image_load *load, const uint64_t *aligned)
{
    const struct image_manifest *manifest = &load->image.manifest;
    char was[IMAGE_DIGEST_TEXT_BYTES], is[IMAGE_DIGEST_TEXT_BYTES];
    int error = image_layout_hash(&load->image.layout, aligned, load->hash);

    if (error == -ENOMEM)
        return cli_out_of_memory();
    if (error == 0 && (load->request->realign ||
                       memcmp(load->hash, manifest->layout_hash, IMAGE_DIGEST_BYTES) == 0))
        return CLI_OK;
    cli_error("%s: its allocations get other sizes in %s, so the layout would be another one (%s, "
              "not %s); --realign accepts that",
              load->image.dir.path, load->request->store,
              error ? "none" : image_digest_text(load->hash, is),
              image_digest_text(manifest->layout_hash, was));
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

    for (size_t i = 0; status == CLI_OK && i < count; i += some) {
        some = count - i < GMSFS_ALLOCATE_EACH_MAX ? count - i : GMSFS_ALLOCATE_EACH_MAX;
        error = load_try_some(load, i, some, 0, NULL);
        status = error ? load_explain_some(load, i, some, error) : CLI_OK;
    }
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
    size_t *pieces;       /* of each rank */
    size_t put;           /* ranks whose memory came */
    size_t asked; /* ranks of the last call: where it is refused, the first is supply.refused */
    bool is_made; /* that call made its memory, and failed behind that */
    int filled;   /* the exit status */
    atomic_bool is_told; /* what failed is told already, or was a signal */
};

/* How many from a rank on are made by one call: those that take about as long, for all of them are
 * there when the last one is. The kernel makes a file's pages by one thread at a time. */
static size_t files_count_alike(const struct image_load *load, size_t rank, size_t most)
{
    const struct image_allocation *allocations = &load->image.manifest.allocations[rank];
    size_t count = 1;

    while (count < most && (allocations[count].size_bytes > PACK_LEAST_CHUNK_BYTES) ==
                               (allocations->size_bytes > PACK_LEAST_CHUNK_BYTES))
        count++;
    return count;
}

static void files_put(struct files *files, size_t rank, int fd)
{
    struct stat status;

    if (fstat(fd, &status) == 0)
        files->load->aligned[rank] = (uint64_t)status.st_size;
    files->put++;
    supply_put(&files->supply, rank, fd);
}

static int files_get_some(struct files *files, size_t rank, size_t count)
{
    uint64_t slots[GMSFS_ALLOCATE_EACH_MAX];
    int fds[GMSFS_ALLOCATE_EACH_MAX];
    int error = load_try_some(files->load, rank, count, 0, slots);

    files->is_made = error == 0;
    if (!error)
        error = gmsfs_export_each(files->load->handle, slots, count, GMSFS_ACCESS_WRITE, fds);
    for (size_t i = 0; !error && i < count; i++)
        files_put(files, rank + i, fds[i]);
    return error;
}

/* Ranks are asked for as they follow one another. */
static int files_get(void *context, const size_t *ranks, size_t count, size_t *refused)
{
    struct files *files = context;
    int error = 0;

    for (size_t done = 0; !error && done < count; done += files->asked) {
        files->asked = files_count_alike(files->load, ranks[done], count - done);
        *refused = ranks[done];
        error = files_get_some(files, ranks[done], files->asked);
    }
    return error;
}

static int files_take(void *context, size_t rank)
{
    return supply_take(&((struct files *)context)->supply, rank);
}

static void files_give_back(void *context, size_t rank)
{
    supply_give_back(&((struct files *)context)->supply, rank);
}

static void files_stop(void *context)
{
    struct files *files = context;

    atomic_store(&files->is_told, true);
    supply_stop(&files->supply);
}

static void *files_fill(void *context)
{
    struct files *files = context;
    struct image_load *load = files->load;
    struct image_check check = load_get_check(load);

    check.take_file = files_take;
    check.give_file_back = files_give_back;
    check.stop_files = files_stop;
    check.files = files;
    check.files_abreast = FILES_ABREAST;
    check.taken_bytes = load->needed_bytes;
    files->filled = image_check_shown(&check, "loading", load->request->quiet, &load->copied_ms);
    supply_stop(&files->supply);
    return NULL;
}

static int files_explain(const struct files *files)
{
    const struct image_load *load = files->load;

    if (!files->is_made)
        return load_explain_some(load, files->supply.refused, files->asked, files->supply.refusal);
    store_explain_call(load->handle, &load->memory, "open its memory", files->supply.refusal);
    return CLI_FAILURE;
}

/* Memory is asked for by this thread; a wait for it goes on, as signals are deferred. */
static int files_run(struct files *files)
{
    pthread_t thread;
    int error = thread_start(&thread, 0, files_fill, files);

    if (error) {
        cli_error("cannot copy: %s", failure_thread_reason(error));
        return CLI_FAILURE;
    }
    supply_run(&files->supply);
    pthread_join(thread, NULL);
    if (files->supply.refusal && !atomic_load(&files->is_told))
        return files_explain(files);
    if (files->filled == CLI_OK && files->put != files->supply.count) {
        store_explain(files->load->request->store, "fill its memory", -ESTALE);
        return CLI_FAILURE;
    }
    return files->filled;
}

static int files_prepare(struct files *files)
{
    const struct image_manifest *manifest = &files->load->image.manifest;
    size_t count = manifest->allocation_count;

    files->pieces = calloc(count + 1, sizeof(*files->pieces));
    if (!files->pieces)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->piece_count; i++)
        files->pieces[manifest->pieces[i].rank]++;
    files->supply = (struct supply){.count = count,
                                    .parts = files->pieces,
                                    .most = FILES_OPEN,
                                    .at_once = FILES_AT_ONCE,
                                    .get = files_get,
                                    .context = files};
    return supply_begin(&files->supply);
}

static int files_load(struct image_load *load)
{
    struct files files = {.load = load};
    int status = CLI_OK;

    if (files_prepare(&files) == 0) {
        status = files_run(&files);
        supply_end(&files.supply);
    } else {
        status = cli_out_of_memory();
    }
    free(files.pieces);
    return status == CLI_OK ? image_load_check_hash(load, load->aligned) : status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int image_load_bytes(struct image_load *load)
{
    int status, error = gmsfs_clear_all_handles(load->handle);

    if (error) {
        store_explain(load->request->store, "clear what was there", error);
        return CLI_FAILURE;
    }
    if (staging_is_file(&load->memory))
        return files_load(load);
    status = mapped_allocate(load);
    return status == CLI_OK ? mapped_fill(load) : status;
}
