/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_choose - passes `device=` to the driver before it starts
 *
 * The driver is to see one GPU alone: it starts faster, and does not touch the others. For
 * src/vmm/cuda.c, before drv_open, in a process with one thread: it sets the environment.
 */
#ifndef GMSFS_VMM_CUDA_CHOOSE_H
#define GMSFS_VMM_CUDA_CHOOSE_H

#include <stddef.h>

#define CUDA_PCI_ID_BYTES 16

/* The device to find among the driver's devices. */
struct cuda_choice {
    char pci_id[CUDA_PCI_ID_BYTES]; /* "": the first */
};

/* `device` is "" (the first that CUDA_VISIBLE_DEVICES shows, or of all), an index in the order of
 * the PCI bus as nvidia-smi(1) counts, GPU-UUID, or a PCI id [DOMAIN:]BUS:DEVICE[.FUNCTION].
 * -EINVAL: none of these, explained by `error`; -EOPNOTSUPP: a MIG slice. */
int cuda_choose(const char *root, const char *device, struct cuda_choice *choice, char *error,
                size_t error_bytes);

#endif
