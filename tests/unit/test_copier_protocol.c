/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between worker and copier, and messages that they refuse. */
#include "copier/protocol.h"
#include "tap.h"

#include <errno.h>
#include <string.h>

static struct copier_request seen;

static const struct copier_request map = {
    .act = COPIER_MAP, .entry = COPIER_BLOCKS, .sequence = 99, .window = 3, .bytes = 2 << 20};
static const struct copier_request get = {.act = COPIER_GET,
                                          .entry = COPIER_BLOCKS - 1,
                                          .sequence = 99,
                                          .window = COPIER_WINDOWS - 1,
                                          .offset = UINT64_C(5) << 32,
                                          .bytes = COPIER_BLOCK_BYTES};

static const struct copier_request out = {.act = COPIER_MOVE_OUT,
                                          .entry = COPIER_ENTRIES - 1,
                                          .sequence = 99,
                                          .window = COPIER_WINDOWS - 1,
                                          .offset = UINT64_C(5) << 32,
                                          .bytes = COPIER_MOVE_BYTES};

static int check_request(const struct copier_request *request, bool has_descriptor)
{
    return copier_check_request(request, sizeof *request, has_descriptor, &seen);
}

TAP_TEST(requests_that_make_sense_are_taken_as_they_are)
{
    struct copier_request request = get;

    check_int(check_request(&map, true), 0);
    check_bytes(&seen, sizeof seen, &map, sizeof map);
    check_int(check_request(&get, false), 0);
    check_bytes(&seen, sizeof seen, &get, sizeof get);
    request.act = COPIER_PUT;
    request.bytes = 1;
    check_int(check_request(&request, false), 0);
    request = (struct copier_request){.act = COPIER_UNMAP, .sequence = COPIER_FIRST_SEQUENCE};
    check_int(check_request(&request, false), 0);
}

TAP_TEST(what_is_forgotten_has_a_number)
{
    struct copier_request request = {
        .act = COPIER_FORGET, .entry = COPIER_BLOCKS, .sequence = 99, .file = 3};

    check_int(check_request(&request, false), 0);
    check_bytes(&seen, sizeof seen, &request, sizeof request);
    check_int(check_request(&request, true), -EINVAL);
    request.file = 0;
    check_int(check_request(&request, false), -EINVAL);
}

TAP_TEST(a_descriptor_comes_with_map_and_moves_and_with_nothing_else)
{
    check_int(check_request(&out, false), -EINVAL);
    check_int(check_request(&map, false), -EINVAL);
    check_int(check_request(&get, true), -EINVAL);
}

TAP_TEST(requests_are_inside_of_what_there_is)
{
    struct copier_request request = get;

    request.entry = COPIER_BLOCKS;
    check_int(check_request(&request, false), -EINVAL);
    request = get;
    request.window = COPIER_WINDOWS;
    check_int(check_request(&request, false), -EINVAL);
    request = get;
    request.bytes = COPIER_BLOCK_BYTES + 1;
    check_int(check_request(&request, false), -EINVAL);
    request.bytes = 0;
    check_int(check_request(&request, false), -EINVAL);
    request = get;
    request.offset = UINT64_MAX - request.bytes + 1;
    check_int(check_request(&request, false), -EINVAL);
    request = get;
    request.sequence = COPIER_FIRST_SEQUENCE - 1;
    check_int(check_request(&request, false), -EINVAL);
    request = map;
    request.entry = COPIER_FIRST_MOVE;
    check_int(check_request(&request, true), -EINVAL);
    request = get;
    request.act = COPIER_FORGET + 1;
    check_int(check_request(&request, false), -EINVAL);
    request.act = 0;
    check_int(check_request(&request, false), -EINVAL);
}

TAP_TEST(moves_are_of_a_bounded_size_at_places_that_files_have_and_in_entries_of_their_own)
{
    struct copier_request request = out;

    check_int(check_request(&out, true), 0);
    check_bytes(&seen, sizeof seen, &out, sizeof out);
    request.act = COPIER_MOVE_IN;
    request.entry = COPIER_FIRST_MOVE;
    request.offset = INT64_MAX - request.bytes;
    check_int(check_request(&request, true), 0);
    request.offset++;
    check_int(check_request(&request, true), -EINVAL);
    request = out;
    request.bytes++;
    check_int(check_request(&request, true), -EINVAL);
    request.bytes = 0;
    check_int(check_request(&request, true), -EINVAL);
    request = out;
    request.entry = COPIER_FIRST_MOVE - 1;
    check_int(check_request(&request, true), -EINVAL);
    request.entry = COPIER_ENTRIES;
    check_int(check_request(&request, true), -EINVAL);
    request = out;
    request.window = COPIER_WINDOWS;
    check_int(check_request(&request, true), -EINVAL);
}

TAP_TEST(messages_of_another_size_are_refused)
{
    char longer[sizeof get + 1] = {0};
    struct copier_hello hello;

    memcpy(longer, &get, sizeof get);
    for (size_t bytes = 0; bytes <= sizeof longer; bytes++) {
        int expected = bytes == sizeof get ? 0 : -EINVAL;
        check_int(copier_check_request(longer, bytes, false, &seen), expected);
    }
    check_int(copier_check_hello(longer, sizeof longer, &hello), -EPROTO);
}

TAP_TEST(a_hello_says_an_errno_and_a_line_that_a_terminal_can_show)
{
    struct copier_hello said = {.magic = COPIER_MAGIC, .error = -ENOMEM}, hello;

    memset(said.why, '\033', sizeof said.why); /* and no end */
    check_int(copier_check_hello(&said, sizeof said, &hello), 0);
    check_int(hello.error, -ENOMEM);
    check_int(strlen(hello.why), sizeof hello.why - 1);
    check_int(strspn(hello.why, "?"), sizeof hello.why - 1);
    said.error = 5;
    check_int(copier_check_hello(&said, sizeof said, &hello), 0);
    check_int(hello.error, -EIO);
    said.error = INT32_MIN;
    check_int(copier_check_hello(&said, sizeof said, &hello), 0);
    check_int(hello.error, -EIO);
    said.magic++;
    check_int(copier_check_hello(&said, sizeof said, &hello), -EPROTO);
}

TAP_TEST(a_result_counts_when_it_is_done_for_this_very_request)
{
    struct copier_result result = {.done = COPIER_PENDING};
    char why[COPIER_WHY_BYTES];

    check_int(copier_check_result(&result, 99, why), -EAGAIN);
    copier_put_result(&result, 99, -ENOMEM, "cuMemMap: no\nroom");
    check_int(copier_check_result(&result, 99, why), -ENOMEM);
    check_str(why, "cuMemMap: no?room");
    check_int(copier_check_result(&result, 99, NULL), -ENOMEM);
    copier_put_result(&result, 100, 0, NULL);
    check_int(copier_check_result(&result, 100, why), 0);
    check_str(why, "");
    check_int(copier_check_result(&result, 101, why), -EPIPE);
    result.done = COPIER_DEAD;
    check_int(copier_check_result(&result, 101, why), -EPIPE);
}

TAP_TEST(a_result_cannot_say_what_only_the_worker_finds_out)
{
    struct copier_result result;

    copier_put_result(&result, 99, -EAGAIN, "");
    check_int(copier_check_result(&result, 99, NULL), -EIO);
    copier_put_result(&result, 99, -EPIPE, "");
    check_int(copier_check_result(&result, 99, NULL), -EIO);
    copier_put_result(&result, 99, 77, "");
    check_int(copier_check_result(&result, 99, NULL), -EIO);
    copier_put_result(&result, 99, INT32_MIN, "");
    check_int(copier_check_result(&result, 99, NULL), -EIO);
}
