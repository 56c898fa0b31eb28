/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ncurses - the terminal library, opened at run time behind one table of functions
 *
 * For top_screen.c alone. The command is not linked against it, which would make each start of the
 * gmsfs command a fifth longer. Types and constants are those of <curses.h>.
 */
#ifndef GMSFS_CLI_NCURSES_H
#define GMSFS_CLI_NCURSES_H

#include "base/failure.h"

#define NCURSES_NOMACROS
#include <curses.h>
#include <term.h>

/* term.h has short names for capabilities. */
#undef columns
#undef lines

#define NCURSES_FUNCTIONS(F) \
    F(newterm)               \
    F(endwin)                \
    F(cbreak)                \
    F(noecho)                \
    F(newwin)                \
    F(keypad)                \
    F(nodelay)               \
    F(set_escdelay)          \
    F(has_colors)            \
    F(start_color)           \
    F(use_default_colors)    \
    F(init_pair)             \
    F(COLOR_PAIR)            \
    F(curs_set)              \
    F(wattrset)              \
    F(waddnstr)              \
    F(wmove)                 \
    F(werase)                \
    F(wclrtoeol)             \
    F(wrefresh)              \
    F(wresize)               \
    F(wgetch)                \
    F(clearok)               \
    F(reset_prog_mode)       \
    F(tigetstr)

struct ncurses {
#define NCURSES_MEMBER(name) __typeof__(name) *name;
    NCURSES_FUNCTIONS(NCURSES_MEMBER)
#undef NCURSES_MEMBER
};

/* Opens the library; it stays open. -ELIBACC: not installed; -ELIBBAD: it lacks a function. The
 * failure names the package to install. */
int ncurses_open(struct ncurses *library, struct failure *failure);

#endif
