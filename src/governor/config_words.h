/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_words - splits governor.conf into statements and words, and parses single words
 *
 * For config.c alone. Pure. Reports each error with its line and word.
 */
#ifndef GMSFS_GOVERNOR_CONFIG_WORDS_H
#define GMSFS_GOVERNOR_CONFIG_WORDS_H

#include "base/failure.h"
#include "governor/config.h"

struct config_words {
    const char *at, *end;
    unsigned line;
    struct failure *failure;
    char word[GOVERNOR_MAX_WORD + 1]; /* the word taken last */
};

/* A word as messages show it: shortened, and without bytes that control a terminal. */
#define CONFIG_SHOWN_BYTES 48u
struct config_shown {
    char text[CONFIG_SHOWN_BYTES + 4];
};

struct config_shown config_show(const char *word);

/* Fills in the failure, `line N: ` first; returns -EINVAL. */
int config_refuse(const struct config_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Checks that the text consists of text lines. -EINVAL, -E2BIG. */
int config_words_begin(struct config_words *words, const char *text, size_t len,
                       struct failure *failure);

/* Takes the first word of the next statement. 0: there is none. */
int config_next_statement(struct config_words *words);

/* 1: took a word of this statement; 0: the statement ends. -EINVAL, -E2BIG. */
int config_next_word(struct config_words *words);

/* `name` stands in messages. Numbers are decimal, without a sign. */
int config_take_number(const struct config_words *words, const char *name, const char *text,
                       uint64_t least, uint64_t most, uint64_t *number);
int config_take_percent(const struct config_words *words, const char *name, const char *text,
                        unsigned *percent);
int config_take_time(const struct config_words *words, const char *name, const char *text,
                     uint64_t least_ms, uint64_t most_ms, uint64_t *time_ms);

#endif
