/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/output.h"

#include "base/file_io.h"
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int ignored[] = {SIGPIPE, SIGXFSZ};

#define IGNORED (sizeof(ignored) / sizeof(ignored[0]))

static struct sigaction before[IGNORED];
static int write_error; /* errno of the first write that failed */
static bool is_done;

/* Remembers the first error, which the C library forgets, and writes nothing after a gap. */
static ssize_t output_write(void *context, const char *bytes, size_t size_bytes)
{
    (void)context;
    if (!write_error)
        write_error = -file_write(STDOUT_FILENO, bytes, size_bytes);
    return write_error ? 0 : (ssize_t)size_bytes;
}

void output_begin(void)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    FILE *stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = output_write});

    for (size_t i = 0; i < IGNORED; i++)
        sigaction(ignored[i], &ignore, &before[i]);
    if (!stream)
        return;
    setvbuf(stream, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
    stdout = stream;
}

void output_restore_signals(void)
{
    for (size_t i = 0; i < IGNORED; i++)
        sigaction(ignored[i], &before[i], NULL);
}

void output_set_done(void)
{
    is_done = true;
}

int output_get_failure(void)
{
    return is_done ? CLI_UNREPORTED : CLI_FAILURE;
}

int output_end(int status)
{
    bool is_lost = fflush(stdout) == EOF || ferror(stdout);

    if (is_lost)
        cli_error("%scannot write the output: %s", is_done && status == CLI_OK ? "done, but " : "",
                  strerror(write_error ? write_error : EIO));
    if (status != CLI_OK)
        return status;
    if (is_done)
        return is_lost || ferror(stderr) ? CLI_UNREPORTED : CLI_OK;
    return is_lost ? CLI_FAILURE : CLI_OK;
}
