/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_parts - shared by staging.c and the kinds of memory
 *
 * staging.c has the table of kinds and the devices, staging_lanes.c the lanes; each kind has a file
 * of its own that moves its bytes: staging_host.c, staging_cuda.c. No file looks into another.
 */
#ifndef GMSFS_MOVER_STAGING_PARTS_H
#define GMSFS_MOVER_STAGING_PARTS_H

#include "mover/staging.h"
#include "mover/work.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>

#define STAGING_ERROR_BYTES GMSFS_DEVICE_ERROR_BYTES

/* A kind of memory. The lane's thread calls the functions that take a lane. Functions down to
 * `fetch` are NULL if the kind has nothing to do. */
struct staging_kind {
    bool is_single; /* all memory of the kind is one device's: the machine's */
    bool is_file;   /* an allocation is a file of the machine's memory, which write(2) fills */
    bool is_copied; /* its bytes go through buffers */
    bool wants_few; /* stores should have few allocations: attaching each is slow */
    unsigned most_threads;           /* default maximum of copying threads: more are no faster */
    size_t device_bytes, lane_bytes; /* of `own` in a device, and in a lane; zeroed */

    /* Finds the device, and the processors near it. On failure `text` says why, and close() is not
     * called. */
    int (*find)(struct staging_device *device, char text[STAGING_ERROR_BYTES]);
    /* Opens the device. close() is called even after a failure. */
    int (*open)(struct staging_device *device, char text[STAGING_ERROR_BYTES]);
    void (*close)(struct staging_device *device);
    /* Called before a work of so many threads. */
    void (*prepare)(struct staging_device *device, unsigned threads);
    /* Makes the pages of at most so many lanes' buffers, while the device is opened. On a thread
     * near the device. */
    void (*make_pages)(struct staging_device *device, unsigned lanes);
    /* Prepares all that these lanes (1 or more) of the device need, before there is work. On a
     * thread near the device. The work repeats any part that fails. */
    void (*warm)(struct staging_device *device, struct staging_lane *const *lanes, unsigned count);
    /* Waits until all bytes that the lane sent have arrived, and restores the thread's state. */
    int (*settle)(struct staging_lane *lane);
    /* Frees all that the lane has of the device. */
    void (*release)(struct staging_lane *lane);
    int (*send)(struct staging_lane *lane, void *to, const uint8_t *room, size_t size_bytes);
    /* Begins the fetch described in the lane; may lower step_bytes. */
    int (*fetch)(struct staging_lane *lane);

    int (*room)(struct staging_lane *lane, void *to, size_t most_bytes, uint8_t **room,
                size_t *size_bytes);
    /* Returns the next size_bytes of the fetch, 1 or more. */
    int (*next)(struct staging_lane *lane, size_t size_bytes, const uint8_t **part);
    /* Returns the way out of the driver's error. */
    const char *(*way_out)(const char *text, int error);
};

extern const struct staging_kind staging_host;
extern const struct staging_kind staging_cuda;

/* Preparation before there is work, by staging_warm.c. */
struct staging_warming {
    bool was_begun, is_running; /* is_running: `running` must be joined */
    pthread_t running;
    unsigned lanes;
};

struct staging_device {
    const struct staging_kind *kind;
    struct staging *staging;
    const char *store; /* name of the first store on it */
    uint8_t uuid[16];
    bool has_near; /* `near` has the processors near it */
    cpu_set_t near;
    bool is_idle; /* copy engines alone fill it */
    struct staging_warming warming;
    alignas(max_align_t) unsigned char own[]; /* data of the kind */
};

struct staging_lane {
    struct staging_lane *next; /* list of all lanes */
    struct staging_device *device;
    bool is_out;
    void *scratch;
    size_t scratch_bytes;

    /* The fetch in flight. */
    const uint8_t *from; /* next byte to hand out */
    uint64_t left_bytes; /* not handed out yet */
    size_t step_bytes;
    alignas(max_align_t) unsigned char own[]; /* data of the kind */
};

struct staging {
    struct staging_device *devices[STAGING_MAX_DEVICES + 1]; /* the first is the machine */
    size_t device_count;
    uint64_t expected_threads, expected_bytes; /* for the next device; 0 bytes: not announced */

    pthread_mutex_t lock; /* of all fields below */
    struct staging_lane *lanes;
    const struct staging_device *failed_device; /* of the first failure; NULL: none */
    const char *failed_doing;
    int failed_error;
    bool is_told;
    char failed_text[STAGING_ERROR_BYTES];
};

/* ---- staging_lanes.c ------------------------------------------------------------------------ */

/* Returns how many GPUs share the ring bytes: the busy GPUs, and this one. */
size_t staging_count_sharing(const struct staging_device *device);
/* Returns `threads`, or the best number for 0. */
unsigned staging_count_threads(const struct staging_kind *kind, uint64_t threads);
/* Prepares the device for a work of `threads`; returns their number. */
unsigned staging_prepare(struct staging_device *device, uint64_t threads);
/* Binds the calling thread to the processors near the device. */
void staging_stay_near(const struct staging_device *device);
/* Takes a lane for the calling thread. anew: a new lane, not one of an earlier work. 0, or
 * -ENOMEM. */
int staging_take_lane(struct staging_device *device, bool anew, void **own);
void staging_give_lane_back(struct staging_lane *lane);
/* Waits until all bytes that the lane sent have arrived, and gives it back. */
int staging_settle_lane(struct staging_lane *lane);

/* ---- staging_warm.c ------------------------------------------------------------------------- */

/* Begins to make the pages announced by staging_expect(). */
void staging_begin_pages(struct staging_device *device);
/* Waits for the end of all preparation. */
void staging_await_warm(struct staging_device *device);

/* ---- staging_failure.c ---------------------------------------------------------------------- */

/* Records the first failure of a device. Returns `error`. */
int staging_fail(struct staging_device *device, const char *doing, const char *text, int error);
/* Drops a failure of the device that was not returned yet. */
void staging_forget_failure(const struct staging_device *device);

/* Reports the driver's error on opening the device. Returns `error`. */
int staging_explain_open(const struct staging_device *device, const char *text, int error,
                         struct failure *failure);

#endif
