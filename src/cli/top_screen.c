/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top_screen.h"

#include "cli/ncurses.h"
#include "cli/signals.h"
#include "top/top.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ESCAPE_MS     25 /* after Esc, for the rest of a key that begins with it */
#define RESTORE_BYTES 256

static struct ncurses curses;
static WINDOW *window;
static struct termios modes; /* before */
static char
    restore[RESTORE_BYTES]; /* ends colours, keypad and the other screen; shows the cursor */
static bool has_colours, is_drawn_anew;
static volatile sig_atomic_t went_on;

static const int ends[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGSEGV,
                           SIGBUS, SIGILL,  SIGFPE,  SIGABRT};

#define ENDS (sizeof(ends) / sizeof(ends[0]))

/* ---- the end ------------------------------------------------------------------------------- */

/* Gives the terminal back. Calls only functions that a handler may call, and nothing of ncurses,
 * which may be in the middle of its work. */
static void restore_terminal(void)
{
    ssize_t ignored = write(STDOUT_FILENO, restore, strlen(restore));

    (void)ignored;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

static void end_by_signal(int number)
{
    restore_terminal();
    raise(number); /* SA_RESETHAND, SA_NODEFER */
}

static void note_went_on(int number)
{
    (void)number;
    went_on = true;
}

/* Signals that were ignored before (nohup) stay ignored. */
static void install_handlers(void)
{
    struct sigaction action = {.sa_handler = end_by_signal, .sa_flags = SA_RESETHAND | SA_NODEFER},
                     before;

    for (size_t i = 0; i < ENDS; i++)
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(ends[i], &action, NULL);
    action = (struct sigaction){.sa_handler = note_went_on};
    sigaction(SIGCONT, &action, NULL);
}

/* In each child: the terminal is its parent's, and so are the keys that make signals. */
static void leave_terminal(void)
{
    struct sigaction before;

    setpgid(0, 0);
    signals_set_undo(NULL);
    signal(SIGTSTP, SIG_DFL); /* ncurses has a handler */
    signal(SIGWINCH, SIG_DFL);
    signal(SIGCONT, SIG_DFL);
    for (size_t i = 0; i < ENDS; i++)
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler == end_by_signal)
            signal(ends[i], SIG_DFL);
}

static bool has_capability(const char *name)
{
    const char *text = curses.tigetstr(name);

    return text && text != (char *)-1 && *text;
}

/* Adds a string of the terminal's description. Delays in it ("$<5>") are for terminals of paper. */
static void add_capability(const char *name)
{
    const char *text = curses.tigetstr(name);
    size_t used = strlen(restore);

    if (!has_capability(name))
        return;
    for (; *text && used + sizeof("\r\n") < sizeof(restore); text++) {
        if (text[0] == '$' && text[1] == '<' && strchr(text, '>'))
            text = strchr(text, '>');
        else
            restore[used++] = *text;
    }
    restore[used] = '\0';
}

static void make_restore(void)
{
    static const char *const names[] = {"sgr0", "op", "cnorm", "rmkx", "rmcup"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        add_capability(names[i]);
    if (!has_capability("rmcup")) /* there is one screen: the shell goes on below it */
        strcat(restore, "\r\n");
}

/* ---- the beginning ------------------------------------------------------------------------- */

static const struct {
    short colour;
    attr_t with, without; /* attributes with and without colours */
} looks[STYLES] = {
    [STYLE_PLAIN] = {-1, A_NORMAL, A_NORMAL},
    [STYLE_TITLE] = {COLOR_CYAN, A_REVERSE, A_REVERSE},
    [STYLE_CHOSEN] = {COLOR_WHITE, A_REVERSE | A_BOLD, A_REVERSE | A_BOLD},
    [STYLE_STRONG] = {-1, A_BOLD, A_BOLD},
    [STYLE_GOOD] = {COLOR_GREEN, A_NORMAL, A_NORMAL},
    [STYLE_WARNING] = {COLOR_YELLOW, A_NORMAL, A_BOLD},
    [STYLE_BAD] = {COLOR_RED, A_BOLD, A_BOLD},
    [STYLE_USED] = {COLOR_GREEN, A_NORMAL, A_NORMAL},
    [STYLE_RESERVED] = {COLOR_CYAN, A_NORMAL, A_NORMAL},
    [STYLE_FREEING] = {COLOR_YELLOW, A_NORMAL, A_NORMAL},
    [STYLE_MAPPED] = {COLOR_MAGENTA, A_NORMAL, A_NORMAL},
    [STYLE_OTHERS] = {COLOR_RED, A_NORMAL, A_NORMAL},
};

/* As no-color.org has it: any value but the empty one. */
static void start_colours(void)
{
    const char *no_colours = getenv("NO_COLOR");

    has_colours = !(no_colours && *no_colours) && curses.has_colors() &&
                  curses.start_color() != ERR && curses.use_default_colors() != ERR;
    for (short i = 0; has_colours && i < STYLES; i++)
        curses.init_pair((short)(i + 1), looks[i].colour, -1);
}

static int check_terminal(struct failure *failure)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return failure_set(failure, -ENOTTY,
                           "standard %s is not a terminal; 'gmsfs status --watch' is for pipes and "
                           "files",
                           isatty(STDIN_FILENO) ? "output" : "input");
    if (tcgetattr(STDIN_FILENO, &modes) != 0)
        return failure_set(failure, -errno, "the terminal does not tell its modes: %s",
                           strerror(errno));
    return 0;
}

static int open_window(struct failure *failure)
{
    FILE *to = fdopen(dup(STDOUT_FILENO), "w"); /* stdout is a stream of our own */

    if (!to || !curses.newterm(NULL, to, stdin))
        return failure_set(failure, -ENOTTY,
                           "the terminal '%s' is not known here; set TERM to another one, such as "
                           "vt100, or use 'gmsfs status --watch'",
                           getenv("TERM") ? getenv("TERM") : "");
    if (!has_capability("cup")) {
        curses.endwin();
        return failure_set(failure, -ENOTTY,
                           "the terminal '%s' cannot move its cursor; set TERM to another one, or "
                           "use 'gmsfs status --watch'",
                           getenv("TERM") ? getenv("TERM") : "");
    }
    window = curses.newwin(0, 0, 0, 0);
    if (!window) {
        curses.endwin();
        return failure_set(failure, -ENOMEM, "this process is out of memory");
    }
    return 0;
}

int top_screen_open(struct failure *failure)
{
    int error = check_terminal(failure);

    if (!error)
        error = ncurses_open(&curses, failure);
    if (!error)
        error = open_window(failure);
    if (error)
        return error;
    make_restore();
    install_handlers();
    signals_set_undo(restore_terminal);
    pthread_atfork(NULL, NULL, leave_terminal);
    curses.cbreak();
    curses.noecho();
    curses.set_escdelay(ESCAPE_MS);
    curses.keypad(window, TRUE);
    curses.nodelay(window, TRUE);
    start_colours();
    return 0;
}

void top_screen_close(void)
{
    unsigned rows, columns;

    top_screen_get_size(&rows, &columns); /* on some terminals the last line stays visible */
    curses.wmove(window, (int)rows - 1, 0);
    curses.wclrtoeol(window);
    curses.wrefresh(window);
    curses.endwin();
}

/* ---- drawing ------------------------------------------------------------------------------- */

void top_screen_get_size(unsigned *rows, unsigned *columns)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    *rows = size.ws_row;
    *columns = size.ws_col;
}

static void set_style(enum style style)
{
    attr_t attributes = has_colours ? looks[style].with | (attr_t)curses.COLOR_PAIR(style + 1)
                                    : looks[style].without;

    curses.wattrset(window, (int)attributes);
}

/* A character in the last column of the last line would make some terminals scroll; ncurses takes
 * care of that, and answers ERR. */
static void show_line(const struct line *line)
{
    for (unsigned i = 0; i < line->span_count; i++) {
        size_t end = i + 1 < line->span_count ? line->spans[i + 1].from : line->used;

        set_style(line->spans[i].style);
        curses.waddnstr(window, line->text + line->spans[i].from, (int)(end - line->spans[i].from));
    }
}

void top_screen_show(const struct screen *screen)
{
    curses.wresize(window, (int)screen->rows, (int)screen->columns);
    set_style(STYLE_PLAIN);
    curses.werase(window);
    for (unsigned i = 0; i < screen->rows; i++) {
        curses.wmove(window, (int)i, 0);
        show_line(&screen->lines[i]);
    }
    curses.curs_set(screen->cursor_row >= 0);
    if (screen->cursor_row >= 0)
        curses.wmove(window, screen->cursor_row, (int)screen->cursor_column);
    curses.clearok(window, is_drawn_anew);
    is_drawn_anew = false;
    curses.wrefresh(window);
}

void top_screen_redraw(void)
{
    is_drawn_anew = true;
}

bool top_screen_went_on(void)
{
    if (!went_on)
        return false;
    went_on = false;
    curses.reset_prog_mode();
    is_drawn_anew = true;
    return true;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static unsigned translate(int key)
{
    static const struct {
        int from;
        unsigned to;
    } keys[] = {{KEY_UP, TOP_UP},
                {KEY_DOWN, TOP_DOWN},
                {KEY_PPAGE, TOP_PAGE_UP},
                {KEY_NPAGE, TOP_PAGE_DOWN},
                {KEY_HOME, TOP_HOME},
                {KEY_END, TOP_END},
                {KEY_ENTER, TOP_ENTER},
                {'\n', TOP_ENTER},
                {'\r', TOP_ENTER},
                {'\t', TOP_TAB},
                {KEY_BACKSPACE, TOP_BACKSPACE},
                {0x7f, TOP_BACKSPACE},
                {'\b', TOP_BACKSPACE}};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].from == key)
            return keys[i].to;
    if (key > KEY_F0 && key <= KEY_F(12))
        return TOP_F1 + (unsigned)(key - KEY_F0) - 1;
    return key < KEY_MIN ? (unsigned)key : TOP_OTHER;
}

unsigned top_screen_read_key(void)
{
    int key;

    do
        key = curses.wgetch(window);
    while (key == KEY_RESIZE);
    return key == ERR ? 0 : translate(key);
}
