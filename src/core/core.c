/* SPDX-License-Identifier: Apache-2.0 */
/* core - making and freeing a core and its objects, and the links between files and sessions */
#include "core/core.h"

#include "core/core_fields.h"
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Limits of 0, and limits above a bound, become the bound: the most that their field may be. */
static void bound_limits(struct core_options *options)
{
    for (const struct core_field *field = core_options_fields; field->kind; field++) {
        uint64_t *limit = (uint64_t *)((char *)options + field->at);

        if (field->kind == CORE_FIELD_U64 && field->least == 1 &&
            (*limit == 0 || *limit > field->most))
            *limit = field->most;
    }
}

int core_new(const struct core_options *options, struct core **core)
{
    struct core *made = calloc(1, sizeof *made);
    const struct core_limits *limits;

    if (!made)
        return -ENOMEM;
    made->options = *options;
    bound_limits(&made->options);
    limits = &made->options.limits;
    made->next_id = 1;
    made->next_session = 1;
    made->next_waiter = 1;
    made->next_ticket = 1;
    made->next_contents = 1;
    made->next_event = made->measured_event = 1;
    share_init(&made->shares[CORE_BOUND_FILES], limits->files);
    share_init(&made->shares[CORE_BOUND_TICKETS], limits->tickets);
    share_init(&made->shares[CORE_BOUND_GATHERED], limits->gathered_bytes);
    share_init(&made->shares[CORE_BOUND_REGIONS], limits->regions);
    share_init(&made->shares[CORE_BOUND_REGION_BYTES], limits->region_bytes);
    made->events = calloc(limits->events, sizeof *made->events);
    made->empty = layout_new();
    if (!made->events || !made->empty || core_index_init(&made->index) < 0 ||
        core_pools_init(made) < 0) {
        core_free(made);
        return -ENOMEM;
    }
    *core = made;
    return 0;
}

void core_store_free(struct core_store *store)
{
    if (!store)
        return;
    lock_free(&store->lock);
    share_free(&store->sessions);
    share_free(&store->waiters);
    layout_free(store->fixed);
    layout_free(store->working);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        layout_free(store->places.spares[tier]);
    blob_unref(store->encoding);
    free(store->writers);
    free(store);
}

void core_enter_file(struct core *core, const struct core_request *request, struct core_file *file)
{
    *file = (struct core_file){
        .id = core->next_id++,
        .kind = request->kind,
        .store = request->store,
        .serial = request->serial,
        .flags = request->flags,
        .uid = request->uid,
        .opener = request->owner,
    };
    idvec_append(&core->files, file);
}

void core_enter_session(struct core_session *session, struct core_file *file)
{
    file->session = session->id;
    file->next_in_session = session->first_file;
    file->link_in_session = &session->first_file;
    if (session->first_file)
        session->first_file->link_in_session = &file->next_in_session;
    session->first_file = file;
    session->files++;
}

static void unlink_file(struct core_file *file)
{
    *file->link_in_session = file->next_in_session;
    if (file->next_in_session)
        file->next_in_session->link_in_session = file->link_in_session;
    file->next_in_session = NULL;
    file->link_in_session = NULL;
}

void core_leave_session(struct core_session *session, struct core_file *file)
{
    unlink_file(file);
    file->session = 0;
    session->files--;
}

void core_detach_files(struct core_session *session)
{
    while (session->first_file)
        unlink_file(session->first_file);
}

void core_free_grant(struct core_grant *grant)
{
    free(grant->session);
    free(grant->file);
    layout_free(grant->empty);
    *grant = (struct core_grant){0};
}

void core_waiter_free(struct core_waiter *waiter)
{
    if (!waiter)
        return;
    core_free_grant(&waiter->grant);
    free(waiter);
}

void core_free(struct core *core)
{
    if (!core)
        return;
    for (size_t i = 0; i < core->stores.count; i++)
        core_store_free(core->stores.items[i]);
    idvec_free(&core->stores);
    core_index_free(&core->index);
    idvec_free_items(&core->pools.items);
    idvec_free_items(&core->sessions);
    for (size_t i = 0; i < core->waiters.count; i++)
        core_waiter_free(core->waiters.items[i]);
    idvec_free(&core->waiters);
    idvec_free_items(&core->files);
    idvec_free_items(&core->tickets);
    idvec_free_items(&core->memories);
    for (unsigned bound = 0; bound < CORE_MOUNT_BOUNDS; bound++)
        share_free(&core->shares[bound]);
    regions_free(&core->regions);
    core_garbage_free(&core->garbage);
    layout_free(core->empty);
    free(core->events);
    free(core->effects);
    free(core);
}
