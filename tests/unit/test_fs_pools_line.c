/* SPDX-License-Identifier: Apache-2.0 */
/* Lines written to `pools`. */
#include "fs/pools_line.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static struct service_budget pool;

/* A block of its own, so that a sanitizer sees a step over its end. */
static int parse(const char *line)
{
    size_t bytes = strlen(line);
    char *exact = malloc(bytes ? bytes : 1);
    int error;

    require(exact != NULL);
    memcpy(exact, line, bytes);
    error = pools_line_parse(exact, bytes, &pool);
    free(exact);
    return error;
}

TAP_TEST(a_line_names_a_pool_and_what_it_is_to_have)
{
    check_int(parse("chat min=20G max=40G class=high sm=60 slots=3"), 0);
    check_str(pool.name, "chat");
    check_int(pool.flags,
              CORE_POOL_MIN | CORE_POOL_MAX | CORE_POOL_SLOTS | CORE_POOL_CLASS | CORE_POOL_SM);
    check_int(pool.min_bytes, UINT64_C(20) << 30);
    check_int(pool.max_bytes, UINT64_C(40) << 30);
    check_int(pool.slots, 3);
    check_int(pool.class, POOL_CLASS_HIGH);
    check_int(pool.sm_percent, 60);
}

TAP_TEST(what_a_line_does_not_say_is_not_set)
{
    check_int(parse(" \tbatch\t class=batch  "), 0);
    check_str(pool.name, "batch");
    check_int(pool.flags, CORE_POOL_CLASS);
    check_int(parse("batch"), 0);
    check_int(pool.flags, 0);
}

TAP_TEST(max_is_no_limit)
{
    check_int(parse("chat max=max slots=max"), 0);
    check_int(pool.flags, CORE_POOL_MAX | CORE_POOL_SLOTS);
    check(pool.max_bytes == CORE_NO_LIMIT);
    check_int(pool.slots, 0);
}

TAP_TEST(a_dash_removes_it)
{
    check_int(parse("chat -"), 0);
    check_int(pool.flags, CORE_POOL_REMOVE);
    check_int(parse("chat - -"), -EINVAL);
    check_int(parse("chat - max=1"), -EINVAL);
    check_int(parse("chat max=1 -"), -EINVAL);
}

TAP_TEST(an_empty_line_says_nothing)
{
    check_int(parse(""), -ENODATA);
    check_int(parse(" \t "), -ENODATA);
}

TAP_TEST(what_is_wrong_anywhere_is_einval)
{
    static const char *const wrong[] = {"-",
                                        "#chat",
                                        "chat max",
                                        "chat =1",
                                        "chat max=",
                                        "chat max=1 max=2",
                                        "chat max=99999999999999999999",
                                        "chat min=max",
                                        "chat used=1",
                                        "chat class=",
                                        "chat class=low",
                                        "chat sm=0",
                                        "chat sm=101",
                                        "chat sm=4294967297",
                                        "chat slots=0",
                                        "chat slots=-1",
                                        "chat slots=99999999999",
                                        "chat\tmax=1\r"};
    char longest[300];

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (!check_int(parse(wrong[i]), -EINVAL))
            fprintf(stderr, "# %s\n", wrong[i]);
    }
    check_int(pools_line_parse("chat\0 -", 7, &pool), -EINVAL);
    memset(longest, 'x', sizeof longest);
    check_int(pools_line_parse(longest, sizeof longest, &pool), -EINVAL);
    check_int(pools_line_parse(longest, CORE_POOL_NAME_BYTES, &pool), -EINVAL);
    check_int(pools_line_parse(longest, CORE_POOL_NAME_BYTES - 1, &pool), 0);
}
