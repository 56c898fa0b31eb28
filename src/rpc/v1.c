/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the requests of V1. Texts of refusals are the protocol's: clients match them. */
#include "rpc/rpc_internal.h"
#include "rpc/wire_id.h"
#include "service/allocations.h"
#include "service/fence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- checkpoints: without a session ---------------------------------------------------------- */

static void answer_checkpoint(struct rpc_connection *connection, const struct service_fence *fence)
{
    char token[WIRE_ID_UUID_BYTES];
    struct message answer = {.type = MESSAGE_CHECKPOINT_STATE_RESPONSE,
                             .state = message_text(fence->is_up ? "checkpoint_ready" : "serving")};

    if (fence->is_up) {
        wire_id_format_uuid(fence->token, token);
        answer.token = message_text(token);
    }
    rpc_answer(connection, &answer);
}

static void finish_prepare(struct rpc_connection *connection, int error,
                           const struct service_answer *answer)
{
    struct service_fence fence;

    (void)answer;
    if (error) {
        rpc_refuse_errno(connection, "prepare a checkpoint", error);
        return;
    }
    error = service_fence(connection->rpc->service, &connection->caller, &fence);

    if (error && fence.obstacle)
        rpc_refuse(connection, "%s", service_obstacle_text(fence.obstacle));
    else if (error)
        rpc_refuse_errno(connection, "prepare a checkpoint", error);
    else
        answer_checkpoint(connection, &fence);
}

static void resolve_checkpoint(struct rpc_connection *connection, bool complete)
{
    const struct message_text *token = &connection->asked.token;
    struct service_fence fence = {0};
    uint8_t bytes[16] = {0};

    if (!token->at || token->bytes == 0) {
        rpc_refuse(connection, "checkpoint token must not be empty");
        return;
    }
    /* a token of another form matches no fence */
    wire_id_parse_uuid(token->at, token->bytes, bytes);
    int error = service_unfence(connection->rpc->service, &connection->caller, bytes, complete);
    if (error == -EINVAL)
        rpc_refuse(connection, "checkpoint token does not match the prepared checkpoint");
    else if (error == -ESTALE)
        rpc_refuse(connection, "checkpoint token is stale or already resolved");
    else if (error)
        rpc_refuse_errno(connection, "resolve the checkpoint", error);
    else
        answer_checkpoint(connection, &fence);
}

bool rpc_probe_v1(struct rpc_connection *connection)
{
    struct service_fence fence;

    switch (connection->asked.type) {
    case MESSAGE_PREPARE_CHECKPOINT_REQUEST:
        /* the memory of ended writers may still be being freed, for which no grant waits */
        service_await_freeing(connection->rpc->service, rpc_wait(connection, finish_prepare));
        return true;
    case MESSAGE_ABORT_CHECKPOINT_REQUEST:
        resolve_checkpoint(connection, false);
        return true;
    case MESSAGE_COMPLETE_RESTORE_REQUEST:
        resolve_checkpoint(connection, true);
        return true;
    case MESSAGE_GET_CHECKPOINT_STATE_REQUEST:
        service_get_fence(connection->rpc->service, &fence);
        /* the token ends the fence, so only clients that may write the stores see it */
        if (fence.is_up && rpc_check_store(connection, true) != 0)
            rpc_refuse_errno(connection, "look at the checkpoint", -EACCES);
        else
            answer_checkpoint(connection, &fence);
        return true;
    case MESSAGE_RETAIN_ALLOCATIONS_REQUEST:
    case MESSAGE_RELEASE_ATTACHMENT_REQUEST:
        rpc_refuse(connection, "process fences are not supported by this server");
        return true;
    default:
        return false;
    }
}

/* ---- in a session ---------------------------------------------------------------------------- */

static bool has_session(struct rpc_connection *connection, bool writes, struct rpc_view *view)
{
    bool found = rpc_find_view(connection, view);

    if (writes && (!found || view->session->mode != LOCK_MODE_RW))
        rpc_refuse(connection, "operation requires an RW session");
    else if (!found)
        rpc_refuse(connection, "operation requires an active GMS session");
    else
        return true;
    return false;
}

static void refuse_memory(struct rpc_connection *connection)
{
    char text[128];
    struct message oom = {.type = MESSAGE_ERROR_RESPONSE, .out_of_memory = true};
    struct vmm_info device;

    service_get_device(connection->rpc->service, &device);
    snprintf(text, sizeof text,
             "%" PRIu64 " bytes cannot be allocated: the mount has %" PRIu64 " in all",
             connection->asked.aligned_size.magnitude, device.total_bytes);
    oom.error = message_text(text);
    rpc_answer(connection, &oom);
}

static void finish_allocate(struct rpc_connection *connection, int error,
                            const struct service_answer *answer)
{
    (void)answer;
    if (error == -EEXIST)
        rpc_refuse(connection, "allocation ID already exists");
    else if (error == -ENOMEM)
        refuse_memory(connection);
    else if (error)
        rpc_refuse_errno(connection, "allocate", error);
    else
        rpc_answer_type(connection, MESSAGE_SUCCESS_RESPONSE);
}

/* Returns true if the size is not a multiple of the device's granularity, a power of two. */
static bool is_unaligned(const struct rpc_connection *connection)
{
    const struct message_integer *size = &connection->asked.aligned_size;
    struct vmm_info info;

    service_get_device(connection->rpc->service, &info);
    return size->is_negative || size->magnitude == 0 ||
           size->magnitude % info.granularity_bytes != 0;
}

static void allocate(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message_text *asked = &connection->asked.allocation_id;
    char id[LAYOUT_MAX_WIRE_ID_BYTES + 1];
    struct service_actor by = rpc_actor(connection);
    struct service_alloc alloc = {.size_bytes = connection->asked.aligned_size.magnitude,
                                  .count = 1,
                                  .name = "",
                                  .tag = "default",
                                  .wire_id = id,
                                  .wait = true,
                                  .waits_for_ever = true,
                                  .waits_for_decision = true};

    if (asked->bytes == 0) {
        rpc_refuse(connection, "allocation ID must not be empty");
    } else if (is_unaligned(connection)) {
        rpc_refuse(connection, "allocation size is not aligned for this GPU");
    } else if (rpc_find_allocation(connection, view)) {
        rpc_refuse(connection, "allocation ID already exists");
    } else if (asked->bytes > LAYOUT_MAX_WIRE_ID_BYTES || memchr(asked->at, '\0', asked->bytes)) {
        rpc_refuse(connection, "allocation ID must have at most %u bytes, and no NUL",
                   LAYOUT_MAX_WIRE_ID_BYTES);
    } else {
        memcpy(id, asked->at, asked->bytes);
        id[asked->bytes] = '\0';
        service_alloc(connection->rpc->service, &by, &alloc, rpc_wait(connection, finish_allocate));
    }
}

/* NULL: the request was refused. */
static const struct layout_allocation *find_asked(struct rpc_connection *connection,
                                                  const struct rpc_view *view)
{
    const struct layout_allocation *allocation = rpc_find_allocation(connection, view);

    if (connection->asked.allocation_id.bytes == 0)
        rpc_refuse(connection, "allocation ID must not be empty");
    else if (!allocation)
        rpc_refuse(connection, "unknown allocation ID");
    return connection->asked.allocation_id.bytes == 0 ? NULL : allocation;
}

static void export(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message answer = {.type = MESSAGE_EXPORT_RESPONSE};
    const struct layout_allocation *allocation = find_asked(connection, view);

    if (allocation)
        rpc_export(connection, allocation, &answer);
}

static void free_allocation(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct layout_allocation *allocation = find_asked(connection, view);
    struct service_actor by = rpc_actor(connection);

    if (!allocation)
        return;
    int error = service_remove_slot(connection->rpc->service, &by, allocation->slot);
    if (error)
        rpc_refuse_errno(connection, "free", error);
    else
        rpc_answer_type(connection, MESSAGE_SUCCESS_RESPONSE);
}

static void finish_commit(struct rpc_connection *connection, int error,
                          const struct service_answer *answer)
{
    (void)answer;
    if (error)
        rpc_refuse_commit(connection, error);
    else
        rpc_answer_type(connection, MESSAGE_SUCCESS_RESPONSE);
}

static void finish_freeing(struct rpc_connection *connection, int error,
                           const struct service_answer *answer)
{
    (void)error;
    (void)answer;
    connection->is_aborted = false;
    rpc_answer_type(connection, MESSAGE_SUCCESS_RESPONSE);
}

static void await_freeing(struct rpc_connection *connection)
{
    service_await_freeing(connection->rpc->service, rpc_wait(connection, finish_freeing));
}

/* The released memory has to be free before the client gets its answer. */
static void finish_abort(struct rpc_connection *connection, int error,
                         const struct service_answer *answer)
{
    (void)answer;
    if (error) {
        rpc_refuse_errno(connection, "abort", error);
        return;
    }
    connection->session = 0;
    connection->is_aborted = true;
    await_freeing(connection);
}

/* True: it was one of these requests. */
static bool serve_writer(struct rpc_connection *connection)
{
    enum message_type type = connection->asked.type;
    struct service_actor by = rpc_actor(connection);
    struct rpc_view view;

    if (type != MESSAGE_ALLOCATE_REQUEST && type != MESSAGE_FREE_REQUEST &&
        type != MESSAGE_COMMIT_REQUEST && type != MESSAGE_ABORT_REQUEST)
        return false;
    if (connection->is_aborted) { /* by a worker that has died since */
        await_freeing(connection);
        return true;
    }
    if (!has_session(connection, true, &view))
        return true;
    if (type == MESSAGE_ALLOCATE_REQUEST)
        allocate(connection, &view);
    else if (type == MESSAGE_FREE_REQUEST)
        free_allocation(connection, &view);
    else if (type == MESSAGE_COMMIT_REQUEST)
        service_commit(connection->rpc->service, &by, CORE_COMMIT_STAY, NULL,
                       rpc_wait(connection, finish_commit));
    else
        service_abort(connection->rpc->service, &by, rpc_wait(connection, finish_abort));
    return true;
}

void rpc_serve_v1(struct rpc_connection *connection)
{
    enum message_type type = connection->asked.type;
    struct rpc_view view;

    if (serve_writer(connection))
        return;
    if (type == MESSAGE_EXPORT_REQUEST || type == MESSAGE_LIST_ALLOCATIONS_REQUEST) {
        if (!has_session(connection, false, &view))
            return;
        if (type == MESSAGE_EXPORT_REQUEST)
            export(connection, &view);
        else
            rpc_list_allocations(connection, &view);
        return;
    }
    if (type == MESSAGE_RETAIN_ALLOCATIONS_REQUEST || type == MESSAGE_RELEASE_ATTACHMENT_REQUEST)
        rpc_refuse(connection, "process fences are not supported by this server");
    else
        rpc_refuse(connection, "handshake is valid only as the first message");
}
