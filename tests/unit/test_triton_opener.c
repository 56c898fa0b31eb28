/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the opener against a server that an attacker has taken over: for any request, the
 * opener acts only for users found at a connection, or named by a token. */
#include "tap.h"
#include "triton/opener.h"
#include "triton/opener_message.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN      "0123456789abcdef0123456789abcdef"
#define TOKEN_UID  4242u
#define LOST_TOKEN "fedcba9876543210fedcba9876543210"
#define LOST_UID   4343u /* the machine's user database answers with an error */
#define CRASH_CODE 99

/* ---- a registry that reports the user it was asked for ------------------------------------- */

int registry_open(const char *mount, struct registry **registry)
{
    (void)mount;
    *registry = NULL;
    return 0;
}

void registry_close(struct registry *registry)
{
    (void)registry;
}

int registry_ping(struct registry *registry)
{
    (void)registry;
    return -ENOTCONN;
}

int registry_register(struct registry *registry, const struct gmsfs_region_request *request,
                      enum gmsfs_region_reason *reason)
{
    (void)registry;
    (void)request;
    *reason = GMSFS_REGION_FINE;
    return -ENOSPC;
}

int registry_unregister(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name)
{
    (void)registry;
    (void)uid;
    (void)kind;
    return name ? 0 : -EBUSY;
}

/* Lists as many as the kind has, or every name but "new", each owned by the user asked for. */
int registry_list(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                  const char *name, struct gmsfs_region_info **list, size_t *count,
                  enum gmsfs_region_reason *reason)
{
    (void)registry;
    (void)reason;
    *count = name                        ? strcmp(name, "new") != 0
             : kind == GMSFS_REGION_CUDA ? 0
                                         : 2 * OPENER_MAX_INFOS + 1;
    *list = calloc(*count + 1, sizeof **list);
    for (size_t i = 0; i < *count; i++)
        (*list)[i] = (struct gmsfs_region_info){.uid = uid, .id = i};
    return 0;
}

int registry_hold(struct registry *registry, uint32_t uid, const char *name,
                  struct gmsfs_region_info *info, int *file, int *fd,
                  enum gmsfs_region_reason *reason)
{
    (void)registry;
    *reason = GMSFS_REGION_UNKNOWN;
    if (strcmp(name, "gone") == 0)
        return -ENOENT;
    *info = (struct gmsfs_region_info){.uid = uid};
    *file = dup(STDIN_FILENO);
    *fd = -1;
    return 0;
}

/* The user of the token is in very many groups. In place of the C library's. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *bytes, size_t size, struct passwd **found)
{
    static char name[] = "user";

    (void)bytes;
    (void)size;
    if (uid == LOST_UID)
        return EIO;
    *entry = (struct passwd){.pw_name = name, .pw_uid = uid, .pw_gid = uid};
    *found = entry;
    return 0;
}

int getgrouplist(const char *name, gid_t gid, gid_t *groups, int *count)
{
    int room = *count;

    (void)name;
    *count = GMSFS_REGION_GROUPS_MAX + 1;
    for (int i = 0; i < *count && i < room; i++)
        groups[i] = gid + (gid_t)i;
    return *count <= room ? *count : -1;
}

/* ---- one opener a test --------------------------------------------------------------------- */

static int opener;
static pid_t child;
static struct opener_reply reply;
static int fds[OPENER_MAX_FDS];
static size_t fd_count;

static int serve(int socket, bool serves_all)
{
    char path[] = "/tmp/test-triton-opener.XXXXXX";
    struct opener_options options = {.serves_all = serves_all, .drain_ms = DRAINS_FOREVER};
    struct identity_tokens *tokens = NULL;
    struct failure failure;
    int fd = mkstemp(path);

    if (fd < 0 || dprintf(fd, "%s %u\n%s %u\n", TOKEN, TOKEN_UID, LOST_TOKEN, LOST_UID) < 0 ||
        identity_read_tokens(path, &tokens, &failure) != 0)
        return CRASH_CODE;
    close(fd);
    unlink(path);
    options.tokens = tokens;
    int error = opener_serve(&options, socket);
    identity_free_tokens(tokens);
    return -error;
}

static void start(bool serves_all)
{
    int pair[2];

    check_int(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    child = fork();
    if (child == 0) {
        close(pair[0]);
        _exit(serve(pair[1], serves_all));
    }
    close(pair[1]);
    opener = pair[0];
}

/* Returns how the opener ended when its socket was closed. */
static int stop(void)
{
    int status;

    close(opener);
    check(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void hear(void)
{
    size_t bytes = sizeof reply;

    fd_count = OPENER_MAX_FDS;
    check_int(opener_receive(opener, &reply, &bytes, fds, &fd_count), 0);
    check_int(bytes, OPENER_REPLY_BYTES(reply.info_count));
    for (size_t i = 0; i < fd_count; i++)
        close(fds[i]);
}

static void ask(struct opener_request request, int fd)
{
    request.id = 7;
    check_int(opener_send(opener, &request, OPENER_REQUEST_BYTES(request.name_count), &fd, fd >= 0),
              0);
    hear();
    check_int(reply.id, 7);
}

/* Our own socket: we are at its other end. */
static void identify(uint64_t connection)
{
    int pair[2];

    check_int(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ask((struct opener_request){.op = OPENER_IDENTIFY, .connection = connection}, pair[0]);
    close(pair[0]);
    close(pair[1]);
}

static struct opener_request status(uint64_t connection, const char *token)
{
    struct opener_request request = {.op = OPENER_STATUS,
                                     .kind = GMSFS_REGION_SYSTEM,
                                     .connection = connection,
                                     .name_count = 1};

    snprintf(request.token, sizeof request.token, "%s", token);
    snprintf(request.names[0], sizeof request.names[0], "n");
    return request;
}

TAP_TEST(nothing_is_done_for_a_connection_that_was_not_identified)
{
    start(true);
    for (uint32_t op = OPENER_REGISTER; op <= OPENER_HOLD; op++) {
        struct opener_request request = status(1, "");
        request.op = op;
        ask(request, -1);
        check_int(reply.refusal, OPENER_UNKNOWN_PEER);
        check_int(reply.info_count, 0);
        check_int(fd_count, 0);
    }
    check_int(stop(), 0);
}

TAP_TEST(the_user_of_a_connection_is_found_by_its_descriptor_and_stays_so)
{
    start(true);
    ask((struct opener_request){.op = OPENER_IDENTIFY, .connection = 5}, -1);
    check_int(reply.error, -EBADF);
    identify(5);
    check_int(reply.error, 0);
    check_int(reply.uid, getuid());
    ask(status(5, ""), -1);
    check_int(reply.infos[0].uid, getuid());
    identify(5); /* once more */
    check_int(reply.error, -ENOSPC);
    identify(4); /* in any order: each user's connections are told in the user's turn */
    check_int(reply.error, 0);
    ask(status(5, ""), -1);
    check_int(reply.infos[0].uid, getuid());
    ask((struct opener_request){.op = OPENER_FORGET, .connection = 5}, -1);
    ask(status(5, ""), -1);
    check_int(reply.refusal, OPENER_UNKNOWN_PEER);
    check_int(stop(), 0);
}

TAP_TEST(a_descriptor_that_is_no_socket_has_no_user)
{
    start(true);
    ask((struct opener_request){.op = OPENER_IDENTIFY, .connection = 1}, STDIN_FILENO);
    check_int(reply.uid, IDENTITY_NOBODY);
    ask(status(1, ""), -1);
    check_int(reply.refusal, OPENER_UNKNOWN_PEER);
    check_int(stop(), 0);
}

TAP_TEST(a_token_counts_before_the_connection_and_a_wrong_one_is_none)
{
    start(true);
    identify(1);
    ask(status(1, TOKEN), -1);
    check_int(reply.infos[0].uid, TOKEN_UID);
    ask(status(2, TOKEN), -1);
    check_int(reply.infos[0].uid, TOKEN_UID);
    ask(status(1, "0123456789abcdef0123456789abcdeF"), -1);
    check_int(reply.refusal, OPENER_UNKNOWN_TOKEN);
    ask(status(1, "0123456789abcdef"), -1);
    check_int(reply.refusal, OPENER_UNKNOWN_TOKEN);
    check_int(stop(), 0);
}

TAP_TEST(a_users_own_serves_no_other_user)
{
    start(false);
    identify(1);
    ask(status(1, ""), -1);
    check_int(reply.refusal, OPENER_FINE);
    ask(status(1, TOKEN), -1);
    check_int(reply.refusal, OPENER_OTHER_USER);
    check_int(reply.info_count, 0);
    check_int(stop(), 0);
}

TAP_TEST(a_long_list_comes_in_several_messages)
{
    struct opener_request request = status(1, "");
    size_t count = 0;
    start(true);
    identify(1);
    request.name_count = 0;
    ask(request, -1);
    for (;;) {
        for (uint32_t i = 0; i < reply.info_count; i++)
            check_int(reply.infos[i].id, count++);
        if (!reply.more)
            break;
        hear();
    }
    check_int(count, 2 * OPENER_MAX_INFOS + 1);
    check_int(stop(), 0);
}

TAP_TEST(references_are_all_taken_or_none)
{
    struct opener_request request = status(1, "");
    start(true);
    identify(1);
    request.op = OPENER_HOLD;
    request.name_count = 3;
    strcpy(request.names[1], "m");
    strcpy(request.names[2], "o");
    ask(request, -1);
    check_int(reply.error, 0);
    check_int(reply.info_count, 3);
    check_int(fd_count, 3);
    strcpy(request.names[2], "gone");
    ask(request, -1);
    check_int(reply.error, -ENOENT);
    check_int(reply.reason, GMSFS_REGION_UNKNOWN);
    check_int(reply.failed, 2);
    check_int(reply.info_count, 0);
    check_int(fd_count, 0);
    check_int(stop(), 0);
}

TAP_TEST(keys_lead_to_objects_of_the_user_alone)
{
    static const char *const bad[] = {"/no-such-object-of-this-test", "..", "/a/b/c", "/a/", "/"};
    struct opener_request request = status(1, "");
    start(true);
    identify(1);
    request.op = OPENER_REGISTER;
    strcpy(request.names[0], "n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(request.key, sizeof request.key, "%s", bad[i]);
        ask(request, -1);
        check(reply.error != 0);
        check_int(reply.reason, GMSFS_REGION_EXISTS); /* this registry has every name */
    }
    check_int(stop(), 0);
}

TAP_TEST(a_user_of_too_many_groups_is_not_taken_for_one_of_fewer)
{
    struct opener_request request = status(1, TOKEN);
    start(true);
    request.op = OPENER_REGISTER;
    strcpy(request.names[0], "new");
    strcpy(request.key, "store/allocation");
    ask(request, -1);
    check_int(reply.refusal, OPENER_NO_GROUPS);
    check_int(reply.error, -E2BIG);
    check_int(stop(), 0);
}

/* No process was started that could have ended. */
TAP_TEST(a_user_of_unknown_groups_is_told_so_for_cuda_memory_too)
{
    struct opener_request request = status(1, LOST_TOKEN);
    start(true);
    request.op = OPENER_REGISTER;
    request.kind = GMSFS_REGION_CUDA;
    request.byte_size = 64;
    strcpy(request.names[0], "new");
    ask(request, -1);
    check_int(reply.refusal, OPENER_NO_GROUPS);
    check_int(reply.error, -EIO);
    check_int(stop(), 0);
}

/* ---- malformed ----------------------------------------------------------------------------- */

/* A malformed request ends the opener: only another program than our server can have sent it. */
static void refused(const struct opener_request *request, size_t bytes)
{
    start(true);
    check_int(opener_send(opener, request, bytes, NULL, 0), 0);
    check_int(stop(), EPROTO);
}

TAP_TEST(malformed_requests_end_it)
{
    struct opener_request good = status(1, ""), bad = good;
    refused(&good, OPENER_REQUEST_BYTES(0) - 1);
    refused(&good, OPENER_REQUEST_BYTES(1) - 1);
    refused(&good, OPENER_REQUEST_BYTES(2));
    bad.op = 0;
    refused(&bad, OPENER_REQUEST_BYTES(1));
    bad.op = OPENER_HOLD + 1;
    refused(&bad, OPENER_REQUEST_BYTES(1));
    bad = good;
    bad.kind = GMSFS_REGION_ANY;
    refused(&bad, OPENER_REQUEST_BYTES(1));
    bad = good;
    bad.name_count = OPENER_MAX_NAMES + 1;
    refused(&bad, sizeof bad);
    bad = good;
    bad.op = OPENER_REGISTER;
    bad.name_count = 0;
    refused(&bad, OPENER_REQUEST_BYTES(0));
}

TAP_TEST(texts_end_where_their_room_does)
{
    struct opener_request request = status(1, "");
    memset(request.token, 'a', sizeof request.token);
    memset(request.key, 'a', sizeof request.key);
    memset(request.names[0], 'a', sizeof request.names[0]);
    check_int(opener_request_check(&request, OPENER_REQUEST_BYTES(1)), 0);
    check_int(strlen(request.token), OPENER_TOKEN_BYTES);
    check_int(strlen(request.key), GMSFS_REGION_KEY_MAX);
    check_int(strlen(request.names[0]), GMSFS_REGION_NAME_MAX);
}
