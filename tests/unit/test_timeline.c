/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timeline.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fills a pipe that does not block. */
static void fill(int fd)
{
    static const char zeros[4096];

    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
}

/* Returns how many bytes of the pipe are no zeros, after reading all of them. */
static size_t count_text(int fd)
{
    char bytes[4096];
    ssize_t got;
    size_t count = 0;

    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < got; i++)
            count += bytes[i] != '\0';
    return count;
}

TAP_TEST(a_file_without_a_head_gets_no_end)
{
    char path[] = "/tmp/test_timeline.XXXXXX", text[1024] = "";
    struct timeline_numbers numbers;
    int ends[2], file = mkstemp(path);

    require(file >= 0);
    require(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    fill(ends[1]);
    require(timeline_start(&(struct timeline_options){
                .process = "test", .fd = ends[1], .max_bytes = TIMELINE_MAX_BYTES}) == 0);
    timeline_add("test", "span", 1, timeline_begin(), NULL);
    while (timeline_get_numbers(&numbers) && numbers.dropped == 0)
        usleep(1000); /* until the head and the span did not fit */
    check_int(count_text(ends[0]), 0);
    timeline_reopen(dup(file));
    while (lseek(file, 0, SEEK_END) == 0)
        usleep(1000);
    check_int(timeline_stop(), -EAGAIN); /* the former file's */
    check_int(count_text(ends[0]), 0);
    check(pread(file, text, sizeof text - 1, 0) > 0);
    check_int(strncmp(text, "[\n{", 3), 0);
    check(strstr(text, "}]\n"));
    close(file);
    close(ends[0]);
    unlink(path);
}
