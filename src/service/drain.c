/* SPDX-License-Identifier: Apache-2.0 */
#include "service/drain.h"

#include "service/ending.h"
#include "service/rights.h"

#include <errno.h>
#include <string.h>

static int find(const struct service *s, const struct service_peer *peer, const uint8_t uuid[16],
                const struct core_store **found)
{
    *found = core_find_uuid(s->core, uuid);
    if (!*found)
        return -ENOENT;
    return service_is_owner(s, (*found)->id, peer->uid) ? 0 : -EPERM;
}

/* Returns the store that it drains; NULL if it drains none any more. */
static const struct core_store *find_drained(const struct service *s,
                                             const struct service_drain *own)
{
    const struct core_store *store = core_find_store(s->core, own->store);

    return store && store->drain.is_on && own->id == store->drain.id ? store : NULL;
}

int service_drain_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16],
                        uint64_t in_ms, struct service_drain *own)
{
    const struct core_store *store, *drained = find_drained(s, own);
    struct record record = {.type = RECORD_STORE_DRAIN, .process = peer->process, .uid = peer->uid};
    int error = find(s, peer, uuid, &store);

    if (error)
        return error;
    if (drained ? drained != store : store->drain.is_on)
        return -EBUSY;
    if (drained)
        memcpy(record.bytes16, drained->drain.by.token, sizeof record.bytes16);
    else
        error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
    if (error)
        return error;
    record.store = store->id;
    record.deadline_ms = in_ms ? s->host.wall_ms(s->host.context) + in_ms : 0;
    error = service_apply_record(s, &record, NULL);
    if (!error)
        *own = (struct service_drain){.store = store->id, .id = store->drain.id};
    return error;
}

static const struct core_session *find_open_session(const struct service *s,
                                                    const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.session_count; i++) {
        const struct core_session *session = core_find_session(s->core, store->lock.sessions[i].id);

        if (session && !service_is_leaving(s, session->id))
            return session;
    }
    return NULL;
}

int service_count_holders(struct service *s, const struct service_peer *peer,
                          const struct service_drain *own, bool revoke, uint64_t *left)
{
    const struct core_store *store = find_drained(s, own);
    const struct core_session *session;

    *left = 0;
    if (!store)
        return own->store && !core_find_store(s->core, own->store) ? -ENOENT : -ECANCELED;
    while (revoke && (session = find_open_session(s, store)) != NULL) {
        struct ending ending = {.type = ENDING_REVOKE,
                                .session = session->id,
                                .by = peer->process,
                                .by_uid = peer->uid};

        if (service_end_session(s, &ending))
            break;
    }
    *left = store->lock.session_count;
    return *left ? -EBUSY : 0;
}

int service_serve_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16])
{
    const struct core_store *store;
    int error = find(s, peer, uuid, &store);
    return error ? error
                 : service_record(s, .type = RECORD_STORE_SERVE, .store = store->id,
                                  .process = peer->process, .uid = peer->uid);
}

void service_end_drain(struct service *s, struct service_drain *own)
{
    const struct core_store *store = find_drained(s, own);
    if (store) /* such a record never fails */
        service_record(s, .type = RECORD_STORE_SERVE, .store = own->store,
                       .process = store->drain.by.process, .uid = store->drain.by.uid);
    *own = (struct service_drain){0};
}

static bool is_same(const struct core_drainer *drainer, const struct service_peer *peer)
{
    return drainer->uid == peer->uid && drainer->process.pid == peer->process.pid &&
           drainer->process.start == peer->process.start;
}

bool service_is_drainer(const struct core_drainer *drainer, const struct service_peer *peer)
{
    return peer->process.pid != 0 && is_same(drainer, peer);
}

int service_resume_drain(struct service *s, const struct service_peer *peer,
                         const uint8_t token[16], struct service_drain *own, bool *is_mount)
{
    const struct core_store *store = core_find_drained(s->core, token);

    *is_mount = !store && core_is_drainer(s->core, token);
    if (!store && !*is_mount)
        return -ECANCELED;
    if (!is_same(store ? &store->drain.by : &s->core->drainer, peer))
        return -EPERM;
    if (store)
        *own = (struct service_drain){.store = store->id, .id = store->drain.id};
    return 0;
}

void service_end_unclaimed_drains(struct service *s,
                                  bool (*is_claimed)(void *context, const struct core_store *store),
                                  void *context)
{
    const struct core *core = s->core;

    if (core_has_drainer(core) && !is_claimed(context, NULL))
        service_record(s, .type = RECORD_DRAIN);
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        if (store->drain.is_on && !is_claimed(context, store))
            service_record(s, .type = RECORD_STORE_SERVE, .store = store->id);
    }
}
