/* SPDX-License-Identifier: Apache-2.0 */
#include "service/event_line.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [CORE_EVENT_STORE_CREATED] = "store_created",
    [CORE_EVENT_STORE_REMOVED] = "store_removed",
    [CORE_EVENT_STORE_RENAMED] = "store_renamed",
    [CORE_EVENT_RW_CONNECTED] = "rw_connected",
    [CORE_EVENT_RO_CONNECTED] = "ro_connected",
    [CORE_EVENT_RO_DISCONNECTED] = "ro_disconnected",
    [CORE_EVENT_COMMITTED] = "committed",
    [CORE_EVENT_ROLLED_BACK] = "rolled_back",
    [CORE_EVENT_ABORTED] = "aborted",
    [CORE_EVENT_REVOKED] = "revoked",
    [CORE_EVENT_OUT_OF_MEMORY] = "out_of_memory",
    [CORE_EVENT_DRAINING] = "draining",
    [CORE_EVENT_SERVING] = "serving",
    [CORE_EVENT_DROPPED] = "dropped",
    [CORE_EVENT_SUSPECT] = "suspect",
    [CORE_EVENT_TRUSTED] = "trusted",
    [CORE_EVENT_HEALTHY] = "healthy",
    [CORE_EVENT_LOST] = "lost",
    [CORE_EVENT_BOUND] = "bound",
    [CORE_EVENT_SEALED] = "layout_committed",
    [CORE_EVENT_RW_DATA_CONNECTED] = "rw_data_connected",
    [CORE_EVENT_RW_DATA_DISCONNECTED] = "rw_data_disconnected",
    [CORE_EVENT_CLEARED] = "cleared",
    [CORE_EVENT_FENCED] = "fenced",
    [CORE_EVENT_UNFENCED] = "unfenced",
    [CORE_EVENT_REGION_REGISTERED] = "region_registered",
    [CORE_EVENT_REGION_UNREGISTERED] = "region_unregistered",
    [CORE_EVENT_REGION_ENDED] = "region_ended",
    [CORE_EVENT_STORE_DRAINING] = "store_draining",
    [CORE_EVENT_STORE_SERVING] = "store_serving",
    [CORE_EVENT_PINNED] = "pinned",
    [CORE_EVENT_UNPINNED] = "unpinned",
    [CORE_EVENT_OVER_QUOTA] = "over_quota",
    [CORE_EVENT_PROMOTED] = "promoted",
    [CORE_EVENT_DEMOTED] = "demoted",
    [CORE_EVENT_COPIED] = "copied",
    [CORE_EVENT_COPY_DROPPED] = "copy_dropped",
    [CORE_EVENT_MOVE_FAILED] = "move_failed",
    [CORE_EVENT_HEALED] = "healed",
    [CORE_EVENT_EVICTED] = "evicted",
    [CORE_EVENT_RESUMED] = "worker_resumed",
    [CORE_EVENT_RECOVERED] = "recovered",
};

_Static_assert(sizeof names / sizeof names[0] == CORE_EVENT_TYPE_COUNT, "each event has a name");

static int set_number(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key,
                               json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

/* A name that a stranger chose: what is not ASCII is shown as '?' where it is no UTF-8. */
static int set_text(json_t *object, const char *key, const char *text, size_t room)
{
    char copy[256];
    size_t bytes = strnlen(text, room < sizeof copy ? room : sizeof copy - 1);
    json_t *string = json_stringn(text, bytes);

    if (string)
        return json_object_set_new(object, key, string);
    memcpy(copy, text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)copy[i] >= 0x80)
            copy[i] = '?';
    }
    return json_object_set_new(object, key, json_stringn(copy, bytes));
}

/* What only some events have. */
static int set_details(json_t *object, const struct core_event *event, bool may_name)
{
    int failed = 0;

    if (event->comm[0])
        failed |= set_text(object, "comm", event->comm, sizeof event->comm);
    if (event->waiter)
        failed |= set_number(object, "waiter", event->waiter);
    if (event->type == CORE_EVENT_REVOKED && event->by_uid != CORE_BY_DAEMON) {
        failed |= set_number(object, "by_pid", event->by.pid);
        failed |= set_number(object, "by_uid", event->by_uid);
    }
    if (event->type == CORE_EVENT_BOUND) {
        failed |= set_text(object, "bound", event->bound, sizeof event->bound);
        failed |= json_object_set_new(object, "share", json_boolean(event->is_share));
    }
    if (event->pool[0])
        failed |= set_text(object, "pool", event->pool, sizeof event->pool);
    if (event->for_store[0])
        failed |= set_text(object, "for", event->for_store, sizeof event->for_store);
    if (event->type == CORE_EVENT_UNFENCED)
        failed |= json_object_set_new(
            object, "resolved_by",
            json_string(event->resolved_by == CORE_FENCE_COMPLETE ? "complete" : "abort"));
    if (event->deadline_ms)
        failed |= set_number(object, "deadline_ms", event->deadline_ms);
    if (event->type >= CORE_EVENT_PROMOTED && event->type <= CORE_EVENT_EVICTED) {
        const char *tier = core_place_name((enum core_place)event->tier);

        failed |= json_object_set_new(object, "tier", json_string(tier));
        failed |= set_number(object, "ms", event->took_ms);
    }
    if (event->type == CORE_EVENT_MOVE_FAILED || event->error != 0)
        failed |=
            json_object_set_new(object, "error", json_string(strerrorname_np((int)event->error)));
    if (event->type == CORE_EVENT_RESUMED || event->type == CORE_EVENT_RECOVERED)
        failed |= set_number(object, "resumes", event->resumes);
    if (event->type == CORE_EVENT_RECOVERED) {
        failed |= set_text(object, "cause", event->cause, sizeof event->cause);
        return failed | set_number(object, "took_us", event->took_us);
    }
    if (event->region[0] && may_name)
        failed |= set_text(object, "region", event->region, sizeof event->region);
    return failed;
}

static int fill(json_t *object, const struct core_event *event, bool may_name)
{
    int failed = set_number(object, "seq", event->seq);

    failed |= set_number(object, "time_ms", event->wall_ms);
    failed |= set_text(object, "event", names[event->type], 64);
    failed |= set_text(object, "store", event->store, sizeof event->store);
    failed |= set_number(object, "session", event->session);
    failed |= set_number(object, "pid", event->process.pid);
    failed |= set_number(object, "uid", event->uid);
    failed |= set_number(object, "allocations", event->allocations);
    failed |= set_number(object, "bytes", event->bytes);
    failed |= set_number(object, "generation", event->generation);
    return failed | set_details(object, event, may_name);
}

int event_line_render(const struct core_event *event, uint32_t reader, char **line, size_t *size)
{
    json_t *object = json_object();
    bool may_name = reader == 0 || reader == event->uid;
    int failed = object ? fill(object, event, may_name) : -1;
    char *dumped = failed ? NULL : json_dumps(object, JSON_COMPACT), *longer;

    json_decref(object);
    if (!dumped)
        return -ENOMEM;
    *size = strlen(dumped) + 1;
    longer = realloc(dumped, *size + 1);
    if (!longer) {
        free(dumped);
        return -ENOMEM;
    }
    longer[*size - 1] = '\n';
    longer[*size] = '\0';
    *line = longer;
    return 0;
}
