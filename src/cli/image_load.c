/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image load - an image into a store, committed whole or not at all */
#include "cli/image_load.h"

#include "base/failure.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_connect.h"
#include "cli/store_contents.h"
#include "cli/store_group.h"
#include "cli/store_make.h"
#include "cli/store_memory.h"
#include "cli/store_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the lock ------------------------------------------------------------------------------ */

/* Returns the bytes of the committed layout; 0 if there is none. */
static uint64_t load_committed_bytes(const struct image_load *load)
{
    struct gmsfs_info info;

    if (gmsfs_get_info(load->target.handle, &info) != 0)
        return UINT64_MAX;
    return info.committed ? info.total_bytes : 0;
}

/* Bytes of other nodes are not fetched twice. */
static int load_check_sums(struct image_load *load)
{
    struct image_check check = {
        .image = &load->image, .threads = load->request->threads, .direct = load->request->direct};
    uint64_t passed_ms;
    int status = CLI_OK;

    if (!load->contents)
        status = image_check_shown(&check, "checking", load->request->quiet, &passed_ms);
    load->is_checked = status == CLI_OK;
    return status;
}

/* Lock and memory at once, for both the image and the layout that is committed. A reservation
 * counts the committed bytes as free, because the writer frees them; so reserving both sizes
 * reserves memory for the image beside the layout, and a failed load can be rolled back. */
static int load_connect_beside(const struct image_load *load, uint64_t committed_bytes)
{
    uint64_t both_bytes;

    if (__builtin_add_overflow(load->target.needed_bytes, committed_bytes, &both_bytes))
        return -ENOMEM;
    gmsfs_set_connect_flags(load->target.handle, GMSFS_CONNECT_REPLACE);
    return gmsfs_connect_reserve(load->target.handle, GMSFS_MODE_RW, 0, both_bytes);
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
        status = store_connect_reserve(load->target.handle, request->store, request->timeout_ms,
                                       request->quiet, load->target.needed_bytes);
    signals_defer(true);
    /* Others may have committed more meanwhile, or something at all. */
    if (status == CLI_OK && !load->is_checked && load_committed_bytes(load) > kept_bytes)
        status = load_check_sums(load);
    return status;
}

/* Takes the lock, unless the store has the contents already. Another pull may have committed them
 * while this one waited: the lock is given back for a look then. */
static int load_connect_if_other(struct image_load *load, bool *has)
{
    char hash[DIGEST_TEXT_BYTES];
    struct gmsfs_info info;
    uint64_t seen = UINT64_MAX;
    int status;

    digest_text(load->target.hash, hash);
    for (;;) {
        *has = store_has_contents(load->request->store, load->target.handle, load->contents, hash,
                                  &seen);
        if (*has)
            return CLI_OK;
        status = load_connect(load);
        if (status != CLI_OK || gmsfs_get_info(load->target.handle, &info) != 0 ||
            info.generation == seen)
            return status;
        gmsfs_abort(load->target.handle, NULL);
        signals_defer(false);
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* As a reader afterwards, so that the hash that is looked at is this commit's. */
static int load_commit(struct image_load *load)
{
    const uint8_t *group = load->image.manifest.group;
    bool has_group = !digest_is_zero(group);
    bool immutable = load->request->immutable;
    unsigned flags = GMSFS_COMMIT_STAY | (has_group ? GMSFS_COMMIT_GROUP : 0) |
                     (immutable ? GMSFS_COMMIT_IMMUTABLE : 0);

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    int error = gmsfs_commit(load->target.handle, flags, has_group ? group : NULL);
    if (error)
        return store_explain_commit(load->target.handle, &load->target.memory, immutable, error);
    store_make_keep();
    output_set_done();
    load->generation = gmsfs_generation(load->target.handle);
    return target_check_committed(&load->target);
}

static int load_fill(struct image_load *load)
{
    int status = target_clear(&load->target);

    if (status == CLI_OK)
        status = image_load_bytes(load);
    if (status == CLI_OK)
        status = target_put_entries(&load->target);
    if (status == CLI_OK)
        status = load_commit(load);
    return status;
}

static void load_print_result(const struct image_load *load, uint64_t start_ms)
{
    const struct image_manifest *manifest = &load->image.manifest;
    char total[PROGRESS_TOTAL_BYTES];

    if (load->request->quiet)
        return;
    target_print_committed(
        &load->target,
        load->contents || memcmp(load->target.hash, manifest->layout_hash, DIGEST_BYTES) == 0
            ? ""
            : " (realigned: not the saved one)");
    puts(progress_format_total(total, manifest->stored_bytes, start_ms, load->copied_ms));
}

/* The image may lie in allocations. */
static int load_check_source(const struct image_load *load)
{
    struct failure unused;
    size_t file;

    if (image_dir_add(&load->image.dir, IMAGE_LAYOUT, &file, &unused) != 0)
        return CLI_OK; /* reading it will explain the error */
    return store_source_check(load->request->store, load->target.handle, load->image.dir.source,
                              file, load->image.dir.path);
}

/* The load compares each sum of the manifest with the bytes. */
static int load_check_id(const struct image_load *load)
{
    char text[DIGEST_TEXT_BYTES];
    uint8_t id[DIGEST_BYTES];
    int error = load->request->id ? image_get_contents_id(&load->image, id) : 0;

    if (error == -ENOMEM)
        cli_out_of_memory();
    if (error)
        return cli_error(
            "%s: its sums do not give the id of its contents; load it without --id, and "
            "compare with 'gmsfs verify --id'",
            load->image.dir.path);
    return load->request->id ? store_check_contents_id(load->image.dir.path, digest_text(id, text),
                                                       load->request->id)
                             : CLI_OK;
}

static int load_into_store(struct image_load *load)
{
    bool has = false;
    int status = load->contents ? load_connect_if_other(load, &has) : load_connect(load);

    if (has)
        return store_say_has_contents(load->request->store, load->contents,
                                      load->request->immutable, load->request->quiet);
    uint64_t start_ms = clock_now_ms();
    if (status == CLI_OK)
        status = load_fill(load);
    else if (!gmsfs_is_connected(load->target.handle))
        return status;
    if (status == CLI_OK)
        load_print_result(load, start_ms);
    else if (!load->generation)
        store_abort(load->target.handle, load->request->store, status);
    return status;
}

void image_load_set_target(struct image_load *load, struct staging *staging)
{
    load->target = (struct target){.store = load->request->store,
                                   .from = load->image.dir.path,
                                   .manifest = &load->image.manifest,
                                   .layout = &load->image.layout,
                                   .realign = load->request->realign,
                                   .immutable = load->request->immutable,
                                   .staging = staging,
                                   .ctl_fd = -1};
}

int image_load_opened(struct image_load *load)
{
    struct target *target = &load->target;
    int status = load_check_id(load);

    if (status != CLI_OK)
        return status;
    image_load_set_target(load, cli_need(staging_new()));
    status = target_open(target);
    if (status == CLI_OK && !load->contents)
        status = load_check_source(load);
    if (status == CLI_OK)
        status = load_into_store(load);
    staging_free(target->staging);
    target_close(target);
    store_make_undo();
    return status;
}

int image_load(const struct image_request *request)
{
    struct image_load load = {.request = request};
    struct failure failure;

    signals_install("\ngmsfs image: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    int status = image_open(&load.image, request->path, &failure) ? cli_failure(&failure) : CLI_OK;
    if (status == CLI_OK) {
        store_source_tell_unfinished(load.image.dir.source, request->path);
        status = image_load_opened(&load);
    }
    image_close(&load.image);
    return status;
}
