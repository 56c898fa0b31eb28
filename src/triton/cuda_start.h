/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_start - starts a process of cuda_helper.c, as its user; for cuda_helpers.c alone */
#ifndef GMSFS_TRITON_CUDA_START_H
#define GMSFS_TRITON_CUDA_START_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Starts a helper. `socket`: our end of the pair, not blocking. 0 or a negative errno. */
int cuda_start(uint32_t uid, pid_t *pid, int *socket);

/* Returns true if this machine has a driver and a device. A child process asks the driver, and is
 * abandoned if the driver hangs. */
bool cuda_is_there(void);

#endif
