/* SPDX-License-Identifier: Apache-2.0 */
/* cost - what records and objects take of the daemon's own memory, and bounds that are met */
#ifndef GMSFS_SERVICE_COST_H
#define GMSFS_SERVICE_COST_H

#include "service/service_internal.h"

/* room.c */
/* What records and objects take, journal and heap together: rather more than they do. */
#define ROOM_STORE_BYTES 8192u
#define ROOM_OPEN_BYTES  2048u /* with its session, its handle and its close */
#define ROOM_COPIES      3u    /* of what is put: the journal's, the state's, its encoding */

/* Before the record is made: room for what it makes grow. -ENOMEM, -EDQUOT: and whose bound it met
 */
int service_take_room_for(struct service *s, const struct record *record, struct outcome *outcome);
/* looks: for what an administrator needs to look, revoke and drain. What the bounds count of the
 * user is with these bytes already. -ENOMEM, -EDQUOT */
int service_take_room(struct service *s, uint32_t uid, bool looks, uint64_t bytes);
/* For all that comes of a document, until it is applied. -ENOMEM, -EDQUOT */
int service_hold_room(struct service *s, uint32_t uid, uint64_t document_bytes);
void service_release_room(struct service *s, uint64_t document_bytes);

/* room_share.c: room for so many bytes more was taken: is that the user's share? -EDQUOT */
int service_check_room_share(const struct service *s, uint32_t uid, uint64_t bytes);
/* What one of each bound takes of it; 0: that is asked for elsewhere. */
extern const unsigned service_room_bytes[];

/* bounds.c */
/* The next bound that was met and is to be told: fills the record. False: there is none. */
bool service_take_note(struct service *s, struct record *record);
void service_free_bounds(struct service *s);
void service_init_bounds(struct service *s);
/* Somebody met the budget of the store's pool. Told now and then, as bounds are. */
void service_note_over_quota(struct service *s, const struct core_store *store, uint32_t uid,
                             struct core_process process);

#endif
