/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a call that hangs is reported once, and others are not. */
#include "vmm/patience.h"

#include "tap.h"

#include <stdio.h>
#include <unistd.h>

#define SOON_MS  20
#define LATER_MS 600000
#define CALLS    1000
#define TRIES    6000

static FILE *file;
static int saved;

static void log_begin(void)
{
    file = tmpfile();
    saved = dup(STDERR_FILENO);
    require(file != NULL && saved >= 0);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
}

static unsigned log_count(const char *word)
{
    static char text[1 << 16];
    ssize_t got = pread(fileno(file), text, sizeof(text) - 1, 0);
    unsigned count = 0;

    text[got > 0 ? got : 0] = '\0';
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

static void log_end(void)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    fclose(file);
}

static unsigned wait_for_line(const char *word)
{
    for (int tries = 0; tries < TRIES && log_count(word) == 0; tries++)
        usleep(10000);
    return log_count(word);
}

TAP_TEST(call_that_hangs_is_reported_once_by_name_and_again_when_it_returns)
{
    struct patience *patience;
    unsigned said, came, others;

    log_begin();
    require(patience_new("device cuda", SOON_MS, &patience) == 0);
    patience_begin(patience, "cuMemCreate");
    said = wait_for_line("cuMemCreate has not come back");
    usleep(5 * SOON_MS * 1000); /* time for another line, which must not come */
    others = log_count("cuMemCreate has not come back");
    patience_end(patience);
    came = log_count("cuMemCreate came back after");
    patience_free(patience);
    log_end();
    check_int(said, 1);
    check_int(others, 1);
    check_int(came, 1);
}

TAP_TEST(second_call_that_hangs_is_reported_too)
{
    struct patience *patience;
    unsigned said, came;

    log_begin();
    require(patience_new("device cuda", SOON_MS, &patience) == 0);
    patience_begin(patience, "cuMemCreate");
    wait_for_line("cuMemCreate has not come back");
    patience_begin(patience, "cuMemRelease");
    came = log_count("cuMemCreate came back after");
    said = wait_for_line("cuMemRelease has not come back");
    patience_end(patience);
    patience_free(patience);
    log_end();
    check_int(said, 1);
    check_int(came, 1);
}

TAP_TEST(calls_that_come_back_are_not_reported)
{
    struct patience *patience;
    unsigned said;

    log_begin();
    require(patience_new("device cuda", LATER_MS, &patience) == 0);
    for (int i = 0; i < CALLS; i++) {
        patience_begin(patience, "cuMemCreate");
        patience_end(patience);
    }
    patience_free(patience);
    said = log_count("cuMem");
    log_end();
    check_int(said, 0);
}

TAP_TEST(without_a_call_no_thread_looks)
{
    patience_begin(NULL, "cuMemCreate");
    patience_end(NULL);
    patience_free(NULL);
}
