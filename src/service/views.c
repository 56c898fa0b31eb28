/* SPDX-License-Identifier: Apache-2.0 */
#include "service/views.h"

#include "meta/name.h"
#include "service/parked.h"

#include <errno.h>
#include <string.h>

/* While a writer works, the committed layout may be changing, so it is not shown. A sealed layout
 * does not change. */
struct blob *service_get_shown_layout(const struct core_store *store)
{
    return store->fixed && store->lock.held[LOCK_MODE_RW] == 0 ? store->encoding : NULL;
}

uint64_t service_count_changes(const struct service *s)
{
    return s->changes;
}

uint64_t service_count_readers(const struct core_store *store)
{
    uint64_t count = 0;
    for (size_t i = 0; i < store->lock.session_count; i++)
        count += store->lock.sessions[i].mode == LOCK_MODE_RO;
    return count;
}

const char *service_get_unmappable_reason(const struct service *s, const struct core_store *store)
{
    const struct layout *layout = store->fixed;
    if (!layout || !layout_is_immutable(layout))
        return "its layout is not immutable";
    if (!vmm_can_finish(s->vmm))
        return "the memory of this device cannot be mapped as a file";
    if (store->places.place != CORE_PLACE_DEVICE)
        return "it is not on the device: promote it";
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct piece *piece = idvec_find(&s->pieces.all, layout_at_rank(layout, i)->memory);
        if (!piece || !piece->memory.immutable)
            return "its memory was committed before, when it could still be written: load it anew";
    }
    return NULL;
}

/* Finds the file, its store and its session, if that is alive. A `ctl` has none after the end of
 * its session, and may take another. */
static int find(const struct service *s, uint64_t file, const struct core_file **found,
                const struct core_store **store, const struct core_session **session)
{
    int error = service_find_reader(s, file, found);
    if (error)
        return error;
    *store = core_find_store(s->core, (*found)->store);
    *session = (*found)->session ? core_find_session(s->core, (*found)->session) : NULL;
    if (!*store || ((*found)->session && !*session && (*found)->kind != CORE_KIND_CTL))
        return -ESTALE;
    return 0;
}

int service_view_info(const struct service *s, uint64_t file, struct service_info *info)
{
    const struct core_file *found;
    int error = find(s, file, &found, &info->store, &info->session);
    if (error)
        return error;
    info->seen = info->session && info->session->mode == LOCK_MODE_RW
                     ? core_get_layout(s->core, info->store)
                     : info->store->fixed;
    info->state = lock_get_state(&info->store->lock);
    info->readers = service_count_readers(info->store);
    info->writers_waiting = lock_count_waiting_writers(&info->store->lock);
    info->layout = service_get_shown_layout(info->store);
    return 0;
}

/* Names a layout. A writer's session is a part of the name: after a rollback another writer could
 * count its changes up to the same number. */
static void name_layout(const struct service *s, const struct core_store *store,
                        const struct layout *layout, uint8_t name[16])
{
    const struct core_session *writer = store->working ? core_get_writer(s->core, store->id) : NULL;
    uint64_t which[] = {store->generation, store->fixed != NULL, writer ? writer->id : 0,
                        layout_count_changes(layout)};
    layout_hash(which, sizeof which, name);
}

int service_view_layout(const struct service *s, uint64_t file, const struct layout **layout,
                        uint8_t name[16])
{
    const struct core_session *session;
    const struct core_store *store;
    const struct core_file *found;
    int error = find(s, file, &found, &store, &session);
    if (error)
        return error;
    *layout = core_get_layout(s->core, store);
    name_layout(s, store, *layout, name);
    return 0;
}

int service_view_entry(const struct service *s, uint64_t file, const void *key, size_t key_bytes,
                       const struct layout **layout, const struct layout_entry **entry)
{
    const struct core_session *session;
    const struct core_store *store;
    const struct core_file *found;
    int error = find(s, file, &found, &store, &session);
    if (error)
        return error;
    if (found->session && !session)
        return -ESTALE;
    *layout = core_get_layout(s->core, store);
    *entry = layout_find_entry(*layout, key, key_bytes);
    if (*entry)
        return 0;
    error = name_check_key(key, key_bytes);
    return error ? error : -ENOENT;
}

int service_view_acquired(const struct service *s, uint64_t file, struct service_acquired *acquired)
{
    const struct core_file *found = core_find_file(s->core, file);
    *acquired = (struct service_acquired){0};
    if (!found || found->session == 0)
        return -ECANCELED;
    acquired->session = core_find_session(s->core, found->session);
    acquired->store = core_find_store(s->core, found->store);
    if (!acquired->session || !acquired->store)
        return -ECANCELED;
    if (acquired->session->mode != LOCK_MODE_RW && (found->flags & CORE_OPEN_READ))
        memcpy(acquired->hash, acquired->store->hash, sizeof acquired->hash);
    return 0;
}
