/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_events - waits for NVML's bad news of a GPU, on a thread of its own
 *
 * Xids and uncorrectable memory errors are judged (xid.h) and reported; what says nothing of memory
 * is logged. That the GPU is lost is believed of Xid 79, and of NVML's word when asked twice.
 */
#ifndef GMSFS_VMM_NVML_EVENTS_H
#define GMSFS_VMM_NVML_EVENTS_H

#include "vmm/health.h"
#include "vmm/nvml.h"

struct nvml_events;

/* Asks NVML for them, which may take its time; nvml is copied. -EOPNOTSUPP: the GPU tells no
 * events; `error` says why, and all else works. -ENOMEM */
int nvml_events_new(const struct nvml *nvml, struct nvml_device *device,
                    struct nvml_events **events, char *why, size_t why_bytes);
/* From then on bad news go to `health`. -EAGAIN: there is no thread for it, and only free is left.
 */
int nvml_events_start(struct nvml_events *events, struct health *health);
/* Nothing is reported any more once it returns. Does not wait for the thread, which sits in NVML:
 * that one frees what it needs when it comes back. NULL is fine. */
void nvml_events_free(struct nvml_events *events);

#endif
