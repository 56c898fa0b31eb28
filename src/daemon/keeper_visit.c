/* SPDX-License-Identifier: Apache-2.0 */
/* Hands the mount on: to another program as the worker (`gmsfs upgrade`), or to another process as
 * the keeper (`gmsfs mount --takeover`; keeper_takeover.c is the other side). */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "daemon/namespaces.h"
#include "daemon/program.h"
#include "daemon/wire.h"
#include "gmsfs_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OFFER_MS 10000u /* for the next keeper to check the offer */
#define TRIAL_MS 30000u /* for another program to serve; a GPU's driver takes seconds */
#define GIVING_S 5      /* for each message of the handover */
#define GO_ON    'g'

#define BEFORE_IT_SERVED " before it served"

struct visit_answer {
    struct gmsfs_fds_header header;
    char text[KEEPER_ANSWER_BYTES];
};

_Static_assert(ABI_TEXT_BYTES + NAMESPACES_TEXT_BYTES <= KEEPER_ANSWER_BYTES, "an offer fits");

/* ---- answers ----------------------------------------------------------------------------- */

static void send_answer(int fd, int error, const char *text, size_t text_bytes)
{
    struct visit_answer message = {.header = {.version = GMSFS_ABI_VERSION, .error = error}};

    memcpy(message.text, text, text_bytes);
    send(fd, &message, sizeof message.header + text_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void answer(int fd, int error, const char *text)
{
    char shown[KEEPER_ANSWER_BYTES];

    snprintf(shown, sizeof shown, "%s", text);
    send_answer(fd, error, shown, strlen(shown) + 1);
}

static void end_visit(struct keeper *keeper, int error, const char *text)
{
    struct keeper_visit *visit = &keeper->visit;

    if (visit->fd >= 0)
        answer(visit->fd, error, text);
    file_close_fd(&visit->fd);
    visit->stage = VISIT_NONE;
    visit->until_ms = 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Between two keepers both have the owner's rights, because root has become the owner (mount.c). */
static int check_peer(int fd, bool only_owner)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return -errno;
    return peer.uid == geteuid() || (peer.uid == 0 && !only_owner) ? 0 : -EPERM;
}

/* Returns NULL if there is none. */
static const char *find_obstacle(const struct keeper *keeper)
{
    if (keeper->visit.stage != VISIT_NONE)
        return "another upgrade or takeover is under way";
    if (!keeper->is_serving || keeper->end_ms || keeper->is_detached || keeper->unmounter > 0)
        return "the mount begins or ends";
    return keeper->binder.pid > 0 ? "its socket is being bound; try again" : NULL;
}

static void yield(struct keeper *keeper, enum keeper_visit_stage stage)
{
    keeper->visit.stage = stage;
    keeper->visit.until_ms = keeper->worker > 0 ? clock_now_ms() + KEEPER_YIELD_MS : 0;
    keeper_tell_worker(keeper, WIRE_YIELD, -1);
}

static void begin_upgrade(struct keeper *keeper)
{
    struct keeper_visit *visit = &keeper->visit;
    struct failure failure;
    int error = program_open(keeper->program_path, keeper->program.abi, &visit->next.fd,
                             visit->next.abi, &failure);

    if (error) {
        log_warning("%s: not upgraded: %s", keeper_path(keeper), failure.text);
        end_visit(keeper, error, failure.text);
        return;
    }
    log_info("%s: upgrading: the next worker is %s", keeper_path(keeper), keeper->program_path);
    yield(keeper, VISIT_UPGRADE);
}

static void offer(struct keeper *keeper)
{
    char text[ABI_TEXT_BYTES + NAMESPACES_TEXT_BYTES];
    size_t abi_bytes = (size_t)snprintf(text, ABI_TEXT_BYTES, "%s", keeper->program.abi) + 1;

    log_info("%s: another process wants to become the keeper", keeper_path(keeper));
    namespaces_write(text + abi_bytes);
    send_answer(keeper->visit.fd, 0, text, abi_bytes + strlen(text + abi_bytes) + 1);
    keeper->visit.stage = VISIT_OFFERED;
    keeper->visit.until_ms = clock_now_ms() + OFFER_MS;
}

void keeper_on_introduced(struct keeper *keeper, uint64_t op, int fd)
{
    bool is_takeover = op == GMSFS_FDS_TAKEOVER;
    int error = check_peer(fd, is_takeover);
    const char *obstacle = find_obstacle(keeper);

    if (error || obstacle) {
        answer(fd, error ? error : -EBUSY,
               !error ? obstacle
                      : "only root and the user that mounted it may: run this as one of them");
        close(fd);
        return;
    }
    keeper->visit.fd = fd;
    if (is_takeover)
        offer(keeper);
    else
        begin_upgrade(keeper);
}

/* The next keeper has checked the offer; or the process that asked for an upgrade has gone, which
 * does not matter. */
void keeper_on_visitor(struct keeper *keeper)
{
    char said;
    ssize_t got = recv(keeper->visit.fd, &said, 1, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (keeper->visit.stage == VISIT_OFFERED && got == 1 && said == GO_ON) {
        yield(keeper, VISIT_GIVING);
    } else if (keeper->visit.stage == VISIT_OFFERED) {
        log_warning("%s: not taken over: the other process gave up; this keeper continues",
                    keeper_path(keeper));
        end_visit(keeper, -ECANCELED, "not taken over");
    } else if (got <= 0) { /* a next keeper that has gone is found out when it should receive */
        file_close_fd(&keeper->visit.fd);
    }
}

/* The new worker has failed to serve. */
static void go_back(struct keeper *keeper, const char *why)
{
    struct keeper_visit *visit = &keeper->visit;
    char text[256];

    snprintf(text, sizeof text, "the new worker %s; the former program continues", why);
    log_error("%s: not upgraded: %s", keeper_path(keeper), text);
    visit->is_trial = false;
    file_close_fd(&keeper->program.fd);
    keeper->program = visit->former;
    end_visit(keeper, -EIO, text);
}

void keeper_on_visit_late(struct keeper *keeper)
{
    struct keeper_visit *visit = &keeper->visit;

    visit->until_ms = 0;
    if (visit->stage == VISIT_OFFERED) {
        end_visit(keeper, -ETIMEDOUT, "not taken over in time");
    } else if (visit->is_trial && keeper->worker > 0) {
        visit->is_late = true;
        kill(keeper->worker, SIGKILL);
    } else if (visit->is_trial) { /* no process could be started for it */
        go_back(keeper, "cannot be started");
    } else if (keeper->worker > 0) {
        log_warning("%s: the worker does not finish its step; it is killed, which loses nothing",
                    keeper_path(keeper));
        kill(keeper->worker, SIGKILL);
    }
}

/* ---- another program --------------------------------------------------------------------- */

static int leave_open(int fd)
{
    return fcntl(fd, F_SETFD, 0) == 0 ? 0 : -errno;
}

void keeper_execute_worker(struct keeper *keeper, int control_fd, int keep_fd)
{
    char flag[64];
    char *argv[] = {(char[]){"gmsfs"}, (char[]){"mount"}, flag,
                    (char *)(uintptr_t)keeper->setup->mountpoint, NULL};
    struct handover handover;
    struct handover_text text = {0};
    int error = keeper_describe(keeper, control_fd, keep_fd, &handover);

    if (!error)
        error = handover_encode(&handover, &text);
    int fd = error ? error : keeper_write_text(NULL, 0, &text);
    error = fd < 0 ? fd : leave_open(fd);
    for (size_t i = 0; i < text.count && !error; i++)
        error = leave_open(text.fds[i]);
    snprintf(flag, sizeof flag, PROGRAM_WORKER_FLAG "%d", fd);
    if (!error)
        error = program_execute(keeper->program.fd, argv);
    log_error("%s: cannot execute the worker's program: %s", keeper_path(keeper), strerror(-error));
}

static void switch_program(struct keeper *keeper)
{
    struct keeper_visit *visit = &keeper->visit;

    visit->former = keeper->program;
    keeper->program = visit->next;
    visit->is_trial = true;
    visit->is_late = false;
    visit->until_ms = clock_now_ms() + hook_number("GMSFS_TRIAL_MS", TRIAL_MS);
}

void keeper_end_trial(struct keeper *keeper)
{
    struct keeper_visit *visit = &keeper->visit;
    char text[64];

    if (!visit->is_trial)
        return;
    visit->is_trial = false;
    file_close_fd(&visit->former.fd);
    log_info("%s: upgraded", keeper_path(keeper));
    snprintf(text, sizeof text, "worker %d", (int)keeper->worker);
    end_visit(keeper, 0, text);
    keeper_store_update(keeper);
}

bool keeper_go_back(struct keeper *keeper)
{
    char how[128];

    if (!keeper->visit.is_trial)
        return false;
    if (keeper->visit.is_late) {
        go_back(keeper, "did not serve in time and was killed");
        return true;
    }
    keeper_describe_end(keeper->worker_status, how, sizeof how - sizeof BEFORE_IT_SERVED);
    strcat(how, BEFORE_IT_SERVED);
    go_back(keeper, how);
    return true;
}

/* ---- another keeper: the present one's side ------------------------------------------------- */

static int send_descriptors(int fd, const struct handover_text *text)
{
    static struct wire_batch batch;
    int error = 0;

    for (size_t done = 0; done < text->count && !error; done += batch.head.value) {
        size_t left = text->count - done;
        batch.head = (struct wire_message){.type = WIRE_KEEP,
                                           .value = left < WIRE_BATCH_MAX ? left : WIRE_BATCH_MAX};
        error = wire_send_batch(fd, &batch, text->fds + done);
    }
    return error;
}

/* The file that the other keeper receives with the descriptors, in memory that both map. */
struct given {
    int fd; /* -1 if none */
    size_t size;
};

static int send_all(struct keeper *keeper, int fd, struct given *given)
{
    struct wire_message message = {.type = WIRE_KEEP};
    struct handover handover;
    struct handover_text text = {0};
    int error = keeper_describe(keeper, -1, -1, &handover);

    if (!error)
        error = handover_encode(&handover, &text);
    given->fd = error ? -1 : keeper_write_text(NULL, 0, &text);
    if (!error && given->fd < 0)
        error = given->fd;
    message.id = given->size = text.size;
    message.value = text.count;
    if (!error && pwrite(given->fd, (const char[]){KEEPER_UNDECIDED}, 1, (off_t)given->size) != 1)
        error = -errno;
    if (!error)
        error = wire_send(fd, &message, given->fd);
    if (!error)
        error = send_descriptors(fd, &text);
    handover_text_free(&text);
    return error;
}

static int hear_everything_came(int fd)
{
    struct wire_message message;
    SCOPED_CLOSE int passed_fd = -1;
    int error = wire_receive(fd, &message, &passed_fd);

    return error ? error : message.type == WIRE_ACK ? message.error : -EPROTO;
}

/* Writes the decision into the byte, which counts. The message wakes the other keeper, as the end
 * of the connection does. */
static void tell_decision(int fd, const struct given *given, int error)
{
    const struct wire_message message = {.type = error ? WIRE_END : WIRE_YIELD, .error = error};
    char decision = error ? KEEPER_KEPT : KEEPER_GIVEN;

    if (given->fd >= 0)
        (void)!pwrite(given->fd, &decision, 1, (off_t)given->size);
    if (!hook_is_set("GMSFS_TAKEOVER_MUTE"))
        wire_send(fd, &message, -1);
}

static void bound_waits(int fd)
{
    const struct timeval limit = {.tv_sec = GIVING_S};

    fcntl(fd, F_SETFL, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* Gives everything to the other keeper; there is no worker. This keeper alone decides which of them
 * continues, when the other one confirms that it has everything; that one starts when it reads the
 * decision, or when this process is dead. */
static bool give(struct keeper *keeper)
{
    struct given given = {.fd = -1};
    int fd = keeper->visit.fd;
    int error = fd < 0 ? -EPIPE : 0; /* it has hung up meanwhile */

    if (!error)
        bound_waits(fd);
    if (!error)
        error = send_all(keeper, fd, &given);
    if (!error)
        error = hear_everything_came(fd);
    if (error)
        log_error("%s: not taken over: the other process did not receive everything: %s; this one "
                  "continues",
                  keeper_path(keeper), strerror(-error));
    if (!error) /* the next one stores the same descriptors, which the manager takes for these */
        fdstore_clear(&keeper->store);
    if (fd >= 0)
        tell_decision(fd, &given, error);
    file_close_fd(&given.fd);
    file_close_fd(&keeper->visit.fd);
    keeper->visit.stage = VISIT_NONE;
    keeper->visit.until_ms = 0;
    return !error;
}

bool keeper_is_yielding(const struct keeper *keeper)
{
    return keeper->visit.stage == VISIT_GIVING ||
           (keeper->visit.stage == VISIT_UPGRADE && !keeper->visit.is_trial);
}

bool keeper_succeed_worker(struct keeper *keeper)
{
    if (keeper->visit.stage == VISIT_UPGRADE) {
        switch_program(keeper);
        return true;
    }
    keeper->is_given = give(keeper);
    return !keeper->is_given;
}
