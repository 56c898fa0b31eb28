/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_parts - what staging.c and the kinds of memory share
 *
 * staging.c has the table of kinds and the devices, staging_lanes.c the lanes; a kind has a file of
 * its own that knows how its bytes move: staging_host.c, staging_cuda.c. None of them looks into
 * another.
 */
#ifndef GMSFS_MOVER_STAGING_PARTS_H
#define GMSFS_MOVER_STAGING_PARTS_H

#include "mover/staging.h"
#include "mover/work.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>

#define STAGING_ERROR_BYTES GMSFS_DEVICE_ERROR_BYTES

/* A kind of memory. What is done on a lane is done by the lane's thread. Where a kind has nothing
 * to do for it, a function down to `fetch` is NULL. */
struct staging_kind {
    bool is_single; /* all memory of the kind is one device's: the machine's */
    bool is_file;   /* an allocation is a file that write(2) fills, of the machine's memory */
    bool is_copied; /* its bytes go through buffers */
    bool wants_few; /* few allocations had best be made: attaching each one costs */
    unsigned most_threads;           /* that copy, unless more are asked for: more are no faster */
    size_t device_bytes, lane_bytes; /* of `own` in a device, and in a lane; zeros at first */

    /* Which one it is, and what it is near to. On failure `text` says why, and nothing is to be
     * closed. */
    int (*find)(struct staging_device *device, char text[STAGING_ERROR_BYTES]);
    /* Likewise, but it is to be closed whatever comes of it. */
    int (*open)(struct staging_device *device, char text[STAGING_ERROR_BYTES]);
    void (*close)(struct staging_device *device);
    /* Before a work of so many threads. */
    void (*prepare)(struct staging_device *device, unsigned threads);
    /* The pages of so many lanes' buffers at most, while the device is opened. On a thread near
     * it. */
    void (*make_pages)(struct staging_device *device, unsigned lanes);
    /* All that these lanes of the device will need, before there is work; 1 or more. On a thread
     * near it. What fails is left to the work. */
    void (*warm)(struct staging_device *device, struct staging_lane *const *lanes, unsigned count);
    /* Waits until what the lane sent has arrived, and leaves the thread as it was. */
    int (*settle)(struct staging_lane *lane);
    /* Gives back all that the lane has of the device. */
    void (*release)(struct staging_lane *lane);
    int (*send)(struct staging_lane *lane, void *to, const uint8_t *room, size_t size_bytes);
    /* The fetch that the lane tells of begins; it may make step_bytes less. */
    int (*fetch)(struct staging_lane *lane);

    int (*room)(struct staging_lane *lane, void *to, size_t most_bytes, uint8_t **room,
                size_t *size_bytes);
    /* The next size_bytes of the fetch, 1 or more. */
    int (*next)(struct staging_lane *lane, size_t size_bytes, const uint8_t **part);
    /* What to do about what the driver said. */
    const char *(*way_out)(const char *text, int error);
};

extern const struct staging_kind staging_host;
extern const struct staging_kind staging_cuda;

/* What is made before there is work; staging_warm.c's. */
struct staging_warming {
    bool was_begun, is_running; /* `running` is to be joined */
    pthread_t running;
    unsigned lanes;
};

struct staging_device {
    const struct staging_kind *kind;
    struct staging *staging;
    const char *store; /* the first that lies there */
    uint8_t uuid[16];
    bool has_near; /* `near` says which processors are near it */
    cpu_set_t near;
    struct staging_warming warming;
    alignas(max_align_t) unsigned char own[]; /* the kind's */
};

struct staging_lane {
    struct staging_lane *next; /* all lanes */
    struct staging_device *device;
    bool is_out;
    void *scratch;
    size_t scratch_bytes;

    /* The fetch under way. */
    const uint8_t *from; /* of what is not handed out yet */
    uint64_t left_bytes; /* not handed out */
    size_t step_bytes;
    alignas(max_align_t) unsigned char own[]; /* the kind's */
};

struct staging {
    struct staging_device *devices[STAGING_MAX_DEVICES + 1]; /* the first is the machine */
    size_t device_count;
    uint64_t expected_threads, expected_bytes; /* of the one device that comes; 0 bytes: none */

    pthread_mutex_t lock; /* of all that follows */
    struct staging_lane *lanes;
    const struct staging_device *failed_device; /* of the first failure; NULL: none */
    const char *failed_doing;
    int failed_error;
    bool is_told;
    char failed_text[STAGING_ERROR_BYTES];
};

/* ---- staging_lanes.c ------------------------------------------------------------------------ */

/* threads: as asked for; 0: as many as are best. How many that is. */
unsigned staging_count_threads(const struct staging_kind *kind, uint64_t threads);
/* Before a work of so many; how many that is. */
unsigned staging_prepare(struct staging_device *device, uint64_t threads);
/* The calling thread runs near the device from here on. */
void staging_stay_near(const struct staging_device *device);
/* For the calling thread. anew: not one that is back from an earlier work. 0, or -ENOMEM. */
int staging_take_lane(struct staging_device *device, bool anew, void **own);
void staging_give_lane_back(struct staging_lane *lane);

/* ---- staging_warm.c ------------------------------------------------------------------------- */

/* Begins to make pages, where staging_expect() said of what. */
void staging_begin_pages(struct staging_device *device);
/* Until what was begun has ended. */
void staging_await_warm(struct staging_device *device);

/* ---- staging_failure.c ---------------------------------------------------------------------- */

/* The first failure of a device stays. Returns `error`. */
int staging_fail(struct staging_device *device, const char *doing, const char *text, int error);
/* Drops a failure of the device that nobody was told. */
void staging_forget_failure(const struct staging_device *device);

/* What the driver said when the device was to be opened. Returns `error`. */
int staging_explain_open(const struct staging_device *device, const char *text, int error,
                         struct failure *failure);

#endif
