/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a target: a GPU's whole and mapped, the host's as files, some at a time. */
#include "cli/target.h"

#include "base/failure.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "cli/store_space.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

static int target_explain_allocation(const struct target *target, size_t rank, int error)
{
    struct store_space space;

    store_get_space(target->store, target->handle, &space);
    if (error == -ENOMEM && space.is_known)
        return store_say_full(target->store, &space, target->needed_bytes, NULL);
    if (error == -ENOSPC)
        return store_say_too_many(target->store, target->manifest->allocation_count, "mount");
    return cli_error("%s: cannot allocate '%s' (%" PRIu64 " bytes): %s", target->store,
                     target->manifest->allocations[rank].name,
                     target->manifest->allocations[rank].size_bytes, failure_reason(error));
}

/* Returns true if the memory may end with the size: nothing behind it is saved, and nothing will be
 * written there. */
static bool target_is_exact(const struct target *target, size_t rank, size_t count)
{
    const struct image_allocation *allocations = &target->manifest->allocations[rank];
    bool is_exact = target->immutable;

    for (size_t i = 0; is_exact && i < count; i++)
        is_exact = allocations[i].stored_bytes == allocations[i].size_bytes;
    return is_exact;
}

/* So many from a rank on, at the same time. flags: as gmsfs_allocate_each has them. slots: NULL, or
 * of each. -ECANCELED: a signal. */
static int target_try_some(const struct target *target, size_t rank, size_t count, unsigned flags,
                           uint64_t *slots)
{
    struct gmsfs_new_allocation wanted[GMSFS_ALLOCATE_EACH_MAX];
    char tags[GMSFS_ALLOCATE_EACH_MAX][GMSFS_NAME_MAX + 1];

    if (signals_get())
        return -ECANCELED;
    for (size_t i = 0; i < count; i++) {
        const struct image_allocation *allocation = &target->manifest->allocations[rank + i];
        struct image_layout_allocation laid_out;

        image_layout_get(target->layout, rank + i, &laid_out);
        snprintf(tags[i], sizeof(tags[i]), "%.*s", (int)laid_out.tag_bytes, laid_out.tag);
        wanted[i] =
            (struct gmsfs_new_allocation){allocation->size_bytes, tags[i], allocation->name};
    }
    flags |= target_is_exact(target, rank, count) ? GMSFS_ALLOC_EXACT : 0;
    return gmsfs_allocate_each(target->handle, wanted, count, flags, slots);
}

/* None was made: one after the other, without waiting, tells which is refused. */
static int target_explain_some(const struct target *target, size_t rank, size_t count, int error)
{
    bool is_one = error == -ENOMEM || error == -ENOSPC || count == 1;

    for (size_t i = 0; !is_one && i < count; i++) {
        int refusal = target_try_some(target, rank + i, 1, GMSFS_ALLOC_NOWAIT, NULL);
        if (refusal)
            return target_explain_some(target, rank + i, 1, refusal);
    }
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    return target_explain_allocation(target, rank, error);
}

/* ---- memory that is mapped ----------------------------------------------------------------- */

int target_map(struct target *target)
{
    size_t count = target->manifest->allocation_count, some;
    int status = CLI_OK, error;

    signals_defer(false); /* they cannot end a wait for memory otherwise */
    for (size_t i = 0; status == CLI_OK && i < count; i += some) {
        some = count - i < GMSFS_ALLOCATE_EACH_MAX ? count - i : GMSFS_ALLOCATE_EACH_MAX;
        error = target_try_some(target, i, some, 0, NULL);
        status = error ? target_explain_some(target, i, some, error) : CLI_OK;
    }
    signals_defer(true);
    if (status != CLI_OK)
        return status;
    error = gmsfs_attach_all(target->handle, GMSFS_ACCESS_WRITE, &target->mappings,
                             &target->mapping_count);
    if (!error && target->mapping_count != count)
        error = -ESTALE;
    if (error)
        return store_explain_call(target->handle, &target->memory, "map the memory", error);
    for (size_t i = 0; i < count; i++)
        target->aligned[i] = target->mappings[i].aligned_bytes;
    return target_check_hash(target);
}

/* ---- memory that is files ------------------------------------------------------------------ */

/* The kernel makes a file's pages by one thread at a time. */
bool target_are_alike(const struct target *target, size_t rank, size_t other)
{
    const struct image_allocation *allocations = target->manifest->allocations;

    return (allocations[rank].size_bytes > PACK_LEAST_CHUNK_BYTES) ==
           (allocations[other].size_bytes > PACK_LEAST_CHUNK_BYTES);
}

int target_get_files(struct target *target, size_t rank, size_t count, int *fds, bool *is_made)
{
    uint64_t slots[TARGET_FILES_AT_ONCE];
    struct stat status;
    int error = target_try_some(target, rank, count, 0, slots);

    *is_made = error == 0;
    if (!error)
        error = gmsfs_export_each(target->handle, slots, count, GMSFS_ACCESS_WRITE, fds);
    for (size_t i = 0; !error && i < count; i++)
        if (fstat(fds[i], &status) == 0 &&
            (uint64_t)status.st_size != target->manifest->allocations[rank + i].size_bytes)
            target->aligned[rank + i] = (uint64_t)status.st_size;
    return error;
}

int target_explain_files(struct target *target, size_t rank, size_t count, bool is_made, int error)
{
    if (!is_made)
        return target_explain_some(target, rank, count, error);
    return store_explain_call(target->handle, &target->memory, "open its memory", error);
}
