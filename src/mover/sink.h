/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink - a file that several threads fill, as fast as its file system allows
 *
 * For the commands that write models and images. If the file system can, bytes go past the page
 * cache (O_DIRECT): through it, the disk waits for copies and the copies for the disk. On a tmpfs
 * one thread at a time uses write(2), as the kernel allows no more, and with several threads the
 * others use a mapping meanwhile. Elsewhere, and after a refusal, write(2). Only the speed differs.
 *
 * Each thread writes streams: bytes from an offset on, in order. A direct write begins and ends at
 * multiples of DIRECT_ALIGN_BYTES, in memory and in the file; other bytes are gathered in a room of
 * the stream, and ends that are no whole block go through the cache, so that streams may meet
 * anywhere. Functions return 0 or a negative errno and print nothing.
 */
#ifndef GMSFS_MOVER_SINK_H
#define GMSFS_MOVER_SINK_H

#include "source/direct.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_ROOM_BYTES ((size_t)4 << 20)

/* Set by options. */
struct sink_way {
    enum direct_use direct; /* AUTO: if the file system can */
    uint64_t threads;       /* that write; 0: as many as are best */
};

struct sink {
    int fd; /* owned by the caller */
    uint64_t size_bytes;
    uint8_t *map;        /* of the whole file, on a tmpfs; else NULL */
    atomic_flag writing; /* a thread uses write(2) on that file */
    int direct_fd;       /* -1: not past the cache */
    atomic_bool gave_up;
};

struct sink_stream {
    struct sink *sink;
    uint64_t at; /* offset after the bytes put */
    uint8_t *room;
    size_t held_bytes; /* in the room, not written yet */
};

/*
 * Gives a file its size, and its blocks if that is quick, so that a full disk is found before
 * anything is copied: -ENOSPC. On a tmpfs allocating is half of the work: if several threads will
 * do it, this only compares with the free space, and adds the need of all files to *promised_bytes.
 * -EINTR: a signal; call again, unless the signal ends the command.
 */
int sink_reserve(int fd, uint64_t size_bytes, const struct sink_way *way, uint64_t *promised_bytes);

/* The file is open for reading and writing and has its size. Never fails. */
void sink_open(struct sink *sink, int fd, uint64_t size_bytes, const struct sink_way *way);
void sink_close(struct sink *sink);
bool sink_is_direct(const struct sink *sink);

/* room: SINK_ROOM_BYTES, page-aligned, owned by this thread until the stream ends. */
void sink_begin(struct sink_stream *stream, struct sink *sink, uint64_t offset_bytes, void *room);
int sink_put(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes);
/* Puts memory that others may change: copies the first bytes, *copied of them, into the room; *copy
 * points to the copy that goes into the file, valid until the next call. */
int sink_copy(struct sink_stream *stream, const uint8_t *bytes, size_t size_bytes,
              const uint8_t **copy, size_t *copied);
int sink_end(struct sink_stream *stream);

#endif
