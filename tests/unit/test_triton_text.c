/* SPDX-License-Identifier: Apache-2.0 */
/* Tests texts, quoting, base64 and the buffer of the front end for Triton clients. */
#include "tap.h"
#include "triton/wire_text.h"

#include <errno.h>
#include <stdlib.h>

static struct wire_buffer buffer = {.limit_bytes = 4096};

static void check_put(const char *expected)
{
    check_bytes(buffer.bytes, buffer.size, expected, strlen(expected));
    wire_buffer_free(&buffer);
}

static int unquote(const char *text, const char *expected)
{
    char copy[64];
    size_t bytes = strlen(text);

    memcpy(copy, text, bytes);
    int error = wire_unquote(copy, &bytes);
    if (!error)
        check_bytes(copy, bytes, expected, strlen(expected));
    return error;
}

TAP_TEST(names_in_paths_are_unquoted_once)
{
    check_int(unquote("in%20a/b%20%C3%A9%25", "in a/b \xc3\xa9%"), 0);
    check_int(unquote("%2525", "%25"), 0);
    check_int(unquote("plain", "plain"), 0);
    check_int(unquote("", ""), 0);
}

TAP_TEST(malformed_quoting_is_refused)
{
    check_int(unquote("%", ""), -EINVAL);
    check_int(unquote("a%2", ""), -EINVAL);
    check_int(unquote("%g0", ""), -EINVAL);
    check_int(unquote("%0 ", ""), -EINVAL);
}

TAP_TEST(numbers_are_digits_up_to_the_last_of_64_bits)
{
    uint64_t number = 1;
    check_int(wire_text_number(WIRE_TEXT("18446744073709551615"), &number), 0);
    check(number == UINT64_MAX);
    check_int(wire_text_number(WIRE_TEXT("18446744073709551616"), &number), -ERANGE);
    check_int(wire_text_number(WIRE_TEXT("0"), &number), 0);
    check(number == 0);
    check_int(wire_text_number(WIRE_TEXT(""), &number), -EINVAL);
    check_int(wire_text_number(WIRE_TEXT("-1"), &number), -EINVAL);
    check_int(wire_text_number(WIRE_TEXT("+1"), &number), -EINVAL);
    check_int(wire_text_number(WIRE_TEXT("1 "), &number), -EINVAL);
    check_int(wire_text_number(WIRE_TEXT("99999999999999999999x"), &number), -EINVAL);
}

TAP_TEST(messages_of_grpc_are_quoted)
{
    wire_put_quoted(&buffer, WIRE_TEXT("100% \xc3\xa9\n~"));
    check_put("100%25 %C3%A9%0A~");
}

TAP_TEST(a_buffer_takes_as_much_as_it_may_and_then_nothing_more)
{
    struct wire_buffer small = {.limit_bytes = 8};
    wire_put(&small, "1234", 4);
    wire_print(&small, "%d", 567);
    check_bytes(small.bytes, small.size, "1234567", 7);
    check(!small.has_failed);
    wire_put(&small, "89", 2);
    check(small.has_failed);
    wire_put(&small, "8", 1);
    check_int(small.size, 7);
    wire_buffer_free(&small);
    check(!small.has_failed && small.limit_bytes == 8);
}

TAP_TEST(fronts_and_backs_are_cut_off)
{
    struct wire_text text = WIRE_TEXT("/region/a/register");
    check(wire_text_cut_front(&text, "/region/"));
    check(wire_text_cut_back(&text, "/register"));
    check(wire_text_is(text, "a"));
    check(!wire_text_cut_front(&text, "ab"));
    check(!wire_text_cut_back(&text, "ba"));
    check(wire_text_is_header(WIRE_TEXT("GMSFS-Session"), "gmsfs-session"));
    check(!wire_text_is_header(WIRE_TEXT("gmsfs_session"), "gmsfs-session"));
}

static int decode(const char *text, const char *expected)
{
    uint8_t bytes[6];
    size_t size = 0;
    int error = wire_base64_decode(wire_text_of(text), bytes, sizeof bytes, &size);

    if (!error)
        check_bytes(bytes, size, expected, strlen(expected));
    return error;
}

TAP_TEST(base64_is_decoded_as_rfc_4648_has_it)
{
    check_int(decode("", ""), 0);
    check_int(decode("Zg==", "f"), 0);
    check_int(decode("Zm8=", "fo"), 0);
    check_int(decode("Zm9v", "foo"), 0);
    check_int(decode("Zm9vYg==", "foob"), 0);
    check_int(decode("Zm9vYmFy", "foobar"), 0);
    check_int(decode("+/+/", "\xfb\xff\xbf"), 0);
}

TAP_TEST(malformed_base64_is_refused)
{
    check_int(decode("Zg", ""), -EINVAL);
    check_int(decode("Zg=", ""), -EINVAL);
    check_int(decode("Z===", ""), -EINVAL);
    check_int(decode("====", ""), -EINVAL);
    check_int(decode("Zg==Zg==", ""), -EINVAL);
    check_int(decode("Zh==", ""), -EINVAL); /* bits that belong to no byte */
    check_int(decode("Zm9=", ""), -EINVAL);
    check_int(decode("Zm 9", ""), -EINVAL);
    check_int(decode("Zm9-", ""), -EINVAL);
    check_int(decode("Zm9vYmFyYQ==", ""), -EMSGSIZE);
}
