/* SPDX-License-Identifier: Apache-2.0 */
/* fds_refused - processes whose requests on `.fds` kill workers: a connection goes with the worker,
 * and the next one is new, so the process and its request count (keeper_poison.c) */
#include "fs/fds_connection.h"

#include <stdatomic.h>

void fds_work_for(struct connection *connection, uint32_t op)
{
    struct fs_ledger *ledger = connection->fs->options.ledger;
    uint32_t pid = (uint32_t)connection->pid;

    connection->answer.asker = fs_at_asker(connection->uid, pid, op);
    atomic_store(&ledger->at[0], connection->answer.asker); /* the step's end clears it */
}

static bool is_refused(const struct fs *fs, uint64_t task)
{
    const struct fs_refused_asker *refused = fs->options.ledger->refused_askers;

    for (unsigned i = 0; i < FS_REFUSED_ASKERS; i++)
        if (atomic_load(&refused[i].what) == task && fs->now_ms < refused[i].until_ms)
            return true;
    return false;
}

bool fds_is_trusted(const struct connection *connection)
{
    return connection->uid == 0 || connection->uid == connection->fs->options.owner_uid;
}

/* Root and the mount's owner are refused that one request, not all their programs' requests: they
 * can upgrade, drain and unmount, which ends the deaths. */
bool fds_is_refused(const struct connection *connection, uint32_t op)
{
    uint32_t uid = connection->uid, pid = (uint32_t)connection->pid;

    return is_refused(connection->fs, fs_at_asker(uid, pid, op)) ||
           (!fds_is_trusted(connection) && is_refused(connection->fs, fs_at_any_asker(uid)));
}
