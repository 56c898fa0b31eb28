/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that have left the state and are slow to free: a helper thread frees them. */
#include "core/core_internal.h"

#define SMALL_BYTES (1u << 20)

/* Smaller layouts are freed at once: that is quicker than a job on a helper. */
#define SMALL_LAYOUT_COUNT 1024u
#define SMALL_LAYOUT_BYTES (1ull << 18)

bool core_is_large(const struct layout *layout)
{
    return layout_count_allocations(layout) + layout_count_entries(layout) > SMALL_LAYOUT_COUNT ||
           layout_entry_bytes(layout) > SMALL_LAYOUT_BYTES;
}

void core_discard_layout(struct core *core, struct layout *layout)
{
    struct core_garbage *garbage = &core->garbage;

    if (!layout)
        return;
    if (garbage->layout_count == CORE_MAX_GARBAGE || layout_is_shared(layout) ||
        !core_is_large(layout))
        layout_free(layout);
    else
        garbage->layouts[garbage->layout_count++] = layout;
}

void core_discard_blob(struct core *core, struct blob *blob)
{
    struct core_garbage *garbage = &core->garbage;

    if (!blob)
        return;
    if (blob_is_shared(blob) || blob->size <= SMALL_BYTES ||
        garbage->blob_count == CORE_MAX_GARBAGE)
        blob_unref(blob);
    else
        garbage->blobs[garbage->blob_count++] = blob;
}

bool core_take_garbage(struct core *core, struct core_garbage *garbage)
{
    bool any = core->garbage.layout_count > 0 || core->garbage.blob_count > 0;

    if (any)
        *garbage = core->garbage;
    core->garbage.layout_count = 0;
    core->garbage.blob_count = 0;
    return any;
}

void core_garbage_free(struct core_garbage *garbage)
{
    for (size_t i = 0; i < garbage->layout_count; i++)
        layout_free(garbage->layouts[i]);
    for (size_t i = 0; i < garbage->blob_count; i++)
        blob_unref(garbage->blobs[i]);
    garbage->layout_count = 0;
    garbage->blob_count = 0;
}
