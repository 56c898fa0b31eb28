/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/nvml_source.h"

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/thread.h"
#include "vmm/complaints.h"
#include "vmm/health.h"
#include "vmm/nvml.h"
#include "vmm/xid.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Waits for NVML's error events of a GPU, on a thread of its own. Xids and uncorrectable memory
 * errors are judged (xid.h) and reported; events that do not affect memory are logged. A GPU counts
 * as lost after Xid 79, or if NVML says so twice.
 */
#define WAIT_MS       1000 /* in NVML; also how long an ended watch keeps its thread at most */
#define LOOK_AGAIN_MS 200  /* until a GPU that is reported lost is checked again */
#define THREAD_STACK  (1024u * 1024) /* for NVML; untouched pages cost nothing */

struct nvml_events {
    struct nvml nvml;
    struct nvml_device *device;
    struct nvml_event_set *set;
    struct complaints complaints;
    bool started;
    pthread_mutex_t mutex; /* guards the rest */
    struct health *health; /* NULL: it is ending */
};

static void report(struct nvml_events *events, enum xid_kind kind, const char *why)
{
    if (complaints_may_log(&events->complaints)) {
        if (kind == XID_HARMLESS)
            log_info("device cuda: %s; the memory of stores is not affected", why);
        else
            log_error("device cuda: %s: the GPU %s", why,
                      kind == XID_LOST ? "is lost" : "is suspect");
    }
    SCOPED_LOCK(&events->mutex);
    if (events->health && kind == XID_SUSPECT)
        health_report_suspect(events->health, why);
    if (events->health && kind == XID_LOST)
        health_report_lost(events->health, why);
}

static void judge(struct nvml_events *events, const struct nvml_event *event)
{
    char why[sizeof(((struct vmm_health *)NULL)->why)];
    enum xid_kind kind = XID_SUSPECT;
    const char *meaning;

    if (event->type == NVML_EVENT_XID) {
        kind = xid_judge(event->data, &meaning);
        snprintf(why, sizeof(why), "Xid %llu: %s", event->data, meaning);
    } else {
        snprintf(why, sizeof(why), "uncorrectable memory error (ECC)");
    }
    report(events, kind, why);
}

/* Checks again. False: it was a passing disturbance. */
static bool is_lost(struct nvml_events *events)
{
    struct nvml_memory memory;

    clock_pause_ms(LOOK_AGAIN_MS);
    return events->nvml.nvmlDeviceGetMemoryInfo(events->device, &memory) == NVML_GPU_IS_LOST;
}

static bool is_ending(struct nvml_events *events)
{
    SCOPED_LOCK(&events->mutex);
    return !events->health;
}

static void destroy(struct nvml_events *events)
{
    if (events->set)
        events->nvml.nvmlEventSetFree(events->set);
    complaints_end(&events->complaints);
    pthread_mutex_destroy(&events->mutex);
    free(events);
}

/* After the loss of a GPU no more events come; the thread stays until it is told to end, because it
 * frees the struct. */
static void *run(void *argument)
{
    struct nvml_events *events = argument;
    struct nvml_event event;
    bool lost = false;

    while (!is_ending(events)) {
        enum nvml_result result =
            lost ? NVML_UNKNOWN : events->nvml.nvmlEventSetWait_v2(events->set, &event, WAIT_MS);

        if (result == NVML_DONE) {
            judge(events, &event);
        } else if (result == NVML_GPU_IS_LOST && is_lost(events)) {
            report(events, XID_LOST, "NVML says that the GPU is lost");
            lost = true;
        } else if (result != NVML_TIMED_OUT) {
            clock_pause_ms(WAIT_MS);
        }
    }
    destroy(events);
    return NULL;
}

/* A GPU without ECC has Xids only. */
static int listen(struct nvml_events *events, char *why, size_t why_bytes)
{
    const struct nvml *nvml = &events->nvml;
    const char *call = "nvmlEventSetCreate";
    enum nvml_result result = nvml->nvmlEventSetCreate(&events->set);

    if (result == NVML_DONE) {
        call = "nvmlDeviceRegisterEvents";
        result = nvml->nvmlDeviceRegisterEvents(
            events->device, NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT_ECC, events->set);
        if (result != NVML_DONE)
            result = nvml->nvmlDeviceRegisterEvents(events->device, NVML_EVENT_XID, events->set);
    }
    if (result == NVML_DONE)
        return 0;
    snprintf(why, why_bytes, "%s: error %d", call, (int)result);
    return -EOPNOTSUPP;
}

/* Reports failures to `health` from then on. -EAGAIN: no thread can be started; only
 * source_stop is allowed then. */
static int source_start(void *state, struct health *health)
{
    struct nvml_events *events = state;

    events->health = health;
    int error = thread_start(NULL, THREAD_STACK, run, events);
    events->started = error == 0;
    return error;
}

/* Ends the reports. Does not wait for the thread inside NVML, which frees its memory when it comes
 * back. NULL is fine. */
static void source_stop(void *state)
{
    struct nvml_events *events = state;

    if (!events)
        return;
    if (!events->started) {
        destroy(events);
        return;
    }
    SCOPED_LOCK(&events->mutex);
    events->health = NULL;
}

struct nvml_source {
    struct nvml nvml;
    struct nvml_device *device;
};

static int source_open(const uint8_t uuid[16], void **state, char *why, size_t why_bytes)
{
    struct nvml_source *source = calloc(1, sizeof(*source));
    char name[sizeof("GPU-") - 1 + HEX_UUID_TEXT_BYTES] = "GPU-";

    if (!source) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    hex_format_uuid(uuid, name + sizeof("GPU-") - 1);
    int error = nvml_open(&source->nvml, why, why_bytes);
    if (error == 0 && source->nvml.nvmlDeviceGetHandleByUUID(name, &source->device) != NVML_DONE) {
        snprintf(why, why_bytes, "NVML does not know %s", name);
        error = -ENODEV;
    }
    if (error)
        free(source);
    else
        *state = source;
    return error;
}

static enum monitor_word source_ask(void *state, uint64_t *free_bytes)
{
    const struct nvml_source *source = state;
    struct nvml_memory memory;

    switch (source->nvml.nvmlDeviceGetMemoryInfo(source->device, &memory)) {
    case NVML_DONE:
        *free_bytes = memory.free_bytes;
        return MONITOR_THERE;
    case NVML_GPU_IS_LOST:
        return MONITOR_GONE;
    default:
        return MONITOR_SILENT;
    }
}

/* Registers with NVML, which may be slow. -EOPNOTSUPP: the GPU has no events; `why` explains it,
 * and all else works. -ENOMEM */
static int source_listen(void *state, void **events, char *why, size_t why_bytes)
{
    const struct nvml_source *source = state;
    struct nvml_events *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    *made = (struct nvml_events){
        .nvml = source->nvml, .device = source->device, .mutex = PTHREAD_MUTEX_INITIALIZER};
    complaints_init(&made->complaints, "device cuda", "events");
    int error = listen(made, why, why_bytes);
    if (error < 0)
        destroy(made);
    else
        *events = made;
    return error;
}

const struct monitor_source monitor_source_nvml = {
    .name = "NVML",
    .open = source_open,
    .close = free,
    .ask = source_ask,
    .listen = source_listen,
    .start = source_start,
    .stop = source_stop,
};
