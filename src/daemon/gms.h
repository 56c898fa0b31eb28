/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms - what the front end for GMS clients needs of the worker
 *
 * Makes it (rpc.h) and gives it the loop, who is at the other end of a connection, and a keeper
 * that holds every connection as well. For worker.c. Loop's thread.
 */
#ifndef GMSFS_DAEMON_GMS_H
#define GMSFS_DAEMON_GMS_H

#include "daemon/helpers.h"
#include "daemon/keep.h"
#include "daemon/loop.h"
#include "daemon/options.h"
#include "daemon/transaction.h"
#include "rpc/rpc.h"

struct gms;

struct gms_setup {
    const struct daemon_options *options;
    const char *mountpoint;
    struct service *service;
    struct loop *loop;
    struct helpers *helpers;
    struct keep *keep;
    struct transaction *transaction;
    struct fs_ledger *ledger;
    int memory_fd; /* rpc_make_memory's */
};

int gms_new(const struct gms_setup *setup, struct gms **gms);
/* In a worker that goes on where another has ended: so do its connections, which `kept` has, as far
 * as they can. Takes the descriptors. */
void gms_resume(struct gms *gms, const struct journal *journal, const struct service_kept *kept,
                size_t count);
/* One of them has this file. NULL is fine. */
bool gms_has_file(const struct gms *gms, uint64_t file);
/* After a snapshot has begun. NULL is fine. */
void gms_note_all(struct gms *gms);
/* After the helpers have nothing to do any more, or are gone: from now on nothing is handed to
 * them. NULL is fine. */
void gms_free(struct gms *gms);
/* Takes a listening socket. */
int gms_listen(struct gms *gms, uint64_t domain, uint64_t protocol, int listen_fd);
/* NULL is fine; so is a second time. */
void gms_close_listeners(struct gms *gms);
/* True: there is something to wait for. NULL is fine. */
bool gms_on_tick(struct gms *gms, uint64_t now_ms);

#endif
