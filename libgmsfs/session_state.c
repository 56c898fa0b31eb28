/* SPDX-License-Identifier: Apache-2.0 */
/* The session as the handle knows it, without asking the daemon. */
#include <errno.h>
#include <string.h>

#include "internal.h"

/* ---- changes ------------------------------------------------------------------------------ */

/* Slots go on meaning the same where this handle sees the very layout that it last saw: no commit
 * since, no writer's work of its own dropped, and not a layout begun on an empty store. */
void gfs_session_begin(struct gmsfs_store *handle, const struct gfs_grant *grant)
{
    struct gfs_ident *ident = &handle->ident;
    int same = memcmp(ident->store_id, grant->store_id, 16) == 0 &&
               ident->generation == grant->generation && !handle->ident_broken &&
               (grant->mode != GMSFS_MODE_RW || grant->committed);

    gfs_state_lock(handle);
    handle->mode = grant->mode;
    handle->session = grant->session;
    memcpy(handle->token, grant->token, sizeof handle->token);
    memcpy(ident->store_id, grant->store_id, 16);
    memset(ident->layout_hash, 0, 16);
    if (grant->mode != GMSFS_MODE_RW)
        memcpy(ident->layout_hash, grant->layout_hash, 16);
    ident->generation = grant->generation;
    ident->epoch += !same;
    handle->ident_broken = 0;
    handle->was_lost = 0; /* that was another one */
    gfs_state_unlock(handle);
    handle->announced_bytes = 0;
}

void gfs_session_forget(struct gmsfs_store *handle)
{
    gfs_state_lock(handle);
    if (handle->mode == GMSFS_MODE_RW)
        handle->ident_broken = 1;
    handle->mode = GMSFS_MODE_NONE;
    handle->session = 0;
    memset(handle->token, 0, sizeof handle->token);
    gfs_state_unlock(handle);
}

int gfs_session_writes(const struct gmsfs_store *handle)
{
    return handle->mode == GMSFS_MODE_RW || handle->mode == GMSFS_MODE_RW_DATA;
}

/* Notes that the mappings of this session are of the layout that it committed. Under `state`. */
static void session_take_layout(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit,
                                int is_committed)
{
    struct gfs_ident *ident = &handle->ident;

    ident->generation = commit->generation;
    memcpy(ident->layout_hash, commit->layout_hash, 16);
    for (size_t i = 0; i < handle->map.mapping_count; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;

        if (mapping->ident.epoch != ident->epoch)
            continue;
        mapping->ident = *ident;
        if (is_committed)
            mapping->access = GMSFS_ACCESS_READ;
    }
}

void gfs_session_publish(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit)
{
    gfs_state_lock(handle);
    session_take_layout(handle, commit, 1);
    handle->mode = commit->mode == GMSFS_MODE_RO ? GMSFS_MODE_RO : GMSFS_MODE_NONE;
    if (handle->mode == GMSFS_MODE_NONE) {
        handle->session = 0;
        memset(handle->token, 0, sizeof handle->token);
    }
    gfs_state_unlock(handle);
}

void gfs_session_seal(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit)
{
    gfs_state_lock(handle);
    session_take_layout(handle, commit, 0);
    handle->mode = GMSFS_MODE_RW_DATA;
    gfs_state_unlock(handle);
    handle->announced_bytes = 0;
}

/* ---- properties --------------------------------------------------------------------------- */

enum gmsfs_mode gmsfs_granted_lock(gmsfs_t *handle)
{
    enum gmsfs_mode mode;

    if (gfs_state_enter(handle))
        return GMSFS_MODE_NONE;
    mode = handle->mode;
    gfs_state_unlock(handle);
    return mode;
}

int gmsfs_is_connected(gmsfs_t *handle)
{
    return gmsfs_granted_lock(handle) != GMSFS_MODE_NONE;
}

int gmsfs_is_unmapped(gmsfs_t *handle)
{
    int unmapped;

    if (gfs_state_enter(handle))
        return 0;
    unmapped = handle->unmapped;
    gfs_state_unlock(handle);
    return unmapped;
}

uint64_t gmsfs_total_bytes(gmsfs_t *handle)
{
    uint64_t total = 0;

    if (gfs_state_enter(handle))
        return 0;
    for (size_t i = 0; i < handle->map.mapping_count; i++)
        total += handle->map.mappings[i].aligned_bytes;
    gfs_state_unlock(handle);
    return total;
}

uint64_t gmsfs_generation(gmsfs_t *handle)
{
    uint64_t generation;

    if (gfs_state_enter(handle))
        return 0;
    generation = handle->ident.generation;
    gfs_state_unlock(handle);
    return generation;
}

int gmsfs_session_token(gmsfs_t *handle, uint8_t token[GMSFS_TOKEN_BYTES])
{
    int error = gfs_state_enter(handle);

    if (error)
        return error;
    if (handle->mode == GMSFS_MODE_NONE)
        error = -ENOLCK;
    else if (!token)
        error = -EINVAL;
    else
        memcpy(token, handle->token, sizeof handle->token);
    gfs_state_unlock(handle);
    return error;
}
