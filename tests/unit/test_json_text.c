/* SPDX-License-Identifier: Apache-2.0 */
/* Tests texts of files as JSON: byte for byte as jansson writes them, an item a line. */
#include "fs/json_text.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text as jansson would write it after reading it. */
static void check_text(struct json_text *json)
{
    char *text = NULL, *again;
    size_t size = 0;
    json_t *read;

    require(json_text_end(json, &text, &size) == 0);
    require(size > 0 && text[size - 1] == '\n');
    read = json_loadb(text, size, 0, NULL);
    require(read != NULL);
    again = json_dumps(read, JSON_INDENT(2));
    require(again != NULL);
    check_int(strlen(again), size - 1);
    check(strncmp(again, text, size - 1) == 0);
    free(again);
    free(text);
    json_decref(read);
}

TAP_TEST(an_object_is_written_as_jansson_writes_it)
{
    struct json_text json;

    json_text_begin(&json);
    json_text_string(&json, "null", NULL);
    json_text_string(&json, "empty", "");
    json_text_string(&json, "text", "a \"quoted\" \\ path/\b\f\n\r\t\x01\x1f\x7f \xc3\xa4");
    json_text_number(&json, "zero", 0);
    json_text_number(&json, "most", INT64_MAX);
    json_text_bool(&json, "true", true);
    json_text_list(&json, "none");
    json_text_close(&json);
    json_text_list(&json, "some");
    json_text_number(&json, NULL, 1);
    json_text_string(&json, NULL, "two");
    json_text_close(&json);
    json_text_object(&json, "object");
    json_text_bool(&json, "false", false);
    json_text_object(&json, "nothing");
    json_text_close(&json);
    json_text_close(&json);
    json_text_number(&json, "last", 10);
    check_text(&json);
}

TAP_TEST(an_empty_object_is_a_text)
{
    struct json_text json;

    json_text_begin(&json);
    check_text(&json);
}

TAP_TEST(a_text_may_be_longer_than_the_first_reservation)
{
    struct json_text json;
    char longest[5000];

    memset(longest, '\x01', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    json_text_begin(&json);
    json_text_string(&json, "short", "a");
    json_text_string(&json, "long", longest);
    json_text_list(&json, "many");
    for (unsigned i = 0; i < 5000; i++)
        json_text_number(&json, NULL, i);
    json_text_close(&json);
    check_text(&json);
}

TAP_TEST(a_number_beyond_what_json_readers_hold_is_the_largest_and_no_utf_8_is_shown)
{
    struct json_text json;
    auto_free char *text = NULL;
    size_t size = 0;

    json_text_begin(&json);
    json_text_number(&json, "most", UINT64_MAX);
    json_text_string(&json, "name", "\xff\xc3\xa4z");
    require(json_text_end(&json, &text, &size) == 0);
    json_t *read = json_loadb(text, size, 0, NULL);
    require(read != NULL);
    check(json_integer_value(json_object_get(read, "most")) == INT64_MAX);
    check_str(json_string_value(json_object_get(read, "name")), "???z");
    json_decref(read);
}
