/* SPDX-License-Identifier: Apache-2.0 */
/* admin - draining the mount until it holds no memory; trust; the unmount */
#include "service/admin.h"

#include "service/ending.h"
#include "service/rights.h"

#include <errno.h>
#include <string.h>

static int check_admin(const struct service *s, const struct service_peer *peer)
{
    return service_is_admin(s, peer->uid) ? 0 : -EPERM;
}

/* A process that drains already keeps its token. */
static int choose_token(const struct service *s, const struct service_peer *peer,
                        struct record *record)
{
    const struct core_drainer *drainer = &s->core->drainer;
    if (!s->core->draining || !core_same_process(drainer->process, peer->process))
        return s->host.get_random(s->host.context, record->bytes16, sizeof record->bytes16);
    memcpy(record->bytes16, drainer->token, sizeof record->bytes16);
    return 0;
}

static int set_draining(struct service *s, const struct service_peer *peer, bool on)
{
    struct record record = {.type = RECORD_DRAIN,
                            .flags = on ? CORE_DRAIN_ON : 0,
                            .process = peer->process,
                            .uid = peer->uid};
    int error = check_admin(s, peer);
    if (!error && on)
        error = choose_token(s, peer, &record);
    return error ? error : service_apply_record(s, &record, NULL);
}

const struct core_session *service_find_open_session(const struct service *s)
{
    for (size_t i = 0; i < s->core->sessions.count; i++) {
        const struct core_session *session = s->core->sessions.items[i];
        if (!service_is_leaving(s, session->id))
            return session;
    }
    return NULL;
}

void service_revoke_all(struct service *s, const struct ending *revocation)
{
    const struct core_session *session;
    /* A session with transfers in flight ends after them. */
    while ((session = service_find_open_session(s)) != NULL) {
        struct ending ending = *revocation;
        ending.session = session->id;
        if (service_end_session(s, &ending))
            return;
    }
}

int service_drain(struct service *s, const struct service_peer *peer, bool revoke)
{
    struct ending revocation = {.type = ENDING_REVOKE, .by = peer->process, .by_uid = peer->uid};
    int error = set_draining(s, peer, true);
    if (!error && revoke)
        service_revoke_all(s, &revocation);
    return error;
}

int service_serve(struct service *s, const struct service_peer *peer)
{
    return set_draining(s, peer, false);
}

int service_drain_end(struct service *s, const struct service_peer *peer, uint64_t *left)
{
    struct record record = {
        .type = RECORD_DRAIN, .flags = CORE_DRAIN_DROP, .process = peer->process, .uid = peer->uid};
    struct vmm_info info;
    int error = check_admin(s, peer);
    *left = 0;
    if (error)
        return error;
    error = s->core->draining ? service_apply_record(s, &record, NULL) : -ECANCELED;
    vmm_get_info(s->vmm, &info);
    *left = error ? s->core->sessions.count : info.used_bytes;
    if (error || info.used_bytes > 0)
        return error ? error : -EAGAIN;
    record.flags = CORE_DRAIN_OVER;
    return service_apply_record(s, &record, NULL);
}

int service_trust(struct service *s, const struct service_peer *peer, const uint8_t uuid[16])
{
    static const uint8_t all[16];
    const struct core_store *store = core_find_uuid(s->core, uuid);
    if (store ? !service_is_owner(s, store->id, peer->uid) : check_admin(s, peer) != 0)
        return -EPERM;
    if (!store && memcmp(uuid, all, sizeof all) != 0)
        return -ENOENT;
    return service_record(s, .type = RECORD_HEALTH, .flags = CORE_NOTE_TRUST,
                          .store = store ? store->id : 0, .process = peer->process,
                          .uid = peer->uid);
}

int service_may_unmount(const struct service *s, const struct service_peer *peer)
{
    int error = check_admin(s, peer);
    return !error && service_count_open_files(s) > 0 ? -EBUSY : error;
}
