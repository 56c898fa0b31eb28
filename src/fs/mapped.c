/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/mapped.h"

#include "base/log.h"
#include "fs/fs_internal.h"

#include <errno.h>
#include <stdlib.h>

#define WAY_SHIFT 32

/* A way and its memory, before it is chosen. */
struct choice {
    enum fs_way way;
    uint32_t backing;
    uint64_t memory;
};

static bool is_passed(enum fs_way way)
{
    return way == FS_WAY_PASSED || way == FS_WAY_PASSED_MAPS;
}

const char *fs_mapped_get_obstacle(const struct fs *fs)
{
    if (fs->options.unshared_reason)
        return fs->options.unshared_reason;
    return fs->passes ? NULL : "the kernel is older than Linux 6.9";
}

bool fs_mapped_is_unknown(const struct fs *fs, uint64_t serial)
{
    struct service_mapping mapping = service_get_mapping(fs->service, serial);

    return fs->passes && mapping.is_immutable && !mapping.is_known;
}

static struct choice wish(const struct fs *fs, uint64_t serial, enum fs_part part)
{
    struct service_mapping mapping = service_get_mapping(fs->service, serial);

    if (!mapping.is_immutable || !mapping.is_host || part == FS_PART_NONE)
        return (struct choice){FS_WAY_DIRECT, 0, 0};
    if (!fs->passes || !mapping.backing || part != FS_PART_WHOLE)
        return (struct choice){FS_WAY_CACHED, 0, 0};
    return (struct choice){mapping.file_bytes == mapping.size_bytes ? FS_WAY_PASSED
                                                                    : FS_WAY_PASSED_MAPS,
                           mapping.backing, mapping.memory};
}

/* Follows the openers that the file has already. */
static int follow(struct fs *fs, const struct fs_mapped *others, struct choice *choice)
{
    if (is_passed(others->way) && others->memory != choice->memory) {
        if (fs_may_warn(fs))
            log_warning("%s: a file cannot be opened, because a process still has it open with "
                        "memory that its store has given up (gmsfs drain --kill, fuser -vm %s)",
                        fs->options.mountpoint, fs->options.mountpoint);
        return -EBUSY;
    }
    if (choice->way != FS_WAY_DIRECT)
        *choice = (struct choice){others->way, others->backing, others->memory};
    return 0;
}

/* NULL: no memory. */
static struct fs_mapped *enter(struct fs *fs, uint64_t node, const struct choice *choice)
{
    struct fs_mapped *mapped = idvec_find(&fs->mappings.nodes, node);

    if (!mapped) {
        mapped = calloc(1, sizeof *mapped);
        if (!mapped)
            return NULL;
        *mapped = (struct fs_mapped){
            .node = node, .way = choice->way, .backing = choice->backing, .memory = choice->memory};
        if (idvec_insert(&fs->mappings.nodes, mapped)) {
            free(mapped);
            return NULL;
        }
    }
    mapped->opens++;
    return mapped;
}

static void leave(struct fs *fs, struct fs_mapped *mapped)
{
    if (--mapped->opens > 0)
        return;
    idvec_remove(&fs->mappings.nodes, mapped->node);
    free(mapped);
}

/* Notes the way for the next worker too. */
static int note(struct fs *fs, uint64_t node, uint64_t file, const struct choice *choice)
{
    struct fs_handle *handle = fs_handle_get(fs, file, node);
    struct fs_kept_handle *kept = handle ? fs_handle_keep(fs, handle) : NULL;

    if (!kept)
        return -ENOMEM;
    handle->mapped = enter(fs, node, choice);
    if (!handle->mapped)
        return -ENOMEM;
    fs_kept_move(
        fs, kept,
        (struct fs_kept_position){.position = choice->memory,
                                  .at = choice->backing | (uint64_t)choice->way << WAY_SHIFT});
    return 0;
}

/* Returns true if the cache has no pages of this node from before it was immutable; from now on it
 * has none. */
static bool is_cache_clean(struct fs *fs, uint64_t node)
{
    uint64_t *place = &fs->mappings.cached[node / 256 % FS_CACHED];
    bool is_clean = *place == node;

    *place = node;
    return is_clean;
}

int fs_mapped_open(struct fs *fs, uint64_t node, uint64_t file, uint64_t serial, enum fs_part part,
                   struct fuse_file_info *info, uint32_t *backing)
{
    const struct fs_mapped *others = idvec_find(&fs->mappings.nodes, node);
    struct choice choice = wish(fs, serial, part);
    int error = others ? follow(fs, others, &choice) : 0;

    if (error || choice.way == FS_WAY_DIRECT)
        return error;
    error = note(fs, node, file, &choice);
    if (error)
        return error;
    *backing = choice.backing;
    info->direct_io = choice.way == FS_WAY_PASSED_MAPS;
    info->keep_cache = choice.way == FS_WAY_CACHED && is_cache_clean(fs, node);
    return 0;
}

void fs_mapped_close(struct fs *fs, uint64_t file)
{
    struct fs_handle *handle = fs_handle_find(fs, file);

    if (handle && handle->mapped) {
        leave(fs, handle->mapped);
        handle->mapped = NULL;
    }
}

void fs_mapped_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from)
{
    const struct choice choice = {.way = (enum fs_way)(from->at >> WAY_SHIFT),
                                  .backing = (uint32_t)from->at,
                                  .memory = from->position};

    if (choice.way != FS_WAY_DIRECT)
        handle->mapped = enter(fs, handle->node, &choice);
}

void fs_mapped_free(struct fs *fs)
{
    for (size_t i = 0; i < fs->mappings.nodes.count; i++)
        free(fs->mappings.nodes.items[i]);
    idvec_free(&fs->mappings.nodes);
}
