/* SPDX-License-Identifier: Apache-2.0 */
/* The entry GMSFS_GRAPH_KEY, in which an awake pool describes itself. */
#include "graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTE_BYTES_MAX 256

/* Fewer bytes for the kernel to carry than there may be. */
#define NOTE_PUT                                                    \
    _IOC(_IOC_READ | _IOC_WRITE, _IOC_TYPE(GMSFS_IOC_METADATA_PUT), \
         _IOC_NR(GMSFS_IOC_METADATA_PUT),                           \
         offsetof(struct gmsfs_ioc_metadata, data) + sizeof GMSFS_GRAPH_KEY + NOTE_BYTES_MAX)

static uint32_t note_write(struct gmsfs_graph_pool *pool, char text[NOTE_BYTES_MAX])
{
    uint64_t spaces = 0, address_bytes = 0;

    for (const struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        spaces++;
        address_bytes += space->reserved_bytes;
    }
    return (uint32_t)snprintf(text, NOTE_BYTES_MAX,
                              "{\"chunk_bytes\":%" PRIu64 ",\"spaces\":%" PRIu64
                              ",\"address_bytes\":%" PRIu64 ",\"high_bytes\":%" PRIu64 "}",
                              pool->chunk_bytes, spaces, address_bytes,
                              pool->high * pool->chunk_bytes);
}

void gfs_graph_note(struct gmsfs_graph_pool *pool)
{
    struct gmsfs_ioc_metadata request = {.slot = GMSFS_SLOT_NONE};
    size_t key_bytes = strlen(GMSFS_GRAPH_KEY);
    char text[NOTE_BYTES_MAX];

    if (gfs_graph_check_awake(pool))
        return;
    request.key_bytes = (uint32_t)key_bytes;
    request.value_bytes = note_write(pool, text);
    memcpy(request.data, GMSFS_GRAPH_KEY, key_bytes);
    memcpy(request.data + key_bytes, text, request.value_bytes);
    gfs_ioctl(pool->handle, NOTE_PUT, &request);
}

void gfs_graph_note_remove(struct gmsfs_graph_pool *pool)
{
    struct gmsfs_ioc_metadata request = {.key_bytes = (uint32_t)strlen(GMSFS_GRAPH_KEY)};

    memcpy(request.data, GMSFS_GRAPH_KEY, request.key_bytes);
    gfs_ioctl(pool->handle, GMSFS_IOC_METADATA_DELETE, &request);
}
