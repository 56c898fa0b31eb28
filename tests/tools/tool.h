/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool - shared by the programs in tests/tools
 *
 * Short helpers for programs that drive a mount from outside and end at the first wrong result:
 * they print it and exit with 1. Used by tests/tools only; knows the tree of a mount, never the
 * daemon.
 */
#ifndef GMSFS_TESTS_TOOLS_TOOL_H
#define GMSFS_TESTS_TOOLS_TOOL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define TOOL_TEXT_BYTES 65536

__attribute__((format(printf, 1, 2), noreturn)) static inline void tool_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "[%d] ", (int)getpid());
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static inline uint64_t tool_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t tool_now_ms(void)
{
    return tool_now_ns() / 1000000u;
}

static inline void tool_pause_us(unsigned us)
{
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

/* Slower machines (sanitizers) multiply every limit by this. */
static inline uint64_t tool_slow(void)
{
    const char *text = getenv("GMSFS_TEST_SLOW");
    int slow = text ? atoi(text) : 1;

    return slow > 0 ? (uint64_t)slow : 1;
}

/* xorshift64*: the same seed gives the same numbers everywhere. */
static inline uint64_t tool_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

static inline uint64_t tool_below(uint64_t *state, uint64_t bound)
{
    return (tool_random(state) >> 11) % bound;
}

struct tool_path {
    char text[PATH_MAX];
};

__attribute__((format(printf, 1, 2))) static inline struct tool_path tool_path(const char *format,
                                                                               ...)
{
    struct tool_path path;
    va_list args;

    va_start(args, format);
    vsnprintf(path.text, sizeof(path.text), format, args);
    va_end(args);
    return path;
}

/* Reads the whole text of a small file, NUL-terminated. Returns its length, or a negative errno. */
static inline ssize_t tool_read_text(const char *path, char *text, size_t size)
{
    size_t got = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    while (got < size - 1 && (n = read(fd, text + got, size - 1 - got)) > 0)
        got += (size_t)n;
    if (n < 0)
        n = -errno;
    close(fd);
    text[got] = '\0';
    return n < 0 ? n : (ssize_t)got;
}

/* Counts a process's descriptors; with `target`, only descriptors with it in their link. */
static inline int tool_count_fds(pid_t pid, const char *target)
{
    struct tool_path dir = tool_path("/proc/%d/fd", (int)pid);
    DIR *stream = opendir(dir.text);
    struct dirent *entry;
    int count = 0;

    if (!stream)
        tool_die("%s: %s", dir.text, strerror(errno));
    while ((entry = readdir(stream)) != NULL) {
        char link[PATH_MAX];
        ssize_t n = readlinkat(dirfd(stream), entry->d_name, link, sizeof(link) - 1);

        if (n < 0)
            continue;
        link[n] = '\0';
        if (!target || strstr(link, target))
            count++;
    }
    closedir(stream);
    return target ? count : count - (pid == getpid() ? 1 : 0); /* without the stream itself */
}

/* Counts the lines of a store's `sessions` that have `word` (held or waiting). */
static inline int tool_count_sessions(const char *store, const char *word)
{
    static char text[TOOL_TEXT_BYTES];
    struct tool_path path = tool_path("%s/sessions", store);
    ssize_t n = tool_read_text(path.text, text, sizeof(text));
    char *rest = NULL;
    int count = 0;

    if (n < 0)
        tool_die("%s: %s", path.text, strerror((int)-n));
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strstr(line, word))
            count++;
    return count;
}

#endif
