/* SPDX-License-Identifier: Apache-2.0 */
/* fds_admin - requests of administrators on `.fds` with an answer at once: trust, log level */
#include "base/log.h"
#include "fs/fds_connection.h"
#include "gmsfs_abi.h"
#include "service/admin.h"

#include <errno.h>

static int trust(struct connection *connection, const uint8_t uuid[16])
{
    struct service_peer peer = fds_peer_of(connection);
    struct fs *fs = connection->fs;
    int error = service_trust(fs->service, &peer, uuid);
    if (!error)
        log_info("%s: process %d (uid %u) cleared suspicion", fs->options.mountpoint,
                 connection->pid, connection->uid);
    return error;
}

/* Levels count from 1 on the socket; 0 only asks. */
static int set_log_level(struct connection *connection, uint32_t level)
{
    struct fs *fs = connection->fs;
    if (!service_is_admin(fs->service, connection->uid))
        return -EPERM;
    if (level == 0)
        return 0;
    enum log_level wanted = (enum log_level)(level - 1);
    bool is_raised = wanted > log_get_level();
    if (is_raised) /* before the message, which the former level may leave out */
        fs->host.set_log_level(fs->host.context, wanted);
    log_info("%s: process %d (uid %u) sets the log level to %s", fs->options.mountpoint,
             connection->pid, connection->uid, log_level_name(wanted));
    if (!is_raised)
        fs->host.set_log_level(fs->host.context, wanted);
    return 0;
}

int fds_admin_answer(struct connection *connection, const struct gmsfs_fds_request *request)
{
    if (request->op == GMSFS_FDS_CLEAR_SUSPECT)
        return fds_send_answer(connection, trust(connection, request->ticket), 0);
    int error = set_log_level(connection, request->batch);
    return fds_send_answer(connection, error, error ? 0 : (uint64_t)log_get_level() + 1);
}
