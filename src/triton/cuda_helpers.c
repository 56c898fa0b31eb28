/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/cuda_helpers.h"

#include "base/clock.h"
#include "base/idvec.h"
#include "base/log.h"
#include "base/scope.h"
#include "base/test_hooks.h"
#include "triton/cuda_message.h"
#include "triton/cuda_start.h"
#include "triton/opener_message.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_SLOTS (2 * CUDA_MAX_HELPERS) /* some have ended, and are not reaped yet */
#define ANSWER_MS 20000u                 /* a starting driver takes a second or two */
#define IDLE_MS   10000u                 /* a context takes a while to make */
#define LEASE_S   30                     /* timeout of a lease's requests */

struct kept {    /* a region whose memory is open */
    uint64_t id; /* first for idvec */
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
};

struct helper {
    uint32_t uid;
    pid_t pid;  /* 0: the slot is free */
    int socket; /* -1: ended, or being ended */
    bool is_expected;
    struct idvec regions; /* of struct kept */
    struct cuda_ask *asked, **asked_end;
    unsigned asked_count;
    uint64_t used_ms;
};

struct cuda_helpers {
    struct registry *registry;
    struct helper slots[MAX_SLOTS];
    uint64_t next_id;
};

/* ---- processes ----------------------------------------------------------------------------- */

static void fail_asks(struct helper *helper, int error)
{
    struct cuda_ask *ask = helper->asked;

    helper->asked = NULL;
    helper->asked_end = &helper->asked;
    helper->asked_count = 0;
    for (struct cuda_ask *next; ask; ask = next) {
        next = ask->next;
        ask->done(ask, error, 0);
    }
}

static void lose(struct helper *helper, int error)
{
    if (helper->socket < 0)
        return;
    close(helper->socket);
    helper->socket = -1;
    idvec_free_items(&helper->regions);
    fail_asks(helper, error);
}

static void end(struct helper *helper, int error)
{
    helper->is_expected = true;
    kill(helper->pid, SIGKILL);
    lose(helper, error);
}

static void report(const struct helper *helper, int status)
{
    static const char rest[] = "the next requests open its regions again";

    if (helper->is_expected)
        return;
    if (WIFSIGNALED(status))
        log_warning("triton: the process that had CUDA memory of user %u open was ended by signal "
                    "%d; %s",
                    helper->uid, WTERMSIG(status), rest);
    else
        log_warning("triton: the process that had CUDA memory of user %u open has failed with "
                    "status %d; %s",
                    helper->uid, WEXITSTATUS(status), rest);
}

static void reap(struct helper *helper)
{
    int status;

    if (waitpid(helper->pid, &status, WNOHANG) != helper->pid)
        return;
    report(helper, status);
    *helper = (struct helper){.socket = -1};
}

static bool is_idle(const struct helper *helper)
{
    return helper->pid && helper->socket >= 0 && helper->regions.count == 0 && !helper->asked;
}

static struct helper *find(struct cuda_helpers *helpers, uint32_t uid)
{
    for (size_t i = 0; i < MAX_SLOTS; i++) {
        struct helper *helper = &helpers->slots[i];
        if (helper->pid && helper->socket >= 0 && helper->uid == uid)
            return helper;
    }
    return NULL;
}

bool cuda_helpers_has(struct cuda_helpers *helpers, uint32_t uid)
{
    return find(helpers, uid) != NULL;
}

/* Returns NULL if the maximum is running and none is idle. */
static struct helper *find_slot(struct cuda_helpers *helpers)
{
    struct helper *idle = NULL, *slot = NULL;
    unsigned count = 0;

    for (size_t i = 0; i < MAX_SLOTS; i++) {
        struct helper *helper = &helpers->slots[i];
        if (!helper->pid)
            slot = helper;
        else if (helper->socket >= 0)
            count++;
        if (is_idle(helper))
            idle = helper;
    }
    if (count == CUDA_MAX_HELPERS && !idle)
        return NULL;
    if (count == CUDA_MAX_HELPERS && slot)
        end(idle, 0);
    return slot;
}

static int find_or_start(struct cuda_helpers *helpers, uint32_t uid, struct helper **found)
{
    struct helper *helper = find(helpers, uid);
    int error;

    if (!helper) {
        helper = find_slot(helpers);
        if (!helper)
            return -ENOSPC;
        error = cuda_start(uid, &helper->pid, &helper->socket);
        if (error) {
            *helper = (struct helper){.socket = -1};
            return error;
        }
        helper->uid = uid;
        helper->asked_end = &helper->asked;
    }
    helper->used_ms = clock_now_ms();
    *found = helper;
    return 0;
}

int cuda_helpers_new(struct registry *registry, struct cuda_helpers **helpers)
{
    struct cuda_helpers *new = calloc(1, sizeof *new);

    if (!new)
        return -ENOMEM;
    new->registry = registry;
    new->next_id = 1;
    for (size_t i = 0; i < MAX_SLOTS; i++)
        new->slots[i].socket = -1;
    *helpers = new;
    return 0;
}

void cuda_helpers_free(struct cuda_helpers *helpers)
{
    if (!helpers)
        return;
    for (size_t i = 0; i < MAX_SLOTS; i++) {
        struct helper *helper = &helpers->slots[i];
        if (!helper->pid)
            continue;
        kill(helper->pid, SIGKILL);
        if (helper->socket >= 0)
            close(helper->socket);
        idvec_free_items(&helper->regions);
    }
    free(helpers);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends a request. A helper that does not take it is stuck, and is ended. */
static int tell(struct helper *helper, enum cuda_op op, const struct cuda_target *target,
                uint64_t id, int fd)
{
    struct cuda_request request = {.id = id, .op = op, .device_id = target->device_id};

    memcpy(request.handle, target->handle, sizeof request.handle);
    int error = opener_send(helper->socket, &request, sizeof request, &fd, fd >= 0);
    if (!error)
        return 0;
    end(helper, -EPIPE);
    return -EPIPE;
}

int cuda_helpers_open(struct cuda_helpers *helpers, const struct cuda_target *target,
                      struct cuda_ask *ask)
{
    struct helper *helper;
    int error = find_or_start(helpers, target->uid, &helper);

    if (!error && helper->asked_count == CUDA_MAX_ASKED)
        error = -ENOSPC;
    if (error)
        return error;
    ask->id = helpers->next_id++;
    error = tell(helper, CUDA_OPEN, target, ask->id, -1);
    if (error)
        return error;
    ask->asked_ms = clock_now_ms();
    ask->next = NULL;
    *helper->asked_end = ask;
    helper->asked_end = &ask->next;
    helper->asked_count++;
    return 0;
}

void cuda_helpers_close(struct cuda_helpers *helpers, const struct cuda_target *target)
{
    struct helper *helper = find(helpers, target->uid);

    if (helper)
        tell(helper, CUDA_CLOSE, target, 0, -1);
}

static void let_go(struct helper *helper, struct kept *kept)
{
    const struct cuda_target target = {.uid = helper->uid, .handle = kept->handle};

    idvec_remove(&helper->regions, kept->id);
    tell(helper, CUDA_CLOSE, &target, 0, -1);
    free(kept);
    helper->used_ms = clock_now_ms();
}

/* Returns true if the helper has the region's memory open. A region of the same number with another
 * handle belongs to another mount on the same path, and is closed. */
static bool is_kept(struct helper *helper, const struct cuda_target *target, uint64_t region)
{
    struct kept *kept = idvec_find(&helper->regions, region);

    if (!kept || memcmp(kept->handle, target->handle, sizeof kept->handle) == 0)
        return kept != NULL;
    let_go(helper, kept);
    return false;
}

void cuda_helpers_keep(struct cuda_helpers *helpers, const struct cuda_target *target,
                       uint64_t region)
{
    struct helper *helper = find(helpers, target->uid);
    struct kept *kept = helper && !is_kept(helper, target, region) ? malloc(sizeof *kept) : NULL;

    if (kept) {
        kept->id = region;
        memcpy(kept->handle, target->handle, sizeof kept->handle);
        if (idvec_insert(&helper->regions, kept) == 0)
            return;
    }
    free(kept);
    cuda_helpers_close(helpers, target); /* then each request opens it */
}

static int make_lease(int *ours, int *theirs)
{
    const struct timeval wait = {.tv_sec =
                                     (time_t)(LEASE_S * hook_number("GMSFS_TRITON_PATIENCE", 1))};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return -errno;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    *ours = pair[0];
    *theirs = pair[1];
    return 0;
}

/* Opens, once for all requests, the memory of a region that was registered before this helper
 * started. */
static int adopt(struct cuda_helpers *helpers, struct helper *helper,
                 const struct cuda_target *target, uint64_t region)
{
    if (is_kept(helper, target, region))
        return 0;
    int error = helper->socket < 0 ? -EPIPE : tell(helper, CUDA_OPEN, target, 0, -1);
    if (!error)
        cuda_helpers_keep(helpers, target, region);
    return error;
}

int cuda_helpers_lease(struct cuda_helpers *helpers, const struct cuda_target *target,
                       uint64_t region, int *lease)
{
    struct helper *helper;
    int theirs = -1, error = find_or_start(helpers, target->uid, &helper);

    if (!error)
        error = adopt(helpers, helper, target, region);
    if (!error)
        error = make_lease(lease, &theirs);
    if (error)
        return error;
    error = tell(helper, CUDA_LEASE, target, 0, theirs);
    close(theirs);
    if (error)
        close(*lease);
    return error;
}

/* ---- ended regions and helpers --------------------------------------------------------------- */

static bool is_among(const struct kept *kept, const struct gmsfs_region_info *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].id == kept->id &&
            memcmp(list[i].raw_handle, kept->handle, sizeof kept->handle) == 0)
            return true;
    }
    return false;
}

/* Closes the memory of regions that the mount no longer lists; all, if the mount does not
 * answer. */
static void look_at(struct cuda_helpers *helpers, struct helper *helper)
{
    SCOPED_FREE struct gmsfs_region_info *list = NULL;
    enum gmsfs_region_reason reason;
    size_t count = 0;

    registry_list(helpers->registry, helper->uid, GMSFS_REGION_CUDA, NULL, &list, &count, &reason);
    for (size_t i = helper->regions.count; i-- > 0 && helper->socket >= 0;) {
        struct kept *kept = helper->regions.items[i];
        if (!is_among(kept, list, count))
            let_go(helper, kept);
    }
}

void cuda_helpers_look(struct cuda_helpers *helpers, uint32_t uid)
{
    struct helper *helper = find(helpers, uid);

    if (helper && helper->regions.count > 0)
        look_at(helpers, helper);
}

void cuda_helpers_tick(struct cuda_helpers *helpers)
{
    uint64_t give_up_ms = ANSWER_MS * hook_number("GMSFS_TRITON_PATIENCE", 1);

    for (size_t i = 0; i < MAX_SLOTS; i++) {
        struct helper *helper = &helpers->slots[i];
        if (!helper->pid)
            continue;
        if (helper->socket >= 0 && helper->regions.count > 0)
            look_at(helpers, helper);
        if (is_idle(helper) && clock_now_ms() - helper->used_ms >= IDLE_MS)
            end(helper, 0);
        else if (helper->asked && clock_now_ms() - helper->asked->asked_ms >= give_up_ms)
            end(helper, -ETIMEDOUT);
        if (helper->socket < 0)
            reap(helper);
        if (helper->pid && helper->socket < 0)
            kill(helper->pid, SIGKILL); /* it closed its socket, but has not ended */
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

bool cuda_helpers_has_any(const struct cuda_helpers *helpers)
{
    for (size_t i = 0; i < MAX_SLOTS; i++) {
        if (helpers->slots[i].pid)
            return true;
    }
    return false;
}

nfds_t cuda_helpers_list(const struct cuda_helpers *helpers, struct pollfd *polled)
{
    nfds_t count = 0;

    for (size_t i = 0; i < MAX_SLOTS && count < CUDA_MAX_HELPERS; i++) {
        if (helpers->slots[i].pid && helpers->slots[i].socket >= 0)
            polled[count++] = (struct pollfd){.fd = helpers->slots[i].socket, .events = POLLIN};
    }
    return count;
}

/* Answers arrive in the order of the requests; a process that sends anything else is not our
 * helper. */
static int serve_answer(struct helper *helper)
{
    struct cuda_reply reply = {0};
    struct cuda_ask *ask = helper->asked;
    size_t bytes = sizeof reply, fd_count = 0;
    int error = opener_receive(helper->socket, &reply, &bytes, NULL, &fd_count);

    if (error)
        return error;
    if (bytes != sizeof reply || !ask || reply.id != ask->id || reply.error > 0)
        return -EPIPE;
    helper->asked = ask->next;
    if (!ask->next)
        helper->asked_end = &helper->asked;
    helper->asked_count--;
    helper->used_ms = clock_now_ms();
    ask->done(ask, reply.error, reply.size_bytes);
    return 0;
}

static void serve(struct helper *helper)
{
    int error = 0;

    while (!error && helper->socket >= 0)
        error = serve_answer(helper);
    if (error == -EAGAIN || helper->socket < 0)
        return;
    lose(helper, -EPIPE); /* it hung up, or sends nonsense */
}

void cuda_helpers_serve(struct cuda_helpers *helpers, const struct pollfd *polled, nfds_t count)
{
    for (nfds_t i = 0; i < count; i++) {
        for (size_t at = 0; polled[i].revents && at < MAX_SLOTS; at++) {
            struct helper *helper = &helpers->slots[at];
            if (helper->pid && helper->socket == polled[i].fd)
                serve(helper);
        }
    }
}
