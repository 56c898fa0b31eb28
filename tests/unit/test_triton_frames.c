/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the work of HTTP/2 frames is counted as bytes arrive. */
#include "tap.h"
#include "triton/wire_frames.h"

#include <stdlib.h>

#define NOW_MS 1000u

static struct wire_frames frames;

/* Feeds pieces of `step` bytes, each a block of its own, so that a sanitizer sees a read beyond its
 * end. */
static bool take(const uint8_t *bytes, size_t size, size_t step)
{
    bool is_within = true;

    for (size_t at = 0; is_within && at < size; at += step) {
        size_t count = size - at < step ? size - at : step;
        uint8_t *exact = malloc(count);
        require(exact != NULL);
        memcpy(exact, bytes + at, count);
        is_within = wire_frames_take(&frames, exact, count, NOW_MS);
        free(exact);
    }
    return is_within;
}

static void begin(void)
{
    wire_frames_begin(&frames, NOW_MS);
    check(take((const uint8_t *)"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, 24));
    check_int(frames.credit, WIRE_FRAMES_CREDIT);
}

/* A frame with so many bytes of payload, all zero. */
static bool take_frame(uint8_t type, uint32_t bytes, size_t step)
{
    static uint8_t text[70000];

    memset(text, 0, sizeof text);
    text[0] = (uint8_t)(bytes >> 16);
    text[1] = (uint8_t)(bytes >> 8);
    text[2] = (uint8_t)bytes;
    text[3] = type;
    return take(text, WIRE_FRAMES_HEAD_BYTES + bytes, step);
}

TAP_TEST(frames_are_found_wherever_their_bytes_are_cut)
{
    for (size_t step = 1; step < 40; step++) {
        begin();
        check(take_frame(6, 8, step) && take_frame(6, 8, step) && take_frame(4, 0, step) &&
              take_frame(99, 13, step));
        check_int(frames.credit, WIRE_FRAMES_CREDIT - 4);
    }
}

TAP_TEST(a_connection_without_credit_gets_no_frame_more_until_time_has_passed)
{
    begin();
    for (unsigned i = 0; i < WIRE_FRAMES_CREDIT; i++)
        check(take_frame(6, 8, 17));
    check(!take_frame(6, 8, 17));
    begin();
    for (unsigned i = 0; i < WIRE_FRAMES_CREDIT; i++)
        check(take_frame(6, 8, 17));
    check(wire_frames_take(&frames, NULL, 0, NOW_MS + 5));
    check_int(frames.credit, 5 * WIRE_FRAMES_PER_SECOND / 1000);
    check(wire_frames_take(&frames, NULL, 0, NOW_MS + 3600000));
    check_int(frames.credit, WIRE_FRAMES_CREDIT);
}

TAP_TEST(bytes_of_data_and_calls_give_credit_back)
{
    begin();
    for (unsigned i = 0; i < 1000; i++)
        check(take_frame(6, 8, 17));
    check(take_frame(0, 10 * WIRE_FRAMES_DATA_BYTES, 4096));
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1000 - 1 + 10);
    wire_frames_move(&frames, WIRE_FRAMES_DATA_BYTES / 2);
    wire_frames_move(&frames, WIRE_FRAMES_DATA_BYTES / 2);
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1000 + 10);
    wire_frames_call(&frames);
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1000 + 10 + WIRE_FRAMES_PER_CALL);
}

TAP_TEST(header_blocks_cost_by_their_bytes_and_settings_by_their_number)
{
    begin();
    check(take_frame(1, 4 * WIRE_FRAMES_PIECE_BYTES, 4096));
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1 - 4);
    check(wire_frames_decode(&frames, 3 * WIRE_FRAMES_PIECE_BYTES));
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1 - 4 - 3);
    begin();
    check(take_frame(4, 12, 4096));
    check_int(frames.credit, WIRE_FRAMES_CREDIT - 1 - 2 * 8);
    check(!wire_frames_decode(&frames, (size_t)WIRE_FRAMES_CREDIT * WIRE_FRAMES_PIECE_BYTES));
}

TAP_TEST(a_header_block_has_so_many_continuations)
{
    begin();
    for (int block = 0; block < 3; block++) {
        check(take_frame(1, 1, 4096));
        for (unsigned i = 0; i < WIRE_FRAMES_CONTINUATIONS; i++)
            check(take_frame(9, 0, 4096));
    }
    check(!take_frame(9, 0, 4096));
}
