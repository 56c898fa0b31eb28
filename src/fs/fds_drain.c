/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_drain.h"

#include "base/log.h"

#include <errno.h>

static int begin(struct fs *fs, const struct service_peer *peer,
                 const struct gmsfs_fds_request *request, struct service_drain *own)
{
    int error = service_drain_store(fs->service, peer, request->ticket, request->batch, own);
    const struct core_store *store = error ? NULL : core_find_store(fs->core, own->store);

    if (store)
        log_info("%s: process %llu (uid %u) drains the store '%s'", fs->options.mountpoint,
                 (unsigned long long)peer->process.pid, peer->uid, store->name);
    return error;
}

int fds_drain_ask(struct fs *fs, const struct service_peer *peer,
                  const struct gmsfs_fds_request *request, struct service_drain *own,
                  uint64_t *remaining)
{
    *remaining = 0;
    switch (request->op) {
    case GMSFS_FDS_STORE_DRAIN:
        return begin(fs, peer, request, own);
    case GMSFS_FDS_STORE_HOLDERS:
        return service_count_holders(fs->service, peer, own, request->batch != 0, remaining);
    default:
        return service_serve_store(fs->service, peer, request->ticket);
    }
}
