/* SPDX-License-Identifier: Apache-2.0 */
/* The first message of a connection: a wish for a lock, or a question without a session. */
#include "rpc/rpc_internal.h"
#include "rpc/wire_id.h"

#include <errno.h>
#include <string.h>

/* ---- the answer ------------------------------------------------------------------------------ */

static enum message_lock granted_lock(enum lock_mode mode)
{
    static const enum message_lock locks[LOCK_MODES] = {
        [LOCK_MODE_RO] = MESSAGE_RO,
        [LOCK_MODE_RW] = MESSAGE_RW,
        [LOCK_MODE_RW_DATA] = MESSAGE_RW_DATA,
    };

    return locks[mode];
}

static void greet(struct rpc_connection *connection, const struct core_store *store,
                  enum lock_mode mode)
{
    char nonce[WIRE_ID_UUID_BYTES], gpu[WIRE_ID_GPU_BYTES];
    struct message answer = {
        .type = MESSAGE_HANDSHAKE_RESPONSE,
        .success = mode != LOCK_MODE_NONE,
        .committed = store && store->lock.committed,
        .lock_type = granted_lock(mode),
    };

    if (connection->protocol == MESSAGE_V1) {
        wire_id_format_uuid(store->uuid, nonce);
        wire_id_format_gpu(connection->rpc->options.gpu_uuid, gpu);
        answer.server_nonce = message_text(nonce);
        answer.gpu_uuid = message_text(gpu);
    }
    rpc_answer(connection, &answer);
}

static void refuse_session(struct rpc_connection *connection, int error)
{
    if ((error == -ENODEV || error == -ENOENT) &&
        core_is_fenced(connection->rpc->core, rpc_domain_name(connection->domain)))
        rpc_refuse(connection, "GMS admission is fenced for checkpoint");
    else
        rpc_refuse_errno(connection, "connect", error);
    rpc_close_after(connection);
}

static void finish_handshake(struct rpc_connection *connection, int error,
                             const struct service_answer *answer)
{
    const struct core_file *file = core_find_file(connection->rpc->core, connection->file);
    const struct core_store *store =
        file ? core_find_store(connection->rpc->core, file->store) : NULL;

    if (error == 0 && (!store || !core_find_session(connection->rpc->core, answer->session)))
        error = -ECANCELED; /* revoked in the same moment */
    if (error == -EAGAIN || error == -ETIMEDOUT) {
        greet(connection, store, LOCK_MODE_NONE);
        rpc_close_after(connection);
    } else if (error) {
        refuse_session(connection, error);
    } else {
        connection->session = answer->session;
        connection->phase = RPC_SESSION;
        greet(connection, store, answer->mode);
    }
}

/* ---- the wish -------------------------------------------------------------------------------- */

static enum lock_wish wish_of(const struct rpc_connection *connection)
{
    switch (connection->asked.lock_type) {
    case MESSAGE_RO:
        return LOCK_WISH_RO;
    case MESSAGE_RW_OR_RO:
        /* a client without the right to write becomes a reader, or waits to be one */
        return rpc_check_store(connection, true) ? LOCK_WISH_RO : LOCK_WISH_AUTO;
    case MESSAGE_RW_DATA_OR_RW:
        return LOCK_WISH_DATA;
    default:
        return LOCK_WISH_RW;
    }
}

/* nil waits for ever; zero or less is granted now or not at all. */
static uint64_t timeout_of(const struct rpc_connection *connection)
{
    struct message_integer timeout_ms = connection->asked.timeout_ms;

    if (!timeout_ms.is_given)
        return SERVICE_WAIT_FOREVER;
    return timeout_ms.is_negative ? 0 : timeout_ms.magnitude;
}

struct opening {
    struct service_request request;
    int error;
    uint64_t file;
};

static void on_opened(struct service_request *request, int error,
                      const struct service_answer *answer)
{
    struct opening *opening = (struct opening *)request;

    opening->error = error;
    opening->file = error ? 0 : answer->file;
}

/* Opens a `ctl` of its own, which succeeds or fails at once. */
static int open_ctl(struct rpc_connection *connection, bool write)
{
    const struct core_store *store = rpc_find_store(connection);
    struct opening opening = {.request = {.done = on_opened}};
    struct service_open open = {
        .kind = CORE_KIND_CTL, .read = true, .write = write, .connection = true};

    if (!store)
        return -ENOENT;
    open.store = store->id;
    service_open(connection->rpc->service, &open, &connection->caller, &opening.request);
    connection->file = opening.file;
    return opening.error;
}

/* Finds the process that asks. Sealed memory is only for a process that no possible writer
 * accompanies: so the sender counts, not the process that connected, which may have that memory and
 * have passed the connection on. */
static int find_asker(const struct rpc_connection *connection, enum lock_wish wish,
                      struct service_caller *asker)
{
    if (wish == LOCK_WISH_DATA)
        return rpc_find_sender(connection, asker);
    *asker = connection->caller;
    return 0;
}

static void ask_for_session(struct rpc_connection *connection)
{
    struct service_acquire acquire = {.wish = wish_of(connection),
                                      .timeout_ms = timeout_of(connection),
                                      .fresh = !connection->rpc->options.keeps_committed};
    struct service_caller asker;
    int error = find_asker(connection, acquire.wish, &asker);

    if (error == 0 && !connection->file) /* otherwise it has waited under a worker that has died */
        error = open_ctl(connection, acquire.wish != LOCK_WISH_RO);
    if (error) {
        refuse_session(connection, error);
        return;
    }
    service_acquire(connection->rpc->service, connection->file, &acquire, &asker,
                    rpc_wait(connection, finish_handshake));
}

/* V1: returns true if the client expects this server, with the memory that it knew. */
static bool is_expected(const struct rpc_connection *connection)
{
    const struct message *asked = &connection->asked;
    const struct core_store *store = rpc_find_store(connection);
    char nonce[WIRE_ID_UUID_BYTES], gpu[WIRE_ID_GPU_BYTES];

    if (!asked->server_nonce.at || !store)
        return true;
    wire_id_format_uuid(store->uuid, nonce);
    wire_id_format_gpu(connection->rpc->options.gpu_uuid, gpu);
    return asked->server_nonce.bytes == strlen(nonce) && asked->gpu_uuid.bytes == strlen(gpu) &&
           memcmp(asked->server_nonce.at, nonce, strlen(nonce)) == 0 &&
           memcmp(asked->gpu_uuid.at, gpu, strlen(gpu)) == 0;
}

/* Returns the reason for which the protocol refuses the request; NULL: none. */
static const char *find_fault(const struct rpc_connection *connection)
{
    if (connection->protocol == MESSAGE_V0)
        return NULL;
    if (connection->asked.process_fence)
        return "process fences are not supported by this server";
    if (connection->asked.lock_type == MESSAGE_RW_DATA_OR_RW)
        return "unsupported GMS lock type rw_data_or_rw";
    return is_expected(connection) ? NULL : "GMS server incarnation or physical GPU changed";
}

void rpc_hello(struct rpc_connection *connection)
{
    const char *fault;

    if (connection->asked.type == MESSAGE_HANDSHAKE_REQUEST) {
        fault = find_fault(connection);
        if (!fault) {
            ask_for_session(connection);
            return;
        }
        rpc_refuse(connection, "%s", fault);
        rpc_close_after(connection);
        return;
    }
    rpc_close_after(connection);
    if (connection->protocol == MESSAGE_V1)
        rpc_probe_v1(connection);
    else if (!rpc_probe_v0(connection))
        rpc_refuse(connection, "Expected HandshakeRequest");
}
