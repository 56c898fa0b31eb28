/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - shared by the programs that make calls of other processes fail
 *
 * The control that the others map, children with their output, and complaints. For tests/fault
 * alone; like tests/tools, these programs end at an error that stops them from going on.
 */
#ifndef GMSFS_TESTS_FAULT_DRIVER_H
#define GMSFS_TESTS_FAULT_DRIVER_H

#include "../tools/tool.h"
#include "fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LIMIT_MS 10000u

static struct fault_control *control;
static unsigned failures;
__attribute__((unused)) static unsigned faults, told;

/* ---- messages ------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static inline void complain(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    failures++;
}

static inline void print_site(const struct fault_site *site)
{
    printf("    at");
    for (size_t i = 0; i < FAULT_DEPTH && site->chain[i]; i++)
        printf(" 0x%llx", (unsigned long long)site->chain[i]);
    putchar('\n');
}

/* ---- the control ------------------------------------------------------------------------- */

static inline void make_control(const char *path)
{
    uint32_t magic = FAULT_MAGIC;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct fault_control)) != 0 ||
        pwrite(fd, &magic, sizeof magic, offsetof(struct fault_control, magic)) !=
            (ssize_t)sizeof magic)
        tool_die("%s: %s", path, strerror(errno));
    close(fd);
}

static inline void map_control(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        tool_die("%s: %s", path, strerror(errno));
    control = mmap(NULL, sizeof(struct fault_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        tool_die("%s: %s", path, strerror(errno));
    close(fd);
}

static inline void arm(const struct fault_site *site, uint32_t processes)
{
    control->fired = false;
    control->processes = processes;
    control->point = site->point;
    control->site = site->id;
    control->error = fault_point_errno((enum fault_point)site->point);
    control->after = 0;
    control->armed = true;
}

/* ---- children ---------------------------------------------------------------------------- */

struct ran {
    int status; /* from wait; -1 if it hung */
    char text[TOOL_TEXT_BYTES];
};

static inline pid_t start(char *const *words, int input, int output)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(input, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
        close_range(3, ~0u, 0);
        execv(words[0], words);
        _exit(127);
    }
    if (child < 0)
        tool_die("fork: %s", strerror(errno));
    return child;
}

static inline int open_null(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (fd < 0)
        tool_die("/dev/null: %s", strerror(errno));
    return fd;
}

static inline int open_scratch(void)
{
    int fd = memfd_create("faults", MFD_CLOEXEC);

    if (fd < 0)
        tool_die("memfd_create: %s", strerror(errno));
    return fd;
}

static inline void take_text(int fd, struct ran *ran)
{
    ssize_t got = pread(fd, ran->text, sizeof ran->text - 1, 0);

    ran->text[got > 0 ? got : 0] = '\0';
    for (ssize_t i = 0; i < got; i++)
        if (ran->text[i] == '\0')
            ran->text[i] = '?'; /* from `layout` */
    close(fd);
}

static inline bool wait_child(pid_t child, uint64_t limit_ms, int *status)
{
    uint64_t until_ms = tool_now_ms() + limit_ms * tool_slow();

    for (unsigned pause_us = 50;; pause_us = pause_us < 2000 ? pause_us * 2 : pause_us) {
        if (waitpid(child, status, WNOHANG) == child)
            return true;
        if (tool_now_ms() > until_ms)
            return false;
        tool_pause_us(pause_us);
    }
}

#endif
