/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the JSON reader and writer of the front end for Triton clients. */
#include "tap.h"
#include "triton/wire_json.h"

#include <errno.h>
#include <stdlib.h>

static char document[512];
static struct wire_json json;

static void begin(const char *text)
{
    size_t bytes = strlen(text);

    memcpy(document, text, bytes);
    wire_json_begin(&json, document, bytes);
}

static void want(enum wire_json_token token, const char *text)
{
    check_int(wire_json_next(&json), token);
    if (text)
        check_bytes(json.text.at, json.text.bytes, text, strlen(text));
}

/* Returns the error of a document, or "" if it has none. */
static const char *error_of(const char *text)
{
    enum wire_json_token token;

    begin(text);
    do
        token = wire_json_next(&json);
    while (token != WIRE_JSON_END && token != WIRE_JSON_ERROR);
    check_int(wire_json_next(&json), token); /* and it stays so */
    return token == WIRE_JSON_END ? "" : json.error;
}

TAP_TEST(a_registration_is_read_token_by_token)
{
    begin("{\"key\":\"/input0_data\", \"offset\" : 0,\n\t\"byte_size\":64}\r\n");
    want(WIRE_JSON_OBJECT, NULL);
    want(WIRE_JSON_KEY, "key");
    want(WIRE_JSON_TEXT, "/input0_data");
    want(WIRE_JSON_KEY, "offset");
    want(WIRE_JSON_NUMBER, "0");
    want(WIRE_JSON_KEY, "byte_size");
    want(WIRE_JSON_NUMBER, "64");
    want(WIRE_JSON_OBJECT_END, NULL);
    want(WIRE_JSON_END, NULL);
    want(WIRE_JSON_END, NULL);
}

TAP_TEST(integers_come_exactly_from_the_first_to_the_last_of_64_bits)
{
    uint64_t positive;
    int64_t number;
    begin("[18446744073709551615,18446744073709551616,-9223372036854775808,-9223372036854775809,"
          "9223372036854775808,-0,1.0,1e3]");
    want(WIRE_JSON_ARRAY, NULL);
    want(WIRE_JSON_NUMBER, NULL);
    check_int(wire_json_uint64(&json, &positive), 0);
    check(positive == UINT64_MAX);
    check_int(wire_json_int64(&json, &number), -ERANGE);
    want(WIRE_JSON_NUMBER, NULL);
    check_int(wire_json_uint64(&json, &positive), -ERANGE);
    want(WIRE_JSON_NUMBER, NULL);
    check_int(wire_json_int64(&json, &number), 0);
    check_int(number, INT64_MIN);
    check_int(wire_json_uint64(&json, &positive), -EINVAL);
    want(WIRE_JSON_NUMBER, NULL);
    check_int(wire_json_int64(&json, &number), -ERANGE);
    want(WIRE_JSON_NUMBER, NULL);
    check_int(wire_json_int64(&json, &number), -ERANGE);
    want(WIRE_JSON_NUMBER, "-0");
    check_int(wire_json_int64(&json, &number), 0);
    check_int(number, 0);
    want(WIRE_JSON_NUMBER, "1.0");
    check_int(wire_json_uint64(&json, &positive), -EINVAL);
    want(WIRE_JSON_NUMBER, "1e3");
    check_int(wire_json_int64(&json, &number), -EINVAL);
}

TAP_TEST(strings_are_unescaped)
{
    begin("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\uD83D\\uDE00 \xc3\xa9\"");
    want(WIRE_JSON_TEXT, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xc3\xa9");
    want(WIRE_JSON_END, NULL);
}

TAP_TEST(values_are_skipped_with_all_that_is_in_them)
{
    begin("{\"a\":{\"b\":[1,{\"c\":[]}]},\"d\":true}");
    want(WIRE_JSON_OBJECT, NULL);
    want(WIRE_JSON_KEY, "a");
    check(wire_json_skip(&json, wire_json_next(&json)));
    want(WIRE_JSON_KEY, "d");
    want(WIRE_JSON_TRUE, NULL);
    check(wire_json_skip(&json, WIRE_JSON_TRUE));
    want(WIRE_JSON_OBJECT_END, NULL);
    begin("[[1,2");
    want(WIRE_JSON_ARRAY, NULL);
    check(!wire_json_skip(&json, wire_json_next(&json)));
}

TAP_TEST(whole_documents_have_no_error)
{
    check_str(error_of("{}"), "");
    check_str(error_of("[]"), "");
    check_str(error_of("null"), "");
    check_str(error_of(" [true,false,null,-1.5e-3,0E+1,{\"\":[{}]}] "), "");
}

TAP_TEST(invalid_json_says_why)
{
    check_str(error_of(""), "it is empty");
    check_str(error_of("  "), "it is empty");
    check_str(error_of("{"), "it is cut off");
    check_str(error_of("{\"a\""), "a colon is expected");
    check_str(error_of("{\"a\":"), "it is cut off");
    check_str(error_of("{a:1}"), "a key is expected");
    check_str(error_of("{\"a\":1,}"), "a key is expected");
    check_str(error_of("[1,]"), "a value is expected");
    check_str(error_of("[1 2]"), "a comma is expected");
    check_str(error_of("[1}"), "a bracket closes nothing");
    check_str(error_of("1 1"), "more follows its end");
    check_str(error_of("01"), "more follows its end");
    check_str(error_of("-"), "a value is expected");
    check_str(error_of("1."), "a value is expected");
    check_str(error_of("1e"), "a value is expected");
    check_str(error_of("nul"), "a value is expected");
    check_str(error_of("\"a"), "a string does not end");
    check_str(error_of("\"\n\""), "a control character is in a string");
    check_str(error_of("\"\\x\""), "a string has an escape that is none");
    check_str(error_of("\"\\u12\""), "a string has an escape that is none");
    check_str(error_of("\"\\ud800\""), "a string has an escape that is none");
    check_str(error_of("\"\\udc00\""), "a string has an escape that is none");
    check_str(error_of("\"\\ud800\\u0041\""), "a string has an escape that is none");
    check_str(error_of("\"\xff\""), "a string is not UTF-8");
}

TAP_TEST(nesting_has_a_bound)
{
    char deep[2 * WIRE_JSON_MAX_DEPTH + 3];
    memset(deep, '[', WIRE_JSON_MAX_DEPTH);
    memset(deep + WIRE_JSON_MAX_DEPTH, ']', WIRE_JSON_MAX_DEPTH);
    deep[2 * WIRE_JSON_MAX_DEPTH] = '\0';
    check_str(error_of(deep), "");
    memset(deep, '[', WIRE_JSON_MAX_DEPTH + 1);
    check_str(error_of(deep), "it is nested too deeply");
}

TAP_TEST(texts_are_written_so_that_every_reader_takes_them)
{
    struct wire_buffer buffer = {.limit_bytes = 256};
    wire_json_put_text(&buffer, WIRE_TEXT("a\"\\\n\x7f\xc3\xa9\xff\xf0\x9f\x98\x80"));
    static const char expected[] =
        "\"a\\\"\\\\\\u000a\\u007f\xc3\xa9\xef\xbf\xbd\xf0\x9f\x98\x80\"";
    check_bytes(buffer.bytes, buffer.size, expected, sizeof expected - 1);
    wire_buffer_free(&buffer);
}
