/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_internal - what cuda.c, cuda_open.c and cuda_late.c share; included by them alone */
#ifndef GMSFS_VMM_CUDA_INTERNAL_H
#define GMSFS_VMM_CUDA_INTERNAL_H

#include "cuda/driver.h"
#include "vmm/complaints.h"
#include "vmm/patience.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum cuda_state {
    CUDA_OPEN,
    CUDA_OPENING, /* by a thread of its own */
    CUDA_FAILED,
};

struct cuda {
    struct { /* of a driver that is opened while others are served */
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        enum cuda_state state;
        int error;          /* of opening it */
        uint64_t failed_ms; /* when that was */
        bool told;          /* that it takes long */
        bool abandoned;     /* cuda_close was called: whoever is last frees */
        uint8_t uuid[16];   /* of the device */
    } late;
    /* The rest is to be read while it is CUDA_OPEN. */
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

/* cuda_late.c. NULL: no memory. Nothing is open, and the state says otherwise. */
struct cuda *cuda_new(void);
/* The driver itself stays until the process ends. One that is being opened is not waited for. */
void cuda_close(void *context);
/* Begins to open the driver and this device of it, whose memory has these properties but for its
 * place. A failure is told by cuda_await. */
void cuda_begin(struct cuda *cuda, const uint8_t uuid[16], const struct drv_memory_prop *prop);
/* Until the driver is open, half a minute at most. Where it did not open it is tried again, not
 * more often than every few seconds. -ENODEV, -EIO: logged */
int cuda_await(struct cuda *cuda);

#endif
