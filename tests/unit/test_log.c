/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: off it writes nothing, on it is bounded in lines and bytes, and never waits. */
#include "base/log.h"
#include "tap.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int saved_stderr;

/* Standard error becomes this descriptor, until end_capture(). */
static void begin_capture(int fd)
{
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
}

static void end_capture(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    log_set_level(LOG_LEVEL_INFO);
}

static char *read_lines(FILE *file, size_t *count)
{
    static char text[1u << 23];
    rewind(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    *count = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        ++*count;
    return text;
}

static void name_it(uint64_t request, char text[LOG_REQUEST_BYTES])
{
    snprintf(text, LOG_REQUEST_BYTES, "n%u", (unsigned)request);
}

TAP_TEST(a_level_is_set_read_and_named)
{
    enum log_level level;
    check_int(log_get_level(), LOG_LEVEL_INFO);
    check_int(log_parse_level("debug", &level), 0);
    check_int(level, LOG_LEVEL_DEBUG);
    check_str(log_level_name(level), "debug");
    check(!log_is_debug());
    check(log_begin_trace() == 0);
    log_set_level(level);
    check(log_is_debug());
    check(log_begin_trace() > 0);
    log_set_level(LOG_LEVEL_INFO);
}

TAP_TEST(the_trace_is_written_at_debug_alone_and_names_its_request)
{
    FILE *file = tmpfile();
    size_t lines;
    log_name_requests(name_it);
    begin_capture(fileno(file));
    log_trace(7, "unseen");
    log_set_level(LOG_LEVEL_DEBUG);
    log_trace(7, "seen %s", "well");
    log_trace(0, "of none");
    end_capture();
    const char *text = read_lines(file, &lines);
    check_int((int)lines, 2);
    check(strstr(text, "[n7] seen well\n"));
    check(strstr(text, "[-] of none\n"));
    fclose(file);
}

TAP_TEST(a_line_is_cut_and_made_harmless)
{
    char name[4096];
    FILE *file = tmpfile();
    size_t lines;
    memset(name, 'x', sizeof name);
    memcpy(name, "\x1b[31m\n", 6);
    name[sizeof name - 1] = '\0';
    begin_capture(fileno(file));
    log_set_level(LOG_LEVEL_DEBUG);
    log_trace(7, "name='%s'", name);
    end_capture();
    const char *text = read_lines(file, &lines);
    check_int((int)lines, 1);
    check(strlen(text) <= 1024);
    check(strstr(text, "name='?[31m?xxx"));
    fclose(file);
}

TAP_TEST(a_flood_is_bounded_and_what_was_left_out_is_counted)
{
    FILE *file = tmpfile();
    size_t lines;
    begin_capture(fileno(file));
    log_set_level(LOG_LEVEL_DEBUG);
    uint64_t began_us = log_read_clock_us();
    for (unsigned i = 0; i < 20 * LOG_TRACE_LINES_PER_SECOND; i++)
        log_trace(1, "flood");
    uint64_t seconds = (log_read_clock_us() - began_us) / 1000000 + 2;
    usleep(1100000);
    log_trace(1, "later");
    end_capture();
    const char *text = read_lines(file, &lines);
    check(lines <= seconds * (LOG_TRACE_LINES_PER_SECOND + 1) + 1);
    if (seconds < 20)
        check(strstr(text, "lines of the trace were left out\n"));
    check(strstr(text, "[n1] later\n"));
    fclose(file);
}

TAP_TEST(a_pipe_that_nobody_reads_holds_nobody_up)
{
    int ends[2];
    check_int(pipe(ends), 0);
    begin_capture(ends[1]);
    usleep(1100000); /* a second of its own, with lines to spare */
    log_set_level(LOG_LEVEL_DEBUG);
    for (unsigned i = 0; i < LOG_TRACE_LINES_PER_SECOND; i++)
        log_trace(1, "%0200d", 0);
    int unread = 0, room = fcntl(ends[1], F_GETPIPE_SZ);
    check_int(ioctl(ends[0], FIONREAD, &unread), 0);
    log_warning("a message has room all the same");
    end_capture();
    check(unread > room / 2 && unread < room / 2 + 1024);
    close(ends[0]);
    close(ends[1]);
}

TAP_TEST(the_count_of_lines_left_out_waits_for_no_reader)
{
    int ends[2];
    size_t lines;
    char bytes[4096] = "";
    FILE *file = tmpfile();
    check_int(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], bytes, sizeof bytes) > 0)
        ;
    check_int(fcntl(ends[1], F_SETFL, 0), 0);
    begin_capture(ends[1]);
    log_set_level(LOG_LEVEL_DEBUG);
    alarm(10); /* ends the test with a signal if a line waits */
    log_trace(1, "left out");
    usleep(1100000);
    log_trace(1, "left out too");
    end_capture();
    begin_capture(fileno(file));
    log_set_level(LOG_LEVEL_DEBUG);
    usleep(1100000);
    log_trace(1, "later");
    end_capture();
    alarm(0);
    check(strstr(read_lines(file, &lines), "lines of the trace were left out\n"));
    fclose(file);
    close(ends[0]);
    close(ends[1]);
}

TAP_TEST(a_terminal_that_takes_a_part_of_a_line_holds_nobody_up)
{
    auto_fd master = posix_openpt(O_RDWR | O_NOCTTY);
    check(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    auto_fd terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    check(terminal >= 0);
    begin_capture(terminal);
    log_set_level(LOG_LEVEL_DEBUG);
    alarm(30);
    usleep(1100000);
    for (unsigned i = 0; i < LOG_TRACE_LINES_PER_SECOND; i++)
        log_trace(1, "%0200d", 0);
    end_capture();
    alarm(0);
    struct pollfd in = {.fd = master, .events = POLLIN};
    check(poll(&in, 1, 1000) > 0);
}

TAP_TEST(requests_leave_lines_to_the_steps)
{
    FILE *file = tmpfile();
    size_t lines;
    begin_capture(fileno(file));
    usleep(1100000);
    log_set_level(LOG_LEVEL_DEBUG);
    uint64_t began_us = log_read_clock_us();
    for (unsigned i = 0; i < LOG_TRACE_LINES_PER_SECOND + 10; i++)
        log_trace_request(1, "flood");
    log_trace(2, "a step");
    uint64_t seconds = (log_read_clock_us() - began_us) / 1000000 + 2;
    end_capture();
    const char *text = read_lines(file, &lines);
    check(lines <= seconds * (LOG_TRACE_REQUESTS_PER_SECOND + 1) + 1);
    check(strstr(text, "[n2] a step\n"));
    fclose(file);
}
