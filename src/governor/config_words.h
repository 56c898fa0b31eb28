/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_words - the statements and words of governor.conf, and what one word says
 *
 * For config.c alone. Pure. Whatever is wrong is told with its line and word.
 */
#ifndef GMSFS_GOVERNOR_CONFIG_WORDS_H
#define GMSFS_GOVERNOR_CONFIG_WORDS_H

#include "base/failure.h"
#include "governor/config.h"

struct config_words {
    const char *at, *end;
    unsigned line;
    struct failure *failure;
    char word[GOVERNOR_MAX_WORD + 1]; /* the last one that was taken */
};

/* A word as messages show it: not endless, and nothing that a terminal obeys. */
#define CONFIG_SHOWN_BYTES 48u
struct config_shown {
    char text[CONFIG_SHOWN_BYTES + 4];
};

struct config_shown config_show(const char *word);

/* Fills in the failure, `line N: ` first; returns -EINVAL. */
int config_refuse(const struct config_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* That there is nothing in the text but lines. -EINVAL, -E2BIG. */
int config_words_begin(struct config_words *words, const char *text, size_t len,
                       struct failure *failure);

/* To the first word of the next statement, which is taken. 0: there is none. */
int config_next_statement(struct config_words *words);

/* 1: a word of this statement; 0: it is over. -EINVAL, -E2BIG. */
int config_next_word(struct config_words *words);

/* `what` is how messages call it. Numbers are decimal, without a sign. */
int config_take_number(const struct config_words *words, const char *what, const char *text,
                       uint64_t least, uint64_t most, uint64_t *number);
int config_take_percent(const struct config_words *words, const char *what, const char *text,
                        unsigned *percent);
int config_take_time(const struct config_words *words, const char *what, const char *text,
                     uint64_t least_ms, uint64_t most_ms, uint64_t *time_ms);

#endif
