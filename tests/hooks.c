/* SPDX-License-Identifier: Apache-2.0 */
/* hooks - what the hooks of a test build do (base/test_hooks.h, and those of the daemon's parts) */
#include "base/test_hooks.h"

#include "base/file_io.h"
#include "base/log.h"
#include "daemon/abi.h"
#include "daemon/replay.h"
#include "fs/deaths.h"
#include "service/host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t hook_number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

const char *hook_text(const char *variable, const char *otherwise)
{
    const char *text = getenv(variable);

    return text ? text : otherwise;
}

bool hook_is_set(const char *variable)
{
    return getenv(variable) != NULL;
}

bool hook_has_file(const char *variable)
{
    const char *path = getenv(variable);

    return path && access(path, F_OK) == 0;
}

void hook_wait(const char *variable)
{
    while (hook_has_file(variable))
        usleep(10000);
}

void hook_kill_once(const char *variable)
{
    const char *path = getenv(variable);

    if (path && unlink(path) == 0)
        raise(SIGKILL);
}

void hook_stop_at(const char *variable, const char *point)
{
    const char *wanted = getenv(variable);

    if (wanted && strcmp(wanted, point) == 0)
        raise(SIGSTOP);
}

/* ---- gates --------------------------------------------------------------------------------- */

#define GATE_TEXT_BYTES 32

/* A number in the file is how many pass before it holds; a file that has changed counts anew. */
struct gate {
    pthread_mutex_t mutex;
    struct stat seen;
    unsigned long passed;
};

/* NULL: the file is not there. */
static FILE *open_gate(const char *path, struct gate *gate)
{
    FILE *file = fopen(path, "re");
    struct stat now;

    if (file && fstat(fileno(file), &now) == 0 &&
        (now.st_ino != gate->seen.st_ino || now.st_mtim.tv_sec != gate->seen.st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != gate->seen.st_mtim.tv_nsec)) {
        gate->seen = now;
        gate->passed = 0;
    }
    return file;
}

static bool is_held(const char *path, struct gate *gate)
{
    char text[GATE_TEXT_BYTES] = "";

    pthread_mutex_lock(&gate->mutex);
    FILE *file = open_gate(path, gate);
    bool held = !file && errno != ENOENT;
    if (file) {
        held = !fgets(text, sizeof text, file) || gate->passed >= strtoul(text, NULL, 10);
        gate->passed += !held;
        fclose(file);
    }
    pthread_mutex_unlock(&gate->mutex);
    return held;
}

/* PATH.held is there as soon as somebody is held. */
static void tell_held(const char *path)
{
    char held[PATH_MAX];

    snprintf(held, sizeof held, "%s.held", path);
    SCOPED_CLOSE int fd = open(held, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

enum gate_name {
    GATE_TRANSFER,
    GATE_MOVE,
    GATE_DISK,
    GATE_COUNT,
};

static void wait_at(enum gate_name name)
{
    static const char *const variables[GATE_COUNT] = {"GMSFS_GATE", "GMSFS_MOVE_GATE",
                                                      "GMSFS_DISK_GATE"};
    static struct gate gates[GATE_COUNT] = {{.mutex = PTHREAD_MUTEX_INITIALIZER},
                                            {.mutex = PTHREAD_MUTEX_INITIALIZER},
                                            {.mutex = PTHREAD_MUTEX_INITIALIZER}};
    const struct timespec pause = {.tv_nsec = 5000000};
    const char *path = getenv(variables[name]);
    bool told = false;

    while (path && is_held(path, &gates[name])) {
        if (!told)
            tell_held(path);
        told = true;
        nanosleep(&pause, NULL);
    }
}

/* Tests hold transfers, steps of moves, or those by the disk alone, as long as a file exists. */
void hook_wait_at_gates(unsigned pool)
{
    if (pool == SERVICE_POOL_TRANSFER)
        wait_at(GATE_TRANSFER);
    if (pool == SERVICE_POOL_MOVE || pool == SERVICE_POOL_DISK)
        wait_at(GATE_MOVE);
    if (pool == SERVICE_POOL_DISK)
        wait_at(GATE_DISK);
}

/* ---- deaths -------------------------------------------------------------------------------- */

/* Of one death: false where there is none. */
static bool take_death(const char *path, char *how)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat file;

    if (fd < 0)
        return false;
    bool is_due = fstat(fd, &file) == 0 && file.st_size > 0 &&
                  pread(fd, how, 1, file.st_size - 1) == 1 && ftruncate(fd, file.st_size - 1) == 0;
    close(fd);
    return is_due;
}

void fs_die_if_told(const char *variable)
{
    const char *path = getenv(variable);
    char how;

    if (!path || !take_death(path, &how) || how == '.')
        return;
    if (how == 'e')
        _exit(1);
    raise(SIGKILL);
}

/* ---- of the daemon's parts ----------------------------------------------------------------- */

/* Tests have builds that differ: beside a program there may be a file PROGRAM.abi, whose lines are
 * "state 12 10": it writes version 12, and reads those since 10. */
struct abi_number abi_own_numbers(const struct abi_number *abi)
{
    char path[4096 + 8], name[32];
    ssize_t bytes = readlink("/proc/self/exe", path, 4095);
    struct abi_number found = *abi;
    uint32_t number, oldest;

    if (bytes <= 0)
        return found;
    strcpy(path + bytes, ".abi");
    SCOPED_FILE FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%31s %u %u", name, &number, &oldest) == 3)
        if (strcmp(name, abi->name) == 0) {
            found.number = number;
            found.oldest = oldest;
        }
    return found;
}

/* Whatever a test has done, the journal tells of the state that it led to. */
void replay_check(const struct core *core, const struct journal_files *files)
{
    struct journal *journal = NULL;
    struct core *replayed = NULL;
    struct failure failure;
    SCOPED_FREE uint8_t *bytes = NULL, *again = NULL;
    size_t size = 0, again_size = 0;
    int error = journal_open(files, &journal, &failure);

    if (!error)
        error = replay_journal(journal, &replayed, &failure);

    if (error) {
        log_error("%s", failure.text);
        abort();
    }
    if (core_encode(core, &bytes, &size) || core_encode(replayed, &again, &again_size) ||
        size != again_size || memcmp(bytes, again, size) != 0) {
        log_error("the journal tells of another state");
        abort();
    }
    core_free(replayed);
    journal_close(journal);
}
