/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging - bytes between this process and the memory of stores, whatever kind it is
 *
 * For the commands that touch every byte of a store, and for images; they look at store memory
 * through this module alone, for an address of a GPU is not theirs to follow. On host memory
 * nothing is copied: the bytes are handed over where they lie. On a GPU they go through a ring of
 * pinned buffers, some for each thread, and a stream of that thread's own: while the driver moves
 * one buffer the thread fills or empties another. The ring is small on purpose, for it has to stay
 * in the processor's cache, which several devices share, and a buffer is pinned when the thread
 * would else have to wait for one. What a thread sends first is small, so that the device begins
 * soon.
 * Threads that copy run on the processors near their GPU, and so the ring lies in the memory there.
 *
 * One staging serves one command, with any number of stores. Threads: a lane is one thread's at a
 * time; staging_open_memory and staging_free are for when no lane is out. A staging must be freed
 * before its stores' handles are closed. 0 or a negative errno, unless a function says otherwise.
 */
#ifndef GMSFS_MOVER_STAGING_H
#define GMSFS_MOVER_STAGING_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGING_RING_BYTES       (128u << 20) /* of pinned memory at most, all threads together */
#define STAGING_BUFFERS          2u           /* of a thread */
#define STAGING_BUFFER_MAX_BYTES (4u << 20)
#define STAGING_BUFFER_MIN_BYTES (64u << 10)
#define STAGING_FIRST_BYTES      (512u << 10) /* of a thread: the device waits for the first of them */
#define STAGING_GPU_THREADS      12u /* fewer cannot read as fast as it takes, more are slower */
#define STAGING_MAX_DEVICES      64u

struct staging;
struct staging_device;
struct staging_lane; /* what one thread works with */
struct work;
struct failure;

/* What the memory of a store is. */
struct staging_memory {
    const char *store;             /* as errors name it; the caller's, for as long as the staging */
    struct staging_device *device; /* whose it is; the same one for all stores on it */
};

/* NULL: out of memory. */
struct staging *staging_new(void);
/* Frees the ring and releases the contexts. NULL is allowed. */
void staging_free(struct staging *staging);

/*
 * Says before staging_open_memory() what a staging_warm() after it will ask for: so the pages are
 * made while the device is opened, which takes longer. For who works on one device alone, of
 * whatever kind.
 */
void staging_expect(struct staging *staging, uint64_t threads, uint64_t size_bytes);

/*
 * Gets ready for a store whose memory is of that kind, and on that device. On a GPU it takes the
 * device's primary context, once for all of its stores.
 */
int staging_open_memory(struct staging *staging, enum gmsfs_memory kind, const uint8_t uuid[16],
                        const char *store, struct staging_memory *memory, struct failure *failure);

/*
 * Gives each thread of `work` a lane, which its piece() gets as `own`. memory: what all items of
 * the work are about; NULL: no store. threads: as asked for; 0: as many as are best. When
 * work_run() has succeeded, all that was sent has arrived.
 */
void staging_equip(struct staging *staging, struct work *work, const struct staging_memory *memory,
                   uint64_t threads);

/*
 * Makes meanwhile what so many threads will need for size_bytes of this memory: on a GPU, which
 * pins buffers for it. For before a work, while other things are done; the next staging_equip of
 * the device waits for it. Once for a device. It may fail: then the work makes it.
 */
void staging_warm(const struct staging_memory *memory, uint64_t threads, uint64_t size_bytes);

/* How many processors a thread of this memory's device can count on where all devices work at the
 * same time: those near it, shared with the others that they are near. At least 1. */
unsigned staging_count_processors(const struct staging_memory *memory);

/* True where a device has failed: the first failure. *is_told: it was asked for before. */
bool staging_get_failure(struct staging *staging, struct failure *failure, bool *is_told);

/* What the driver said (`text`) while `doing` something to this memory, with the way out. Returns
 * `error`. */
int staging_explain(const struct staging_memory *memory, const char *doing, const char *text,
                    int error, struct failure *failure);

/* ---- how kinds of memory differ, for who makes a plan ---------------------------------------- */

/* Whether its allocations are files of the machine's memory, which write(2) fills. */
bool staging_is_file(const struct staging_memory *memory);
/* Whether what staging_next hands out is a copy that no writer of the store can change. */
bool staging_is_copied(const struct staging_memory *memory);
/* Whether a store of that kind had best have few allocations, for attaching each one costs. */
bool staging_wants_few(enum gmsfs_memory kind);

/* ---- on a lane ------------------------------------------------------------------------------ */

/* A buffer of this thread's own, for files, at a page; NULL: out of memory. It grows, and then
 * forgets. */
void *staging_scratch(struct staging_lane *lane, size_t size_bytes);

/*
 * Towards the store: room for the next bytes of `to`, 1..most_bytes of them (*size_bytes), to be
 * filled and then sent. On host memory the room is the place itself. Every room is sent before the
 * next is asked for, or given up by that.
 */
int staging_room(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 size_t most_bytes, uint8_t **room, size_t *size_bytes);
int staging_send(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 const uint8_t *room, size_t size_bytes);

/*
 * From the store: begins to fetch size_bytes, which staging_next hands out from front to back, in
 * parts of at most step_bytes, until *size_bytes is 0. A part stays until the next call. Another
 * begin gives the rest of the former up.
 */
int staging_fetch(struct staging_lane *lane, const struct staging_memory *memory, const void *from,
                  uint64_t size_bytes, size_t step_bytes);
int staging_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes);

#endif
