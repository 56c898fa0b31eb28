/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml - the part of NVIDIA's management library that the daemon uses, opened at run time
 *
 * It reports facts that the driver API does not: the memory of a GPU that other processes hold, and
 * the GPU's errors. It needs no context. Declarations are our own (NVML API reference); without the
 * library only those numbers and events are missing.
 *
 * Threads: all functions from any thread; NVML is thread-safe.
 */
#ifndef GMSFS_VMM_NVML_H
#define GMSFS_VMM_NVML_H

#include <stddef.h>

struct nvml_device;
struct nvml_event_set;

enum nvml_result {
    NVML_DONE = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_TIMED_OUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_UNKNOWN = 999,
};

enum {
    NVML_EVENT_DOUBLE_BIT_ECC = 0x2,
    NVML_EVENT_XID = 0x8,
};

struct nvml_memory {
    unsigned long long total_bytes, free_bytes, used_bytes;
};

struct nvml_event {
    struct nvml_device *device;
    unsigned long long type; /* one of NVML_EVENT_* */
    unsigned long long data; /* number of an Xid */
    unsigned gpu_instance, compute_instance;
};

/* NVML_FUNCTION(symbol, parameters); all return enum nvml_result. */
/* clang-format off */
#define NVML_FUNCTIONS                                                                       \
    NVML_FUNCTION(nvmlInit_v2, (void))                                                       \
    NVML_FUNCTION(nvmlDeviceGetHandleByUUID, (const char *uuid, struct nvml_device **device)) \
    NVML_FUNCTION(nvmlDeviceGetMemoryInfo,                                                   \
                  (struct nvml_device *device, struct nvml_memory *memory))                  \
    NVML_FUNCTION(nvmlEventSetCreate, (struct nvml_event_set **set))                         \
    NVML_FUNCTION(nvmlDeviceRegisterEvents, (struct nvml_device *device,                     \
                                             unsigned long long types,                       \
                                             struct nvml_event_set *set))                    \
    NVML_FUNCTION(nvmlEventSetWait_v2, (struct nvml_event_set *set, struct nvml_event *event, \
                                        unsigned timeout_ms))                                \
    NVML_FUNCTION(nvmlEventSetFree, (struct nvml_event_set *set))
/* clang-format on */

struct nvml {
#define NVML_FUNCTION(symbol, parameters) enum nvml_result(*symbol) parameters;
    NVML_FUNCTIONS
#undef NVML_FUNCTION
};

/* Opens libnvidia-ml.so.1 and initialises it; once a process is enough. -ENODEV: it is missing, or
 * finds no driver; `why` explains it. */
int nvml_open(struct nvml *nvml, char *why, size_t why_bytes);

#endif
