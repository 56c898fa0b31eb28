/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reader of JSON without memory against jansson. */
#include "base/json_scan.h"

#include "tap.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool skips(const char *text, size_t bytes)
{
    struct json_scan scan = {text, text + bytes};

    return json_scan_skip(&scan) && json_scan_is_over(&scan);
}

static bool loads(const char *text, size_t bytes)
{
    json_t *json = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    bool good = json != NULL;

    json_decref(json);
    return good;
}

static void agree(const char *text, size_t bytes)
{
    check_int(skips(text, bytes), loads(text, bytes));
}

static const char *const texts[] = {
    "",
    " ",
    "{}",
    "[]",
    "{ }",
    " [ ] ",
    "[1]",
    "[1,]",
    "[,1]",
    "{,}",
    "[1 2]",
    "{\"a\":1}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{a:1}",
    "{1:1}",
    "[[[]]]",
    "[[]",
    "[]]",
    "{\"a\":{}}",
    "{\"a\":[{}]}",
    "{]",
    "[}",
    "true",
    "tru",
    "truex",
    "null",
    "false",
    "nul",
    "0",
    "00",
    "-0",
    "-",
    "1.5",
    "1.",
    ".5",
    "1e5",
    "1e",
    "1E+5",
    "1e-5",
    "01",
    "-01",
    "\"\"",
    "\"a\"",
    "\"a",
    "\"\\\"",
    "\"\\\"\"",
    "\"\n\"",
    "\"a\"b",
    "[1]x",
    "{}{}",
    "[\"]\"]",
    "[\"\\\\\"]",
    "+1",
    "[1,2,3.5]",
    "\t\r\n1",
    "[null,0]",
    "{\"a\":{\"b\":[1,{\"c\":null}]},\"d\":\"e\"}",
};

TAP_TEST(texts_are_taken_and_refused_as_by_jansson)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (size_t bytes = 0; bytes <= strlen(texts[i]); bytes++)
            agree(texts[i], bytes);
}

TAP_TEST(lists_in_each_other_have_a_bound)
{
    char text[2 * JSON_SCAN_MAX_DEPTH + 2];

    memset(text, '[', JSON_SCAN_MAX_DEPTH + 1);
    memset(text + JSON_SCAN_MAX_DEPTH + 1, ']', JSON_SCAN_MAX_DEPTH + 1);
    check(!skips(text, sizeof text));
    check(skips(text + 1, sizeof text - 2));
}

static const char *const strings[] = {
    "\"plain\"",          "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\u0041\"",        "\"\\u00e9\\u20AC\"",
    "\"\\ud83d\\ude00\"", "\"\\ud83d\"",
    "\"\\ude00\"",        "\"\\ud83d\\u0041\"",
    "\"\\ud83dx\"",       "\"\\u0000\"",
    "\"\\u12\"",          "\"\\u12g4\"",
    "\"\\x41\"",          "\"\xc3\xa9\"",
    "\"\xc3\"",           "\"\xed\xa0\x80\"",
    "\"a\\u0001b\"",      "\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
};

TAP_TEST(strings_mean_what_they_mean_to_jansson)
{
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        struct json_scan scan = {strings[i], strings[i] + strlen(strings[i])};
        json_t *json = json_loads(strings[i], JSON_DECODE_ANY, NULL);
        struct json_token token;
        char out[64];
        size_t bytes = 0;

        require(json_scan_string(&scan, &token));
        bool good = json_token_decode(&token, out, &bytes);
        check_int(good, json != NULL);
        if (good && json)
            check_bytes(out, bytes, json_string_value(json), json_string_length(json));
        json_decref(json);
    }
}

static bool take(const char *text, uint64_t *number)
{
    struct json_scan scan = {text, text + strlen(text)};

    return json_scan_number(&scan, number);
}

TAP_TEST(numbers_are_whole_and_fit)
{
    uint64_t number;

    check(take("0", &number) && number == 0);
    check(take(" 18446744073709551615", &number) && number == UINT64_MAX);
    check(take("7,", &number) && number == 7);
    check(!take("18446744073709551616", &number));
    check(!take("01", &number));
    check(!take("1.0", &number));
    check(!take("1e3", &number));
    check(!take("-1", &number));
    check(!take("", &number));
    check(!take("x", &number));
}
