/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option_values - parses the value of a mount option
 *
 * For options.c. Returns 0, or -EINVAL with the option as it was written, the cause and the way out
 * in the parser's error.
 */
#ifndef GMSFS_DAEMON_OPTION_VALUES_H
#define GMSFS_DAEMON_OPTION_VALUES_H

#include "daemon/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTION_NAME_BYTES  64u
#define OPTION_VALUE_BYTES 256u

/* One `name=value` of -o. */
struct option {
    char name[OPTION_NAME_BYTES];
    char value[OPTION_VALUE_BYTES];
    bool has_value;
};

struct option_parser {
    struct daemon_options *options;
    const char *source; /* NULL if none was given */
    bool has_backend, has_ordinal;
    struct option needs_gms;  /* the first one that does; no name if none */
    struct option needs_host; /* the same for host_size */
    struct option spill;      /* the last one of the disk tier */
    struct option tiers;      /* the last one of any tier besides the device */
    char *error;
    size_t error_bytes;
};

/* Makes the error one line without control characters. Returns -EINVAL. */
int option_finish_error(const struct option_parser *parser);
__attribute__((format(printf, 3, 4))) int option_refuse(const struct option_parser *parser,
                                                        const struct option *option,
                                                        const char *format, ...);

/* Into `at`, a uint64_t: bytes, or the milliseconds of seconds with up to three decimals. */
int option_take_size(struct option_parser *parser, const struct option *option, void *at);
int option_take_granularity(struct option_parser *parser, const struct option *option, void *at);
int option_take_hugepages(struct option_parser *parser, const struct option *option, void *at);
int option_take_seconds(struct option_parser *parser, const struct option *option, void *at);
/* Into a char [OPTIONS_PATH_BYTES]. */
int option_take_path(struct option_parser *parser, const struct option *option, void *at);
/* Into a uint32_t. */
int option_take_ordinal(struct option_parser *parser, const struct option *option, void *at);
int option_take_id(struct option_parser *parser, const struct option *option, void *at);
int option_take_mode(struct option_parser *parser, const struct option *option, void *at);
/* Into a bool, which becomes true. */
int option_take_word(struct option_parser *parser, const struct option *option, void *at);

/* Returns false if it is not a number, or larger than `max`. */
bool option_read_number(const char *text, uint32_t max, uint32_t *number);

#endif
