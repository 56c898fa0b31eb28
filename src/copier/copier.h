/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier - the process that moves the bytes of GPU memory
 *
 * The worker never has a CUDA context and never maps memory of the device, so read(2) and write(2)
 * need a process that does. The worker starts it when bytes are to be moved, tells it what to map
 * and what to copy (protocol.h), and lets it go when nothing was moved for a while. It knows
 * nothing of stores, files or sessions, opens no file, and ends with the worker.
 */
#ifndef GMSFS_COPIER_COPIER_H
#define GMSFS_COPIER_COPIER_H

#define COPIER_COMMAND "copier"
#define COPIER_COMM    "gmsfs-copier"

struct copier_gpu;

/* Of the backend with this name (gpu.h); NULL: there is none. */
typedef const struct copier_gpu *(*copier_find_gpu)(const char *driver);

/* `gmsfs copier DEVICE`, by src/cli/main.c, which hands over what drivers there are; DEVICE is for
 * who looks at the processes. Status 2 if it was not started by a worker. */
int copier_main(int argc, char **argv, copier_find_gpu find);

#endif
