/* SPDX-License-Identifier: Apache-2.0 */
/* The steps before the lock, and after the bytes. */
#include "cli/target.h"

#include "base/number.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/store_explain.h"
#include "cli/store_make.h"
#include "cli/store_memory.h"
#include "cli/store_space.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the hash ------------------------------------------------------------------------------ */

int target_check_hash(struct target *target)
{
    const struct image_manifest *manifest = target->manifest;
    char was[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];
    int error = image_layout_hash(target->layout, target->aligned, target->hash);

    if (error == -ENOMEM)
        cli_out_of_memory();
    if (error == 0 &&
        (target->realign || memcmp(target->hash, manifest->layout_hash, DIGEST_BYTES) == 0))
        return CLI_OK;
    return cli_error(
        "%s: its allocations get other sizes in %s, so the layout would be another one (%s, "
        "not %s); --realign accepts that",
        target->from, target->store, error ? "none" : digest_text(target->hash, is),
        digest_text(manifest->layout_hash, was));
}

/* ---- before the lock ----------------------------------------------------------------------- */

static int target_check_granularity(const struct target *target, uint64_t granularity_bytes)
{
    uint64_t saved_bytes = target->manifest->granularity_bytes;
    char here[SIZE_TEXT_BYTES], there[SIZE_TEXT_BYTES];

    if (granularity_bytes == saved_bytes || target->realign ||
        target->manifest->allocation_count == 0)
        return CLI_OK;
    return cli_error("%s: has a granularity of %s (%" PRIu64
                     "), and the mount of %s has %s (%" PRIu64
                     "), so the layout would be another one; mount with granularity=%" PRIu64
                     ", or accept another layout_hash with --realign",
                     target->from, size_format(saved_bytes, there), saved_bytes, target->store,
                     size_format(granularity_bytes, here), granularity_bytes, saved_bytes);
}

/* Finds the aligned sizes in this mount, and checks that they hold the saved bytes. */
static int target_align(struct target *target, uint64_t granularity_bytes)
{
    const struct image_manifest *manifest = target->manifest;

    target->aligned = cli_need(calloc(manifest->allocation_count + 1, sizeof(*target->aligned)));
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        const struct image_allocation *allocation = &manifest->allocations[i];
        target->aligned[i] = number_round_up(allocation->size_bytes, granularity_bytes);
        if (allocation->stored_bytes > target->aligned[i])
            return cli_error(
                "%s: allocation %zu ('%s') has bytes behind its size, which do not fit at "
                "this granularity; mount with granularity=%" PRIu64,
                target->from, i, allocation->name, manifest->granularity_bytes);
        if (__builtin_add_overflow(target->needed_bytes, target->aligned[i], &target->needed_bytes))
            target->needed_bytes = UINT64_MAX;
    }
    return CLI_OK;
}

/* An entry may point behind the size, up to the aligned size, which may be less here. */
static int target_check_entries(const struct target *target)
{
    const struct image_manifest *manifest = target->manifest;
    struct image_layout_entry entry;

    for (size_t i = 0; i < target->layout->entry_count; i++) {
        image_layout_entry(target->layout, i, &entry);
        if (entry.rank >= manifest->allocation_count ||
            entry.offset_bytes < target->aligned[entry.rank])
            continue;
        return cli_error("%s: metadata '%.*s' points at byte %" PRIu64 " of allocation %" PRIu64
                         " ('%s'), which takes %" PRIu64 " bytes at this granularity; mount with "
                         "granularity=%" PRIu64,
                         target->from, (int)entry.key_bytes, entry.key, entry.offset_bytes,
                         entry.rank, manifest->allocations[entry.rank].name,
                         target->aligned[entry.rank], manifest->granularity_bytes);
    }
    return CLI_OK;
}

int target_open(struct target *target)
{
    struct gmsfs_info info;

    if (store_open_or_make(target->store, &target->handle) != 0)
        return CLI_FAILURE;
    int error = gmsfs_get_info(target->handle, &info);
    if (error)
        return store_explain(target->store, "look at the store", error);
    target->ctl_fd = image_entries_open(target->store);
    if (target->ctl_fd < 0)
        return store_explain(target->store, "open the store", target->ctl_fd);
    int status = target_check_granularity(target, info.granularity_bytes);
    if (status == CLI_OK)
        status = target_align(target, info.granularity_bytes);
    if (status == CLI_OK)
        status = target_check_entries(target);
    if (status == CLI_OK)
        status = target_check_hash(target);
    return status == CLI_OK
               ? store_check_space(target->store, target->handle, target->needed_bytes, NULL)
               : status;
}

void target_close(struct target *target)
{
    image_entries_close(target->ctl_fd);
    free(target->mappings);
    free(target->aligned);
    gmsfs_close(target->handle);
}

/* ---- the contents -------------------------------------------------------------------------- */

int target_clear(struct target *target)
{
    return store_clear(target->staging, target->handle, target->store, &target->memory);
}

int target_put_entries(struct target *target)
{
    size_t culprit = SIZE_MAX;
    int error =
        image_entries_put(target->ctl_fd, target->handle, target->layout, signals_get, &culprit);
    struct image_layout_entry entry;

    /* Or it would keep the session alive behind the commit. */
    image_entries_close(target->ctl_fd);
    target->ctl_fd = -1;
    if (error && culprit < target->layout->entry_count) {
        image_layout_entry(target->layout, culprit, &entry);
        cli_error("%s: the store refuses the entry '%.*s': %s", target->store, (int)entry.key_bytes,
                  entry.key, strerror(-error));
    } else if (error == -EINTR) {
        return CLI_SIGNALED + signals_get();
    } else if (error) {
        store_explain(target->store, "put the metadata", error);
    }
    return error ? CLI_FAILURE : CLI_OK;
}

/* ---- the commit ---------------------------------------------------------------------------- */

int target_check_committed(struct target *target)
{
    char want[DIGEST_TEXT_BYTES], hash[GMSFS_HASH_TEXT_BYTES] = "";
    int error = gmsfs_get_memory_layout_hash(target->handle, hash);

    gmsfs_disconnect(target->handle);
    if (error || strcmp(hash, digest_text(target->hash, want)) == 0)
        return CLI_OK;
    return cli_error("%s: committed, but its layout_hash is %s and should be %s", target->store,
                     hash, want);
}

void target_print_committed(const struct target *target, const char *remark)
{
    char hash[DIGEST_TEXT_BYTES];

    ui_line(stdout,
            "committed %s: %zu allocations and %zu entries, generation %" PRIu64 ", layout %s%s",
            target->store, target->manifest->allocation_count, target->layout->entry_count,
            gmsfs_generation(target->handle), digest_text(target->hash, hash), remark);
}
