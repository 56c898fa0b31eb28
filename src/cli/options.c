/* SPDX-License-Identifier: Apache-2.0 */
/* The options of commands, and the text of --help. */
#include "cli/cli.h"

#include "base/size.h"
#include "cli/output.h"
#include "mover/work.h"
#include "source/direct.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_BYTES 64
#define MAX_OPTIONS  24
#define MS_PER_S     1000

/* ---- help ---------------------------------------------------------------------------------- */

/* Writes the option as on the command line, and the spaces before the help. Returns the bytes. */
static int cli_put_option(const struct cli_option *option, char word[OPTION_BYTES])
{
    const char *value = option->value ? option->value : "";
    char letter[] = "  -?, ";

    letter[3] = option->letter;
    return snprintf(word, OPTION_BYTES, "%s%s%s%s  ", option->letter ? letter : "      ",
                    option->name, *value && *value != '[' ? " " : "", value);
}

static void cli_print_option(const struct cli_option *option, int column)
{
    const char *line = option->help, *end;
    char word[OPTION_BYTES] = "";

    if (option->name)
        cli_put_option(option, word);
    printf("%-*s", option->name ? column : 0, word);
    for (; (end = strchr(line, '\n')); line = end + 1)
        printf("%.*s\n%*s", (int)(end - line), line, column, "");
    puts(line);
}

void cli_help(void)
{
    static const struct cli_option help = {.name = "--help", .help = "this text"};
    char word[OPTION_BYTES];
    const struct cli_command *current = cli_get_command();
    int column = cli_put_option(&help, word);

    for (const struct cli_option *option = current->options; option && option->help; option++)
        if (option->name && cli_put_option(option, word) > column)
            column = cli_put_option(option, word);
    printf("%s\n", current->usage);
    for (const struct cli_option *option = current->options; option && option->help; option++)
        cli_print_option(option, column);
    cli_print_option(&help, column);
    if (current->ending)
        printf("\n%s", current->ending);
    if (current->help)
        current->help();
    exit(output_end(CLI_OK));
}

/* ---- options ------------------------------------------------------------------------------- */

/* getopt_long() returns this plus the number of a row of the table. */
#define OPTION_FIRST 256
#define OPTION_HELP  'h'

static bool was_given[MAX_OPTIONS];

/* The command's table in the form of getopt_long(). */
struct cli_getopt {
    char letters[2 * MAX_OPTIONS];
    struct option words[MAX_OPTIONS + 2]; /* and --help, and the end */
};

static void cli_getopt_fill(struct cli_getopt *to)
{
    const struct cli_command *current = cli_get_command();
    const struct cli_option *options = current->options;
    char *letter = to->letters + sprintf(to->letters, current->is_prefix ? "+:h" : ":h");
    struct option *word = to->words;

    for (int i = 0; options && options[i].help; i++) {
        const char *value = options[i].value;
        if (!options[i].name)
            continue;
        *word++ = (struct option){options[i].name + strlen("--"),
                                  !value          ? no_argument
                                  : *value == '[' ? optional_argument
                                                  : required_argument,
                                  NULL, OPTION_FIRST + i};
        if (options[i].letter)
            letter += sprintf(letter, "%c%s", options[i].letter, value ? ":" : "");
    }
    *word = (struct option){"help", no_argument, NULL, OPTION_HELP};
}

/* Explains an error of getopt_long(). */
static _Noreturn void cli_refuse_option(int option, const char *word)
{
    if (option == ':')
        cli_usage_error("option '%s' needs a value", word);
    if (optopt && strncmp(word, "--", 2) != 0)
        cli_usage_error("unknown option '-%c'", optopt);
    if (optopt)
        cli_usage_error("option '%s' takes no value", word);
    cli_usage_error("unknown or ambiguous option '%s'", word);
}

/* Returns the number of the row that getopt_long() found. */
static int cli_find_option(int option)
{
    const struct cli_option *options = cli_get_command()->options;
    int i = 0;

    if (option >= OPTION_FIRST)
        return option - OPTION_FIRST;
    while (options[i].letter != option)
        i++;
    return i;
}

bool cli_was_given(const struct cli_option *option)
{
    return was_given[option - cli_get_command()->options];
}

/* Ends the process for an empty operand, which no message could show. */
static void cli_check_operands(int argc, char **argv)
{
    const struct cli_command *current = cli_get_command();

    for (int i = optind; i < argc && !(current->has_free_words && i > optind + 1); i++)
        if (*argv[i] == '\0')
            cli_usage_error("'': operand %d is empty", i - optind + 1);
}

void cli_parse(int argc, char **argv, void *values)
{
    const struct cli_command *current = cli_get_command();
    struct cli_getopt known = {0};
    int option, operands;

    cli_getopt_fill(&known);
    opterr = 0;
    while ((option = getopt_long(argc, argv, known.letters, known.words, NULL)) != -1) {
        if (option == OPTION_HELP)
            cli_help();
        if (option == ':' || option == '?')
            cli_refuse_option(option, argv[optind - 1]);
        const struct cli_option *row = &current->options[cli_find_option(option)];
        was_given[row - current->options] = true;
        row->take(row->name, optarg, (char *)values + row->at);
    }
    operands = argc - optind;
    if (operands < current->least || (current->most && operands > current->most))
        cli_usage_error("%s", current->needs);
    cli_check_operands(argc, argv);
}

void cli_take_flag(const char *name, const char *text, void *at)
{
    (void)name, (void)text;
    *(bool *)at = true;
}

void cli_take_text(const char *name, const char *text, void *at)
{
    if (*text == '\0')
        cli_usage_error("option '%s' needs a value that is not empty", name);
    *(const char **)at = text;
}

void cli_parse_count(const char *name, const char *text, uint64_t min, uint64_t max,
                     uint64_t *value)
{
    char *end;

    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || number < min || number > max)
        cli_usage_error("%s '%s': a number from %" PRIu64 " to %" PRIu64 " is needed", name, text,
                        min, max);
    *value = number;
}

void cli_take_number(const char *name, const char *text, void *at)
{
    cli_parse_count(name, text, 0, INT64_MAX, at);
}

void cli_take_threads(const char *name, const char *text, void *at)
{
    cli_parse_count(name, text, 1, WORK_MAX_THREADS, at);
}

void cli_take_size(const char *name, const char *text, void *at)
{
    uint64_t *bytes = at;

    if (size_parse(text, bytes) != 0 || *bytes == 0)
        cli_usage_error("%s '%s': a size above 0 is needed, as 512M or 2G (powers of 1024)", name,
                        text);
}

void cli_take_timeout(const char *name, const char *text, void *at)
{
    uint64_t *timeout_ms = at;
    char *end;

    errno = 0;
    double seconds = strtod(text, &end);
    if (errno || *end || text[0] < '0' || text[0] > '9' || !(seconds <= INT_MAX))
        cli_usage_error("%s '%s': seconds are needed, as 10 or 0.5", name, text);
    *timeout_ms = (uint64_t)(seconds * MS_PER_S);
}

void cli_take_direct(const char *name, const char *text, void *at)
{
    if (direct_parse(text, (enum direct_use *)at) != 0)
        cli_usage_error("%s: '%s': one of auto, always and never is needed", name, text);
}
