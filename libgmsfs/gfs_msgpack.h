/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gfs_msgpack - a writer of the msgpack that bulk documents are made of
 *
 * Writes shortest forms (pack/pack.h) into a buffer that grows, or that a callback empties. No I/O.
 */
#ifndef GMSFS_LIB_MSGPACK_H
#define GMSFS_LIB_MSGPACK_H

#include <stddef.h>
#include <stdint.h>

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
/* count < 16 */
void gfs_write_map(struct gfs_writer *writer, uint32_t count);
void gfs_write_uint(struct gfs_writer *writer, uint64_t value);
void gfs_write_text(struct gfs_writer *writer, const char *text, size_t size_bytes);
void gfs_write_binary(struct gfs_writer *writer, const void *bytes, size_t size_bytes);
void gfs_write_nil(struct gfs_writer *writer);
/* Gives the rest of the buffer to `drain`. 0, or the writer's failure. */
int gfs_write_end(struct gfs_writer *writer);

#endif
