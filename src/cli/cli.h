/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli - shared by the gmsfs commands: their table, exit statuses, options and errors
 *
 * For main.c and the cmd_*.c files. Each of those defines one `struct cli_command`. Its run() gets
 * argv from the command's own name on and returns an exit status; it prints its errors itself,
 * once. The process ends where malloc fails, and at errors of the command line.
 */
#ifndef GMSFS_CLI_CLI_H
#define GMSFS_CLI_CLI_H

#include "base/clock.h"

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of every command; `gmsfs run` has more, those of its COMMAND. */
enum cli_status {
    CLI_OK = 0,
    CLI_FAILURE = 1,    /* could not be done, or (verify) differs */
    CLI_USAGE = 2,      /* the command line makes no sense */
    CLI_TIMEOUT = 3,    /* the lock was not free, or the state was not reached, in time */
    CLI_UNREPORTED = 4, /* done for good, but not reported; only output.c returns it */
};

#define CLI_SIGNALED 128 /* plus the number of the signal that ended it, as in shells */

#define CLI_FOREVER UINT64_MAX

/*
 * An option. take() parses its value into offset `at` of the command's values, or ends the
 * process by cli_usage_error(). `name` is as on the command line: "--timeout".
 */
struct cli_option {
    const char *name;
    char letter;       /* the short one; 0: none */
    const char *value; /* its value's name in the help; NULL: no value; "[=...]": optional */
    void (*take)(const char *name, const char *text, void *at);
    size_t at;
    const char *help; /* lines; a row without a name is a heading, without a help the end */
};

/* The text of --help is usage, options with that of --help, and ending. */
struct cli_command {
    const char *name;
    const char *summary; /* one line for `gmsfs help` */
    const char *usage;
    const struct cli_option *options; /* NULL: --help alone */
    const char *ending;               /* NULL: none */
    void (*help)(void);               /* prints the rest; NULL: nothing */
    int least, most;                  /* operands; most 0: no bound */
    const char *needs;                /* error text for another number of operands */
    bool is_prefix;                   /* options end with the first operand */
    bool has_free_words;              /* operands behind the second may be empty */
    int (*run)(int argc, char **argv);
};

extern const struct cli_command cmd_clear_suspect;
extern const struct cli_command cmd_promote;
extern const struct cli_command cmd_demote;
extern const struct cli_command cmd_copy;
extern const struct cli_command cmd_drain;
extern const struct cli_command cmd_fence;
extern const struct cli_command cmd_governor;
extern const struct cli_command cmd_image;
extern const struct cli_command cmd_journal;
extern const struct cli_command cmd_load;
extern const struct cli_command cmd_log;
extern const struct cli_command cmd_ls;
extern const struct cli_command cmd_metadata;
extern const struct cli_command cmd_pull;
extern const struct cli_command cmd_run;
extern const struct cli_command cmd_save;
extern const struct cli_command cmd_status;
extern const struct cli_command cmd_sum;
extern const struct cli_command cmd_top;
extern const struct cli_command cmd_triton;
extern const struct cli_command cmd_umount;
extern const struct cli_command cmd_upgrade;
extern const struct cli_command cmd_verify;
extern const struct cli_command cmd_wait;
extern const struct cli_command cmd_web;

/* The command that runs: its name begins every error. Set by main() alone. */
void cli_set_command(const struct cli_command *command);
const struct cli_command *cli_get_command(void);

/* "gmsfs COMMAND: ..." and a newline on stderr; control characters are made harmless. Returns
 * CLI_FAILURE. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same with a hint at --help; ends the process with CLI_USAGE. For the command line, when
 * nothing has been done so far. */
void cli_usage_error(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Prints the text of --help, and ends the process. */
void cli_help(void) __attribute__((noreturn));

/*
 * Reads the options of the command that runs into its values, and counts its operands, which begin
 * at argv[optind]. Ends the process after an error, and after --help.
 */
void cli_parse(int argc, char **argv, void *values);

/* True if cli_parse() found the option, a row of the command's table. */
bool cli_was_given(const struct cli_option *option);

struct failure;

/* Prints the error of a function that does not print; returns CLI_FAILURE. */
int cli_failure(const struct failure *failure);

/* Undoes as a signal does, prints that malloc failed, and ends the process with CLI_FAILURE, after
 * output_set_done() with CLI_UNREPORTED. In the main thread alone. */
void cli_out_of_memory(void) __attribute__((noreturn));

/* Returns the memory that malloc or such a function gave; ends the process if there is none. */
void *cli_need(void *memory);

/* As sprintf, into new memory, free(3). Ends the process if there is none. */
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parse values of options, for cli_option.take. */
void cli_take_flag(const char *name, const char *text, void *at);    /* bool */
void cli_take_text(const char *name, const char *text, void *at);    /* const char * */
void cli_take_size(const char *name, const char *text, void *at);    /* uint64_t, bytes */
void cli_take_number(const char *name, const char *text, void *at);  /* uint64_t, to INT64_MAX */
void cli_take_threads(const char *name, const char *text, void *at); /* uint64_t */
void cli_take_direct(const char *name, const char *text, void *at);  /* enum direct_use */
/* uint64_t, milliseconds: of seconds, perhaps with a fraction; 0 means not to wait at all. */
void cli_take_timeout(const char *name, const char *text, void *at);
/* Parses a number from min to max. */
void cli_parse_count(const char *name, const char *text, uint64_t min, uint64_t max,
                     uint64_t *value);

/* Rows that several commands share: `member` of the values, which are a `type`. */
/* clang-format off */
#define CLI_QUIET(type, member) \
    {"--quiet", 'q', NULL, cli_take_flag, offsetof(type, member), "print errors only"}
#define CLI_LOCK_TIMEOUT(type, member) \
    {"--timeout", 0, "S", cli_take_timeout, offsetof(type, member), \
     "give up when the lock is not free within S seconds; 0: at once\n" \
     "(default: wait for it)"}
#define CLI_DIRECT_READ(type, member) \
    {"--direct", 0, "WHEN", cli_take_direct, offsetof(type, member), \
     "read the files past the page cache (O_DIRECT): always, never, or auto:\n" \
     "files that it neither has nor can hold (default: auto)"}
/* clang-format on */

/* Returns the rest of a timeout that began at start_ms by clock_now_ms(). */
uint64_t cli_left_ms(uint64_t start_ms, uint64_t timeout_ms);

#endif
