/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier - the process that moves the bytes of GPU memory
 *
 * The worker never has a CUDA context and never maps memory of the device, so read(2) and write(2)
 * need a process that does. The worker starts it when bytes are to be moved, orders it to map and
 * copy (protocol.h), and ends it after a while without transfers. It knows nothing of stores, files
 * or sessions, opens no file, and ends with the worker.
 */
#ifndef GMSFS_COPIER_COPIER_H
#define GMSFS_COPIER_COPIER_H

#define COPIER_COMMAND "copier"
#define COPIER_COMM    "gmsfs-copier"

struct copier_gpu;

/* Finds the driver of the backend with this name (gpu.h); NULL: none. */
typedef const struct copier_gpu *(*copier_find_gpu)(const char *driver);

/* Runs `gmsfs copier DEVICE`, called by src/cli/main.c, which passes the known drivers; DEVICE is
 * only shown in lists of processes. Status 2 if it was not started by a worker. */
int copier_main(int argc, char **argv, copier_find_gpu find);

#endif
