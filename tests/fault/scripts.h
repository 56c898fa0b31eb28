/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scripts - the deeds of deeds.h, done by gmsctl on a mount
 *
 * Programs of tests/fault do these with a running daemon during a fault or a kill: a deed, with a
 * process that holds the lock meanwhile, and the way back to the store that every deed starts from.
 */
#ifndef GMSFS_TESTS_FAULT_SCRIPTS_H
#define GMSFS_TESTS_FAULT_SCRIPTS_H

#include "deeds.h"
#include "driver.h"

#include <sys/xattr.h>

#define MAX_WORDS 200

static const char *script_gmsctl, *script_mount;

/* ---- gmsctl ------------------------------------------------------------------------------ */

/* Splits in place, and expands paths. */
static void make_words(const char *script, char *room, size_t size, char **words)
{
    size_t used = 0, count = 0;

    words[count++] = (char *)(uintptr_t)script_gmsctl;
    while (*script && count < MAX_WORDS) {
        size_t length = strcspn(script, " ");
        const char *prefix = "";
        if (length > 0 && (script[0] == 'W' || script[0] == 'M') &&
            (length == 1 || script[1] == '/'))
            prefix = script[0] == 'W' ? "/weights" : "";
        bool path = length > 0 && (script[0] == 'W' || script[0] == 'M') &&
                    (length == 1 || script[1] == '/');
        words[count++] = room + used;
        int wrote = path ? snprintf(room + used, size - used, "%s%s%.*s", script_mount, prefix,
                                    (int)length - 1, script + 1)
                         : snprintf(room + used, size - used, "%.*s", (int)length, script);
        used += (size_t)wrote + 1;
        if (used >= size)
            tool_die("a script is too long");
        script += length;
        script += strspn(script, " ");
    }
    words[count] = NULL;
}

static pid_t start_gmsctl(const char *script, int input, int output)
{
    char room[16384], *words[MAX_WORDS + 1];

    make_words(script, room, sizeof room, words);
    return start(words, input, output);
}

/* It hangs in the mount: that is the failure. */
static void finish(pid_t child, int output, struct ran *ran)
{
    if (!wait_child(child, LIMIT_MS, &ran->status)) {
        kill(child, SIGKILL);
        int status;
        wait_child(child, LIMIT_MS, &status);
        ran->status = -1;
    }
    take_text(output, ran);
}

static void run_script(const char *script, struct ran *ran)
{
    int null = open_null(), output = open_scratch();
    pid_t child = start_gmsctl(script, null, output);

    close(null);
    finish(child, output, ran);
}

static uint64_t find_number(const char *text, const char *before)
{
    const char *at = strstr(text, before);

    return at ? strtoull(at + strlen(before), NULL, 10) : UINT64_MAX;
}

/* ---- deeds ------------------------------------------------------------------------------- */

static bool is_waiting(void)
{
    char text[TOOL_TEXT_BYTES];
    struct tool_path sessions = tool_path("%s/weights/sessions", script_mount);

    return tool_read_text(sessions.text, text, sizeof text) > 0 && strstr(text, " waiting ");
}

static bool says_waits(int output)
{
    char text[TOOL_TEXT_BYTES];
    ssize_t got = pread(output, text, sizeof text - 1, 0);

    text[got > 0 ? got : 0] = '\0';
    return strstr(text, "waits\n");
}

/* Waits until the deed waits behind the holder, or has ended otherwise. */
static void wait_until_waiting(pid_t child, int output)
{
    uint64_t until_ms = tool_now_ms() + LIMIT_MS * tool_slow();
    siginfo_t info = {0};

    while (!is_waiting() && !says_waits(output) && tool_now_ms() < until_ms) {
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return;
        tool_pause_us(500);
    }
}

/* Starts the holder, which prints "held" and ends when its input ends. */
static pid_t start_holder(const struct deed *deed, int *input)
{
    char script[1024];
    int ends[2], output = open_scratch();
    struct ran ran = {0};

    if (pipe2(ends, O_CLOEXEC) != 0)
        tool_die("pipe: %s", strerror(errno));
    snprintf(script, sizeof script, "%s say held hold", deed->holder);
    pid_t holder = start_gmsctl(script, ends[0], output);
    close(ends[0]);
    for (unsigned i = 0; i < 5000 && !strstr(ran.text, "held"); i++) {
        tool_pause_us(1000);
        ssize_t got = pread(output, ran.text, sizeof ran.text - 1, 0);
        ran.text[got > 0 ? got : 0] = '\0';
    }
    close(output);
    *input = ends[1];
    return holder;
}

/* Ends the drain of a deed, which lasts. */
static void serve_again(void)
{
    char text[TOOL_TEXT_BYTES];
    struct tool_path device = tool_path("%s/device", script_mount);
    struct ran ran;

    if (tool_read_text(device.text, text, sizeof text) > 0 && strstr(text, "\"draining\": true"))
        run_script("connect M/ ask serve 0", &ran);
}

/* Usually there are none. */
static void remove_budgets(void)
{
    struct tool_path store = tool_path("%s/weights", script_mount);
    struct tool_path pools = tool_path("%s/pools", script_mount);
    char text[TOOL_TEXT_BYTES];

    removexattr(store.text, "user.gmsfs.pin");
    removexattr(store.text, "user.gmsfs.pool");
    if (tool_read_text(pools.text, text, sizeof text) > 0 && strstr(text, "chat "))
        run_script("open M/pools w try write hex:63686174202d0a", &(struct ran){0});
}

/* Removes the other things that deeds make. */
static void clean_up(void)
{
    static const char *const stores[] = {"s2", "s3"};

    serve_again();
    remove_budgets();
    for (size_t i = 0; i < 2; i++) {
        struct tool_path path = tool_path("%s/%s", script_mount, stores[i]);
        if (access(path.text, F_OK) != 0)
            continue;
        struct tool_path weights = tool_path("%s/weights", script_mount);
        if (access(weights.text, F_OK) != 0)
            rename(path.text, weights.text);
        else if (rmdir(path.text) != 0)
            complain("%s: cannot be removed: %s", path.text, strerror(errno));
    }
}

/* Does a whole cycle of work, which has to print the same each time. */
static bool begin_anew(void)
{
    struct ran ran;

    clean_up();
    run_script(DEEDS_BEGIN, &ran);
    if (ran.status == 0 && strstr(ran.text, "committed"))
        return true;
    complain("the daemon does not serve: the cycle of work ends with status %d\n%s", ran.status,
             ran.text);
    return false;
}

/* A deed, and the process that holds the lock until the deed is seen to wait. */
struct deed_run {
    const struct deed *deed;
    pid_t holder; /* -1 if none */
    int input;    /* of the holder */
};

static inline struct deed_run prepare_deed(const struct deed *deed)
{
    struct deed_run run = {.deed = deed, .holder = -1, .input = -1};

    if (deed->holder)
        run.holder = start_holder(deed, &run.input);
    return run;
}

static inline void finish_deed(struct deed_run *run, struct ran *ran)
{
    int status, null = open_null(), output = open_scratch();
    pid_t child = start_gmsctl(run->deed->words, null, output);
    bool is_interrupted = strstr(run->deed->words, "alarm ");

    close(null);
    if (run->holder > 0)
        wait_until_waiting(child, output);
    if (is_interrupted)
        kill(child, SIGALRM);
    else if (run->holder > 0)
        close(run->input);
    finish(child, output, ran);
    if (is_interrupted)
        close(run->input);
    if (run->holder > 0 && !wait_child(run->holder, LIMIT_MS, &status))
        tool_die("%s: the holder of the lock hangs", run->deed->name);
}

#endif
