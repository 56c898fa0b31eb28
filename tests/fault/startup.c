/* SPDX-License-Identifier: Apache-2.0 */
/*
 * startup - lets each call site of the start and end of a mount fail once
 *
 *   startup CONTROL GMSFS DIRECTORY [EVERY]
 *
 * Mounts once to learn the call sites of command, keeper and worker, then again for each of them
 * (or each EVERYth), with a fault there. DIRECTORY is absolute, and GMS clients' sockets are beside
 * it. The mount is refused with a message and leaves no process, no mount and no socket, or it
 * serves and ends in order. Prints each failure and a last line of numbers; exit status 1 if there
 * are failures.
 */
#include "driver.h"

#include <glob.h>
#include <sys/mount.h>
#include <sys/prctl.h>

static bool is_mounted(const char *directory)
{
    static char text[1 << 20];

    if (tool_read_text("/proc/self/mountinfo", text, sizeof text) < 0)
        tool_die("cannot read the table of mounts");
    struct tool_path word = tool_path(" %s ", directory);
    return strstr(text, word.text) != NULL;
}

/* Reads in a child, which can be killed if it hangs. */
static bool answers(const char *directory)
{
    struct tool_path device = tool_path("%s/device", directory);
    pid_t child = fork();
    int status;

    if (child == 0) {
        char text[4096];
        _exit(tool_read_text(device.text, text, sizeof text) > 0 ? 0 : 1);
    }
    if (wait_child(child, LIMIT_MS, &status))
        return status == 0;
    kill(child, SIGKILL);
    return false;
}

/* Finds the daemon: orphans become children of this process. */
static pid_t find_keeper(void)
{
    char text[256];
    struct tool_path children = tool_path("/proc/self/task/%d/children", (int)getpid());

    return tool_read_text(children.text, text, sizeof text) > 0 ? (pid_t)atoi(text) : 0;
}

/* Returns true if nothing of the daemon is left. *status is that of the last process. */
static bool reap(uint64_t limit_ms, int *status)
{
    uint64_t until_ms = tool_now_ms() + limit_ms * tool_slow();

    for (;;) {
        pid_t got = waitpid(-1, status, WNOHANG);
        if (got < 0 && errno == ECHILD)
            return true;
        if (got <= 0) {
            if (tool_now_ms() > until_ms)
                return false;
            tool_pause_us(500);
        }
    }
}

static void kill_all(const char *directory)
{
    int status;

    for (pid_t pid; (pid = find_keeper()) > 0;) {
        kill(pid, SIGKILL);
        wait_child(pid, LIMIT_MS, &status);
    }
    if (is_mounted(directory))
        umount2(directory, MNT_DETACH);
}

/* Returns true if sockets of GMS clients are beside the mount point. */
static bool has_sockets(const char *directory)
{
    struct tool_path hidden = tool_path("%s/../.gms_*", directory);
    struct tool_path sockets = tool_path("%s/../gms_*", directory);
    glob_t found;
    bool has = glob(hidden.text, 0, NULL, &found) == 0;

    globfree(&found);
    has |= glob(sockets.text, 0, NULL, &found) == 0;
    globfree(&found);
    return has;
}

/* Returns NULL, or the failure. */
static const char *mount_once(const char *gmsfs, const char *directory, struct ran *ran)
{
    struct tool_path host = tool_path("backend=host,size=8M,granularity=64K,gms,"
                                      "uuid=6f1c2d3e0a1b4c5d8e9f001122334455,gms_dir=%.*s",
                                      (int)(strrchr(directory, '/') - directory), directory);
    char option[] = "-o", verb[] = "mount";
    char *words[] = {(char *)(uintptr_t)gmsfs,     verb, option, host.text,
                     (char *)(uintptr_t)directory, NULL};
    int null = open_null(), output = open_scratch(), status = 0;
    pid_t child = start(words, null, output);
    bool ended = wait_child(child, LIMIT_MS, &ran->status);

    close(null);
    if (!ended) {
        kill(child, SIGKILL);
        wait_child(child, LIMIT_MS, &status);
        take_text(output, ran);
        return "the command hangs";
    }
    if (ran->status != 0) { /* refused */
        bool gone = reap(LIMIT_MS, &status);
        take_text(output, ran);
        if (!gone)
            return "not mounted, but a process is left";
        if (is_mounted(directory))
            return "a mount is left";
        if (has_sockets(directory))
            return "a socket is left";
        if (!WIFEXITED(ran->status))
            return "the command was killed";
        return ran->text[0] ? NULL : "not mounted, without a message";
    }
    if (!answers(directory) && !answers(directory)) { /* the first read may meet the fault */
        take_text(output, ran);
        return "mounted, but it does not answer";
    }
    pid_t keeper = find_keeper();
    if (keeper > 0)
        kill(keeper, SIGTERM);
    bool gone = reap(2 * LIMIT_MS, &status);
    take_text(output, ran);
    if (!gone)
        return "it does not end";
    if (WIFSIGNALED(status))
        return "it was killed at its end";
    if (has_sockets(directory))
        return "a socket is left at its end";
    return is_mounted(directory) ? "the mount is left" : NULL;
}

int main(int argc, char **argv)
{
    static uint32_t hits[FAULT_MAX_SITES];
    unsigned every = argc > 4 ? (unsigned)atoi(argv[4]) : 1, seen = 0;
    struct ran ran;

    if (argc < 4) {
        fprintf(stderr, "usage: startup CONTROL GMSFS DIRECTORY [EVERY]\n");
        return 2;
    }
    const char *gmsfs = argv[2], *directory = argv[3];
    make_control(argv[1]);
    map_control(argv[1]);
    setenv("GMSFS_FAULT_CONTROL", argv[1], 1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const char *wrong = mount_once(gmsfs, directory, &ran);
    if (wrong || ran.status != 0)
        tool_die("no mount even without a fault: %s\n%s", wrong ? wrong : "refused", ran.text);
    for (size_t i = 0; i < FAULT_MAX_SITES; i++)
        hits[i] = control->sites[i].hits;
    for (size_t i = 0; i < FAULT_MAX_SITES; i++) {
        const struct fault_site *site = &control->sites[i];
        if (hits[i] == 0 || seen++ % (every ? every : 1) != 0)
            continue;
        arm(site, FAULT_COMMAND | FAULT_KEEPER | FAULT_WORKER);
        wrong = mount_once(gmsfs, directory, &ran);
        control->armed = false;
        faults += control->fired;
        told += ran.status != 0;
        if (!wrong)
            continue;
        complain("start: %s: %s\n%s", fault_point_name((enum fault_point)site->point), wrong,
                 ran.text);
        print_site(site);
        kill_all(directory);
    }
    printf("%u faults, %u of them told, %u wrong\n", faults, told, failures);
    return failures || faults == 0;
}
