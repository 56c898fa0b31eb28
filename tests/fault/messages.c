/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages - encodes answers to GMS's clients, where each allocation fails once
 *
 * An answer without memory is -ENOMEM to the end of its frame; the frames before it stay unchanged,
 * and the next one can be written. Decoding is made to fail at any allocation too: it makes none.
 */
#include "own_fault.h"

#include "../unit/message_again.h"
#include "../unit/tap.h"

#include <errno.h>
#include <stdlib.h>

static int encode_list(struct message_buffer *buffer, uint32_t count)
{
    const struct message list = {.type = MESSAGE_METADATA_LIST_RESPONSE};
    const struct message key = {.key = message_text("model.layers.0.weight")};
    int error = message_begin(buffer, MESSAGE_V0, &list);

    for (uint32_t i = 0; i < count; i++) {
        int added = message_add_item(buffer, &key);
        check(error == 0 || added == error);
        error = added;
    }
    check_int(message_end(buffer), error);
    return error;
}

TAP_TEST(an_answer_for_which_memory_lacks_is_no_frame)
{
    const struct message small = {.type = MESSAGE_COMMIT_RESPONSE, .success = true};
    int after = 0, failed = 0, error;

    begin_faults(FAULT_SITES, FAULT_NONE);
    do {
        struct message_buffer buffer = {0};
        uint8_t first[64];

        control->armed = false;
        require(message_encode(&buffer, MESSAGE_V0, &small) == 0);
        size_t size = buffer.size_bytes;
        require(size <= sizeof first);
        memcpy(first, buffer.bytes, size);
        arm(after++);
        error = encode_list(&buffer, 1000);
        control->armed = false;
        require(error == (control->fired ? -ENOMEM : 0));
        failed += error < 0;
        check(error == 0 || buffer.size_bytes == size);
        check_bytes(buffer.bytes + buffer.begin_bytes, size, first, size);
        size_t before = buffer.size_bytes;
        require(message_encode(&buffer, MESSAGE_V0, &small) == 0);
        check_bytes(buffer.bytes + before, buffer.size_bytes - before, first, size);
        message_buffer_free(&buffer);
    } while (error < 0);
    check(failed > 3);
}

TAP_TEST(a_first_answer_for_which_memory_lacks_leaves_nothing)
{
    const struct message small = {.type = MESSAGE_COMMIT_RESPONSE, .success = true};
    struct message_buffer buffer = {0};

    begin_faults(FAULT_SITES, FAULT_NONE);
    int64_t living = control->living[FAULT_COMMAND];
    arm(0);
    check_int(message_encode(&buffer, MESSAGE_V0, &small), -ENOMEM);
    control->armed = false;
    check(buffer.bytes == NULL && buffer.size_bytes == 0);
    check_int(control->living[FAULT_COMMAND], living);
}

TAP_TEST(decoding_allocates_nothing)
{
    struct message_buffer buffer = {0};
    struct message message, item;
    uint32_t count = 0;

    begin_faults(FAULT_SITES, FAULT_NONE);
    require(encode_list(&buffer, 1000) == 0);
    arm(0);
    size_t begin = buffer.begin_bytes + MESSAGE_HEADER_BYTES;
    check_int(message_decode(MESSAGE_V0, buffer.bytes + begin, buffer.size_bytes - begin, &message),
              0);
    while (message_next_item(&message.list, &item))
        count++;
    control->armed = false;
    check_int(count, 1000);
    check(!control->fired);
    message_buffer_free(&buffer);
}
