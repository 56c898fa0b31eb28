/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/nvml_source.h"

#include "base/hex.h"
#include "vmm/nvml.h"
#include "vmm/nvml_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct nvml_source {
    struct nvml nvml;
    struct nvml_device *device;
};

static int source_open(const uint8_t uuid[16], void **state, char *why, size_t why_bytes)
{
    struct nvml_source *source = calloc(1, sizeof(*source));
    char name[sizeof("GPU-") - 1 + HEX_UUID_TEXT_BYTES] = "GPU-";
    int error;

    if (!source) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    hex_format_uuid(uuid, name + sizeof("GPU-") - 1);
    error = nvml_open(&source->nvml, why, why_bytes);
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

static void source_close(void *state)
{
    free(state);
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

static int source_listen(void *state, void **events, char *why, size_t why_bytes)
{
    const struct nvml_source *source = state;
    struct nvml_events *made;
    int error = nvml_events_new(&source->nvml, source->device, &made, why, why_bytes);

    if (error == 0)
        *events = made;
    return error;
}

static int source_start(void *events, struct health *health)
{
    return nvml_events_start(events, health);
}

static void source_stop(void *events)
{
    nvml_events_free(events);
}

const struct monitor_source monitor_source_nvml = {
    .name = "NVML",
    .open = source_open,
    .close = source_close,
    .ask = source_ask,
    .listen = source_listen,
    .start = source_start,
    .stop = source_stop,
};
