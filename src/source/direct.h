/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct - reads files past the page cache (O_DIRECT), or through it
 *
 * For the commands that read models and images. Data larger than the page cache is read past it:
 * through the cache it would push out other data, and itself, and be no faster. Data that the cache
 * has already, or can keep for the next time, is read through it.
 *
 * A direct read begins and ends at multiples of the file system's block. So each read is widened to
 * blocks, into a larger room, and the wanted bytes lie inside. Reads that cannot be direct (the
 * file system refuses, the end of the file, a few bytes) go through the cache: refusal is no error.
 * Any thread may read an open struct direct_file; nothing is printed. Functions return 0 or a
 * negative errno.
 */
#ifndef GMSFS_SOURCE_DIRECT_H
#define GMSFS_SOURCE_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment of rooms, offsets and sizes: no file system with direct reads needs more. */
#define DIRECT_ALIGN_BYTES 4096u
/* Smaller reads go through the cache, where the kernel reads ahead: many small tensors may lie side
 * by side. */
#define DIRECT_LEAST_BYTES ((size_t)64 << 10)
/* This many reads in flight saturate a disk, with any number of CPUs. */
#define DIRECT_THREADS 8u

enum direct_use {
    DIRECT_AUTO, /* direct for each part that is less than half in the cache */
    DIRECT_ALWAYS,
    DIRECT_NEVER,
};

struct direct_file {
    int fd;              /* through the cache; owned by the caller */
    int direct_fd;       /* -1: none */
    atomic_bool gave_up; /* the file system refused a direct read or write */
};

/* Parses "auto", "always" or "never". 0 or -EINVAL. */
int direct_parse(const char *text, enum direct_use *use);

/*
 * Turns AUTO into NEVER if the cache can hold files_bytes in all, beside taken_bytes of memory that
 * the caller is about to fill. Returns the others unchanged.
 */
enum direct_use direct_choose(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes);
/* Returns the memory of this machine that is available; UINT64_MAX: unknown. */
uint64_t direct_available_bytes(void);
/* The pure part. */
enum direct_use direct_decide(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes,
                              uint64_t available_bytes);

/* For a reader of a part of the file, whose cached bytes decide. Never fails: a file that cannot be
 * opened for direct reads is read through the cache. The caller still owns fd, and keeps it open
 * until direct_close. */
void direct_open(struct direct_file *file, int fd, enum direct_use use, uint64_t offset_bytes,
                 uint64_t size_bytes);
void direct_close(struct direct_file *file);

/* Opens a file that is open for writing again, for direct writes. */
int direct_open_writer(int fd);

/* Returns `asked`; if that is 0 (as many as are best), more for direct reads or writes. */
uint64_t direct_threads(uint64_t asked, bool is_direct);

/* Returns true if reads go past the cache now. */
bool direct_is_on(const struct direct_file *file);

/* Moves begin and end of a piece back to where direct reads can begin, but not the ends of the
 * whole: whole_bytes at an offset. The pieces still cover the whole. */
void direct_align(uint64_t offset_bytes, uint64_t whole_bytes, uint64_t *begin, uint64_t *end);

/* Returns how many of size_bytes at an offset fit into a room of room_bytes; the next offset is
 * aligned, unless all fit. room_bytes: at least 2 * DIRECT_ALIGN_BYTES. */
size_t direct_fit(const struct direct_file *file, uint64_t offset_bytes, size_t size_bytes,
                  size_t room_bytes);

/* Returns the size of a room that holds size_bytes. */
size_t direct_room_bytes(size_t size_bytes);

/*
 * Reads size_bytes, as many as direct_fit allows, into an aligned room; *bytes is their place in
 * the room. -ENODATA: the file is shorter.
 */
int direct_read(struct direct_file *file, uint8_t *room, uint64_t offset_bytes, size_t size_bytes,
                uint8_t **bytes);

/* Returns how many bytes of a part of the file are cached, in whole pages; 0 if the kernel does not
 * tell. */
uint64_t direct_count_cached(int fd, uint64_t offset_bytes, uint64_t size_bytes);

#endif
