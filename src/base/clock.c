/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>

#define US_PER_S  1000000u
#define US_PER_MS 1000u
#define MS_PER_S  1000u
#define NS_PER_US 1000
#define NS_PER_MS 1000000L
#define NS_PER_S  1000000000L

static uint64_t clock_read_us(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * US_PER_S + (uint64_t)now.tv_nsec / NS_PER_US;
}

uint64_t clock_now_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

uint64_t clock_now_ms(void)
{
    return clock_now_us() / US_PER_MS;
}

uint64_t clock_wall_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

uint64_t clock_wall_ms(void)
{
    return clock_wall_us() / US_PER_MS;
}

struct timespec clock_after_ms(clockid_t clock, unsigned ms)
{
    struct timespec at;

    clock_gettime(clock, &at);
    at.tv_nsec += ms % MS_PER_S * NS_PER_MS;
    at.tv_sec += (time_t)(ms / MS_PER_S) + at.tv_nsec / NS_PER_S;
    at.tv_nsec %= NS_PER_S;
    return at;
}

void clock_pause_ms(unsigned ms)
{
    const struct timespec pause = {.tv_sec = (time_t)(ms / MS_PER_S),
                                   .tv_nsec = (long)(ms % MS_PER_S * NS_PER_MS)};

    nanosleep(&pause, NULL);
}

const char *clock_format_utc(uint64_t since_1970_s, char text[CLOCK_TEXT_BYTES])
{
    time_t seconds = (time_t)since_1970_s;
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) ||
        !strftime(text, CLOCK_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts))
        snprintf(text, CLOCK_TEXT_BYTES, "-");
    return text;
}
