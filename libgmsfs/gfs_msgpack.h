/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gfs_msgpack - the little of msgpack that `layout` and bulk documents are made of
 *
 * A reader over bytes in memory that never reads past their end and accepts every length form, and
 * a writer of shortest forms into a buffer that grows, or that a callback empties. No I/O. Source
 * of
 * the format: the msgpack specification (github.com/msgpack/msgpack, spec.md).
 */
#ifndef GMSFS_LIB_MSGPACK_H
#define GMSFS_LIB_MSGPACK_H

#include <stddef.h>
#include <stdint.h>

struct gfs_reader {
    const uint8_t *at;
    const uint8_t *end;
};

/* Each takes one item: 0, or -EPROTO when it is of another type or cut off. */
int gfs_read_array(struct gfs_reader *reader, uint32_t *count);
int gfs_read_map(struct gfs_reader *reader, uint32_t *count);
int gfs_read_uint(struct gfs_reader *reader, uint64_t *value);
int gfs_read_text(struct gfs_reader *reader, const char **text, size_t *size_bytes);
int gfs_read_binary(struct gfs_reader *reader, const uint8_t **bytes, size_t *size_bytes);
/* 1: it was nil and is taken; 0: it is something else. */
int gfs_read_nil(struct gfs_reader *reader);

/* After a failure `failed` is set, a negative errno, and nothing more is written. With `drain` the
 * buffer does not grow for the next bytes but is emptied when it has drain_bytes: drain takes the
 * bytes, and returns 0 or the failure. */
struct gfs_writer {
    uint8_t *bytes;
    size_t size_bytes, room_bytes;
    int failed;
    int (*drain)(void *context, const uint8_t *bytes, size_t size_bytes);
    void *context;
    size_t drain_bytes;
};

void gfs_write_array(struct gfs_writer *writer, uint32_t count);
void gfs_write_map(struct gfs_writer *writer, uint32_t count);
void gfs_write_uint(struct gfs_writer *writer, uint64_t value);
void gfs_write_text(struct gfs_writer *writer, const char *text, size_t size_bytes);
void gfs_write_binary(struct gfs_writer *writer, const void *bytes, size_t size_bytes);
void gfs_write_nil(struct gfs_writer *writer);
/* Gives the rest of the buffer to `drain`. 0, or the writer's failure. */
int gfs_write_end(struct gfs_writer *writer);

#endif
