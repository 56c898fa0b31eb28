/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image load - an image into a store, committed whole or not at all */
#include "cli/image_load.h"

#include "base/failure.h"
#include "base/number.h"
#include "base/size.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_make.h"
#include "cli/store_memory.h"
#include "cli/store_source.h"
#include "cli/store_space.h"
#include "cli/ui.h"
#include "image/image_entries.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_ERROR_BYTES 256
#define MS_PER_S         1000.0

static const uint8_t no_group[DIGEST_BYTES];

/* ---- before the lock ----------------------------------------------------------------------- */

static int load_check_granularity(const struct image_load *load, uint64_t granularity_bytes)
{
    uint64_t saved_bytes = load->image.manifest.granularity_bytes;
    char here[SIZE_TEXT_BYTES], there[SIZE_TEXT_BYTES];

    if (granularity_bytes == saved_bytes || load->request->realign ||
        load->image.manifest.allocation_count == 0)
        return CLI_OK;
    cli_error("%s: was saved at a granularity of %s (%" PRIu64 "), and the mount of %s has %s "
              "(%" PRIu64 "), so the layout would be another one; mount with granularity=%" PRIu64
              ", or accept another layout_hash with --realign",
              load->image.dir.path, size_format(saved_bytes, there), saved_bytes,
              load->request->store, size_format(granularity_bytes, here), granularity_bytes,
              saved_bytes);
    return CLI_FAILURE;
}

/* Finds the aligned sizes in this mount, and checks that they hold the saved bytes. */
static int load_align(struct image_load *load, uint64_t granularity_bytes)
{
    const struct image_manifest *manifest = &load->image.manifest;

    load->aligned = calloc(manifest->allocation_count + 1, sizeof(*load->aligned));
    if (!load->aligned)
        return cli_out_of_memory();
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        const struct image_allocation *allocation = &manifest->allocations[i];
        load->aligned[i] = number_round_up(allocation->size_bytes, granularity_bytes);
        if (allocation->stored_bytes > load->aligned[i]) {
            cli_error("%s: allocation %zu ('%s') has bytes behind its size, which do not fit at "
                      "this granularity; mount with granularity=%" PRIu64,
                      load->image.dir.path, i, allocation->name, manifest->granularity_bytes);
            return CLI_FAILURE;
        }
        if (__builtin_add_overflow(load->needed_bytes, load->aligned[i], &load->needed_bytes))
            load->needed_bytes = UINT64_MAX;
    }
    return CLI_OK;
}

/* An entry may point behind the size, up to the aligned size, which may be less here. */
static int load_check_entries(const struct image_load *load)
{
    const struct image_manifest *manifest = &load->image.manifest;
    struct image_layout_entry entry;

    for (size_t i = 0; i < load->image.layout.entry_count; i++) {
        image_layout_entry(&load->image.layout, i, &entry);
        if (entry.rank >= manifest->allocation_count ||
            entry.offset_bytes < load->aligned[entry.rank])
            continue;
        cli_error("%s: metadata '%.*s' points at byte %" PRIu64 " of allocation %" PRIu64
                  " ('%s'), which takes %" PRIu64 " bytes at this granularity; mount with "
                  "granularity=%" PRIu64,
                  load->image.dir.path, (int)entry.key_bytes, entry.key, entry.offset_bytes,
                  entry.rank, manifest->allocations[entry.rank].name, load->aligned[entry.rank],
                  manifest->granularity_bytes);
        return CLI_FAILURE;
    }
    return CLI_OK;
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Refuses only an image that can never fit: the grant waits for memory that other clients give
 * back. */
static int load_check_space(const struct image_load *load)
{
    struct store_space space;

    store_get_space(load->request->store, load->handle, &space);
    if (space.is_known && load->needed_bytes > space.total_bytes)
        return store_say_full(load->request->store, &space, load->needed_bytes);
    return CLI_OK;
}

/* Returns the bytes of the committed layout; 0 if there is none. */
static uint64_t load_committed_bytes(const struct image_load *load)
{
    struct gmsfs_info info;

    if (gmsfs_get_info(load->handle, &info) != 0)
        return UINT64_MAX;
    return info.committed ? info.total_bytes : 0;
}

static int load_check_sums(struct image_load *load)
{
    struct image_check check = {
        .image = &load->image, .threads = load->request->threads, .direct = load->request->direct};
    uint64_t passed_ms;
    int status = image_check_shown(&check, "checking", load->request->quiet, &passed_ms);

    load->is_checked = status == CLI_OK;
    return status;
}

/* Lock and memory at once, for both the image and the layout that is committed. A reservation
 * counts the committed bytes as free, because the writer frees them; so reserving both sizes
 * reserves memory for the image beside the layout, and a failed load can be rolled back. */
static int load_connect_beside(const struct image_load *load, uint64_t committed_bytes)
{
    uint64_t both_bytes;

    if (__builtin_add_overflow(load->needed_bytes, committed_bytes, &both_bytes))
        return -ENOMEM;
    gmsfs_set_connect_flags(load->handle, GMSFS_CONNECT_REPLACE);
    return gmsfs_connect_reserve(load->handle, GMSFS_MODE_RW, 0, both_bytes);
}

/* Takes the lock. Where there is no room beside the committed layout, that one may have to be given
 * up for the new one: then every byte is read once before, if possible while the lock is free for
 * others. */
static int load_connect(struct image_load *load)
{
    const struct image_request *request = load->request;
    uint64_t committed_bytes = load_committed_bytes(load), kept_bytes = 0;
    int error = load_connect_beside(load, committed_bytes), status = CLI_OK;

    if (!error)
        kept_bytes = committed_bytes;
    else if (error == -ENOMEM && committed_bytes > 0)
        status = load_check_sums(load);
    if (error && status == CLI_OK)
        status = store_connect_reserve(load->handle, request->store, request->timeout_ms,
                                       request->quiet, load->needed_bytes);
    signals_defer(true);
    /* Others may have committed more meanwhile, or something at all. */
    if (status == CLI_OK && !load->is_checked && load_committed_bytes(load) > kept_bytes)
        status = load_check_sums(load);
    return status;
}

/* ---- entries ------------------------------------------------------------------------------- */

static int load_put_entries(struct image_load *load)
{
    size_t culprit = SIZE_MAX;
    int error =
        image_entries_put(load->ctl_fd, load->handle, &load->image.layout, signals_get, &culprit);
    struct image_layout_entry entry;

    /* Or it would keep the session alive behind the commit. */
    image_entries_close(load->ctl_fd);
    load->ctl_fd = -1;
    if (error && culprit < load->image.layout.entry_count) {
        image_layout_entry(&load->image.layout, culprit, &entry);
        cli_error("%s: the store refuses the entry '%.*s': %s", load->request->store,
                  (int)entry.key_bytes, entry.key, strerror(-error));
    } else if (error == -EINTR) {
        return CLI_SIGNALED + signals_get();
    } else if (error) {
        store_explain(load->request->store, "put the metadata", error);
    }
    return error ? CLI_FAILURE : CLI_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* As a reader afterwards, so that the hash that is looked at is this commit's. */
static int load_commit(struct image_load *load)
{
    const uint8_t *group = load->image.manifest.group;
    bool has_group = memcmp(group, no_group, sizeof(no_group)) != 0;
    bool immutable = load->request->immutable;
    unsigned flags = GMSFS_COMMIT_STAY | (has_group ? GMSFS_COMMIT_GROUP : 0) |
                     (immutable ? GMSFS_COMMIT_IMMUTABLE : 0);
    char want[DIGEST_TEXT_BYTES], why[LAST_ERROR_BYTES], hash[GMSFS_HASH_TEXT_BYTES] = "";
    int error;

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    error = gmsfs_commit(load->handle, flags, has_group ? group : NULL);
    if (error == -EINVAL || (error == -EBUSY && immutable)) {
        store_last_error(load->request->store, why, sizeof(why));
        cli_error("%s: the store refuses the layout: %s", load->request->store,
                  *why ? why : strerror(-error));
        return CLI_FAILURE;
    }
    if (error) {
        store_explain_call(load->handle, &load->memory, "commit", error);
        return CLI_FAILURE;
    }
    store_make_keep();
    output_set_done();
    load->generation = gmsfs_generation(load->handle);
    error = gmsfs_get_memory_layout_hash(load->handle, hash);
    gmsfs_disconnect(load->handle);
    if (error || strcmp(hash, digest_text(load->hash, want)) == 0)
        return CLI_OK;
    cli_error("%s: committed, but its layout_hash is %s and should be %s", load->request->store,
              hash, want);
    return CLI_FAILURE;
}

static int load_fill(struct image_load *load)
{
    int status =
        store_open_memory(load->staging, load->handle, load->request->store, &load->memory);

    if (status == CLI_OK)
        status = image_load_bytes(load);
    if (status == CLI_OK)
        status = load_put_entries(load);
    if (status == CLI_OK)
        status = load_commit(load);
    return status;
}

/* Aborts, and prints the state of the store after the failure. */
static void load_abort(struct image_load *load, int status)
{
    int rolled_back = 0, error;

    /* was committed */
    if (load->generation)
        return;
    error = gmsfs_abort(load->handle, &rolled_back);
    if (status > CLI_SIGNALED)
        cli_error("stopped by a signal (%s)", strsignal(status - CLI_SIGNALED));
    if (!error && store_make_is_ours(load->request->store))
        fputs("nothing was committed\n", stderr);
    else
        ui_line(stderr, "nothing was committed; %s %s", load->request->store,
                error         ? "is as the daemon left it"
                : rolled_back ? "has its earlier layout again"
                              : "is empty");
}

static void load_print_result(const struct image_load *load, uint64_t start_ms)
{
    const struct image_manifest *manifest = &load->image.manifest;
    char size[SIZE_TEXT_BYTES], hash[DIGEST_TEXT_BYTES];

    if (load->request->quiet)
        return;
    ui_line(stdout,
            "committed %s: %zu allocations and %zu entries, generation %" PRIu64 ", layout %s%s",
            load->request->store, manifest->allocation_count, load->image.layout.entry_count,
            load->generation, digest_text(load->hash, hash),
            memcmp(load->hash, manifest->layout_hash, DIGEST_BYTES) == 0
                ? ""
                : " (realigned: not the saved one)");
    printf("%" PRIu64 " bytes (%s) in %.2f s, %.2f GB/s\n", manifest->stored_bytes,
           size_format(manifest->stored_bytes, size), (double)(cli_now_ms() - start_ms) / MS_PER_S,
           progress_rate(manifest->stored_bytes, load->copied_ms));
}

/* The image may lie in allocations. */
static int load_check_source(const struct image_load *load)
{
    struct failure unused;
    size_t file;

    if (image_dir_add(&load->image.dir, IMAGE_LAYOUT, &file, &unused) != 0)
        return CLI_OK; /* reading it will explain the error */
    return store_source_check(load->request->store, load->handle, load->image.dir.source, file,
                              load->image.dir.path);
}

/* All that can be refused without the lock. */
static int load_prepare(struct image_load *load)
{
    struct gmsfs_info info;
    int status, error;

    if (store_open_or_make(load->request->store, &load->handle) != 0)
        return CLI_FAILURE;
    error = gmsfs_get_info(load->handle, &info);
    if (error) {
        store_explain(load->request->store, "look at the store", error);
        return CLI_FAILURE;
    }
    load->ctl_fd = image_entries_open(load->request->store);
    if (load->ctl_fd < 0) {
        store_explain(load->request->store, "open the store", load->ctl_fd);
        return CLI_FAILURE;
    }
    status = load_check_source(load);
    if (status == CLI_OK)
        status = load_check_granularity(load, info.granularity_bytes);
    if (status == CLI_OK)
        status = load_align(load, info.granularity_bytes);
    if (status == CLI_OK)
        status = load_check_entries(load);
    if (status == CLI_OK)
        status = image_load_check_hash(load, load->aligned);
    return status == CLI_OK ? load_check_space(load) : status;
}

static int load_into_store(struct image_load *load)
{
    uint64_t start_ms;
    int status = load_connect(load);

    start_ms = cli_now_ms();
    if (status == CLI_OK)
        status = load_fill(load);
    else if (!gmsfs_is_connected(load->handle))
        return status;
    if (status == CLI_OK)
        load_print_result(load, start_ms);
    else
        load_abort(load, status);
    return status;
}

int image_load(const struct image_request *request)
{
    struct image_load load = {.request = request, .ctl_fd = -1};
    struct failure failure;
    int status;

    signals_install("\ngmsfs image: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    load.staging = staging_new();
    if (!load.staging)
        return cli_out_of_memory();
    status = image_open(&load.image, request->path, &failure) ? cli_failure(&failure) : CLI_OK;
    if (status == CLI_OK)
        status = load_prepare(&load);
    if (status == CLI_OK)
        status = load_into_store(&load);
    image_entries_close(load.ctl_fd);
    staging_free(load.staging);
    free(load.mappings);
    free(load.aligned);
    gmsfs_close(load.handle);
    image_close(&load.image);
    store_make_undo();
    return status;
}
