/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct - files read past the page cache (O_DIRECT), or through it
 *
 * For the commands that read models and images. What is larger than the page cache can hold is read
 * past it: through it, it would push out what others have there, itself included, and go no faster
 * for that. What the cache has already, or can keep for the next time, is read through it.
 *
 * A direct read begins and ends at multiples of what the file system asks for. So it is made
 * wider than what is wanted, into a room that takes this, and what is wanted lies inside. What
 * cannot be read so (a file system that refuses, the end of the file, a little of it) goes through
 * the cache: refusal is no error. Any thread may read a struct direct_file that is open; nothing is
 * printed. Functions return 0 or a negative errno.
 */
#ifndef GMSFS_MOVER_DIRECT_H
#define GMSFS_MOVER_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a room, of place and size in the file: no file system that is read directly asks for more. */
#define DIRECT_ALIGN_BYTES 4096u
/* Less than this goes through the cache, where the kernel reads ahead: of many small tensors side
 * by side. */
#define DIRECT_LEAST_BYTES ((size_t)64 << 10)
/* So many reads under way saturate a disk, whatever the number of CPUs. */
#define DIRECT_THREADS 8u

enum direct_use {
    DIRECT_AUTO, /* each file, or part, but those that the cache has at least half of */
    DIRECT_ALWAYS,
    DIRECT_NEVER,
};

struct direct_file {
    int fd;              /* through the cache; the caller's */
    int direct_fd;       /* -1: there is none */
    atomic_bool gave_up; /* the file system refused a read, or a write */
};

/* "auto", "always", "never". 0 or -EINVAL. */
int direct_parse(const char *text, enum direct_use *use);

/*
 * What AUTO becomes for files of so many bytes: NEVER where the cache can hold them all, beside
 * taken_bytes of memory that the caller is about to fill. The other two stay.
 */
enum direct_use direct_choose(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes);
/* The pure part. */
enum direct_use direct_decide(enum direct_use use, uint64_t files_bytes, uint64_t taken_bytes,
                              uint64_t available_bytes);

/* Never fails: a file that cannot be had directly is read through the cache. fd stays the caller's,
 * and open until direct_close. */
void direct_open(struct direct_file *file, int fd, enum direct_use use);
/* For who reads a part of it alone: what the cache has of that part decides, and nothing else is
 * counted. */
void direct_open_part(struct direct_file *file, int fd, enum direct_use use, uint64_t offset_bytes,
                      uint64_t size_bytes);
void direct_close(struct direct_file *file);

/* For a file that is open for writing; whoever writes directly asks first. */
int direct_open_writer(int fd);

/* As many as were asked for; 0 (as are best) becomes more where a disk is read or written. */
uint64_t direct_threads(uint64_t asked, bool is_direct);

/* Whether reads go past the cache now. */
bool direct_is_on(const struct direct_file *file);

/* Moves both ends of a piece of what lies at an offset, whole_bytes of it, back to where direct
 * reads can begin; but not those of the whole. The pieces still cover it. */
void direct_align(uint64_t offset_bytes, uint64_t whole_bytes, uint64_t *begin, uint64_t *end);

/* How many of size_bytes at an offset a room of room_bytes takes; the place behind them is aligned,
 * unless they are all. room_bytes: at least 2 * DIRECT_ALIGN_BYTES. */
size_t direct_fit(const struct direct_file *file, uint64_t offset_bytes, size_t size_bytes,
                  size_t room_bytes);

/* How large a room takes all of it. */
size_t direct_room_bytes(size_t size_bytes);

/*
 * Reads size_bytes, as many as direct_fit allows, into an aligned room; *bytes is where in the
 * room they lie. -ENODATA: the file ends before.
 */
int direct_read(struct direct_file *file, uint8_t *room, uint64_t offset_bytes, size_t size_bytes,
                uint8_t **bytes);

/* How much of a part of the file the cache has, in pages; 0 where the kernel does not say. */
uint64_t direct_count_cached(int fd, uint64_t offset_bytes, uint64_t size_bytes);

#endif
