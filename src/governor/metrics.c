/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/metrics.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 64u
#define MOST        9007199254740992.0 /* 2^53: more is not a count of requests */
#define MS_PER_S    1000.0

/* A line: its metric, its labels ("" without), and its value. */
struct line {
    const char *name, *labels;
    size_t name_bytes, labels_bytes;
    const char *rest, *end; /* after the labels */
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Returns the position after the closing quote; `end`: there is none. */
static const char *skip_quoted(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return end;
}

static void skip_blanks(const char **at, const char *end)
{
    while (*at < end && is_blank(**at))
        (*at)++;
}

static bool take_byte(const char **at, const char *end, char byte)
{
    skip_blanks(at, end);
    if (*at == end || **at != byte)
        return false;
    (*at)++;
    return true;
}

/* value: between its quotes, still escaped */
struct label {
    const char *name, *value;
    size_t name_bytes, value_bytes;
};

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* NAME = "VALUE"; newer engines may quote the name, too. False: no label. */
static bool take_label(const char **at, const char *end, struct label *label)
{
    skip_blanks(at, end);
    label->name = *at;
    if (*at < end && **at == '"')
        *at = skip_quoted(*at, end);
    while (*at < end && is_name_byte(**at))
        (*at)++;
    label->name_bytes = (size_t)(*at - label->name);
    if (label->name_bytes == 0 || !take_byte(at, end, '=') || !take_byte(at, end, '"'))
        return false;
    label->value = *at;
    *at = skip_quoted(*at - 1, end);
    label->value_bytes = (size_t)(*at - label->value) - 1;
    return *at < end;
}

/* Finds the labels. False: invalid text between the braces, or no closing brace. */
static bool split_labels(struct line *line)
{
    const char *at = line->rest;
    struct label label;

    if (!take_byte(&at, line->end, '{'))
        return true;
    line->labels = at;
    for (bool goes_on = true; !take_byte(&at, line->end, '}');) {
        if (!goes_on || !take_label(&at, line->end, &label))
            return false;
        goes_on = take_byte(&at, line->end, ',');
    }
    line->labels_bytes = (size_t)(at - 1 - line->labels);
    line->rest = at;
    return true;
}

/* Takes the next line with text, and splits off its name; moves *at behind it. */
static bool next_line(const char **at, const char *end, struct line *line)
{
    while (*at < end) {
        const char *begin = *at, *over = memchr(begin, '\n', (size_t)(end - begin));

        over = over ? over : end;
        *at = over < end ? over + 1 : end;
        while (begin < over && is_blank(*begin))
            begin++;
        if (begin == over || *begin == '#')
            continue;
        *line = (struct line){.name = begin, .labels = begin, .end = over};
        while (begin < over && !is_blank(*begin) && *begin != '{')
            begin++;
        line->name_bytes = (size_t)(begin - line->name);
        line->rest = begin;
        return true;
    }
    return false;
}

static bool is_named(const struct line *line, const char *name)
{
    return line->name_bytes == strlen(name) && memcmp(line->name, name, line->name_bytes) == 0;
}

/* Takes the next number. False: there is none. */
static bool take_number(struct line *line, double *number)
{
    char text[VALUE_BYTES], *over;
    size_t bytes = 0;

    skip_blanks(&line->rest, line->end);
    while (line->rest + bytes < line->end && !is_blank(line->rest[bytes]))
        bytes++;
    if (bytes == 0 || bytes >= sizeof(text))
        return false;
    memcpy(text, line->rest, bytes);
    text[bytes] = '\0';
    line->rest += bytes;
    *number = strtod(text, &over);
    return over == text + bytes;
}

/* Reads the value; a time may follow, and in OpenMetrics an example after a '#'. False: not a
 * number, negative, or too large. */
static bool read_value(struct line *line, double *value)
{
    double time;

    if (!take_number(line, value) || !(*value >= 0 && *value <= MOST))
        return false;
    skip_blanks(&line->rest, line->end);
    if (line->rest < line->end && *line->rest != '#' && !take_number(line, &time))
        return false;
    skip_blanks(&line->rest, line->end);
    return line->rest == line->end || *line->rest == '#';
}

enum number {
    WAITING,
    RUNNING,
    TTFT_SUM,
    TTFT_COUNT
};

static bool find_number(const struct line *line, enum number *number)
{
    static const struct {
        const char *name;
        enum number number;
    } names[] = {
        {"vllm:num_requests_waiting", WAITING},
        {"vllm:num_requests_running", RUNNING},
        {"vllm:time_to_first_token_seconds_sum", TTFT_SUM},
        {"vllm:time_to_first_token_seconds_count", TTFT_COUNT},
        {"sglang:num_queue_reqs", WAITING},
        {"sglang:num_running_reqs", RUNNING},
        {"sglang:time_to_first_token_seconds_sum", TTFT_SUM},
        {"sglang:time_to_first_token_seconds_count", TTFT_COUNT},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!is_named(line, names[i].name))
            continue;
        *number = names[i].number;
        return true;
    }
    return false;
}

static void add(struct governor_metrics *metrics, enum number number, double value)
{
    switch (number) {
    case WAITING:
        metrics->has_waiting = true;
        metrics->waiting += (uint64_t)value;
        break;
    case RUNNING:
        metrics->has_running = true;
        metrics->running += (uint64_t)value;
        break;
    case TTFT_SUM:
        metrics->ttft_sum_s += value;
        break;
    case TTFT_COUNT:
        metrics->has_ttft = true;
        metrics->ttft_count += value;
        break;
    }
}

void governor_metrics_parse(const char *text, size_t bytes, struct governor_metrics *metrics)
{
    const char *at = text, *end = text + bytes;
    enum number number;
    struct line line;
    double value;

    *metrics = (struct governor_metrics){0};
    while (next_line(&at, end, &line)) {
        if (!find_number(&line, &number))
            continue;
        if (split_labels(&line) && read_value(&line, &value))
            add(metrics, number, value);
        else
            metrics->malformed++;
    }
}

uint64_t governor_metrics_ttft_ms(const struct governor_metrics *before,
                                  const struct governor_metrics *now)
{
    double count = now->ttft_count - before->ttft_count;
    double sum_s = now->ttft_sum_s - before->ttft_sum_s, ms;

    if (!before->has_ttft || !now->has_ttft || count < 1 || sum_s < 0)
        return 0;
    ms = sum_s * MS_PER_S / count;
    return ms < 1 ? 1 : (uint64_t)ms;
}

/* ---- the mount's metrics --------------------------------------------------------------------- */

/* Finds the label `store` in a line after split_labels. False: it has none. */
static bool find_store(const struct line *line, struct label *label)
{
    static const char name[] = "store";
    const char *at = line->labels, *end = at + line->labels_bytes + 1; /* with the brace */

    while (line->labels_bytes > 0 && take_label(&at, end, label)) {
        if (label->name_bytes == sizeof(name) - 1 &&
            memcmp(label->name, name, sizeof(name) - 1) == 0)
            return true;
        take_byte(&at, end, ',');
    }
    return false;
}

/* Reads its value, and unescapes \\, \" and \n. */
static bool read_store(const struct line *line, char store[GOVERNOR_LABEL_BYTES])
{
    struct label label;
    size_t used = 0;

    if (!find_store(line, &label))
        return false;
    for (const char *at = label.value, *end = at + label.value_bytes; at < end; at++) {
        bool is_escaped = *at == '\\' && at + 1 < end;

        at += is_escaped;
        if (used + 1 >= GOVERNOR_LABEL_BYTES || *at == '\0')
            return false;
        store[used++] = (char)(is_escaped && *at == 'n' ? '\n' : *at);
    }
    store[used] = '\0';
    return used > 0;
}

bool governor_metrics_next_grants(const char **at, const char *end,
                                  char store[GOVERNOR_LABEL_BYTES], uint64_t *grants)
{
    struct line line;
    double value;

    while (next_line(at, end, &line)) {
        if (!is_named(&line, "gmsfs_store_grants_total") || !split_labels(&line) ||
            !read_store(&line, store) || !read_value(&line, &value))
            continue;
        *grants = (uint64_t)value;
        return true;
    }
    return false;
}
