/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that the kernel kills for lack of memory. Such an end says nothing about the worker, and
 * passes when the machine or the cgroup has memory again: so the keeper keeps trying, and must not
 * be killed in the worker's place.
 */
#include "daemon/keeper_internal.h"

#include "base/file_io.h"
#include "vmm/headroom.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOM_BYTES  (UINT64_C(4) << 20) /* for a process with little to do */
#define SCORE_FILE  "/proc/self/oom_score_adj"
#define SCORE_BYTES 16u
#define SCORE_MAX   1000
#define SPARED      "-1000" /* OOM_SCORE_ADJ_MIN: never chosen */
/* Added to the score of a keeper that is not spared, as if the worker were larger by 5 % of all
 * memory. */
#define EXPOSED 50

static char former_score[SCORE_BYTES]; /* "" if it cannot be read */
static bool is_spared;

bool keeper_is_starved(int status, uint64_t kills_before, uint64_t kills_now)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kills_now > kills_before;
}

/* Opens the headroom once: the paths of the cgroups do not change. Returns NULL if that fails. */
static struct headroom *get_headroom(void)
{
    static struct headroom *headroom;

    if (!headroom && headroom_open("", &headroom) != 0)
        headroom = NULL;
    return headroom;
}

uint64_t keeper_read_kills(void)
{
    uint64_t kills = 0;

    if (!get_headroom() || headroom_read_kills(get_headroom(), &kills) != 0)
        return 0;
    return kills;
}

bool keeper_has_room(const struct keeper *keeper)
{
    struct headroom_info info;

    if (is_spared && !keeper->restarts.was_starved)
        return true;
    return !get_headroom() || headroom_read(get_headroom(), &info) != 0 ||
           info.free_bytes >= ROOM_BYTES;
}

static bool write_score(const char *score)
{
    SCOPED_CLOSE int fd = open(SCORE_FILE, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, score, strlen(score)) == (ssize_t)strlen(score);
}

void keeper_spare_itself(void)
{
    char score[SCORE_BYTES] = "";
    SCOPED_CLOSE int fd = open(SCORE_FILE, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, score, sizeof score - 1);

    if (bytes <= 0)
        return;
    memcpy(former_score, score, sizeof score);
    is_spared = write_score(SPARED);
}

void keeper_expose_worker(void)
{
    char score[SCORE_BYTES];
    int raised = atoi(former_score) + EXPOSED;

    snprintf(score, sizeof score, "%d", raised < SCORE_MAX ? raised : SCORE_MAX);
    if (*former_score)
        write_score(is_spared ? former_score : score);
}
