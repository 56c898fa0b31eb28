/* SPDX-License-Identifier: Apache-2.0 */
#include "kill.h"

#include "daemon/helpers.h"
#include "daemon/keep.h"
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static struct kill_control *control; /* NULL if no process is killed */
static enum kill_role own_role = KILL_NOBODY;
static pid_t own_pid; /* the process of that role; its children inherit these variables */

void (*kill_simulated)(const char *step);

/* Another thread may arrive here while the process dies already: it counts no more. */
void kill_meet(const char *step)
{
    if (kill_simulated)
        kill_simulated(step);
    if (!control || own_role == KILL_NOBODY || !atomic_load(&control->armed) ||
        atomic_load(&control->whom) != (uint32_t)own_role)
        return;
    uint32_t kills = atomic_load(&control->kills);
    if (kills >= KILL_MOST || atomic_load(&control->victim) == own_pid || getpid() != own_pid)
        return;
    if (atomic_load(&control->after[kills]) == KILL_NEVER ||
        atomic_fetch_sub(&control->after[kills], 1) != 0)
        return;
    snprintf(control->at[kills], KILL_NAME, "%s", step);
    atomic_store(&control->victim, own_pid);
    atomic_fetch_add(&control->kills, 1);
    kill(own_pid, SIGKILL);
    for (;;)
        pause();
}

/* Returns true for calls that another process can see, or that wait for another process. */
static bool kill_is_step(enum fault_point point)
{
    switch (point) {
    case FAULT_memfd_create:
    case FAULT_ftruncate:
    case FAULT_fallocate:
    case FAULT_pwrite:
    case FAULT_read:
    case FAULT_send:
    case FAULT_sendmsg:
    case FAULT_recv:
    case FAULT_recvmsg:
    case FAULT_accept4:
    case FAULT_epoll_wait:
    case FAULT_vmm_create:
    case FAULT_vmm_grow:
    case FAULT_vmm_read:
    case FAULT_vmm_write:
    case FAULT_vmm_seal:
    case FAULT_keep_add:
        return true;
    default:
        return false;
    }
}

void kill_meet_point(enum fault_point point)
{
    if ((control || kill_simulated) && kill_is_step(point))
        kill_meet(fault_point_name(point));
}

void kill_become(enum kill_role role)
{
    own_pid = getpid();
    own_role = role;
}

/* ---- the calls ----------------------------------------------------------------------------- */

WRAP_STEP(const void *, journal_add,
          (struct journal * journal, uint32_t type, const struct iovec *parts, int count),
          (journal, type, parts, count))
WRAP_STEP(void, journal_publish, (struct journal * journal), (journal))
WRAP_STEP(void, journal_set_delivered, (struct journal * journal), (journal))
WRAP_STEP(ssize_t, write, (int fd, const void *from, size_t bytes), (fd, from, bytes))
WRAP_STEP(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP_STEP(void, keep_drop, (struct keep * keep, const uint64_t *memories, size_t count),
          (keep, memories, count))
WRAP_STEP(void, helpers_submit_promised,
          (struct helpers * helpers, enum service_pool pool, struct job *job), (helpers, pool, job))

/* ---- beginning ----------------------------------------------------------------------------- */

static void refuse(const char *path, const char *why)
{
    fprintf(stderr, "gmsfs: GMSFS_KILL_CONTROL=%s: %s\n", path, why);
    _exit(2);
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *path = getenv("GMSFS_KILL_CONTROL");
    struct stat stat;

    if (!path || !*path)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &stat) != 0)
        refuse(path, strerror(errno));
    if (stat.st_size != (off_t)sizeof *control)
        refuse(path, "is not a control file of this build");
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        refuse(path, strerror(errno));
    if (control->magic != KILL_MAGIC)
        refuse(path, "is not a control file of this build");
    close(fd);
}
