/* SPDX-License-Identifier: Apache-2.0 */
/* text - the text of a file, by the kind of its node */
#include "base/hex.h"
#include "fs/fs_internal.h"
#include "fs/residency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fs_text_copy(const void *from, size_t size, struct fs_text *text)
{
    text->data = malloc(size ? size : 1);
    if (!text->data)
        return -ENOMEM;
    if (size)
        memcpy(text->data, from, size);
    text->size = size;
    return 0;
}

static int render_state(const struct core_store *store, struct fs_text *text)
{
    char line[32];
    int size = snprintf(line, sizeof line, "%s\n", lock_state_name(lock_get_state(&store->lock)));
    return fs_text_copy(line, (size_t)size, text);
}

static int render_residency(const struct fs *fs, const struct core_store *store,
                            struct fs_text *text)
{
    char lines[RESIDENCY_TEXT_BYTES];
    struct service_moving moving;
    bool moves = service_get_moving(fs->service, store, &moving);
    return fs_text_copy(lines, residency_format(store, moves ? &moving : NULL, lines), text);
}

static int render_hash(const struct core_store *store, struct fs_text *text)
{
    char line[34];
    if (!service_get_shown_layout(store))
        return fs_text_copy("", 0, text);
    hex_format(store->hash, sizeof store->hash, line);
    line[32] = '\n';
    return fs_text_copy(line, 33, text);
}

int fs_text_render(struct fs *fs, const struct node *node, uint32_t reader, struct fs_text *text)
{
    *text = (struct fs_text){.uid = text->uid, .store = node->store ? node->store->id : 0};
    switch (node->kind) {
    case NODE_DEVICE:
        return fs_text_device(fs, text);
    case NODE_METRICS:
        return fs_text_metrics(fs, text);
    case NODE_POOLS:
        return fs_text_pools(fs, text);
    case NODE_STATE:
        return render_state(node->store, text);
    case NODE_RESIDENCY:
        return render_residency(fs, node->store, text);
    case NODE_LAYOUT_HASH:
        return render_hash(node->store, text);
    case NODE_LAYOUT:
    case NODE_PIECES:
        return fs_text_copy("", 0, text); /* those of committed bytes are shared instead */
    case NODE_INFO:
        return fs_text_info(fs, node->store, text);
    case NODE_SESSIONS:
        return fs_text_sessions(fs, node->store, reader, text);
    case NODE_REGION:
        return fs_text_region(fs, node->region, text);
    default:
        return -EINVAL;
    }
}
