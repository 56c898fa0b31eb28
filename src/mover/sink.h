/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink - a file that several threads fill, as fast as what it lies on takes it
 *
 * For the commands that write models and images. Where the file system can, bytes go past the page
 * cache (O_DIRECT): through it, a disk waits for copies and the copies for the disk. Into a tmpfs
 * one thread at a time goes by write(2), which is all that the kernel lets into a file, and where
 * there are several the others meanwhile through a mapping. Elsewhere, and where either is refused,
 * by write(2). Nobody sees which it was but by the speed.
 *
 * Each thread writes streams: bytes from a place on, in order. A direct write begins and ends at
 * multiples of DIRECT_ALIGN_BYTES, in memory and in the file; what does not lie so is gathered in a
 * room of the stream, and the ends that are no whole block go through the cache, so that streams
 * may meet anywhere. Functions return 0 or a negative errno and print nothing.
 */
#ifndef GMSFS_MOVER_SINK_H
#define GMSFS_MOVER_SINK_H

#include "mover/direct.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_ROOM_BYTES ((size_t)4 << 20)

/* As asked for by options. */
struct sink_way {
    enum direct_use direct; /* AUTO: where the file system can */
    uint64_t threads;       /* that write; 0: as many as are best */
};

struct sink {
    int fd; /* the caller's */
    uint64_t size_bytes;
    uint8_t *map;        /* of all of it, on a tmpfs; else NULL */
    atomic_flag writing; /* such a file, by write(2) */
    int direct_fd;       /* -1: not past the cache */
    atomic_bool gave_up;
};

struct sink_stream {
    struct sink *sink;
    uint64_t at; /* behind what was put */
    uint8_t *room;
    size_t held_bytes; /* in the room, not written yet */
};

/*
 * Gives a file its size, and its blocks where that is quick, so that a full disk is known before
 * anything is copied: -ENOSPC. On a tmpfs to allocate is half of the work: where several threads
 * are to do it, this only counts what is free, and *promised_bytes adds up what was counted for all
 * files. -EINTR: by a signal; to be called again, unless that ends it.
 */
int sink_reserve(int fd, uint64_t size_bytes, const struct sink_way *way, uint64_t *promised_bytes);

/* Of a file that is open for reading and writing and has its size. Never fails. */
void sink_open(struct sink *sink, int fd, uint64_t size_bytes, const struct sink_way *way);
void sink_close(struct sink *sink);
bool sink_is_direct(const struct sink *sink);

/* room: SINK_ROOM_BYTES at a page, this thread's until the stream ends. */
void sink_begin(struct sink_stream *stream, struct sink *sink, uint64_t offset_bytes, void *room);
int sink_put(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes);
/* The same of memory that others may change: the first bytes, *copied of them, go into the room,
 * and *copy is what will be in the file. It stays there until the next call. */
int sink_copy(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
              const uint8_t **copy, size_t *copied);
int sink_end(struct sink_stream *stream);

#endif
