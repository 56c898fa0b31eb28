/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are served before which: the kernel is played by a socket that keeps messages
 * whole. */
#include "core/core.h"
#include "fs/fs.h"
#include "fs/fs_internal.h"
#include "fs/node.h"
#include "service/bounds.h"
#include "service_fixture.h"

#include <linux/fuse.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define STORM   150u /* as many as the socket takes at once */
#define LOUD    65534u
#define QUIET   1000u
#define MINOR   40u /* this kernel sends requests again */
#define FEW     3u /* served before one that comes last: the one in work, and a turn of each kind */
#define ANSWERS 65536u

static struct fs *fs;
static struct fs_ledger *ledger;
static struct event_watch *watch;
static struct event_timeout *backlog;
static int kernel, ledger_fd;
static uint64_t next_unique;
static struct {
    uint64_t unique;
    int32_t error;
    uint64_t fh;
} answers[ANSWERS];
static unsigned answer_count;
static unsigned asks_again; /* how often a request that was refused is sent again at once */

static void ask_again(void);

/* ---- the host ---------------------------------------------------------------------------- */

static int do_watch(struct loop *context, struct event_watch *wanted, uint32_t events)
{
    (void)context;
    (void)events;
    watch = wanted;
    return 0;
}

static void do_unwatch(struct loop *context, struct event_watch *wanted)
{
    (void)context;
    (void)wanted;
    watch = NULL;
}

static void do_set_timeout(struct loop *context, struct event_timeout *timeout, uint64_t at_ms)
{
    (void)context;
    (void)at_ms;
    backlog = timeout;
}

static void do_clear_timeout(struct loop *context, struct event_timeout *timeout)
{
    (void)context;
    (void)timeout;
    backlog = NULL;
}

static int do_resolve(void *context, uint32_t tid, size_t max, struct service_caller *caller)
{
    (void)context;
    (void)max;
    caller->processes[0] = (struct core_process){.pid = tid, .start = 1};
    caller->process_count = tid ? 1 : 0;
    return 0;
}

static struct {
    uint64_t unique; /* 0: none */
    int keeps;       /* its buffer, when it was last seen to wait; -1: it was not */
} watched;

static void look_at_watched(void)
{
    for (size_t i = 0; watched.unique != 0 && i < FS_AHEAD_BUCKETS; i++)
        for (const struct fs_ahead_request *at = fs->ahead.buckets[i]; at; at = at->next)
            if (at->unique == watched.unique)
                watched.keeps = at->is_stolen;
}

static ssize_t do_answer(void *context, int fd, const struct iovec *parts, int count, uint64_t file)
{
    (void)context;
    (void)file;
    const struct fuse_out_header *head = parts[0].iov_base;
    ssize_t put = writev(fd, parts, count);

    look_at_watched();
    if (asks_again > 0 && head->error == -EDQUOT) {
        asks_again--;
        ask_again();
    }
    return put < 0 ? -errno : put;
}

static bool do_hold(void *context, struct event_held *held)
{
    (void)context;
    (void)held;
    return false;
}

static void do_nothing(void *context)
{
    (void)context;
}

static void do_end(void *context, int error)
{
    (void)context;
    (void)error;
}

static const struct fs_host host = {
    .loop = {.watch = do_watch,
             .unwatch = do_unwatch,
             .set_timeout = do_set_timeout,
             .clear_timeout = do_clear_timeout},
    .resolve = do_resolve,
    .answer = do_answer,
    .hold = do_hold,
    .end_step = do_nothing,
    .session_over = do_end,
    .session_ready = do_nothing,
    .session_resumed = do_nothing,
};

/* ---- the kernel -------------------------------------------------------------------------- */

struct sender {
    uint32_t uid, pid;
};

static uint64_t ask(struct sender sender, uint32_t opcode, uint64_t node, const void *argument,
                    size_t bytes)
{
    struct fuse_in_header head = {.len = (uint32_t)(sizeof head + bytes),
                                  .opcode = opcode,
                                  .unique = next_unique += 2,
                                  .nodeid = node,
                                  .uid = sender.uid,
                                  .gid = sender.uid,
                                  .pid = sender.pid};
    const struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)argument, bytes}};

    require(writev(kernel, parts, 2) == (ssize_t)head.len);
    return head.unique;
}

static void take_answers(void)
{
    struct {
        struct fuse_out_header head;
        uint8_t rest[8192];
    } answer;

    while (recv(kernel, &answer, sizeof answer, MSG_DONTWAIT) > 0) {
        require(answer_count < ANSWERS);
        answers[answer_count].unique = answer.head.unique;
        answers[answer_count].error = answer.head.error;
        if (answer.head.len >= sizeof answer.head + sizeof(struct fuse_open_out))
            memcpy(&answers[answer_count].fh, answer.rest, sizeof answers[0].fh);
        answer_count++;
    }
}

/* One turn of the loop. */
static void turn(void)
{
    struct event_timeout *timeout = backlog;
    int waiting = 0;

    backlog = NULL;
    require(ioctl(watch->fd, FIONREAD, &waiting) == 0);
    if (waiting > 0)
        watch->ready(watch, EVENT_READ);
    else if (timeout)
        timeout->expired(timeout);
    take_answers();
}

static bool is_answered(uint64_t unique)
{
    for (unsigned i = 0; i < answer_count; i++)
        if (answers[i].unique == unique)
            return true;
    return false;
}

/* Turns until it is; how many were answered before it. */
static unsigned find_answer(uint64_t unique)
{
    for (unsigned i = 0; !is_answered(unique); i++) {
        require(i < 2 * ANSWERS);
        turn();
    }
    for (unsigned i = 0;; i++)
        if (answers[i].unique == unique)
            return i;
}

static void serve_all(void)
{
    for (unsigned quiet = 0, before = 0; quiet < 2; before = answer_count) {
        turn();
        quiet = answer_count == before && !backlog ? quiet + 1 : 0;
    }
    answer_count = 0;
}

/* Pretends that many requests wait: a request alone is served as it comes. */
static void be_crowded(void)
{
    for (unsigned i = 0; i < STORM; i++)
        ask((struct sender){LOUD, 0}, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0);
    serve_all();
    for (unsigned i = 0; i < STORM; i++)
        ask((struct sender){LOUD, 0}, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0);
    while (answer_count < STORM / 2)
        turn();
}

static void begin(void)
{
    static struct fs_counts counts;
    struct fs_options options = {
        .mountpoint = "/played", .version = "test", .wait_max_ms = 1000, .counts = &counts};
    const struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION,
                                      .minor = MINOR,
                                      .flags = FUSE_ATOMIC_O_TRUNC | FUSE_MAX_PAGES};
    int ends[2], bytes = 4 << 20;

    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    for (int i = 0; i < 2; i++)
        if (setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes))
            setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    kernel = ends[0];
    options.fuse_fd = ends[1];
    service_start();
    require(fs_ledger_make(&ledger_fd, &ledger) == 0);
    options.ledger = ledger;
    require(fs_new(service, &options, &host, &fs) == 0);
    next_unique = 0;
    answer_count = 0;
    find_answer(ask((struct sender){0, 0}, FUSE_INIT, 0, &init, sizeof init));
    answer_count = 0;
}

static void end(void)
{
    serve_all();
    unsigned unanswered = 0;
    for (unsigned i = 0; i < ledger->slots; i++)
        unanswered += ledger->requests[i].unique != 0;
    check_int(unanswered, 0);
    fs_free(fs);
    service_end();
    close(kernel);
    close(ledger_fd);
}

static uint64_t make_store(void)
{
    const struct {
        struct fuse_mkdir_in in;
        char name[8];
    } mkdir = {{.mode = 0777}, "theirs"};

    find_answer(ask((struct sender){FIXTURE_ADMIN, 0}, FUSE_MKDIR, FUSE_ROOT_ID, &mkdir,
                    sizeof mkdir.in + strlen(mkdir.name) + 1));
    answer_count = 0;
    return core_find_store_name(service_get_core(service), "theirs")->id;
}

/* ---- requests of users ------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t opcode;
    enum node_kind kind;
    size_t bytes;
} STORMS[] = {
    {"stat", FUSE_GETATTR, NODE_DEVICE, sizeof(struct fuse_getattr_in)},
    {"open", FUSE_OPEN, NODE_DEVICE, sizeof(struct fuse_open_in)},
    {"read", FUSE_READ, NODE_DEVICE, sizeof(struct fuse_read_in)},
    {"ioctl", FUSE_IOCTL, NODE_DEVICE, sizeof(struct fuse_ioctl_in) + 512},
    {"write", FUSE_WRITE, NODE_DEVICE, sizeof(struct fuse_write_in)},
    {"chmod", FUSE_SETATTR, NODE_DEVICE, sizeof(struct fuse_setattr_in)},
};

static void storm(size_t which, struct sender sender, unsigned count)
{
    static const uint8_t nothing[1024];

    for (unsigned i = 0; i < count; i++)
        ask(sender, STORMS[which].opcode, node_make_id(STORMS[which].kind, 0), nothing,
            STORMS[which].bytes);
}

static void ask_again(void)
{
    storm(3, (struct sender){LOUD, 0}, 1);
}

TAP_TEST(whatever_a_user_has_asked_a_look_and_a_lock_of_another_one_wait_for_few_of_it)
{
    const struct fuse_getattr_in look = {0};
    const struct fuse_open_in open = {.flags = O_RDWR};

    for (size_t i = 0; i < sizeof STORMS / sizeof STORMS[0]; i++) {
        begin();
        uint64_t lock = node_make_id(NODE_LOCK, make_store());
        be_crowded();
        storm(i, (struct sender){LOUD, 0}, STORM / 2);
        unsigned before = answer_count;
        uint64_t looked =
            ask((struct sender){QUIET, 0}, FUSE_GETATTR, FUSE_ROOT_ID, &look, sizeof look);
        if (!check(find_answer(looked) - before <= FEW))
            fprintf(stderr, "# %s, look\n", STORMS[i].name);
        before = answer_count;
        uint64_t locked = ask((struct sender){QUIET, 0}, FUSE_OPEN, lock, &open, sizeof open);
        if (!check(find_answer(locked) - before <= FEW))
            fprintf(stderr, "# %s, lock\n", STORMS[i].name);
        end();
    }
}

/* This process is in a group; process 1 is in another one, or cannot be seen. */
TAP_TEST(within_a_user_process_groups_take_turns)
{
    const struct fuse_getattr_in look = {0};

    begin();
    be_crowded();
    storm(0, (struct sender){0, (uint32_t)getpid()}, STORM / 2);
    unsigned before = answer_count;
    uint64_t looked = ask((struct sender){0, 1}, FUSE_GETATTR, FUSE_ROOT_ID, &look, sizeof look);
    check(find_answer(looked) - before <= FEW);
    end();
}

TAP_TEST(who_asks_after_a_close_finds_the_file_closed)
{
    const struct fuse_open_in open = {.flags = O_RDWR | O_NONBLOCK};

    begin();
    uint64_t lock = node_make_id(NODE_LOCK, make_store());
    unsigned at = find_answer(ask((struct sender){LOUD, 7}, FUSE_OPEN, lock, &open, sizeof open));
    require(answers[at].error == 0);
    const struct fuse_release_in release = {.fh = answers[at].fh};
    be_crowded();
    storm(3, (struct sender){LOUD, 7}, STORM / 2);
    ask((struct sender){0, 0}, FUSE_RELEASE, lock, &release, sizeof release);
    at = find_answer(ask((struct sender){QUIET, 8}, FUSE_OPEN, lock, &open, sizeof open));
    check_int(answers[at].error, 0);
    end();
}

TAP_TEST(an_interrupt_meets_the_request_that_it_is_of_wherever_that_is)
{
    const struct fuse_open_in open = {.flags = O_RDWR};

    begin();
    uint64_t lock = node_make_id(NODE_LOCK, make_store());
    require(
        answers[find_answer(ask((struct sender){QUIET, 7}, FUSE_OPEN, lock, &open, sizeof open))]
            .error == 0);
    be_crowded();
    storm(3, (struct sender){LOUD, 0}, STORM / 2);
    struct fuse_interrupt_in interrupt = {
        .unique = ask((struct sender){LOUD, 0}, FUSE_OPEN, lock, &open, sizeof open)};
    ask((struct sender){0, 0}, FUSE_INTERRUPT, 0, &interrupt, sizeof interrupt);
    check_int(answers[find_answer(interrupt.unique)].error, -EINTR);
    interrupt.unique = ask((struct sender){LOUD, 0}, FUSE_OPEN, lock, &open, sizeof open);
    for (unsigned i = 0; i < STORM; i++)
        turn();
    check(!is_answered(interrupt.unique));
    uint64_t last = ask((struct sender){0, 0}, FUSE_INTERRUPT, 0, &interrupt, sizeof interrupt);
    check_int(answers[find_answer(interrupt.unique)].error, -EINTR);
    check(!is_answered(last));
    end();
}

static void meet_the_bound(void)
{
    be_crowded();
    for (unsigned i = 0; i < SERVICE_MAX_REQUESTS / STORM; i++) {
        storm(3, (struct sender){LOUD, 0}, STORM);
        turn();
    }
}

TAP_TEST(however_often_one_who_was_refused_asks_again_others_are_served)
{
    const struct fuse_getattr_in look = {0};

    begin();
    meet_the_bound();
    asks_again = SERVICE_MAX_REQUESTS;
    storm(3, (struct sender){LOUD, 0}, STORM);
    unsigned before = answer_count;
    uint64_t looked =
        ask((struct sender){QUIET, 0}, FUSE_GETATTR, FUSE_ROOT_ID, &look, sizeof look);
    check(find_answer(looked) - before <= 2 * STORM);
    check(asks_again > 0);
    asks_again = 0;
    end();
}

TAP_TEST(a_look_and_a_close_of_one_who_has_too_many_that_wait_are_served)
{
    const struct fuse_getattr_in look = {0};
    const struct fuse_flush_in flush = {0};

    begin();
    meet_the_bound();
    uint64_t looked = ask((struct sender){LOUD, 0}, FUSE_GETATTR, FUSE_ROOT_ID, &look, sizeof look);
    check_int(answers[find_answer(looked)].error, 0);
    uint64_t closed = ask((struct sender){LOUD, 0}, FUSE_FLUSH, FUSE_ROOT_ID, &flush, sizeof flush);
    check(answers[find_answer(closed)].error != -EDQUOT);
    end();
}

TAP_TEST(who_has_too_many_that_wait_is_refused_and_others_are_not)
{
    const struct fuse_getattr_in look = {0};
    unsigned refused = 0;

    begin();
    meet_the_bound();
    for (unsigned i = 0; i < answer_count; i++)
        refused += answers[i].error == -EDQUOT;
    check(refused > 0);
    unsigned before = answer_count;
    uint64_t looked =
        ask((struct sender){QUIET, 0}, FUSE_GETATTR, FUSE_ROOT_ID, &look, sizeof look);
    unsigned at = find_answer(looked);
    check(at - before <= FEW);
    check_int(answers[at].error, 0);
    end();
}

#define LEAST_KEPT (960u << 10) /* a write of less is copied */

/* Whether the last of several such writes keeps its buffer while it waits; -1: it never waits. */
static int try_writes(size_t bytes)
{
    static uint8_t message[sizeof(struct fuse_write_in) + (1u << 20)];
    uint64_t last = 0;

    be_crowded();
    for (unsigned i = 0; i < 3; i++)
        last = ask((struct sender){LOUD, 0}, FUSE_WRITE, node_make_id(NODE_DEVICE, 0), message,
                   bytes - sizeof(struct fuse_in_header));
    watched.unique = last;
    watched.keeps = -1;
    find_answer(last);
    watched.unique = 0;
    serve_all();
    return watched.keeps;
}

TAP_TEST(a_write_that_waits_keeps_its_buffer_where_it_fills_that_and_is_copied_else)
{
    int sendable = 0;
    socklen_t bytes = sizeof sendable;

    begin();
    require(getsockopt(kernel, SOL_SOCKET, SO_SNDBUF, &sendable, &bytes) == 0);
    if (sendable < 4 << 20) {
        fprintf(stderr, "# net.core.wmem_max is too small to try it as an ordinary user\n");
    } else {
        check_int(try_writes(512u << 10), 0);
        check_int(try_writes(LEAST_KEPT - 1), 0);
        check_int(try_writes(LEAST_KEPT), 1);
        check_int(try_writes(1u << 20), 1);
    }
    end();
}
