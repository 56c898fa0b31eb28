/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/call.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/test_hooks.h"
#include "triton/infer.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void call_init(struct call *call, const struct call_host *host, void (*done)(struct call *call),
               void (*released)(struct call *call))
{
    *call = (struct call){.host = host, .done = done, .released = released};
    wire_answer_begin(&call->answer);
}

bool call_is_under_way(const struct call *call)
{
    return call->opener.id || call->delay.link || call->is_working;
}

static void on_delay(struct event_timeout *timeout);

static void wait_for_delay(struct call *call)
{
    call->host->loop.set_timeout(call->host->loop.context, &call->delay,
                                 clock_now_ms() + call->host->delay_ms);
}

static void end_delay(struct call *call)
{
    call->host->loop.clear_timeout(call->host->loop.context, &call->delay);
    if (!call->waiting_link)
        return;
    *call->waiting_link = call->next_waiting;
    if (call->next_waiting)
        call->next_waiting->waiting_link = call->waiting_link;
    call->waiting_link = NULL;
}

static void begin_delay(struct call *call)
{
    struct call **first = call->host->waiting;

    call->next_waiting = *first;
    if (*first)
        (*first)->waiting_link = &call->next_waiting;
    call->waiting_link = first;
    *first = call;
    call->delay.expired = on_delay;
    wait_for_delay(call);
}

static void drop_references(struct call *call)
{
    while (call->reference_count > 0)
        registry_drop(call->references[--call->reference_count]);
}

/* References of a call that has ended. */
struct leftovers {
    struct job job;
    struct registry_reference *references[OPENER_MAX_NAMES];
    unsigned count;
};

static void drop_leftovers(struct job *job)
{
    struct leftovers *left = (struct leftovers *)job;

    while (left->count > 0)
        registry_drop(left->references[--left->count]);
}

static void free_leftovers(struct job *job)
{
    free(job);
}

/* Drops the references on a thread, or here if no thread takes the job. */
static void leave_references(struct call *call)
{
    struct leftovers *left = call->reference_count > 0 ? malloc(sizeof *left) : NULL;

    if (left) {
        left->job = (struct job){.run = drop_leftovers, .done = free_leftovers};
        memcpy(left->references, call->references, sizeof left->references);
        left->count = call->reference_count;
    }
    if (left && workers_submit(call->host->workers, call->owner, &left->job) == 0) {
        call->reference_count = 0;
        return;
    }
    free(left);
    drop_references(call);
}

bool call_end(struct call *call)
{
    if (!call->host)
        return true;
    opener_cancel(&call->opener);
    end_delay(call);
    if (call->is_working) {
        call->is_left = true;
        return false;
    }
    leave_references(call);
    wire_answer_free(&call->answer);
    call->host = NULL;
    return true;
}

static bool is_over(struct call *call)
{
    call->is_over = true;
    return true;
}

static void finish(struct call *call)
{
    is_over(call);
    call->done(call);
}

/* ---- the opener's answers -------------------------------------------------------------------- */

static int explain_helper(struct call *call, int error)
{
    if (error == -ENOSPC)
        return wire_fail(&call->answer, WIRE_EXHAUSTED,
                         "no more users can have CUDA memory open at this server, or this one has "
                         "asked for too much at once; ask again later");
    return wire_fail(&call->answer, WIRE_UNAVAILABLE,
                     error == -ETIMEDOUT ? "the CUDA driver does not answer"
                                         : "the process that opens CUDA memory for this user has "
                                           "ended; ask again");
}

static int explain_groups(struct call *call, const struct opener_reply *reply)
{
    if (reply->error == -E2BIG)
        return wire_fail(&call->answer, WIRE_EXHAUSTED,
                         "the user %u is in more than %u groups, the most that the mount takes; "
                         "run gmsfs triton as that user",
                         reply->uid, GMSFS_REGION_GROUPS_MAX);
    return wire_fail(&call->answer, WIRE_UNAVAILABLE,
                     "the groups of user %u are unknown: the machine's directory of users answers "
                     "%s; ask again",
                     reply->uid, reply->error == -ETIMEDOUT ? "nothing" : strerror(-reply->error));
}

static int explain_refusal(struct call *call, const struct opener_reply *reply)
{
    switch (reply->refusal) {
    case OPENER_NO_GROUPS:
        return explain_groups(call, reply);
    case OPENER_NO_HELPER:
        return explain_helper(call, reply->error);
    case OPENER_UNKNOWN_PEER:
        return wire_fail(&call->answer, WIRE_UNAUTHENTICATED,
                         "the user of this connection is unknown: it does not come from this "
                         "machine's loopback and network namespace; send a token as gmsfs-session");
    case OPENER_UNKNOWN_TOKEN:
        return wire_fail(&call->answer, WIRE_UNAUTHENTICATED,
                         "the token that was sent as gmsfs-session is unknown");
    default:
        return wire_fail(&call->answer, WIRE_DENIED,
                         "this server serves only the user that runs it, not user %u", reply->uid);
    }
}

/* 0, or -EINVAL and the reason in `answer`. */
static int judge(struct call *call, const struct opener_reply *reply, int error)
{
    enum gmsfs_region_reason reason;

    if (reply && reply->refusal != OPENER_FINE)
        return explain_refusal(call, reply);
    if (reply && !reply->error)
        return 0;
    if (reply)
        error = reply->error;
    reason = reply ? (enum gmsfs_region_reason)reply->reason : GMSFS_REGION_FINE;
    if (call->request.kind == GMSFS_REGION_CUDA && error == -ENODEV && reason == GMSFS_REGION_FINE)
        return wire_fail(&call->answer, WIRE_INVALID,
                         "failed to register CUDA shared memory region: '%.*s': no CUDA device",
                         WIRE_SHOW(call->request.name));
    return wire_explain(&call->request, reason, error, &call->answer);
}

static void on_plain(struct opener_call *opener, const struct opener_reply *reply, const int *fds,
                     size_t fd_count, int error)
{
    struct call *call = CONTAINER_OF(opener, struct call, opener);

    (void)fds;
    (void)fd_count;
    call->answer.is_ready = reply && !reply->error;
    if (call->request.verb != WIRE_READY)
        judge(call, reply, error);
    finish(call);
}

static int keep_regions(struct call *call, const struct opener_reply *reply)
{
    struct wire_answer *answer = &call->answer;
    size_t count = answer->region_count + reply->info_count;
    struct gmsfs_region_info *grown;

    if (count == 0)
        return 0;
    grown = realloc(answer->regions, count * sizeof *grown);
    if (!grown)
        return wire_fail(answer, WIRE_UNAVAILABLE, "the server is out of memory");
    memcpy(grown + answer->region_count, reply->infos, reply->info_count * sizeof *grown);
    answer->regions = grown;
    answer->region_count = count;
    return 0;
}

static void on_status(struct opener_call *opener, const struct opener_reply *reply, const int *fds,
                      size_t fd_count, int error)
{
    struct call *call = CONTAINER_OF(opener, struct call, opener);

    (void)fds;
    (void)fd_count;
    error = judge(call, reply, error);
    if (!error)
        error = keep_regions(call, reply);
    if (error)
        opener_cancel(opener); /* drops the messages that would follow */
    if (error || !reply->more)
        finish(call);
}

/* ---- inference ----------------------------------------------------------------------------- */

/* Runs on a thread. */
static void run_model(struct job *job)
{
    struct call *call = CONTAINER_OF(job, struct call, job);

    if (call->answer.code == WIRE_OK)
        infer_run(&call->request, call->references, &call->answer);
    drop_references(call);
}

static void on_worked(struct job *job)
{
    struct call *call = CONTAINER_OF(job, struct call, job);

    call->is_working = false;
    if (call->is_left)
        call->released(call);
    else
        finish(call);
}

/* Runs the model; if the answer has an error already, only drops the references. Returns true if
 * the call is over. */
static bool work(struct call *call)
{
    if (call->reference_count == 0 && call->answer.code != WIRE_OK)
        return is_over(call);
    call->job = (struct job){.run = run_model, .done = on_worked};
    call->is_working = workers_submit(call->host->workers, call->owner, &call->job) == 0;
    if (call->is_working)
        return false;
    run_model(&call->job);
    return is_over(call);
}

static void on_delay(struct event_timeout *timeout)
{
    struct call *call = CONTAINER_OF(timeout, struct call, delay);

    if (hook_has_file("GMSFS_TRITON_GATE")) {
        wait_for_delay(call);
        return;
    }
    end_delay(call);
    if (work(call))
        call->done(call);
}

/* Continues when the references are there. Checks regions before the model. Returns true if the
 * call is over. */
static bool go_on(struct call *call)
{
    if (infer_check_regions(&call->request, call->references, &call->answer) ||
        infer_check_model(&call->request, call->host->has_test_models, &call->answer) ||
        call->host->delay_ms == 0)
        return work(call);
    begin_delay(call);
    return false;
}

/* Attaches one reference for each name asked for, in order. */
static int take_references(struct call *call, const struct opener_reply *reply, const int *fds,
                           size_t fd_count)
{
    size_t at = 0;

    for (uint32_t i = 0; i < reply->info_count; i++) {
        const struct gmsfs_region_info *info = &reply->infos[i];
        bool has_memory = (info->flags & GMSFS_REGION_DESCRIPTOR) != 0;
        int error = at + 1 + has_memory > fd_count
                        ? -EPROTO
                        : registry_attach(fds[at], has_memory ? fds[at + 1] : -1, info,
                                          &call->references[i]);
        if (error) {
            for (; at < fd_count; at++)
                close(fds[at]);
            return wire_explain(&call->request, GMSFS_REGION_FINE, error, &call->answer);
        }
        call->regions[call->reference_count++] = info->id;
        at += 1 + has_memory;
    }
    return 0;
}

static void on_held(struct opener_call *opener, const struct opener_reply *reply, const int *fds,
                    size_t fd_count, int error)
{
    struct call *call = CONTAINER_OF(opener, struct call, opener);

    if (reply && reply->refusal == OPENER_FINE && reply->reason == GMSFS_REGION_UNKNOWN)
        error =
            wire_explain_unknown(infer_get_region(&call->request, reply->failed), &call->answer);
    else
        error = judge(call, reply, error);
    if (!error) {
        call->owner = reply->uid; /* the user may have been unknown before */
        error = take_references(call, reply, fds, fd_count);
    }
    if (error ? work(call) : go_on(call))
        finish(call);
}

static void end_if_uses(struct call *call, uint64_t region)
{
    for (unsigned i = 0; i < call->reference_count; i++) {
        if (call->regions[i] != region)
            continue;
        end_delay(call);
        wire_explain_unknown(infer_get_region(&call->request, i), &call->answer);
        if (work(call))
            call->done(call);
        return;
    }
}

void call_end_region(const struct call_host *host, uint64_t region)
{
    /* `done` may begin the connection's next call, which is put at the head of the list, behind
     * us. */
    for (struct call *next, *call = *host->waiting; call; call = next) {
        next = call->next_waiting;
        end_if_uses(call, region);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool out_of_memory(struct call *call)
{
    wire_fail(&call->answer, WIRE_UNAVAILABLE, "the server is out of memory");
    return is_over(call);
}

static void put(char *to, struct wire_text text)
{
    if (text.bytes > 0)
        memcpy(to, text.at, text.bytes);
    to[text.bytes] = '\0';
}

static bool ask(struct call *call)
{
    call->opener.owner = call->owner;
    int error = opener_ask(&call->opener);

    if (!error)
        return false;
    judge(call, NULL, error);
    return is_over(call);
}

static bool ask_regions(struct call *call, uint64_t connection, enum opener_op op)
{
    const struct wire_request *wanted = &call->request;
    struct opener_request *request = opener_prepare(call->host->opener, &call->opener, op);

    if (!request)
        return out_of_memory(call);
    call->opener.done = op == OPENER_STATUS ? on_status : on_plain;
    request->connection = connection;
    request->kind = wanted->kind;
    request->offset = wanted->offset;
    request->byte_size = wanted->byte_size;
    request->device_id = wanted->device_id;
    memcpy(request->handle, wanted->handle, sizeof request->handle);
    put(request->token, wanted->session);
    put(request->key, wanted->key);
    if (wanted->name.bytes > 0)
        put(request->names[request->name_count++], wanted->name);
    return ask(call);
}

/* Asks for each region that the request names, once. */
static bool ask_references(struct call *call, uint64_t connection)
{
    struct opener_request *request = opener_prepare(call->host->opener, &call->opener, OPENER_HOLD);

    if (!request)
        return out_of_memory(call);
    call->opener.done = on_held;
    request->connection = connection;
    put(request->token, call->request.session);
    request->name_count = infer_count_regions(&call->request);
    for (uint32_t i = 0; i < request->name_count; i++)
        put(request->names[i], infer_get_region(&call->request, i));
    return ask(call);
}

/* A name that no region can have is an unknown region. */
static int check_names(struct call *call)
{
    for (unsigned i = 0; i < infer_count_regions(&call->request); i++) {
        struct wire_text name = infer_get_region(&call->request, i);
        if (name.bytes == 0 || name.bytes > GMSFS_REGION_NAME_MAX ||
            memchr(name.at, '\0', name.bytes))
            return wire_explain_unknown(name, &call->answer);
    }
    return infer_check_tensors(&call->request, &call->answer);
}

static bool begin_inference(struct call *call, uint64_t connection)
{
    if (check_names(call))
        return is_over(call);
    return infer_count_regions(&call->request) > 0 ? ask_references(call, connection) : go_on(call);
}

bool call_begin(struct call *call, uint64_t connection, uint64_t owner)
{
    const struct wire_request *request = &call->request;

    call->owner = owner;
    if (request->session.bytes > OPENER_TOKEN_BYTES) {
        wire_fail(&call->answer, WIRE_UNAUTHENTICATED,
                  "the token that was sent as gmsfs-session is unknown");
        return is_over(call);
    }
    switch (request->verb) {
    case WIRE_LIVE:
        return is_over(call);
    case WIRE_METADATA:
        call->answer.has_cuda = call->host->has_cuda;
        return is_over(call);
    case WIRE_MODEL_READY:
        call->answer.is_ready = infer_has_model(request, call->host->has_test_models);
        return is_over(call);
    case WIRE_READY:
        return ask_regions(call, connection, OPENER_PING);
    case WIRE_INFER:
        return begin_inference(call, connection);
    default:
        break;
    }
    if (wire_request_check(request, &call->answer))
        return is_over(call);
    return ask_regions(call, connection,
                       request->verb == WIRE_REGISTER     ? OPENER_REGISTER
                       : request->verb == WIRE_UNREGISTER ? OPENER_UNREGISTER
                                                          : OPENER_STATUS);
}
