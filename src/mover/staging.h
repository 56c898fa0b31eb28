/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging - moves bytes between this process and the memory of stores, of any kind
 *
 * For the commands that touch every byte of a store, and for images; they reach store memory
 * through this module alone, because they cannot follow an address of a GPU. Host memory is not
 * copied: callers work on it in place. GPU memory goes through a ring of pinned buffers, a few for
 * each thread, and a stream of that thread: while the driver moves one buffer the thread fills or
 * empties another. The ring is small on purpose: it has to stay in the processor's cache, which
 * several devices share; and a buffer is pinned only when the thread would otherwise wait for one.
 * The first bytes of a thread are few, so that the device begins soon. Threads that copy run on the
 * processors near their GPU, so that the ring is in the memory there.
 *
 * One staging serves one command, with any number of stores. A lane is used by one thread at a
 * time; call staging_open_memory and staging_free only while no lane is in use. Free a staging
 * before closing its stores' handles. 0 or a negative errno, unless a function says otherwise.
 */
#ifndef GMSFS_MOVER_STAGING_H
#define GMSFS_MOVER_STAGING_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGING_RING_BYTES       (128u << 20) /* maximum of pinned memory, all threads together */
#define STAGING_BUFFERS          2u           /* for each thread */
#define STAGING_BUFFER_MAX_BYTES (4u << 20)
#define STAGING_BUFFER_MIN_BYTES (64u << 10)
/* First bytes of a thread: the device waits for the first thread */
#define STAGING_FIRST_BYTES (512u << 10)
/* Fewer cannot read as fast as the GPU takes, more are slower */
#define STAGING_GPU_THREADS 12u
#define STAGING_MAX_DEVICES 64u

struct staging;
struct staging_device;
struct staging_lane; /* state of one thread */
struct work;
struct failure;

/* The memory of a store. */
struct staging_memory {
    /* Name for errors; owned by the caller, valid as long as the staging */
    const char *store;
    struct staging_device *device; /* shared by all stores on the device */
};

/* NULL: out of memory. */
struct staging *staging_new(void);
/* Frees the ring and releases the contexts. NULL is allowed. */
void staging_free(struct staging *staging);

/*
 * Announces a staging_warm() that follows staging_open_memory(), so that its pages are made while
 * the device is opened, which takes longer. Of several devices, for the first that has a ring.
 */
void staging_expect(struct staging *staging, uint64_t threads, uint64_t size_bytes);

/*
 * Prepares for a store whose memory is of that kind, on that device. On a GPU this retains the
 * device's primary context, once for all of its stores.
 */
int staging_open_memory(struct staging *staging, enum gmsfs_memory kind, const uint8_t uuid[16],
                        const char *store, struct staging_memory *memory, struct failure *failure);

/*
 * Gives each thread of `work` a lane, which its piece() gets as `own`. memory: of the store that
 * all items are about; NULL: no store. threads: 0: as many as are best. When work_run() has
 * succeeded, all bytes sent have arrived.
 */
void staging_equip(struct staging *staging, struct work *work, const struct staging_memory *memory,
                   uint64_t threads);

/*
 * Prepares in the background all that so many threads need for size_bytes of this memory; on a GPU
 * this pins buffers. Called before a work, while other things are done; the next staging_equip of
 * the device, or spread_run, waits for it. Once for a device. A failure is left to the work to
 * repeat.
 */
void staging_warm(const struct staging_memory *memory, uint64_t threads, uint64_t size_bytes);

/* Waits for the end of staging_warm(). Before works of several threads that may use the device. */
void staging_await(const struct staging_memory *memory);

/* Tells that copy engines alone fill the device of this memory: it leaves its share of ring bytes,
 * streams and processors to the other devices. Before staging_warm and staging_equip. */
void staging_set_idle(const struct staging_memory *memory);

/* Returns how many processors a thread of this memory's device can count on if all devices work at
 * the same time: the processors near it, divided among the devices near them. At least 1. */
unsigned staging_count_processors(const struct staging_memory *memory);

/* Returns true, and the first failure, if a device has failed. *is_told: it was returned before. */
bool staging_get_failure(struct staging *staging, struct failure *failure, bool *is_told);

/* Reports the driver's error `text` while `doing` something to this memory, with the way out.
 * Returns `error`. */
int staging_explain(const struct staging_memory *memory, const char *doing, const char *text,
                    int error, struct failure *failure);

/* ---- how kinds of memory differ, for planning ------------------------------------------------ */

/* Returns true if its allocations are files of the machine's memory, which write(2) fills. */
bool staging_is_file(const struct staging_memory *memory);
/* Returns true if staging_next returns a copy that no writer of the store can change. */
bool staging_is_copied(const struct staging_memory *memory);
/* Returns true if a store of that kind should have few allocations, because attaching each is
 * slow. */
bool staging_wants_few(enum gmsfs_memory kind);

/* ---- on a lane ------------------------------------------------------------------------------ */

/* Returns a page-aligned buffer of this thread, for files; NULL: out of memory. Growing loses its
 * content. */
void *staging_scratch(struct staging_lane *lane, size_t size_bytes);

/*
 * To the store: returns room for the next 1..most_bytes bytes of `to` (*size_bytes), to be filled
 * and then sent. On host memory the room is the place itself. Send each room before asking for the
 * next, or it is lost.
 */
int staging_room(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 size_t most_bytes, uint8_t **room, size_t *size_bytes);
int staging_send(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 const uint8_t *room, size_t size_bytes);

/*
 * From the store: begins to fetch size_bytes, which staging_next returns in order, in parts of at
 * most step_bytes, until *size_bytes is 0. A part is valid until the next call. Another
 * staging_fetch drops the rest.
 */
int staging_fetch(struct staging_lane *lane, const struct staging_memory *memory, const void *from,
                  uint64_t size_bytes, size_t step_bytes);
int staging_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes);

#endif
