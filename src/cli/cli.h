/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli - what the gmsfs commands have in common: their table, exit statuses, options and errors
 *
 * For main.c and the cmd_*.c files. Each of those defines one `struct cli_command`, whose run()
 * gets argv from the command's own name on and returns an exit status; it prints its errors itself,
 * once. Nothing here exits.
 */
#ifndef GMSFS_CLI_CLI_H
#define GMSFS_CLI_CLI_H

#include "mover/direct.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit statuses of every command; `gmsfs run` has more, those of its COMMAND. */
enum cli_status {
    CLI_OK = 0,
    CLI_FAILURE = 1,    /* could not be done, or (verify) differs */
    CLI_USAGE = 2,      /* the command line makes no sense */
    CLI_TIMEOUT = 3,    /* the lock was not free, or the state did not come, in the time given */
    CLI_UNREPORTED = 4, /* done for good, but that could not be said; output_end() alone says so */
};

#define CLI_SIGNALED 128 /* and the number of the signal that ended it, as shells say it */

#define CLI_FOREVER UINT64_MAX

struct cli_command {
    const char *name;
    const char *summary; /* one line for `gmsfs help` */
    const char *usage;   /* the text of --help */
    int (*run)(int argc, char **argv);
};

extern const struct cli_command cmd_clear_suspect;
extern const struct cli_command cmd_promote;
extern const struct cli_command cmd_demote;
extern const struct cli_command cmd_drain;
extern const struct cli_command cmd_fence;
extern const struct cli_command cmd_governor;
extern const struct cli_command cmd_image;
extern const struct cli_command cmd_load;
extern const struct cli_command cmd_ls;
extern const struct cli_command cmd_metadata;
extern const struct cli_command cmd_run;
extern const struct cli_command cmd_save;
extern const struct cli_command cmd_status;
extern const struct cli_command cmd_sum;
extern const struct cli_command cmd_triton;
extern const struct cli_command cmd_umount;
extern const struct cli_command cmd_upgrade;
extern const struct cli_command cmd_verify;
extern const struct cli_command cmd_wait;

/* The command that runs: its name begins every error. Set by main() alone. */
void cli_set_command(const struct cli_command *command);

/* "gmsfs COMMAND: ..." and a newline on stderr; control characters are made harmless. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same with a hint at --help; returns CLI_USAGE. */
int cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --help was given: prints the usage; returns CLI_OK. */
int cli_help(void);

/*
 * getopt_long with our messages: an option's value, -1 at the end, or '?' after the error has been
 * printed. `options` begins with ":", or with "+:" where words after the first operand belong to
 * others.
 */
int cli_getopt(int argc, char **argv, const char *options, const struct option *long_options);

struct failure;

/* Prints what a part that prints nothing has said; returns CLI_FAILURE. */
int cli_failure(const struct failure *failure);

/* malloc has failed; returns CLI_FAILURE. */
int cli_out_of_memory(void);

/* Values of options. On failure the error is printed and CLI_USAGE returned, else CLI_OK. */
int cli_parse_count(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *value);
int cli_parse_size(const char *option, const char *text, uint64_t *bytes);
/* Seconds, perhaps with a fraction; 0 means not to wait at all. */
int cli_parse_timeout(const char *option, const char *text, uint64_t *timeout_ms);

/* Of --direct. */
int cli_parse_direct(const char *text, enum direct_use *use);

/* Milliseconds of a clock that is never set; and how much of a timeout is left. */
uint64_t cli_now_ms(void);
uint64_t cli_now_us(void);
uint64_t cli_left_ms(uint64_t start_ms, uint64_t timeout_ms);

#endif
