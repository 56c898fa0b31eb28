/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that has one user's CUDA memory open, and a context for it. The opener
 * (cuda_helpers.h) starts it, as that user, when the user registers the first handle, tells it
 * which regions to open and close, and gives out leases that it serves. One thread, which never
 * blocks on a lease. It ends, and all memory is closed, when the opener hangs up or a context is
 * lost.
 */
#include "triton/cuda_memory.h"
#include "triton/cuda_message.h"
#include "triton/opener_message.h"
#include "triton/triton.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define COMM "gmsfs-cuda" /* at most 15 characters */

struct lease {
    struct cuda_memory *memory; /* NULL: it did not open */
    int error;                  /* why it did not open */
};

struct helper {
    struct cuda_devices devices;
    struct lease leases[CUDA_MAX_LEASES];
    struct pollfd polled[1 + CUDA_MAX_LEASES]; /* the opener's, then one for each lease */
    unsigned lease_count;
    struct cuda_move move;
};

static void drop_if_unused(struct helper *helper, struct cuda_memory *memory)
{
    if (memory->regions == 0 && memory->leases == 0)
        cuda_memory_close(&helper->devices, memory);
}

/* ---- leases -------------------------------------------------------------------------------- */

static void end_lease(struct helper *helper, unsigned at)
{
    struct cuda_memory *memory = helper->leases[at].memory;
    unsigned last = --helper->lease_count;

    close(helper->polled[1 + at].fd);
    helper->leases[at] = helper->leases[last];
    helper->polled[1 + at] = helper->polled[1 + last];
    if (!memory)
        return;
    memory->leases--;
    drop_if_unused(helper, memory);
}

static void begin_lease(struct helper *helper, const struct cuda_request *request, int fd)
{
    struct lease *lease = &helper->leases[helper->lease_count];

    if (helper->lease_count == CUDA_MAX_LEASES) {
        close(fd); /* the other end sees the hangup */
        return;
    }
    *lease = (struct lease){0};
    lease->error =
        cuda_memory_open(&helper->devices, request->handle, request->device_id, &lease->memory);
    if (lease->memory)
        lease->memory->leases++;
    helper->polled[1 + helper->lease_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    helper->lease_count++;
}

/* Carries out `move` and makes it the answer; returns the number of data bytes to send with it. */
static size_t move_bytes(struct helper *helper, const struct lease *lease, size_t got)
{
    struct cuda_move *move = &helper->move;
    size_t with = got - CUDA_MOVE_BYTES(0);

    if (!lease->memory)
        move->error = lease->error == -EINVAL ? -ESTALE : lease->error;
    else if (move->size_bytes > CUDA_PART_BYTES ||
             with != (move->op == CUDA_WRITE ? move->size_bytes : 0))
        move->error = -EPROTO;
    else if (move->op == CUDA_READ)
        move->error = cuda_memory_read(&helper->devices, lease->memory, move->offset, move->bytes,
                                       move->size_bytes);
    else if (move->op == CUDA_WRITE)
        move->error = cuda_memory_write(&helper->devices, lease->memory, move->offset, move->bytes,
                                        move->size_bytes);
    else
        move->error = -EPROTO;
    return move->op == CUDA_READ && !move->error ? move->size_bytes : 0;
}

static bool serve_lease(struct helper *helper, unsigned at)
{
    int fd = helper->polled[1 + at].fd;
    ssize_t got = recv(fd, &helper->move, sizeof helper->move, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got < (ssize_t)CUDA_MOVE_BYTES(0))
        return false;
    size_t with = move_bytes(helper, &helper->leases[at], (size_t)got);
    return send(fd, &helper->move, CUDA_MOVE_BYTES(with), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* ---- the opener ---------------------------------------------------------------------------- */

static void open_region(struct helper *helper, const struct cuda_request *request)
{
    struct cuda_memory *memory = NULL;
    struct cuda_reply reply = {.id = request->id};

    reply.error = cuda_memory_open(&helper->devices, request->handle, request->device_id, &memory);
    if (memory) {
        memory->regions++;
        reply.size_bytes = memory->size_bytes;
    }
    if (request->id != 0)
        opener_send(CUDA_HELPER_FD, &reply, sizeof reply, NULL, 0);
}

static void close_region(struct helper *helper, const struct cuda_request *request)
{
    struct cuda_memory *memory = cuda_memory_find(&helper->devices, request->handle);

    if (!memory || memory->regions == 0)
        return; /* it did not open when this process was started again */
    memory->regions--;
    drop_if_unused(helper, memory);
}

/* Returns false if the opener has hung up. */
static bool serve_opener(struct helper *helper)
{
    struct cuda_request request = {0};
    size_t bytes = sizeof request, fd_count = 1;
    int fd = -1;

    if (opener_receive(CUDA_HELPER_FD, &request, &bytes, &fd, &fd_count) != 0 ||
        bytes != sizeof request || (fd_count == 1) != (request.op == CUDA_LEASE))
        return false;
    if (request.op == CUDA_OPEN)
        open_region(helper, &request);
    else if (request.op == CUDA_CLOSE)
        close_region(helper, &request);
    else if (request.op == CUDA_LEASE)
        begin_lease(helper, &request, fd);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool serve_next(struct helper *helper)
{
    if (poll(helper->polled, 1 + helper->lease_count, -1) < 0)
        return errno == EINTR;
    /* Backwards, because ending a lease moves the last one to its place. */
    for (unsigned at = helper->lease_count; at-- > 0;) {
        if (helper->polled[1 + at].revents && !serve_lease(helper, at))
            end_lease(helper, at);
    }
    return !helper->polled[0].revents || serve_opener(helper);
}

int triton_cuda_main(void)
{
    struct helper *helper;
    int type = 0;
    socklen_t bytes = sizeof type;

    if (getsockopt(CUDA_HELPER_FD, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
        type != SOCK_SEQPACKET) {
        fputs("gmsfs: this is started by gmsfs triton, not by hand\n", stderr);
        return 2;
    }
    prctl(PR_SET_NAME, COMM);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    helper = calloc(1, sizeof *helper);
    if (!helper)
        return 1;
    helper->polled[0] = (struct pollfd){.fd = CUDA_HELPER_FD, .events = POLLIN};
    while (!helper->devices.is_broken && serve_next(helper))
        ;
    _exit(helper->devices.is_broken); /* the driver needs no exit handlers of libraries */
}
