/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lines of events: each is JSON, with any content, and has the same length for every
 * reader. */
#include "core/event_line.h"
#include "tap.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define OWNER 1000u

static void fill(struct core_event *event, enum core_event_type type, const char *name)
{
    *event = (struct core_event){.seq = 7,
                                 .type = type,
                                 .wall_ms = 1753358400123,
                                 .session = UINT64_MAX,
                                 .waiter = 3,
                                 .uid = OWNER,
                                 .error = 5};
    strcpy(event->store, name);
    strcpy(event->for_store, name);
    strcpy(event->pool, "chat");
    strcpy(event->region, name);
    strcpy(event->comm, "a\"\\\n\x01\xff");
}

/* Returns the line that `reader` sees, to be freed; its size was counted before. */
static json_t *read_line(const struct core_event *event, uint32_t reader, size_t *size)
{
    char *line;
    json_t *read;

    require(event_line_render(event, reader, &line, size) == 0);
    check_int(*size, event_line_write(event, reader, NULL));
    check_int(line[*size - 1], '\n');
    check(memchr(line, '\n', *size) == line + *size - 1);
    read = json_loadb(line, *size, 0, NULL);
    require(read != NULL);
    free(line);
    return read;
}

static const char *get(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

static void check_line(enum core_event_type type, const char *name)
{
    struct core_event event;
    size_t size, same;
    json_t *line, *hidden;

    fill(&event, type, name);
    line = read_line(&event, OWNER, &size);
    check_str(get(line, "store"), name);
    check_str(get(line, "comm"), "a\"\\\n\x01?");
    if (type != CORE_EVENT_RECOVERED)
        check_str(get(line, "region"), name);
    hidden = read_line(&event, OWNER + 1, &same);
    check_int(size, same);
    check(get(hidden, "region") == NULL);
    json_decref(hidden);
    json_decref(read_line(&event, 0, &same));
    check_int(size, same);
    json_decref(line);
}

TAP_TEST(a_line_is_json_and_as_long_for_every_reader)
{
    char longest[256] = "";

    memset(longest, '"', sizeof longest - 1);
    for (unsigned type = 0; type < CORE_EVENT_TYPE_COUNT; type++) {
        check_line((enum core_event_type)type, "weights");
        check_line((enum core_event_type)type, "\xc3\xa4 \\ \" \t");
        check_line((enum core_event_type)type, longest);
    }
}

TAP_TEST(numbers_of_every_length_are_told)
{
    struct core_event event;
    uint64_t power = 1;
    size_t size;

    fill(&event, CORE_EVENT_COMMITTED, "weights");
    for (unsigned digits = 1; digits <= 19; digits++, power *= 10) {
        event.bytes = power;
        event.allocations = power - 1;
        json_t *line = read_line(&event, OWNER, &size);
        check_int(json_integer_value(json_object_get(line, "bytes")), power);
        check_int(json_integer_value(json_object_get(line, "allocations")), power - 1);
        json_decref(line);
    }
}

TAP_TEST(a_hidden_name_tells_little_of_its_length)
{
    struct core_event event;
    size_t sizes[2];

    fill(&event, CORE_EVENT_REGION_ENDED, "");
    for (size_t i = 0; i < 2; i++) {
        strcpy(event.region, i ? "a name that is longer" : "a");
        json_decref(read_line(&event, OWNER + 1, &sizes[i]));
    }
    check_int(sizes[0], sizes[1]);
}
