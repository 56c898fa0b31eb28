/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms - the front end for GMS clients, connected to the worker
 *
 * Makes the front end (rpc.h) and gives it the loop, the process at the other end of each
 * connection, and a keeper that holds every connection too. For worker.c, on the loop's thread.
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
    struct fs_counts *counts;
    int memory_fd; /* from rpc_make_memory */
};

int gms_new(const struct gms_setup *setup, struct gms **gms);
/* Continues the last worker's connections in `kept`, as far as they can. Takes the descriptors. */
void gms_resume(struct gms *gms, const struct journal *journal, const struct service_kept *kept,
                size_t count);
/* Returns true if one of them has this file. `gms` may be NULL, here and below. */
bool gms_has_file(const struct gms *gms, uint64_t file);
/* Call it after a snapshot has begun. */
void gms_note_all(struct gms *gms);
/* Call it when the helpers are idle or gone: it gives them no more work. */
void gms_free(struct gms *gms);
/* Takes a listening socket. */
int gms_listen(struct gms *gms, uint64_t domain, uint64_t protocol, int listen_fd);
/* Calling it twice is harmless. */
void gms_close_listeners(struct gms *gms);
/* Returns true while there is something to wait for. */
bool gms_on_tick(struct gms *gms, uint64_t now_ms);

#endif
