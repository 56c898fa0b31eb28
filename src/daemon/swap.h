/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap - warns at mount if memory of stores outside the device may be swapped out
 *
 * Promoting it then takes as long as reading swap does, a cause that is hard to find later. Never
 * fails.
 */
#ifndef GMSFS_DAEMON_SWAP_H
#define GMSFS_DAEMON_SWAP_H

#include "vmm/vmm.h"

void swap_warn(const struct vmm_options *options);

#endif
