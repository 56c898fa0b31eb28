/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event_line.h"

#include "meta/json_escape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 19u /* digits of the largest number */
#define HIDDEN_BYTES 64u /* a hidden name is padded to a multiple of this */

#define EVENT_NAME(type, name) [CORE_EVENT_##type] = (name),

static const char *const names[] = {CORE_EVENT_LIST(EVENT_NAME)};

/* A key as written in a line, and its length. */
#define FIRST_KEY(key) "{\"" key "\":", sizeof "{\"" key "\":" - 1
#define KEY(key)       ",\"" key "\":", sizeof ",\"" key "\":" - 1

struct line {
    char *out; /* NULL: only counts bytes */
    size_t bytes;
};

static void put_bytes(struct line *line, const char *bytes, size_t count)
{
    if (line->out)
        memcpy(line->out + line->bytes, bytes, count);
    line->bytes += count;
}

static void put_spaces(struct line *line, size_t count)
{
    if (line->out)
        memset(line->out + line->bytes, ' ', count);
    line->bytes += count;
}

static size_t count_digits(uint64_t value)
{
    size_t count = 1;

    for (uint64_t next = 10; count < NUMBER_BYTES && value >= next; next *= 10)
        count++;
    return count;
}

static void put_digits(struct line *line, uint64_t value)
{
    if (value > INT64_MAX)
        value = INT64_MAX;
    size_t count = count_digits(value);
    for (size_t at = count; line->out && at-- > 0; value /= 10)
        line->out[line->bytes + at] = (char)('0' + value % 10);
    line->bytes += count;
}

static void put_number(struct line *line, const char *key, size_t key_bytes, uint64_t value)
{
    put_bytes(line, key, key_bytes);
    put_digits(line, value);
}

static void put_bool(struct line *line, const char *key, size_t key_bytes, bool value)
{
    put_bytes(line, key, key_bytes);
    put_bytes(line, value ? "true" : "false", value ? 4 : 5);
}

static void put_text(struct line *line, const char *key, size_t key_bytes, const char *text,
                     size_t room)
{
    size_t bytes = strnlen(text, room);

    put_bytes(line, key, key_bytes);
    put_bytes(line, "\"", 1);
    line->bytes += json_escape(text, bytes, line->out ? line->out + line->bytes : NULL);
    put_bytes(line, "\"", 1);
}

/* Writes the name, or blanks for readers that may not see it: the line is equally long for all
 * readers, and the padding hides the length of the name. */
static void put_hidden(struct line *line, const char *key, size_t key_bytes, const char *text,
                       size_t room, bool may_see)
{
    struct line shown = {.out = may_see ? line->out : NULL, .bytes = line->bytes};
    size_t bytes, width;

    put_text(&shown, key, key_bytes, text, room);
    bytes = shown.bytes - line->bytes;
    width = (bytes + HIDDEN_BYTES - 1) / HIDDEN_BYTES * HIDDEN_BYTES;
    if (may_see)
        line->bytes = shown.bytes;
    put_spaces(line, may_see ? width - bytes : width);
}

/* Writes the members that only some types of events have. */
static void put_details(struct line *line, const struct core_event *event, uint32_t reader)
{
    if (event->comm[0])
        put_text(line, KEY("comm"), event->comm, sizeof event->comm);
    if (event->waiter)
        put_number(line, KEY("waiter"), event->waiter);
    if (event->type == CORE_EVENT_REVOKED && event->by_uid != CORE_BY_DAEMON) {
        put_number(line, KEY("by_pid"), event->by.pid);
        put_number(line, KEY("by_uid"), event->by_uid);
    }
    if (event->type == CORE_EVENT_BOUND) {
        put_text(line, KEY("bound"), event->bound, sizeof event->bound);
        put_bool(line, KEY("share"), event->is_share);
    }
    if (event->pool[0])
        put_text(line, KEY("pool"), event->pool, sizeof event->pool);
    if (event->for_store[0])
        put_text(line, KEY("for"), event->for_store, sizeof event->for_store);
    if (event->type == CORE_EVENT_UNFENCED) {
        const char *word = event->resolved_by == CORE_FENCE_COMPLETE ? "complete" : "abort";

        put_text(line, KEY("resolved_by"), word, 16);
    }
    if (event->deadline_ms)
        put_number(line, KEY("deadline_ms"), event->deadline_ms);
    if (event->type >= CORE_EVENT_PROMOTED && event->type <= CORE_EVENT_EVICTED) {
        put_text(line, KEY("tier"), core_place_name((enum core_place)event->tier), 16);
        put_number(line, KEY("ms"), event->took_ms);
    }
    if (event->type == CORE_EVENT_MOVE_FAILED || event->error != 0) {
        const char *word = strerrorname_np((int)event->error);

        put_text(line, KEY("error"), word ? word : "", 32);
    }
    if (event->type == CORE_EVENT_RESUMED || event->type == CORE_EVENT_RECOVERED)
        put_number(line, KEY("resumes"), event->resumes);
    if (event->type == CORE_EVENT_RECOVERED) {
        put_text(line, KEY("cause"), event->cause, sizeof event->cause);
        put_number(line, KEY("took_us"), event->took_us);
    } else if (event->region[0]) {
        put_hidden(line, KEY("region"), event->region, sizeof event->region,
                   reader == 0 || reader == event->uid);
    }
}

size_t event_line_write(const struct core_event *event, uint32_t reader, char *out)
{
    struct line line = {.out = out};

    put_number(&line, FIRST_KEY("seq"), event->seq);
    put_number(&line, KEY("time_ms"), event->wall_ms);
    put_text(&line, KEY("event"), names[event->type], 64);
    put_text(&line, KEY("store"), event->store, sizeof event->store);
    put_number(&line, KEY("session"), event->session);
    put_number(&line, KEY("pid"), event->process.pid);
    put_number(&line, KEY("uid"), event->uid);
    put_number(&line, KEY("allocations"), event->allocations);
    put_number(&line, KEY("bytes"), event->bytes);
    put_number(&line, KEY("generation"), event->generation);
    put_details(&line, event, reader);
    put_bytes(&line, "}\n", 2);
    return line.bytes;
}

int event_line_render(const struct core_event *event, uint32_t reader, char **line, size_t *size)
{
    *size = event_line_write(event, reader, NULL);
    *line = malloc(*size + 1);
    if (!*line)
        return -ENOMEM;
    event_line_write(event, reader, *line);
    (*line)[*size] = '\0';
    return 0;
}
