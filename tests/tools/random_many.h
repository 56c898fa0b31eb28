/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_many - operations of a client of random_ops on several stores at once: groups, drains
 *
 * Included by random_ops.c alone, of which it is a part. Each store's part is noted in its own log.
 * All stores that one commit of a group has filled have one content, on all mounts.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_MANY_H
#define GMSFS_TESTS_TOOLS_RANDOM_MANY_H

#include "gmsfs_abi.h"
#include "random_targets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MAX_RANKS 3

/* ---- groups -------------------------------------------------------------------------------- */

struct ranks {
    int targets[MAX_RANKS];
    gmsfs_t *handles[MAX_RANKS];
    int count;
};

static void open_ranks(struct ranks *ranks)
{
    int first = (int)below((uint64_t)target_count);

    *ranks = (struct ranks){.count = target_count < MAX_RANKS ? target_count : MAX_RANKS};
    for (int i = 0; i < ranks->count; i++) {
        ranks->targets[i] = (first + i) % target_count;
        check(gmsfs_open(targets[ranks->targets[i]].path.text, &ranks->handles[i]), "gmsfs_open");
    }
}

/* A state of any member is a state of the group: bytes may have been given up, memory may be
 * missing. */
static void use_ranks(const struct ranks *ranks)
{
    bool places = false, tight = false;

    for (int i = 0; i < ranks->count; i++) {
        places |= targets[ranks->targets[i]].has_places;
        tight |= targets[ranks->targets[i]].is_tight;
    }
    has_places = places;
    is_tight = tight;
}

static void close_ranks(struct ranks *ranks)
{
    for (int i = 0; i < ranks->count; i++)
        gmsfs_close(ranks->handles[i]);
}

static void read_ranks(const struct ranks *ranks)
{
    uint64_t first = 0;

    for (int i = 0; i < ranks->count; i++) {
        uint64_t saw = see_by_library(ranks->handles[i]);

        use_target(ranks->targets[i]);
        note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw,
             gmsfs_generation(ranks->handles[i]));
        compare_by_library(ranks->handles[i], saw);
        if (i > 0 && saw != first)
            lost("a group of contents %016" PRIx64 " and %016" PRIx64, first, saw);
        first = saw;
    }
}

static void write_ranks(const struct ranks *ranks)
{
    struct content content = make_content(tool_random(&random_state));

    for (int i = 0; i < ranks->count; i++) {
        use_target(ranks->targets[i]);
        note("W %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(),
             mark_given_up(see_by_library(ranks->handles[i])), gmsfs_generation(ranks->handles[i]));
        note_building();
        if (!build_by_library(ranks->handles[i], &content))
            return;
    }
    if (chance(20))
        return;
    for (int i = 0; i < ranks->count; i++) {
        use_target(ranks->targets[i]);
        note("B %d %016" PRIx64 "\n", (int)getpid(), content.cid);
    }
    check(gmsfs_commit_group(ranks->handles, (size_t)ranks->count,
                             chance(30) ? GMSFS_COMMIT_STAY : 0, NULL),
          "gmsfs_commit_group");
    for (int i = 0; i < ranks->count; i++) {
        use_target(ranks->targets[i]);
        note("A %d 0 %" PRIu64 "\n", (int)getpid(), gmsfs_generation(ranks->handles[i]));
    }
}

static bool is_group_refusal(enum gmsfs_mode mode, int result)
{
    if (mode == GMSFS_MODE_RO)
        return is_refusal(result) || result == -ESTALE; /* a mix */
    return is_refused(mode, result) || may_lack(-result);
}

static void use_group(void)
{
    static const enum gmsfs_mode modes[] = {GMSFS_MODE_RO, GMSFS_MODE_RW, GMSFS_MODE_RW_OR_RO};
    enum gmsfs_mode mode = modes[below(3)];
    struct ranks ranks;
    int result;

    open_ranks(&ranks);
    use_ranks(&ranks);
    /* All of them have to fit on the device. */
    uint64_t most_bytes = is_tight ? MAX_RESERVED / 4 : MAX_RESERVED;
    uint64_t reserve_bytes[MAX_RANKS] = {below(most_bytes), below(most_bytes), below(most_bytes)};
    result =
        gmsfs_connect_group_reserve(ranks.handles, (size_t)ranks.count, mode, below(50),
                                    mode == GMSFS_MODE_RO || chance(50) ? NULL : reserve_bytes);
    if (!is_group_refusal(mode, result)) {
        check(result, "gmsfs_connect_group");
        if (gmsfs_granted_lock(ranks.handles[0]) == GMSFS_MODE_RW)
            write_ranks(&ranks);
        else
            read_ranks(&ranks);
    }
    close_ranks(&ranks);
}

/* ---- drains -------------------------------------------------------------------------------- */

static int ask_daemon(int fd, enum gmsfs_fds_op op)
{
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = op};
    struct gmsfs_fds_header header;

    ssize_t bytes = send(fd, &request, sizeof(request), MSG_NOSIGNAL);

    if (bytes >= 0)
        bytes = recv(fd, &header, sizeof(header), 0);
    if (bytes == 0 || (bytes < 0 && (errno == ECONNRESET || errno == EPIPE)))
        return -ECONNRESET; /* the worker that had the connection was killed */
    if (bytes != (ssize_t)sizeof(header))
        tool_die("%s/.fds: %s", mount_dir, bytes < 0 ? strerror(errno) : "a short answer");
    return header.error;
}

static int connect_daemon(const char *mount)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int at = open(mount, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/.fds", at);
    if (at < 0 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        tool_die("%s/.fds: %s", mount, strerror(errno));
    close(at);
    return fd;
}

static void note_all_of_mount(char what)
{
    const char *mount = mount_dir;

    for (int i = 0; i < target_count; i++) {
        if (strcmp(targets[i].mount.text, mount) != 0)
            continue;
        log_fd = targets[i].log_fd;
        note("%c %d\n", what, (int)getpid());
    }
}

static void serve(const char *mount)
{
    int result;

    do { /* until a worker lives long enough to answer */
        int fd = connect_daemon(mount);
        result = ask_daemon(fd, GMSFS_FDS_SERVE);
        close(fd);
    } while (result == -ECONNRESET);
    check(result, "serve");
}

/* Gives up soon, if a session lasts. A client that loses the connection to a dying worker drains no
 * more, as if killed; but the drain may have begun, and ended, with the lost answer. */
static void drain_mount(void)
{
    int fd = connect_daemon(mount_dir), result = ask_daemon(fd, GMSFS_FDS_DRAIN);
    uint64_t end_ms = tool_now_ms() + below(50);

    if (result == -EBUSY) {
        close(fd);
        return;
    }
    if (result != -ECONNRESET)
        check(result, "drain");
    note_all_of_mount('D');
    if (!result)
        while ((result = ask_daemon(fd, GMSFS_FDS_DRAIN_END)) == -EBUSY && tool_now_ms() < end_ms)
            tool_pause_us(200);
    close(fd);
    if (result == -ECONNRESET) {
        serve(mount_dir);
        return;
    }
    if (result && result != -EAGAIN && result != -EBUSY && result != -ECANCELED)
        tool_die("the end of a drain: %s", strerror(-result));
    /* EAGAIN: dropped, and the memory will be freed. */
    note_all_of_mount(!result || result == -EAGAIN ? 'd' : 'x');
    if (!result)
        serve(mount_dir);
}

/* A drain that has ended outlives its client. */
static void serve_mount(int target)
{
    serve(targets[target].mount.text);
}

static void use_group_or_drain(void)
{
    if (chance(95))
        use_group();
    else
        drain_mount();
}

#endif
