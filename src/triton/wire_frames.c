/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_frames.h"

#include <string.h>

#define PREFACE_BYTES   24u
#define SETTING_BYTES   6u
#define UNITS_A_SETTING 8u /* one may change the windows of all streams */

enum frame_type {
    FRAME_DATA,
    FRAME_HEADERS,
    FRAME_SETTINGS = 4,
    FRAME_CONTINUATION = 9,
};

void wire_frames_begin(struct wire_frames *frames, uint64_t now_ms)
{
    *frames = (struct wire_frames){
        .credit = WIRE_FRAMES_CREDIT, .refilled_ms = now_ms, .skip_bytes = PREFACE_BYTES};
}

static void give_back(struct wire_frames *frames, uint64_t units)
{
    uint64_t room = WIRE_FRAMES_CREDIT - frames->credit;

    frames->credit += units < room ? units : room;
}

static bool take_units(struct wire_frames *frames, uint64_t units)
{
    bool has_enough = units <= frames->credit;

    frames->credit -= has_enough ? units : frames->credit;
    return has_enough;
}

/* Returns the whole units collected so far, and keeps the rest for the next call. */
static uint64_t count_units(uint32_t *rest_bytes, size_t bytes, uint32_t unit_bytes)
{
    uint64_t all = *rest_bytes + (uint64_t)bytes;

    *rest_bytes = (uint32_t)(all % unit_bytes);
    return all / unit_bytes;
}

static void refill(struct wire_frames *frames, uint64_t now_ms)
{
    uint64_t units = (now_ms - frames->refilled_ms) * WIRE_FRAMES_PER_SECOND / 1000;

    if (units == 0)
        return;
    give_back(frames, units);
    frames->refilled_ms = now_ms;
}

bool wire_frames_decode(struct wire_frames *frames, size_t bytes)
{
    return take_units(frames, count_units(&frames->block_bytes, bytes, WIRE_FRAMES_PIECE_BYTES));
}

void wire_frames_move(struct wire_frames *frames, size_t bytes)
{
    give_back(frames, count_units(&frames->moved_bytes, bytes, WIRE_FRAMES_DATA_BYTES));
}

void wire_frames_call(struct wire_frames *frames)
{
    give_back(frames, WIRE_FRAMES_PER_CALL);
}

static bool take_frame(struct wire_frames *frames)
{
    const uint8_t *head = frames->head;
    uint32_t bytes = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
    bool has_enough = take_units(frames, 1);

    frames->skip_bytes = bytes;
    frames->head_bytes = 0;
    switch (head[3]) {
    case FRAME_DATA:
        wire_frames_move(frames, bytes);
        break;
    case FRAME_HEADERS:
        frames->continuations = 0;
        has_enough = has_enough && wire_frames_decode(frames, bytes);
        break;
    case FRAME_CONTINUATION:
        has_enough = has_enough && ++frames->continuations <= WIRE_FRAMES_CONTINUATIONS &&
                     wire_frames_decode(frames, bytes);
        break;
    case FRAME_SETTINGS:
        has_enough = has_enough && take_units(frames, bytes / SETTING_BYTES * UNITS_A_SETTING);
        break;
    default:
        break;
    }
    return has_enough;
}

bool wire_frames_take(struct wire_frames *frames, const uint8_t *bytes, size_t size,
                      uint64_t now_ms)
{
    refill(frames, now_ms);
    while (size > 0) {
        bool is_head = frames->skip_bytes == 0;
        size_t wanted = is_head ? WIRE_FRAMES_HEAD_BYTES - frames->head_bytes : frames->skip_bytes,
               count = size < wanted ? size : wanted;
        if (is_head) {
            memcpy(frames->head + frames->head_bytes, bytes, count);
            frames->head_bytes += (uint8_t)count;
        } else {
            frames->skip_bytes -= (uint32_t)count;
        }
        bytes += count;
        size -= count;
        if (frames->head_bytes == WIRE_FRAMES_HEAD_BYTES && !take_frame(frames))
            return false;
    }
    return true;
}
