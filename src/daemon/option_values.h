/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option_values - what stands behind the `=` of a mount option
 *
 * For options.c. 0, or -EINVAL with the option as it was written, the cause and the way out in the
 * parser's error.
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
    const char *source; /* NULL: none given */
    bool has_backend, has_ordinal;
    struct option needs_gms;  /* the first one that does; no name: none */
    struct option needs_host; /* the same of host_size */
    struct option spill;      /* the last one of the disk tier */
    struct option tiers;      /* the last one that is of any tier beside the device */
    char *error;
    size_t error_bytes;
};

/* The error is one line, and nothing that a terminal obeys, whatever the arguments hold. -EINVAL */
int option_finish_error(const struct option_parser *parser);
__attribute__((format(printf, 3, 4))) int option_refuse(const struct option_parser *parser,
                                                        const struct option *option,
                                                        const char *format, ...);

int option_parse_size(const struct option_parser *parser, const struct option *option,
                      uint64_t min_bytes, uint64_t max_bytes, uint64_t *bytes);
int option_parse_granularity(const struct option_parser *parser, const struct option *option,
                             uint64_t *granularity_bytes);
int option_parse_hugepages(const struct option_parser *parser, const struct option *option,
                           uint64_t *page_bytes);
int option_parse_yes(const struct option_parser *parser, const struct option *option, bool *yes);
int option_parse_seconds(const struct option_parser *parser, const struct option *option,
                         uint64_t *value_ms);
int option_parse_path(const struct option_parser *parser, const struct option *option,
                      char path[OPTIONS_PATH_BYTES]);
/* False: it is no number, or more than that. */
bool option_read_number(const char *text, uint32_t max, uint32_t *number);
int option_parse_number(const struct option_parser *parser, const struct option *option,
                        uint32_t max, uint32_t *number);
int option_parse_id(const struct option_parser *parser, const struct option *option, uint32_t *id);
int option_parse_mode(const struct option_parser *parser, const struct option *option,
                      uint32_t *mode);

#endif
