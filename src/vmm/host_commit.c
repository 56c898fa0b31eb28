/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/host_commit.h"

#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

/* Bytes committed between two measurements of the machine. The fewer, the less memory other
 * processes can take meanwhile. */
#define COMMIT_CHUNK_BYTES (UINT64_C(64) << 20)

int host_commit_open(const char *root, struct host_commit *c)
{
    *c = (struct host_commit){0};
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->finished, NULL);
    return headroom_open(root, &c->headroom);
}

void host_commit_close(struct host_commit *c)
{
    headroom_close(c->headroom);
    pthread_cond_destroy(&c->finished);
    pthread_mutex_destroy(&c->mutex);
}

static int available(const struct host_commit *c, uint64_t *bytes)
{
    struct headroom_info info;
    int error = headroom_read(c->headroom, &info);

    *bytes = error < 0 ? 0 : info.available_bytes;
    return error;
}

/* Grants `bytes` to the calling thread if machine and cgroup have them. Grants in progress on other
 * threads may be in the numbers or not, so a refusal counts only when there are none. */
static int commit_admit(struct host_commit *c, uint64_t bytes)
{
    uint64_t left;
    int error;

    SCOPED_LOCK(&c->mutex);
    for (;;) {
        error = available(c, &left);
        if (error < 0)
            break;
        if (left >= c->pending_bytes && left - c->pending_bytes >= bytes) {
            c->pending_bytes += bytes;
            break;
        }
        if (c->pending_bytes == 0) {
            error = -ENOMEM;
            break;
        }
        pthread_cond_wait(&c->finished, &c->mutex);
    }
    return error;
}

static void commit_finish(struct host_commit *c, uint64_t bytes)
{
    SCOPED_LOCK(&c->mutex);
    c->pending_bytes -= bytes;
    pthread_cond_broadcast(&c->finished);
}

/* Allocates pages. fallocate(2) may return EINTR, and has then undone the whole call: frequent
 * signals could keep it from ever finishing, so they are blocked. (Linux 6.18 was not seen to be
 * interrupted.) */
static int allocate(int fd, uint64_t from, uint64_t bytes)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do
        error = fallocate(fd, 0, (off_t)from, (off_t)bytes) < 0 ? -errno : 0;
    while (error == -EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == -ENOSPC ? -ENOMEM : error;
}

int host_commit_check_limit(uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
        return -EFBIG;
    return 0;
}

int host_commit_check_room(struct host_commit *c, uint64_t bytes)
{
    uint64_t left;
    int error = c->hugepage_bytes ? 0 : available(c, &left);

    if (error < 0 || c->hugepage_bytes)
        return error;
    return left < bytes ? -ENOMEM : 0;
}

/* Huge pages come from a pool that returns ENOSPC when empty; ordinary ones are allocated in
 * chunks, each after a measurement. */
int host_commit_make(struct host_commit *c, int fd, uint64_t from, uint64_t to)
{
    int error = host_commit_check_limit(to);

    if (error == 0 && to - from > COMMIT_CHUNK_BYTES)
        error = host_commit_check_room(c, to - from);
    while (error == 0 && from < to) {
        uint64_t bytes = to - from < COMMIT_CHUNK_BYTES ? to - from : COMMIT_CHUNK_BYTES;

        if (c->hugepage_bytes) {
            error = allocate(fd, from, to - from);
            break;
        }
        error = commit_admit(c, bytes);
        if (error < 0)
            break;
        error = allocate(fd, from, bytes);
        commit_finish(c, bytes);
        from += bytes;
    }
    return error;
}
