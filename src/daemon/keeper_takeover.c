/* SPDX-License-Identifier: Apache-2.0 */
/* `gmsfs mount --takeover`: a keeper that starts with everything of another one (keeper_visit.c is
 * the other side). */
#include "daemon/keeper_internal.h"

#include "ask/ask.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "daemon/namespaces.h"
#include "daemon/wire.h"
#include "gmsfs_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* For each message of the present keeper, whose worker may have to be killed. */
#define OFFER_S       30
#define FENCE_MS      5000u
#define FENCE_DEAD_MS 500u /* for a dead one to be reaped */
#define FENCE_TURN_MS 2u
#define MAX_TEXT      (UINT64_C(256) << 20)
#define MAX_TAKEN_FDS (UINT64_C(1) << 22)

/* The text is a reason against it, or two texts: the formats, and the namespaces. */
struct offer {
    struct gmsfs_fds_header header;
    char text[KEEPER_ANSWER_BYTES];
    char end[2];
};

/* Explains errors of the kernel and of a worker, which have no text of their own. */
static const char *explain_refusal(int error)
{
    if (error == -EPERM || error == -EACCES)
        return " (only root and the user that mounted it may: run this as one of them)";
    return error == -EINVAL ? " (is it older?)" : "";
}

/* ---- the offer --------------------------------------------------------------------------- */

static int connect_to(const char *path)
{
    const struct timeval limit = {.tv_sec = OFFER_S};
    SCOPED_CLOSE int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = root < 0 ? -errno : ask_socket(0);
    int error = fd < 0 ? fd : 0;

    /* Set before connecting, which waits while the backlog is full. */
    if (!error && (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
                   setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0))
        error = -errno;
    if (!error)
        error = ask_connect(fd, root, path);
    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

/* Returns true if the command was killed meanwhile: then the takeover must not happen later. */
static bool is_given_up(const struct keeper *keeper)
{
    struct pollfd caller = {.fd = keeper->setup->ready_fd};

    return poll(&caller, 1, 0) > 0 && caller.revents & POLLERR;
}

/* Asks, and checks the answer before the present keeper gives anything up. */
static int agree(const struct keeper *keeper, int fd, struct failure *failure)
{
    const struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION,
                                              .op = GMSFS_FDS_TAKEOVER};
    struct offer offer = {0};

    if (send(fd, &request, sizeof request, MSG_NOSIGNAL) < 0)
        return failure_set(failure, -errno, "cannot ask its daemon: %s", strerror(errno));
    ssize_t got = recv(fd, &offer, sizeof offer - sizeof offer.end, 0);
    if (got < (ssize_t)sizeof offer.header)
        return failure_set(failure, got < 0 ? -errno : -ECONNRESET,
                           "its keeper does not answer: %s",
                           got < 0 ? strerror(errno) : "it has hung up");
    if (offer.header.error && got == (ssize_t)sizeof offer.header)
        return failure_set(failure, offer.header.error, "its daemon refuses: %s%s",
                           strerror(-offer.header.error), explain_refusal(offer.header.error));
    if (offer.header.error)
        return failure_set(failure, offer.header.error, "its keeper refuses: %s", offer.text);
    hook_stop_at("GMSFS_TAKEOVER_STOP", "offered");
    int error = abi_check(offer.text, failure);
    if (!error)
        error = namespaces_check(offer.text + strlen(offer.text) + 1, failure);
    if (!error && is_given_up(keeper))
        error = failure_set(failure, -ECANCELED, "the process that asked for it has gone");
    if (!error && send(fd, "g", 1, MSG_NOSIGNAL) < 0)
        error = failure_set(failure, -errno, "its keeper has gone: %s", strerror(errno));
    return error;
}

/* ---- receiving ------------------------------------------------------------------------------ */

struct taking {
    int text_fd; /* -1 if none */
    char *text;
    size_t size;
    int *fds;
    size_t count, expected;
};

static void taking_free(struct taking *taking)
{
    for (size_t i = 0; i < taking->count; i++)
        close(taking->fds[i]);
    free(taking->fds);
    free(taking->text);
    file_close_fd(&taking->text_fd);
}

static int read_text(struct taking *taking)
{
    taking->text = malloc(taking->size);
    taking->fds = malloc((taking->expected + WIRE_BATCH_MAX) * sizeof *taking->fds);
    if (!taking->text || !taking->fds)
        return -ENOMEM;
    int error = file_read_at(taking->text_fd, taking->text, taking->size, 0);
    if (error)
        return error == -ENODATA ? -EPROTO : error;
    return handover_count_fds(taking->text, taking->size) == taking->expected ? 0 : -EPROTO;
}

static int receive_text(int fd, struct taking *taking)
{
    struct wire_message message;
    int error = wire_receive(fd, &message, &taking->text_fd);

    if (!error && (message.type != WIRE_KEEP || taking->text_fd < 0 || message.id == 0 ||
                   message.id > MAX_TEXT || message.value > MAX_TAKEN_FDS))
        error = -EPROTO;
    if (error)
        return error;
    taking->size = message.id;
    taking->expected = message.value;
    return read_text(taking);
}

static int receive_descriptors(int fd, struct taking *taking)
{
    static struct wire_batch batch;

    while (taking->count < taking->expected) {
        int error = wire_receive_batch(fd, &batch, taking->fds + taking->count);
        if (error)
            return error;
        if (batch.head.type != WIRE_KEEP)
            return -EPROTO;
        taking->count += batch.head.value;
    }
    return taking->count == taking->expected ? 0 : -EPROTO;
}

/* Returns true if the mount belongs to this keeper. It does too if the other keeper died before it
 * decided, because that one cannot continue. Older builds decide by the message alone. */
static bool is_ours(int fd, const struct taking *taking)
{
    const struct wire_message everything = {.type = WIRE_ACK};
    struct wire_message message;
    SCOPED_CLOSE int passed_fd = -1;
    int error = wire_send(fd, &everything, -1);

    do
        error = wire_receive(fd, &message, &passed_fd);
    while (error == -EAGAIN);
    char decision = KEEPER_UNDECIDED;
    ssize_t got = pread(taking->text_fd, &decision, 1, (off_t)taking->size);
    if (got < 0 || (got == 1 && decision != KEEPER_UNDECIDED))
        return got == 1 && decision == KEEPER_GIVEN;
    return error == -EPIPE || (!error && message.type == WIRE_YIELD);
}

/* ---- taking --------------------------------------------------------------------------------- */

/* In another mount namespace the mount may have another number. */
static int find_mount(struct keeper *keeper, const struct handover *handover)
{
    unsigned minor = handover->mount.minor;
    int error =
        handover->is_detached ? -ENOENT : mountinfo_find_path(keeper_path(keeper), &keeper->mount);

    return error ? error : keeper->mount.minor == minor ? 0 : -EXDEV;
}

/* Takes the options of the mount as its arguments give them. They stay for good. */
static int take_setup(struct keeper *keeper, struct handover *handover, struct failure *failure)
{
    static struct daemon_options options;
    static struct keeper_setup setup;

    setup = *keeper->setup;
    if (options_parse(handover->argc, handover->argv, &options, failure->text,
                      sizeof failure->text))
        return -EINVAL;
    snprintf(options.gms_dir, sizeof options.gms_dir, "%s", handover->gms_dir);
    setup.options = &options;
    setup.argc = handover->argc;
    setup.argv = handover->argv;
    setup.allow_other = handover->allow_other;
    if (setup.is_stored)
        setup.mountpoint = handover->mountpoint;
    keeper->setup = &setup;
    log_set_level(options.log_level);
    return 0;
}

int keeper_adopt(struct keeper *keeper, struct handover *handover, struct failure *failure)
{
    int error = take_setup(keeper, handover, failure);

    if (error)
        return error;
    keeper->fuse_fd = handover->fds[HANDOVER_FUSE];
    keeper->listen_fd = handover->fds[HANDOVER_LISTENER];
    keeper->audit_fd = handover->fds[HANDOVER_AUDIT];
    keeper->trace_fd = handover->fds[HANDOVER_TRACE];
    keeper->ledger_fd = handover->fds[HANDOVER_LEDGER];
    keeper->gms_memory_fd = handover->fds[HANDOVER_GMS_MEMORY];
    keeper->gms = handover->gms;
    keeper->journal = handover->journal;
    keeper->holdings = handover->holdings;
    error = fs_ledger_map(keeper->ledger_fd, &keeper->ledger);
    int damage =
        backings_take(&keeper->backings, handover->fds[HANDOVER_BACKINGS], keeper->fuse_fd);
    if (damage)
        return failure_set(failure, damage, "cannot take the table of mapped files: %s",
                           strerror(-damage));
    return error ? failure_set(failure, error, "cannot map the ledger: %s", strerror(-error)) : 0;
}

/* Finds the first lock from this offset on. Returns false if there is none. */
static bool find_lock(const struct keeper *keeper, off_t from, struct flock *lock)
{
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from};
    return fcntl(keeper->journal.head, F_GETLK, lock) == 0 && lock->l_type != F_UNLCK;
}

/* Kills the former keeper's workers and waits until their locks on the journal, which they hold
 * until they end (worker.c), are gone. Processes that a worker had started end with it, and a
 * service manager starts no other keeper before. A dead worker that cannot be reaped does nothing
 * any more (keeper_dead.c), and may wait for an answer of this keeper's worker. */
void keeper_fence(const struct keeper *keeper)
{
    uint64_t began_ms = clock_now_ms(), waited_ms = 0;
    off_t from = 0;
    struct flock lock;
    int status;

    while (find_lock(keeper, from, &lock)) {
        if (lock.l_pid > 0)
            kill(lock.l_pid, SIGKILL);
        if (waited_ms >= FENCE_DEAD_MS && lock.l_len > 0 && lock.l_pid > 0 &&
            keeper_is_dead(lock.l_pid, &status)) {
            from = lock.l_start + lock.l_len;
            began_ms = clock_now_ms();
            waited_ms = 0;
            continue;
        }
        if (waited_ms >= FENCE_MS) {
            log_error(
                "%s: worker %d of the former keeper does not end although it was killed (ps -o "
                "stat,wchan -p %d shows where it waits); the next one starts without waiting for "
                "it",
                keeper_path(keeper), (int)lock.l_pid, (int)lock.l_pid);
            return;
        }
        clock_pause_ms(FENCE_TURN_MS);
        waited_ms = clock_now_ms() - began_ms;
    }
}

/* Checks the directories that the worker opens by name, which may not exist in another mount
 * namespace. */
static int find_directories(const struct keeper *keeper, struct failure *failure)
{
    const char *spill = keeper->setup->options->vmm.spill;
    int fd = *spill ? open(spill, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    if (*spill && fd < 0)
        return failure_set(failure, -errno, "option spill=%s: cannot be opened here: %s", spill,
                           strerror(errno));
    file_close_fd(&fd);
    return 0;
}

static int take(struct keeper *keeper, struct taking *taking, struct failure *failure)
{
    static struct handover handover;
    int error =
        handover_decode(taking->text, taking->size, taking->fds, taking->count, &handover, failure);

    taking->count = 0;
    if (!error)
        error = keeper_adopt(keeper, &handover, failure);
    if (error)
        return error;
    error = find_mount(keeper, &handover);
    if (error)
        return failure_set(failure, error, "it is not the mount at this path here: %s",
                           strerror(-error));
    return find_directories(keeper, failure);
}

/* Nothing serves the mount from here until one of the two keepers continues. */
static int receive_all(struct keeper *keeper, int fd, struct failure *failure)
{
    struct taking taking = {.text_fd = -1};
    hook_stop_at("GMSFS_TAKEOVER_STOP", "agreed");
    int error = receive_text(fd, &taking);

    hook_stop_at("GMSFS_TAKEOVER_STOP", "text");
    if (!error)
        error = receive_descriptors(fd, &taking);
    hook_stop_at("GMSFS_TAKEOVER_STOP", "descriptors");
    if (error)
        failure_set(failure, error, "a part of the handover is missing: %s", strerror(-error));
    if (!error)
        error = take(keeper, &taking, failure);
    hook_stop_at("GMSFS_TAKEOVER_STOP", "everything");
    if (!error && !is_ours(fd, &taking))
        error = failure_set(failure, -ECANCELED, "the other keeper continues");
    taking_free(&taking);
    return error;
}

int keeper_take_over(struct keeper *keeper)
{
    struct failure failure = {0};
    SCOPED_CLOSE int fd = connect_to(keeper_path(keeper));
    int error = fd < 0 ? failure_set(&failure, fd, "cannot reach its daemon: %s%s", strerror(-fd),
                                     explain_refusal(fd))
                       : agree(keeper, fd, &failure);

    if (!error)
        error = receive_all(keeper, fd, &failure);
    if (!error)
        keeper_fence(keeper);
    if (!error && fs_ledger_grow(keeper->ledger_fd, &keeper->ledger))
        log_warning("%s: the number of waiting requests stays bounded as in the former program",
                    keeper_path(keeper));
    if (error) {
        log_error("%s: not taken over: %s", keeper_path(keeper), failure.text);
        return -ECANCELED;
    }
    keeper->is_mounted = true;
    keeper->is_serving = true;
    keeper->is_taken_over = true;
    return 0;
}
