/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvidia-ml.so.1 of the fake machine: the used memory of each GPU, and its errors. Knows all
 * GPUs, in spite of CUDA_VISIBLE_DEVICES, and works in any process.
 */
#include "fake.h"

#include "vmm/nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_MS 10

#define NVML_FUNCTION(symbol, parameters) EXPORTED enum nvml_result symbol parameters;
NVML_FUNCTIONS
#undef NVML_FUNCTION

struct nvml_device {
    unsigned gpu;
};

struct nvml_event_set {
    unsigned long long types[FAKE_MAX_DEVICES];
    unsigned told; /* number of the control file's events already told */
    char dir[256]; /* the machine's, when it was made */
};

static struct nvml_device devices[FAKE_MAX_DEVICES];

enum nvml_result nvmlInit_v2(void)
{
    enum nvml_result result = (enum nvml_result)machine_judge("nvmlInit_v2");

    for (unsigned i = 0; i < FAKE_MAX_DEVICES; i++)
        devices[i].gpu = i;
    if (result != NVML_DONE)
        return result;
    return machine_dir() ? NVML_DONE : NVML_NOT_FOUND;
}

enum nvml_result nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device)
{
    struct machine machine;

    machine_read(&machine);
    for (unsigned gpu = 0; gpu < machine.devices; gpu++) {
        char text[64];

        machine_uuid_text(gpu, text, sizeof(text));
        if (!strcmp(uuid, text)) {
            *device = &devices[gpu];
            return NVML_DONE;
        }
    }
    return NVML_NOT_FOUND;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device)
{
    struct machine machine;

    machine_read(&machine);
    if (index >= machine.devices)
        return NVML_NOT_FOUND;
    *device = &devices[index];
    return NVML_DONE;
}

int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned bytes)
{
    machine_uuid_text(device->gpu, uuid, bytes);
    return NVML_DONE;
}

enum nvml_result nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
    enum nvml_result result = (enum nvml_result)machine_judge("nvmlDeviceGetMemoryInfo");
    struct machine machine;
    uint64_t used;

    if (result != NVML_DONE)
        return result;
    machine_read(&machine);
    if (machine.lost[device->gpu])
        return NVML_GPU_IS_LOST;
    used = account_used(device->gpu) + machine.others_bytes;
    if (used > machine.memory_bytes)
        used = machine.memory_bytes;
    *memory = (struct nvml_memory){.total_bytes = machine.memory_bytes,
                                   .free_bytes = machine.memory_bytes - used,
                                   .used_bytes = used};
    return NVML_DONE;
}

/* ---- events -------------------------------------------------------------------------------- */

enum nvml_result nvmlEventSetCreate(struct nvml_event_set **set)
{
    *set = calloc(1, sizeof(**set));
    if (*set && machine_dir())
        snprintf((*set)->dir, sizeof((*set)->dir), "%s", machine_dir());
    return *set ? NVML_DONE : NVML_UNKNOWN;
}

enum nvml_result nvmlEventSetFree(struct nvml_event_set *set)
{
    free(set);
    return NVML_DONE;
}

enum nvml_result nvmlDeviceRegisterEvents(struct nvml_device *device, unsigned long long types,
                                          struct nvml_event_set *set)
{
    enum nvml_result result = (enum nvml_result)machine_judge("nvmlDeviceRegisterEvents");

    if (result != NVML_DONE)
        return result;
    set->types[device->gpu] |= types;
    return NVML_DONE;
}

static bool next_event(struct nvml_event_set *set, struct nvml_event *event)
{
    struct machine machine;

    machine_read(&machine);
    while (set->told < machine.event_count) {
        const struct machine_event *next = &machine.events[set->told++];
        unsigned long long type = next->xid ? NVML_EVENT_XID : NVML_EVENT_DOUBLE_BIT_ECC;

        if (!(set->types[next->gpu] & type))
            continue;
        *event =
            (struct nvml_event){.device = &devices[next->gpu], .type = type, .data = next->xid};
        return true;
    }
    return false;
}

static bool any_lost(const struct nvml_event_set *set)
{
    struct machine machine;

    machine_read(&machine);
    for (unsigned gpu = 0; gpu < FAKE_MAX_DEVICES; gpu++) {
        if (set->types[gpu] && machine.lost[gpu])
            return true;
    }
    return false;
}

enum nvml_result nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event,
                                     unsigned timeout_ms)
{
    enum nvml_result result;

    machine_stay(*set->dir ? set->dir : NULL); /* this thread may live longer than a test */
    result = (enum nvml_result)machine_judge("nvmlEventSetWait_v2");
    if (result != NVML_DONE)
        return result;
    for (unsigned waited_ms = 0;; waited_ms += LOOK_MS) {
        if (next_event(set, event))
            return NVML_DONE;
        if (any_lost(set))
            return NVML_GPU_IS_LOST;
        if (waited_ms >= timeout_ms)
            return NVML_TIMED_OUT;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
}
