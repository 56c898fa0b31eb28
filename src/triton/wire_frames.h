/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_frames - the work that the frames of an HTTP/2 connection cause, counted as bytes arrive
 *
 * For grpc.c, before nghttp2 sees the bytes. A connection has a credit of units: each frame and
 * each piece of a header block costs some, time and useful traffic give some back. A client that
 * sends mostly pings, settings, resets, empty frames or compressed headers runs out of credit, with
 * any kind of frame and any version of nghttp2; a client that calls or moves data never does. Pure.
 */
#ifndef GMSFS_TRITON_WIRE_FRAMES_H
#define GMSFS_TRITON_WIRE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_FRAMES_CREDIT        8192u /* maximum, and initial credit */
#define WIRE_FRAMES_PER_SECOND    1000u /* units that time gives back */
#define WIRE_FRAMES_PER_CALL      128u  /* units that a whole request gives back */
#define WIRE_FRAMES_PIECE_BYTES   256u  /* of a header block, coded or decoded: one unit */
#define WIRE_FRAMES_DATA_BYTES    1024u /* moved in either direction: give one unit back */
#define WIRE_FRAMES_CONTINUATIONS 8u    /* of one header block; more end the connection */
#define WIRE_FRAMES_HEAD_BYTES    9u

struct wire_frames {
    uint64_t credit;
    uint64_t refilled_ms;
    uint32_t skip_bytes; /* left of the preface or of a payload, before the next frame */
    uint32_t moved_bytes, block_bytes;
    uint8_t head[WIRE_FRAMES_HEAD_BYTES], head_bytes;
    uint8_t continuations;
};

void wire_frames_begin(struct wire_frames *frames, uint64_t now_ms);
/* Counts the frames that begin in these bytes. False: the connection has no credit left. */
bool wire_frames_take(struct wire_frames *frames, const uint8_t *bytes, size_t size,
                      uint64_t now_ms);
/* Counts the decoded bytes of a header block. False: as above */
bool wire_frames_decode(struct wire_frames *frames, size_t bytes);
/* Counts bytes sent. */
void wire_frames_move(struct wire_frames *frames, size_t bytes);
/* Counts a complete request. */
void wire_frames_call(struct wire_frames *frames);

#endif
