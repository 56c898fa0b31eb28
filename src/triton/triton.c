/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/triton.h"

#include "base/log.h"
#include "base/thread.h"
#include "triton/cuda_start.h"
#include "triton/listen.h"
#include "triton/opener.h"
#include "triton/opener_message.h"
#include "triton/server.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY     65534u
#define TEXT_BYTES 2048u

/* ---- signals that end the process ------------------------------------------------------------ */

/* A thread waits for the signals: the opener may block on a mount that does not answer, and the
 * process then exits after a while. */

#define ENDS_GRACE_S 10u /* more than the server takes to finish requests in flight */

#define STACK_BYTES (256u << 10)

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};

/* Signals that were ignored before (nohup) stay ignored: sigwait(3) would take them too. */
static void list_ends(sigset_t *ends)
{
    struct sigaction action;

    sigemptyset(ends);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(ends, numbers[i]);
    }
}

/* Called before any process or thread starts, so that these signals end none of them. */
static void ends_block(void)
{
    sigset_t ends;

    list_ends(&ends);
    sigprocmask(SIG_BLOCK, &ends, NULL);
}

static void *await_end(void *argument)
{
    struct opener_reply stop = {.id = OPENER_STOP};
    sigset_t ends;
    int number;

    list_ends(&ends);
    if (sigwait(&ends, &number) != 0)
        return NULL;
    opener_send((int)(intptr_t)argument, &stop, OPENER_REPLY_BYTES(0), NULL, 0);
    sleep(ENDS_GRACE_S);
    log_error("triton: the mount does not answer; requests to it are abandoned");
    _exit(EXIT_FAILURE);
}

/* Starts the thread: the first signal tells the server at the other end of `opener` to end. If this
 * process has not ended some seconds later, the thread ends it. 0 or a negative errno */
static int ends_start(int opener)
{
    return thread_start(NULL, STACK_BYTES, await_end, (void *)(intptr_t)opener);
}

struct triton {
    const struct triton_options *options;
    struct listen_socket sockets[SERVER_MAX_LISTENERS];
    size_t http_count, count; /* sockets for HTTP come first */
    pid_t server;
    int opener; /* our end */
    bool has_cuda;
};

/* ---- addresses ----------------------------------------------------------------------------- */

static int listen_all(struct triton *triton, struct failure *failure)
{
    const struct triton_options *options = triton->options;
    bool is_shared = geteuid() == 0;
    int error = 0;

    for (size_t i = 0; !error && i < options->http_count; i++)
        error = listen_open(options->http[i], false, is_shared, triton->sockets,
                            SERVER_MAX_LISTENERS, &triton->count, failure);
    triton->http_count = triton->count;
    for (size_t i = 0; !error && i < options->grpc_count; i++)
        error = listen_open(options->grpc[i], true, is_shared, triton->sockets,
                            SERVER_MAX_LISTENERS, &triton->count, failure);
    for (size_t i = 0; !error && i < triton->count; i++) {
        if (!triton->sockets[i].is_loopback && !options->token_file)
            error = failure_set(failure, -EINVAL,
                                "%s is not a loopback address, so its clients need tokens: give "
                                "--token-file",
                                triton->sockets[i].text);
    }
    return error;
}

static void close_all(struct triton *triton)
{
    while (triton->count > 0)
        listen_close(&triton->sockets[--triton->count]);
}

static void say_where(const struct triton *triton)
{
    char text[TEXT_BYTES];
    size_t at = (size_t)snprintf(text, sizeof text, "serving %s:", triton->options->mount);

    for (size_t i = 0; i < triton->count && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %s %s", i ? "," : "",
                               i < triton->http_count ? "http" : "grpc", triton->sockets[i].text);
    triton->options->on_serving(text);
}

/* ---- the serving process --------------------------------------------------------------------- */

/* Gives up all rights of root, and keeps other processes of user nobody from looking in. */
static int give_up_rights(void)
{
    uid_t uid = NOBODY;
    gid_t gid = NOBODY;

    if (geteuid() == 0) {
        const struct passwd *nobody = getpwnam("nobody");
        if (nobody) {
            uid = nobody->pw_uid;
            gid = nobody->pw_gid;
        }
        if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 ||
            setresuid(uid, uid, uid) != 0)
            return -errno;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        chdir("/") != 0)
        return -errno;
    return 0;
}

static int serve(const struct triton *triton, int opener, pid_t parent)
{
    struct server_options options = {.listener_count = (unsigned)triton->count,
                                     .opener = opener,
                                     .has_test_models = triton->options->has_test_models,
                                     .has_cuda = triton->has_cuda,
                                     .delay_ms = triton->options->delay_ms};
    int error = give_up_rights();

    /* A change of user clears this signal, so it is set afterwards. */
    if (!error && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || getppid() != parent))
        return -ESRCH;
    for (size_t i = 0; i < triton->count; i++) {
        options.listeners[i].fd = triton->sockets[i].fd;
        options.listeners[i].protocol = i < triton->http_count ? SERVER_HTTP : SERVER_GRPC;
    }
    if (!error)
        error = server_run(&options);
    return error;
}

/* Called before anything is opened that the child must not have. */
static int start_server(struct triton *triton, struct failure *failure)
{
    pid_t parent = getpid();
    int pair[2], error;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return failure_set(failure, -errno, "cannot make a pair of sockets: %s", strerror(errno));
    triton->server = fork();
    if (triton->server < 0) {
        error = -errno;
        close(pair[0]);
        close(pair[1]);
        return failure_set(failure, error, "cannot start a process: %s", strerror(-error));
    }
    if (triton->server == 0) {
        close(pair[0]);
        error = serve(triton, pair[1], parent);
        if (error && error != -ENOTCONN) /* the opener is gone, and tells the reason */
            fprintf(stderr, "gmsfs triton: the process that serves clients: %s\n",
                    strerror(-error));
        _exit(error ? 1 : 0);
    }
    close(pair[1]);
    triton->opener = pair[0];
    return 0;
}

/* Ends the server by closing its socket; the server then only finishes its own requests. */
static int end_server(struct triton *triton, struct failure *failure)
{
    int status;

    close(triton->opener);
    while (waitpid(triton->server, &status, 0) < 0) {
        if (errno != EINTR)
            return failure_set(failure, -errno, "waiting for the process that serves clients: %s",
                               strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return failure_set(failure, -EIO, "the process that serves clients was ended by signal %d",
                           WTERMSIG(status));
    return failure_set(failure, -EIO, "the process that serves clients has failed");
}

/* ---- the opener ---------------------------------------------------------------------------- */

static const char *explain_mount(int error)
{
    switch (error) {
    case -ENOTTY:
        return "not the top of a gmsfs mount, or its daemon is older and knows no regions; 'gmsfs "
               "status' lists the mounts";
    case -ENOTCONN:
    case -ECONNABORTED:
        return "the mount is dead, for its daemon has ended; remove it with 'gmsfs umount -l' and "
               "mount again";
    case -ENOENT:
        return "No such file or directory; 'gmsfs status' lists the mounts there are";
    default:
        return strerror(-error);
    }
}

static int run_opener(struct triton *triton, struct failure *failure)
{
    const struct triton_options *options = triton->options;
    struct opener_options opener = {.serves_all = geteuid() == 0, .drain_ms = options->drain_ms};
    struct identity_tokens *tokens = NULL;
    int error =
        options->token_file ? identity_read_tokens(options->token_file, &tokens, failure) : 0;

    if (error)
        return error;
    error = registry_open(options->mount, &opener.registry);
    if (error) {
        identity_free_tokens(tokens);
        return failure_set(failure, error, "%s: %s", options->mount, explain_mount(error));
    }
    opener.tokens = tokens;
    error = ends_start(triton->opener);
    if (!error)
        say_where(triton);
    if (!error)
        error = opener_serve(&opener, triton->opener);
    registry_close(opener.registry);
    identity_free_tokens(tokens);
    return error ? failure_set(failure, error, "the opener: %s", strerror(-error)) : 0;
}

static void raise_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int triton_run(const struct triton_options *options, struct failure *failure)
{
    struct triton triton = {.options = options};
    struct failure end;

    raise_limit();
    ends_block();
    triton.has_cuda = cuda_is_there();
    int error = listen_all(&triton, failure);
    if (!error)
        error = start_server(&triton, failure);
    if (error) {
        close_all(&triton);
        return error;
    }
    error = run_opener(&triton, failure);
    int end_error = end_server(&triton, &end);
    close_all(&triton);
    if (!error && end_error)
        error = failure_set(failure, end_error, "%s", end.text);
    return error;
}
