/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include "base/clean.h"
#include "base/clock.h"
#include "base/size.h"
#include "cli/ui.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_MAX_WIDTH 40u
#define BAR_MIN_WIDTH 10u
#define MS_PER_S      1000u
#define S_PER_MINUTE  60u
#define BYTES_PER_GB  1e9
#define MB_PER_GB     1e3
#define LEAST_GB_RATE 0.1

static double progress_rate(uint64_t bytes, uint64_t passed_ms)
{
    return (double)bytes / BYTES_PER_GB / ((double)(passed_ms ? passed_ms : 1) / MS_PER_S);
}

const char *progress_format_total(char text[PROGRESS_TOTAL_BYTES], uint64_t bytes,
                                  uint64_t start_ms, uint64_t copied_ms)
{
    char size[SIZE_TEXT_BYTES];

    snprintf(text, PROGRESS_TOTAL_BYTES, "%" PRIu64 " bytes (%s) in %.2f s, %.2f GB/s", bytes,
             size_format(bytes, size), (double)(clock_now_ms() - start_ms) / MS_PER_S,
             progress_rate(bytes, copied_ms));
    return text;
}

/* " 0:07 left"; nothing before there is a rate to tell from. */
static void progress_format_left(char *text, size_t room, uint64_t done, uint64_t whole,
                                 uint64_t passed_ms)
{
    uint64_t left_s;

    text[0] = '\0';
    if (done == 0 || done >= whole || passed_ms < MS_PER_S)
        return;
    left_s = (uint64_t)((double)(whole - done) / (double)done * (double)passed_ms / MS_PER_S);
    snprintf(text, room, "  %" PRIu64 ":%02" PRIu64 " left", left_s / S_PER_MINUTE,
             left_s % S_PER_MINUTE);
}

/* In MB/s where GB/s would be nearly 0: from a place that is far. */
static void progress_format_rate(char *text, size_t room, uint64_t done, uint64_t passed_ms)
{
    double rate = progress_rate(done, passed_ms);

    if (rate > 0 && rate < LEAST_GB_RATE)
        snprintf(text, room, "%.1f MB/s", rate * MB_PER_GB);
    else
        snprintf(text, room, "%.2f GB/s", rate);
}

void progress_format(char text[PROGRESS_TEXT_BYTES], const char *verb, uint64_t done_bytes,
                     uint64_t whole_bytes, uint64_t passed_ms, unsigned width)
{
    char done[SIZE_TEXT_BYTES], whole[SIZE_TEXT_BYTES], left[32], bar[BAR_MAX_WIDTH + 1] = "";
    char numbers[PROGRESS_TEXT_BYTES / 2], rate[32];

    size_format(done_bytes, done);
    size_format(whole_bytes, whole);
    progress_format_left(left, sizeof(left), done_bytes, whole_bytes, passed_ms);
    progress_format_rate(rate, sizeof(rate), done_bytes, passed_ms);
    snprintf(numbers, sizeof(numbers), "%3u%%  %s of %s  %s%s", ui_percent(done_bytes, whole_bytes),
             done, whole, rate, left);
    unsigned used = (unsigned)(strlen(verb) + strlen(numbers) + sizeof("    "));
    unsigned bar_width = width > used ? width - used : 0;
    if (bar_width > BAR_MAX_WIDTH)
        bar_width = BAR_MAX_WIDTH;
    if (bar_width >= BAR_MIN_WIDTH)
        ui_bar(bar, sizeof(bar), bar_width, done_bytes, whole_bytes);
    snprintf(text, PROGRESS_TEXT_BYTES, "%s%s%s  %s", verb, *bar ? "  " : "", bar, numbers);
    if (width > 0 && strlen(text) >= width)
        text[width - 1] = '\0';
}

void progress_begin(struct progress *progress, const char *verb, uint64_t whole_bytes, bool quiet)
{
    *progress = (struct progress){.verb = verb,
                                  .whole_bytes = whole_bytes,
                                  .start_ms = clock_now_ms(),
                                  .width = quiet ? 0 : ui_width(STDERR_FILENO),
                                  .quiet = quiet};
    progress->line_ms = progress->start_ms;
}

/* Whether there is something to show now. */
static bool progress_is_due(struct progress *progress, uint64_t now_ms)
{
    if (progress->quiet || (!progress->width && now_ms - progress->line_ms < PROGRESS_LINE_MS))
        return false;
    progress->line_ms = now_ms;
    return true;
}

/* Carriage return, and erasing the rest of a longer line. */
static void progress_draw(struct progress *progress, uint64_t done_bytes, uint64_t now_ms)
{
    char text[PROGRESS_TEXT_BYTES];

    progress_format(text, progress->verb, done_bytes, progress->whole_bytes,
                    now_ms - progress->start_ms, progress->width);
    clean_text(text);
    progress->drawn = progress->width > 0;
    fprintf(stderr, progress->width ? "\r%s\033[K" : "%s\n", text);
}

/* From the last of the lines back to the first. */
static void progress_go_up(const struct progress *lines, size_t count)
{
    if (lines->drawn && count > 1)
        fprintf(stderr, "\033[%zuA", count - 1);
}

void progress_show_lines(struct progress *lines, const uint64_t *done_bytes, size_t count)
{
    uint64_t now_ms = clock_now_ms();

    progress_go_up(lines, count);
    for (size_t i = 0; i < count; i++) {
        if (!progress_is_due(&lines[i], now_ms))
            continue;
        if (i > 0 && lines[i].width)
            fputs("\n", stderr);
        progress_draw(&lines[i], done_bytes[i], now_ms);
    }
    fflush(stderr);
}

uint64_t progress_end_lines(struct progress *lines, size_t count)
{
    progress_go_up(lines, count);
    if (lines->drawn)
        fputs("\r\033[J", stderr);
    lines->drawn = false;
    return clock_now_ms() - lines->start_ms;
}

void progress_show(struct progress *progress, uint64_t done_bytes)
{
    progress_show_lines(progress, &done_bytes, 1);
}

uint64_t progress_end(struct progress *progress)
{
    return progress_end_lines(progress, 1);
}
