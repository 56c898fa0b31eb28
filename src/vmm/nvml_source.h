/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_source - NVML as a source of the monitor (monitor.h)
 */
#ifndef GMSFS_VMM_NVML_SOURCE_H
#define GMSFS_VMM_NVML_SOURCE_H

#include "vmm/monitor.h"

extern const struct monitor_source monitor_source_nvml;

#endif
