/* SPDX-License-Identifier: Apache-2.0 */
/* cost - the daemon's own memory for records and objects, and bounds that were met */
#ifndef GMSFS_SERVICE_COST_H
#define GMSFS_SERVICE_COST_H

#include "service/bounds.h"
#include "service/service_internal.h"

/* room.c */
/* Estimates of the memory for records and objects, journal and heap together: rather too high. */
#define ROOM_STORE_BYTES 8192u
#define ROOM_OPEN_BYTES  2048u /* an open file with its session, its handle and its close */
#define ROOM_COPIES      3u    /* copies of a value: journal, state, encoding */

/* Takes room for the objects that a record makes, before it is made. -ENOMEM, -EDQUOT: the outcome
 * names the bound and its user */
int service_take_room_for(struct service *s, const struct record *record, struct outcome *outcome);
/* Takes room. looks: an administrator needs it to look, revoke and drain. The bounds count these
 * bytes for the user already. -ENOMEM, -EDQUOT */
int service_take_room(struct service *s, uint32_t uid, bool looks, uint64_t bytes);
/* Holds room for everything that a document makes, until it is applied. -ENOMEM, -EDQUOT */
int service_hold_room(struct service *s, uint32_t uid, uint64_t document_bytes);
void service_release_room(struct service *s, uint64_t document_bytes);

/* room_share.c: checks whether `bytes` more, which were taken, are within the user's share.
 * -EDQUOT */
int service_check_room_share(const struct service *s, uint32_t uid, uint64_t bytes);

/* bound_table.c */
struct bound_row {
    char name[CORE_BOUND_BYTES]; /* as in the event */
    uint64_t limit;              /* of all users; options may lower it (bounds.c) */
    int whole;                   /* errno when all of it is taken; 0: that refuses nothing */
    unsigned room_bytes;         /* of room for one unit; 0: taken elsewhere */
    bool looks;                  /* needed to look, revoke and drain */
};

extern const struct bound_row service_bounds[SERVICE_BOUND_COUNT];

/* bounds.c */
/* Fills the record with the next bound that was met and has no event yet. Returns false if there is
 * none. */
bool service_take_note(struct service *s, struct record *record);
void service_free_bounds(struct service *s);
void service_init_bounds(struct service *s);
/* Notes that a user met the budget of the store's pool. An event now and then tells, as for
 * bounds. */
void service_note_over_quota(struct service *s, const struct core_store *store, uint32_t uid,
                             struct core_process process);

#endif
