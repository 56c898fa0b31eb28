/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl - system calls, ioctls and `.fds` messages from a shell, for the tests
 *
 *   gmsctl OP [ARGUMENT...] OP [ARGUMENT...] ...
 *
 * Does one operation after the other, prints a line for each with a result, and at the first that
 * fails prints the NAME of its errno as a line of its own and exits with 1. `try OP` continues
 * after a failure, `repeat N` does all following operations N times, `gmsctl help` lists the
 * operations. Bytes are given literally, as hex:FF00, or as fill:N (N times the letter v). Uses
 * nothing of gmsfs but the ABI header, so the client library filters nothing that it sends.
 */
#include "gmsctl_fds.h"
#include "gmsctl_files.h"
#include "gmsctl_gms.h"
#include "gmsctl_ioctls.h"
#include "gmsctl_regions.h"

#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

/* ---- time and processes ------------------------------------------------------------------ */

static void on_alarm(int signal)
{
    (void)signal;
}

/* Has a signal come each `ms` (0: none by itself), so that no delay between two calls outlives it.
 */
static int set_alarm(uint64_t ms, int flags)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    struct timeval time = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000) * 1000};
    struct itimerval timer = {.it_interval = time, .it_value = time};
    sigaction(SIGALRM, &action, NULL);
    return result(setitimer(ITIMER_REAL, &timer, NULL));
}

static int op_alarm(char **arg)
{
    return set_alarm(number(arg[0]), 0);
}

static int op_alarms(char **arg)
{
    return set_alarm(number(arg[0]), SA_RESTART);
}

static int op_fork(char **arg)
{
    (void)arg;
    fflush(stdout);
    pid_t child = fork();
    if (child > 0)
        _exit(0);
    return result(child);
}

/* The parent stays until FILE is there. */
static int op_fork_until(char **arg)
{
    fflush(stdout);
    pid_t child = fork();
    if (child <= 0)
        return result(child);
    while (access(arg[0], F_OK) != 0)
        usleep(5000);
    _exit(0);
}

/* Open files stay open; all later requests come from that user. */
static int op_setuid(char **arg)
{
    uid_t uid = (uid_t)number(arg[0]);
    if (setgroups(0, NULL) || setresgid(uid, uid, uid))
        return -1;
    return result(setresuid(uid, uid, uid));
}

/* Files are O_CLOEXEC: the kernel closes them in the middle of it. */
static int op_exec(char **arg)
{
    fflush(stdout);
    return result(execl("/bin/sh", "sh", "-c", arg[0], (char *)NULL));
}

static int op_pause(char **arg)
{
    (void)arg;
    for (;;)
        pause();
    return 0;
}

static int op_hold(char **arg)
{
    char byte;
    (void)arg;
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}

static int op_until(char **arg)
{
    while (access(arg[0], F_OK) != 0)
        usleep(5000);
    return 0;
}

static int op_say(char **arg)
{
    puts(arg[0]);
    return 0;
}

static int op_poll(char **arg)
{
    struct pollfd p = {.fd = s.fd, .events = strcmp(arg[0], "pri") == 0 ? POLLPRI : POLLIN};
    int got = poll(&p, 1, (int)number(arg[1]));
    if (got > 0)
        printf("%s%s%s\n", p.revents & POLLIN ? "in " : "", p.revents & POLLPRI ? "pri " : "",
               p.revents & (POLLERR | POLLHUP) ? "err" : "");
    return got == 0 ? -ETIMEDOUT : result(got);
}

/* Polls until the file has this text, but for the newline. Other wakeups are allowed. */
static int op_await(char **arg)
{
    struct pollfd p = {.fd = s.fd, .events = POLLPRI};
    char text[256];
    for (;;) {
        ssize_t got = pread(s.fd, text, sizeof text - 1, 0);
        if (got < 0)
            return result(got);
        text[got] = '\0';
        text[strcspn(text, "\n")] = '\0';
        if (strcmp(text, arg[0]) == 0)
            return 0;
        got = poll(&p, 1, (int)number(arg[1]));
        if (got <= 0)
            return got == 0 ? -ETIMEDOUT : result(got);
    }
}

#define REST_MS 20000

static int op_rest(char **arg)
{
    struct pollfd p = {.fd = s.fd, .events = POLLPRI};
    char text[256];
    (void)arg;
    for (int passed_ms = 0; passed_ms < REST_MS; passed_ms += 100) {
        ssize_t got = pread(s.fd, text, sizeof text - 1, 0);
        if (got < 0)
            return result(got);
        text[got] = '\0';
        if (!strstr(text, "moving "))
            return 0;
        poll(&p, 1, 100);
    }
    return -ETIMEDOUT;
}

/* ---- the operations ------------------------------------------------------------------------- */

static const struct op {
    const char *name;
    int (*run)(char **arg);
    const char *arguments; /* one word for each */
} OPS[] = {
    {"open", op_open, "PATH FLAGS"}, /* letters of rwntacxdp; `r` if none */
    {"open-retry", op_open_retry, "PATH FLAGS"},
    {"fd", op_fd, "NUMBER"},
    {"use", op_use, "INDEX"},
    {"close", op_close, ""},
    {"dupclose", op_dupclose, ""},
    {"read", op_read, "BYTES"},
    {"pread", op_pread, "OFFSET BYTES"},
    {"write", op_write, "DATA"},
    {"pwrite", op_pwrite, "OFFSET DATA"},
    {"fill", op_fill, "BYTES"},
    {"count", op_count, "BYTES"},
    {"hash", op_hash, ""},
    {"writefile", op_writefile, "FILE"},
    {"seek", op_seek, "OFFSET"},
    {"fsync", op_fsync, ""},
    {"ftruncate", op_ftruncate, "SIZE"},
    {"fallocate", op_fallocate, "MODE OFFSET LENGTH"},
    {"truncate", op_truncate, "PATH SIZE"},
    {"mkdir", op_mkdir, "PATH"},
    {"rmdir", op_rmdir, "PATH"},
    {"readdir", op_readdir, "DIRECTORY BUFFER_BYTES"},
    {"getdents", op_getdents, "DIRECTORY BUFFER_BYTES"},
    {"unlink", op_unlink, "PATH"},
    {"empty", op_empty, "DIRECTORY BUFFER_BYTES"},
    {"rename", op_rename, "FROM TO"},
    {"exchange", op_exchange, "ONE OTHER"},
    {"noreplace", op_noreplace, "FROM TO"},
    {"link", op_link, "FROM TO"},
    {"symlink", op_symlink, "TEXT PATH"},
    {"mkfifo", op_mkfifo, "PATH"},
    {"mknod", op_mknod, "PATH"},
    {"bind", op_bind, "PATH"},
    {"chmod", op_chmod, "PATH MODE"},
    {"stat", op_stat, "PATH"},
    {"setxattr", op_setxattr, "PATH NAME DATA"},
    {"getxattr", op_getxattr, "PATH NAME"},
    {"removexattr", op_removexattr, "PATH NAME"},
    {"acquire", op_acquire, "MODE TIMEOUT_MS"},
    {"acquire-export", op_acquire_export, "MODE TIMEOUT_MS"},
    {"acquire-again", op_acquire_again, "MODE TIMEOUT_MS"},
    {"acquire-fresh", op_acquire_fresh, "MODE TIMEOUT_MS"},
    {"acquire-replace", op_acquire_replace, "MODE TIMEOUT_MS"},
    {"acquire-any", op_acquire_any, "MODE TIMEOUT_MS"},
    {"reader", op_reader, "STORE"},
    {"acquire-reserve", op_acquire_reserve, "MODE TIMEOUT_MS BYTES"},
    {"reserve", op_reserve, "BYTES FLAGS"}, /* 1: at least; 2: do not wait */
    {"join", op_join, "TOKEN"},
    {"release", op_release, ""},
    {"alloc", op_alloc, "SIZE COUNT NAME TAG"},
    {"alloc-nowait", op_alloc_nowait, "SIZE COUNT NAME TAG"},
    {"alloc-as", op_alloc_as, "SIZE FLAGS CLASS HANDLE_TYPES"},
    {"free", op_free, "SLOT"},
    {"clear", op_clear, ""},
    {"export", op_export, "FIRST COUNT"},
    {"export-rw", op_export_rw, "FIRST COUNT"},
    {"export-slot", op_export_slot, "SLOT COUNT"},
    {"put", op_put, "KEY DATA SLOT OFFSET"},
    {"get", op_get, "KEY"},
    {"delete", op_delete, "KEY"},
    {"commit", op_commit, ""},
    {"commit-stay", op_commit_stay, ""},
    {"seal", op_seal, ""},
    {"commit-group", op_commit_group, "GROUP"},
    {"commit-flags", op_commit_flags, "FLAGS"}, /* 4: only check */
    {"abort", op_abort, ""},
    {"apply", op_apply, ""},
    {"info", op_info, ""},
    {"list", op_list, "FIRST FLAGS COUNT"}, /* 1: by slot */
    {"list-on", op_list_on, "FIRST FLAGS COUNT"},
    {"raw", op_raw, "NR SIZE DATA LAST_BYTE"},
    {"command", op_command, "NUMBER"},
    {"connect", op_connect, "MOUNTPOINT"},
    {"disconnect", op_disconnect, ""},
    {"send", op_send, "DATA"},
    {"request", op_request, "TICKET BATCH"},
    {"ask", op_ask, "drain|drain-end|serve|fence|govern|log BATCH"},
    {"ask-of", op_ask_of, "drain|holders|serve STORE BATCH"},
    {"write-drained", op_write_drained, "WORD"},
    {"fence", op_fence, "MOUNTPOINT up|abort|complete"},
    {"receive", op_receive, ""},
    {"redeem", op_redeem, "TICKET BATCH"},
    {"region", op_region, "FLAGS"}, /* 1: hold */
    {"region-register", op_region_register, "UID NAME KEY OBJECT OFFSET SIZE"},
    {"region-register-many", op_region_register_many, "NAME"},
    {"region-register-cuda", op_region_register_cuda, "UID NAME SIZE"},
    {"region-unregister", op_region_unregister, "UID KIND NAME"},
    {"region-unregister-all", op_region_unregister_all, "UID KIND"},
    {"region-list", op_region_list, "UID KIND BEHIND"},
    {"gms", op_gms, "v0|v1"},
    {"gms-lock", op_gms_lock, "rw|ro TIMEOUT_MS"}, /* V1 has none */
    {"gms-ask", op_gms_ask, "REQUEST KEY SIZE"},
    {"gms-closed", op_gms_closed, ""},
    {"forget", op_forget, ""},
    {"poke", op_poke, "INDEX OFFSET DATA"},
    {"peek", op_peek, "INDEX OFFSET BYTES"},
    {"map-memory", op_map_memory, "INDEX"}, /* for writing */
    {"unmap-memory", op_unmap_memory, ""},
    {"seek-memory", op_seek_memory, "INDEX OFFSET"},
    {"position", op_position, "INDEX"},
    {"alarm", op_alarm, "MS"},   /* interrupts calls */
    {"alarms", op_alarms, "MS"}, /* which then go on (SA_RESTART) */
    {"setuid", op_setuid, "UID"},
    {"fork", op_fork, ""},
    {"fork-until", op_fork_until, "FILE"},
    {"exec", op_exec, "SCRIPT"},
    {"pause", op_pause, ""},
    {"hold", op_hold, ""},
    {"until", op_until, "FILE"},
    {"say", op_say, "TEXT"},
    {"poll", op_poll, "in|pri TIMEOUT_MS"},
    {"await", op_await, "TEXT TIMEOUT_MS"},
    {"rest", op_rest, ""}, /* of `residency`: until no move runs */
};

static int count_words(const char *text)
{
    int words = *text != '\0';
    for (; *text; text++)
        words += *text == ' ';
    return words;
}

static const struct op *find_op(const char *name)
{
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (strcmp(OPS[i].name, name) == 0)
            return &OPS[i];
    die("no such operation", name);
    return NULL;
}

static bool run_all(int count, char **word)
{
    for (int i = 0; i < count;) {
        if (strcmp(word[i], "repeat") == 0 && i + 1 < count) {
            for (uint64_t n = number(word[i + 1]); n > 0; n--)
                if (!run_all(count - i - 2, word + i + 2))
                    return false;
            return true;
        }
        bool tries = strcmp(word[i], "try") == 0;
        i += tries;
        const struct op *op = i < count ? find_op(word[i]) : NULL;
        if (!op || i + count_words(op->arguments) >= count)
            die("arguments missing", op ? op->name : "try");
        int error = op->run(word + i + 1);
        if (error)
            puts(strerrorname_np(-error));
        if (error && !tries)
            return false;
        i += 1 + count_words(op->arguments);
    }
    return true;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
            printf("%s %s\n", OPS[i].name, OPS[i].arguments);
        return argc < 2 ? 2 : 0;
    }
    return run_all(argc - 1, argv + 1) ? 0 : 1;
}
