/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_internal - what cuda.c and cuda_open.c share; included by them alone */
#ifndef GMSFS_VMM_CUDA_INTERNAL_H
#define GMSFS_VMM_CUDA_INTERNAL_H

#include "cuda/driver.h"
#include "vmm/complaints.h"
#include "vmm/patience.h"

#include <pthread.h>
#include <stdint.h>

struct cuda {
    const struct drv *driver;
    drv_device device;
    struct drv_memory_prop prop; /* of all memory made here */
    struct patience *patience;   /* NULL: nobody notices a call that hangs */
    /* The driver makes and exports one piece at a time, and threads that contend for it make it
     * slower: on an H200 (driver 580) 3,435 pieces of 2 MiB take one thread 91 ms, two 120, sixteen
     * 170. So they take turns here. */
    pthread_mutex_t turn;
    struct complaints complaints; /* of the driver's calls */
};

/* cuda.c: memory and its descriptor, by a struct cuda. Errors as vmm_create. */
int cuda_create_memory(void *context, uint64_t bytes, int *fd);

#endif
