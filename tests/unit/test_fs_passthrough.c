/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the FUSE protocol that libfuse 3.14 does not know, byte for byte. */
#include "fs/passthrough.h"
#include "tap.h"

#include <linux/fuse.h>

#define OFFERED (1u << (37 - 32))

struct init {
    struct fuse_in_header head;
    struct fuse_init_in body;
};

struct answer {
    struct fuse_out_header head;
    struct fuse_init_out body;
};

TAP_TEST(a_kernel_offers_it_by_bit_37)
{
    struct init init = {.body = {.flags = FUSE_INIT_EXT, .flags2 = OFFERED}};

    check(passthrough_is_offered(&init, sizeof init));
    check(!passthrough_is_offered(&init, sizeof init - 1)); /* an older kernel's is shorter */
    init.body.flags2 = ~OFFERED;
    check(!passthrough_is_offered(&init, sizeof init));
    init.body = (struct fuse_init_in){.flags2 = OFFERED}; /* then these bytes mean nothing */
    check(!passthrough_is_offered(&init, sizeof init));
}

TAP_TEST(an_answer_agrees_with_the_depth_of_the_stack)
{
    struct answer answer = {.body = {.flags = FUSE_ASYNC_READ, .flags2 = 1}};

    check(!passthrough_is_agreed(&answer, sizeof answer));
    passthrough_agree(&answer.body);
    check(passthrough_is_agreed(&answer, sizeof answer));
    check(!passthrough_is_agreed(&answer, sizeof answer.head));
    check_int(answer.body.flags, FUSE_ASYNC_READ | FUSE_INIT_EXT);
    check_int(answer.body.flags2, 1 | OFFERED);
    check_int(*(const uint32_t *)((const uint8_t *)&answer.body + 36), 1);
}

TAP_TEST(an_open_names_the_registered_file_where_padding_was)
{
    struct fuse_open_out open = {.fh = 7, .open_flags = FOPEN_NOFLUSH};

    passthrough_open(&open, 12);
    check_int((long long)open.fh, 7);
    check_int(open.open_flags, FOPEN_NOFLUSH | 1u << 7);
    check_int(*(const uint32_t *)((const uint8_t *)&open + 12), 12);
}
