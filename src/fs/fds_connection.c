/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_connection.h"

#include "base/test_hooks.h"
#include "gmsfs_abi.h"

struct service_peer fds_peer_of(const struct connection *connection)
{
    return (struct service_peer){.uid = connection->uid,
                                 .process = {.pid = (uint64_t)connection->pid}};
}

uint64_t fds_stall_ms(void)
{
    return hook_number("GMSFS_STALL_MS", FS_STALL_MS);
}

int fds_find_sender(struct connection *connection, int pid, struct core_process *process)
{
    struct fs *fs = connection->fs;
    struct service_caller caller = {0};
    int error = fs->host.resolve(fs->host.context, (uint32_t)pid, 1, &caller);
    if (!error && caller.process_count > 0)
        *process = caller.processes[0];
    return error;
}

int fds_send_answer(struct connection *connection, int error, uint64_t remaining)
{
    struct gmsfs_fds_header header = {
        .version = GMSFS_ABI_VERSION, .error = error, .remaining = remaining};
    connection->sending = false;
    return fds_answer_send(&connection->answer, &header, sizeof header);
}
