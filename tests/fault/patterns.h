/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patterns - texts of several runs of one thing, and their accidental differences
 *
 * For kills.c: a pattern is such a text, with `*` for each word that may differ.
 */
#ifndef GMSFS_TESTS_FAULT_PATTERNS_H
#define GMSFS_TESTS_FAULT_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define PATTERN_ROOM (1u << 18)

#define WORD_ENDS " \n\t=,:{}[]\""

/* Returns true if the text has the same words as the pattern, any word for `*`. */
static bool matches(const char *pattern, const char *text)
{
    for (;;) {
        size_t ends = strspn(pattern, WORD_ENDS);
        if (strspn(text, WORD_ENDS) != ends || memcmp(pattern, text, ends) != 0)
            return false;
        pattern += ends;
        text += ends;
        if (!*pattern || !*text)
            return *pattern == *text;
        size_t word = strcspn(pattern, WORD_ENDS), other = strcspn(text, WORD_ENDS);
        bool is_any = word == 1 && *pattern == '*';
        if (!is_any && (word != other || memcmp(pattern, text, word) != 0))
            return false;
        pattern += word;
        text += other;
    }
}

/* Replaces by `*` the words of the pattern that differ in the text. Returns false if the text has
 * more or fewer words. */
static bool widen(char *pattern, const char *text)
{
    static char wider[PATTERN_ROOM];
    const char *from = pattern;
    size_t used = 0;

    for (;;) {
        size_t ends = strspn(from, WORD_ENDS);
        if (strspn(text, WORD_ENDS) != ends || memcmp(from, text, ends) != 0)
            return false;
        memcpy(wider + used, from, ends);
        used += ends;
        from += ends;
        text += ends;
        if (!*from || !*text)
            break;
        size_t word = strcspn(from, WORD_ENDS), other = strcspn(text, WORD_ENDS);
        if (word == other && memcmp(from, text, word) == 0) {
            memcpy(wider + used, from, word);
            used += word;
        } else {
            wider[used++] = '*';
        }
        from += word;
        text += other;
    }
    if (*from != *text)
        return false;
    memcpy(pattern, wider, used);
    pattern[used] = '\0';
    return true;
}

/* Durations may be the same each time by chance, so numbers are forgotten. */
static void forget_numbers(char *text, const char *before)
{
    for (char *at = text; (at = strstr(at, before)) != NULL;) {
        at += strlen(before);
        size_t digits = strspn(at, "0123456789");
        if (digits == 0)
            continue;
        *at = '*';
        memmove(at + 1, at + digits, strlen(at + digits) + 1);
    }
}

#endif
