/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a copy. */
#include "cli/copy.h"

#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_explain.h"
#include "cli/store_make.h"
#include "cli/target_group.h"
#include "cli/ui.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US_PER_MS 1000u

/* ---- the stores ---------------------------------------------------------------------------- */

/* Holds the source, and knows all that the targets will have. */
static int copy_open_source(struct copy *copy)
{
    const struct copy_request *request = copy->request;
    const char *why;
    int status = reader_open(&copy->reader, request->from, request->timeout_ms, request->quiet);

    if (status == CLI_OK)
        status = reader_make_manifest(&copy->reader, request->threads, &copy->made);
    if (status != CLI_OK)
        return status;
    int error = image_layout_open(copy->made.layout, copy->made.layout_bytes, &copy->layout, &why);
    copy->made.layout = NULL;
    if (!error)
        return CLI_OK;
    return cli_error("%s: its layout is damaged: %s", request->from, why);
}

/* A store would wait for itself. */
static int copy_check_identity(const struct copy *copy, size_t index)
{
    const char *const *to = copy->request->to;
    struct gmsfs_info info, other;
    int error = gmsfs_get_info(copy->targets[index].handle, &info);

    if (error)
        return store_explain(to[index], "look at the store", error);
    if (memcmp(info.store_id, copy->made.manifest.store_id, sizeof(info.store_id)) == 0)
        return cli_error("%s: is the store that is copied, %s; name other stores behind it",
                         to[index], copy->request->from);
    for (size_t i = 0; i < index; i++) {
        if (gmsfs_get_info(copy->targets[i].handle, &other) != 0 ||
            memcmp(info.store_id, other.store_id, sizeof(info.store_id)) != 0)
            continue;
        return cli_error("%s: is the same store as %s; name each once", to[index], to[i]);
    }
    return CLI_OK;
}

static int copy_open_targets(struct copy *copy, struct store_group *group)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < copy->request->count; i++) {
        struct target *target = &copy->targets[i];

        *target = (struct target){.store = copy->request->to[i],
                                  .from = copy->request->from,
                                  .manifest = &copy->made.manifest,
                                  .layout = &copy->layout,
                                  .realign = copy->request->realign,
                                  .immutable = copy->request->immutable,
                                  .staging = copy->reader.staging,
                                  .ctl_fd = -1};
        status = target_open(target);
        if (status == CLI_OK)
            status = copy_check_identity(copy, i);
        if (status == CLI_OK)
            status = store_group_add(group, target->store, target->handle, target->needed_bytes);
    }
    return status;
}

/* ---- the commit ---------------------------------------------------------------------------- */

/* One copy keeps the group of its source, as an image does; several are a group of their own. */
static int copy_commit_all(const struct copy *copy, const struct store_group *group,
                           uint8_t id[DIGEST_BYTES])
{
    unsigned flags = GMSFS_COMMIT_STAY | (copy->request->immutable ? GMSFS_COMMIT_IMMUTABLE : 0);
    const uint8_t *old = copy->made.manifest.group;

    if (group->count > 1)
        return gmsfs_commit_group(group->handles, group->count, flags, id);
    return digest_is_zero(old) ? gmsfs_commit(group->handles[0], flags, NULL)
                               : gmsfs_commit(group->handles[0], flags | GMSFS_COMMIT_GROUP, old);
}

static int copy_commit(struct copy *copy, const struct store_group *group, uint8_t id[DIGEST_BYTES])
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    int error = copy_commit_all(copy, group, id);
    copy->is_committed = error == 0;
    return target_group_end_commit(copy->all, group, id, copy->request->immutable, error);
}

static int copy_fill(struct copy *copy)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < copy->request->count; i++)
        status = target_clear(&copy->targets[i]);
    if (status == CLI_OK)
        status = copy_bytes(copy);
    for (size_t i = 0; status == CLI_OK && i < copy->request->count; i++)
        status = target_put_entries(&copy->targets[i]);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void copy_print_result(const struct copy *copy, const uint8_t id[DIGEST_BYTES],
                              uint64_t start_ms)
{
    const struct image_manifest *manifest = &copy->made.manifest;
    char total[PROGRESS_TOTAL_BYTES], hash[DIGEST_TEXT_BYTES];
    size_t count = copy->request->count;
    uint64_t bytes = 0;

    for (size_t i = 0; i < manifest->allocation_count; i++)
        bytes += manifest->allocations[i].stored_bytes;
    for (size_t i = 0; i < count; i++) {
        const struct target *target = &copy->targets[i];

        if (copy->by_host[i])
            ui_line(stdout,
                    "%s: its GPU has no peer access to the GPU of %s, so its bytes went through "
                    "the host's memory",
                    target->store, copy->request->from);
        target_print_committed(target,
                               memcmp(target->hash, manifest->layout_hash, DIGEST_BYTES) == 0
                                   ? ""
                                   : " (realigned: not that of the source)");
    }
    if (count > 1)
        printf("group %s of %zu stores\n", digest_text(id, hash), count);
    bytes *= count;
    puts(progress_format_total(total, bytes, start_ms, copy->copied_us / US_PER_MS));
}

static int copy_into_targets(struct copy *copy, struct store_group *group)
{
    uint8_t id[DIGEST_BYTES] = {0};
    int status = store_group_connect_safely(group);

    if (status != CLI_OK)
        return status;
    signals_defer(true);
    uint64_t start_ms = clock_now_ms();
    status = copy_fill(copy);
    if (status == CLI_OK)
        status = copy_commit(copy, group, id);
    if (!copy->is_committed)
        store_group_abort(group, id, status);
    else if (status == CLI_OK && !copy->request->quiet)
        copy_print_result(copy, id, start_ms);
    return status;
}

int copy_store(const struct copy_request *request)
{
    struct copy copy = {.request = request};
    struct store_group group = {
        .mode = GMSFS_MODE_RW, .timeout_ms = request->timeout_ms, .quiet = request->quiet};

    copy.targets = cli_need(calloc(request->count, sizeof(*copy.targets)));
    copy.by_host = cli_need(calloc(request->count, sizeof(*copy.by_host)));
    for (size_t i = 0; i < request->count; i++) {
        copy.targets[i].ctl_fd = -1;
        copy.all[i] = &copy.targets[i];
    }
    store_group_begin(&group, request->count);
    int status = copy_open_source(&copy);
    if (status == CLI_OK)
        status = copy_open_targets(&copy, &group);
    if (status == CLI_OK)
        status = copy_into_targets(&copy, &group);
    reader_close(&copy.reader);
    for (size_t i = 0; i < request->count; i++)
        target_close(&copy.targets[i]);
    store_group_end(&group);
    image_layout_close(&copy.layout);
    image_manifest_free(&copy.made.manifest);
    free(copy.made.layout);
    free(copy.targets);
    free(copy.by_host);
    store_make_undo();
    return status;
}
