/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - a warning at mount: what stores have beside the device may be swapped out
 *
 * It then comes back at the speed of swap, which nobody would look for there. Never fails.
 */
#ifndef GMSFS_DAEMON_SWAP_H
#define GMSFS_DAEMON_SWAP_H

#include "vmm/vmm.h"

void swap_warn(const struct vmm_options *options);

#endif
