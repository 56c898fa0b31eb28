/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_internal - declarations shared by cuda.c, cuda_open.c and cuda_late.c alone */
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
    CUDA_OPENING, /* a thread of its own opens it */
    CUDA_FAILED,
};

struct cuda {
    struct { /* for a driver that is opened while clients are served */
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        enum cuda_state state;
        int error;          /* of the failed opening */
        uint64_t failed_ms; /* time of the failure */
        bool told;          /* the long wait was logged */
        bool abandoned;     /* cuda_close was called: the last user frees */
        uint8_t uuid[16];   /* of the device */
    } late;
    /* The rest may be read while the state is CUDA_OPEN. */
    const struct drv *driver;
    drv_device device;
    struct drv_memory_prop prop; /* of all memory made here */
    struct patience *patience;   /* NULL: calls that hang are not logged */
    /* The driver makes and exports one piece at a time, and threads that contend for it make it
     * slower: on an H200 (driver 580) 3,435 pieces of 2 MiB take one thread 91 ms, two 120, sixteen
     * 170. So threads take turns here. */
    pthread_mutex_t turn;
    struct complaints complaints; /* about the driver's calls */
};

/* cuda.c: makes memory and its descriptor; context is a struct cuda. Errors as vmm_create. */
int cuda_create_memory(void *context, uint64_t bytes, int *fd);

/* cuda_late.c. Makes a struct with nothing open; NULL: no memory. */
struct cuda *cuda_new(void);
/* Frees the struct; the driver itself stays until the process ends. Does not wait for one that is
 * being opened. */
void cuda_close(void *context);
/* Begins to open the driver and this device, whose memory has these properties except its location.
 * cuda_await reports a failure. */
void cuda_begin(struct cuda *cuda, const uint8_t uuid[16], const struct drv_memory_prop *prop);
/* Waits until the driver is open, half a minute at most. After a failure it is opened again, at
 * most every few seconds. -ENODEV, -EIO: logged. */
int cuda_await(struct cuda *cuda);

#endif
