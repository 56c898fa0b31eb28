/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_events - waits for NVML's error events of a GPU, on a thread of its own
 *
 * Xids and uncorrectable memory errors are judged (xid.h) and reported; events that do not affect
 * memory are logged. A GPU counts as lost after Xid 79, or if NVML says so twice.
 */
#ifndef GMSFS_VMM_NVML_EVENTS_H
#define GMSFS_VMM_NVML_EVENTS_H

#include "vmm/health.h"
#include "vmm/nvml.h"

struct nvml_events;

/* Registers with NVML, which may be slow; nvml is copied. -EOPNOTSUPP: the GPU has no events; `why`
 * explains it, and all else works. -ENOMEM */
int nvml_events_new(const struct nvml *nvml, struct nvml_device *device,
                    struct nvml_events **events, char *why, size_t why_bytes);
/* Reports failures to `health` from then on. -EAGAIN: no thread can be started; only free is
 * allowed then. */
int nvml_events_start(struct nvml_events *events, struct health *health);
/* Ends the reports. Does not wait for the thread inside NVML, which frees its memory when it comes
 * back. NULL is fine. */
void nvml_events_free(struct nvml_events *events);

#endif
