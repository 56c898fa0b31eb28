/* SPDX-License-Identifier: Apache-2.0 */
/* room - takes the daemon's own memory before a client's request makes it grow (vmm/room.h) */
#include "service/cost.h"
#include "service/views.h"

#include <errno.h>

#define SMALL_BYTES      512u /* a record and its answer */
#define ALLOCATION_BYTES 1024u
#define DOCUMENT_COPIES  4u /* the bytes, and their decoded form */
#define LARGE_COPY_BYTES (64u << 10)

/* Copies of an encoded state: a snapshot's file, its bytes before they are written, and the changes
 * meanwhile. */
#define ASIDE_COPIES      3u
#define ASIDE_LEAST_BYTES (2u << 20) /* a new process */

uint64_t service_count_aside(const struct service *s)
{
    return ASIDE_LEAST_BYTES + ASIDE_COPIES * core_count_encoded(s->core);
}

/* Returns the bytes of the layout that a change copies first. */
static uint64_t count_copy(const struct service *s, const struct record *record)
{
    const struct layout *copied = core_find_copied(s->core, record);
    return copied ? layout_clone_bytes(copied) : 0;
}

/* The same for a change that frees something: a small copy is no reason to refuse it. */
static uint64_t count_large_copy(const struct service *s, const struct record *record)
{
    uint64_t bytes = count_copy(s, record);
    return bytes > LARGE_COPY_BYTES ? bytes : 0;
}

/* 0: the record is never refused, for it ends something, or is the daemon's own. */
static uint64_t count_cost(const struct service *s, const struct record *record)
{
    const struct core_file *file;
    switch (record->type) {
    case RECORD_STORE_CREATE:
        return ROOM_STORE_BYTES;
    case RECORD_FILE_OPEN:
    case RECORD_LOCK_OPEN:
    case RECORD_ACQUIRE:
    case RECORD_JOIN:
    case RECORD_TICKET_ADD:
        return ROOM_OPEN_BYTES;
    case RECORD_ALLOC_ADD:
        return ALLOCATION_BYTES * (record->count ? record->count : 1) + count_copy(s, record);
    case RECORD_ALLOC_MEMORY:
        return record->memory ? SMALL_BYTES + count_copy(s, record) : count_large_copy(s, record);
    case RECORD_ALLOC_RENAME:
    case RECORD_ALLOC_TAG:
        return SMALL_BYTES + record->name_bytes + record->tag_bytes + count_copy(s, record);
    case RECORD_ALLOC_REMOVE:
    case RECORD_ENTRY_DELETE:
    case RECORD_TIMES:
        return count_large_copy(s, record);
    case RECORD_STORE_RENAME:
    case RECORD_STORE_ATTR:
    case RECORD_STORE_POOL:
    case RECORD_POOL_SET:
    case RECORD_LEND:
        return SMALL_BYTES + record->name_bytes + record->tag_bytes;
    case RECORD_ENTRY_PUT:
    case RECORD_ENTRY_RENAME:
        return SMALL_BYTES + ROOM_COPIES * (record->name_bytes + record->value_bytes) +
               count_copy(s, record);
    case RECORD_ENTRY_PUT_MANY: /* its rows' bytes are held (service_hold_room) */
        return count_copy(s, record);
    case RECORD_REGION_REGISTER:
    case RECORD_REGION_REFER:
        return ROOM_OPEN_BYTES + record->name_bytes + record->tag_bytes;
    case RECORD_GATHER:
        file = core_find_file(s->core, record->file);
        return file && record->size_bytes > file->gathered_bytes
                   ? record->size_bytes - file->gathered_bytes
                   : 0;
    default:
        return 0;
    }
}

/* Returns the user that the record is for. */
static uint32_t find_uid(const struct service *s, const struct record *record)
{
    const struct core_session *session = core_find_session(s->core, record->session);
    const struct core_file *file = core_find_file(s->core, record->file);
    return session ? session->uid : file ? file->uid : record->uid;
}

static enum room_rank rank_of(const struct service *s, uint32_t uid, bool looks)
{
    if (core_get_rank(s->core, NULL, uid) != SHARE_ADMIN)
        return ROOM_USER;
    return looks ? ROOM_LOOK : ROOM_ADMIN;
}

/* Checks the user's share after `bytes` were taken, of which `more` are not counted for the user
 * yet. Gives them back if the share does not have them. */
static int check_share(struct service *s, enum room_rank rank, uint32_t uid, uint64_t more,
                       uint64_t bytes)
{
    int error = rank == ROOM_USER ? service_check_room_share(s, uid, more) : 0;
    if (error)
        room_give(s->host.room, bytes);
    return error;
}

int service_take_room_for(struct service *s, const struct record *record, struct outcome *outcome)
{
    uint64_t bytes = s->host.room ? count_cost(s, record) : 0;
    if (bytes == 0) {
        room_spend(s->host.room, SMALL_BYTES);
        return 0;
    }
    uint32_t uid = find_uid(s, record);
    enum room_rank rank = rank_of(s, uid, record->type == RECORD_FILE_OPEN);
    int error = room_take(s->host.room, rank, bytes, record->now_ms);
    if (!error)
        error = check_share(s, rank, uid, bytes, bytes);
    if (error) {
        outcome->bound = CORE_BOUND_MEMORY;
        outcome->bound_uid = uid;
    }
    return error;
}

int service_take_room(struct service *s, uint32_t uid, bool looks, uint64_t bytes)
{
    if (!s->host.room || bytes == 0)
        return 0;
    enum room_rank rank = rank_of(s, uid, looks);
    int error = room_take(s->host.room, rank, bytes, service_now(s));
    return error ? error : check_share(s, rank, uid, 0, bytes);
}

int service_hold_room(struct service *s, uint32_t uid, uint64_t document_bytes)
{
    enum room_rank rank = rank_of(s, uid, false);
    uint64_t bytes = DOCUMENT_COPIES * document_bytes;
    int error = room_hold(s->host.room, rank, bytes, service_now(s));
    if (!error && s->host.room && rank == ROOM_USER)
        error =
            service_check_room_share(s, uid, document_bytes); /* the other copies are short-lived */
    if (error == -EDQUOT)
        room_release(s->host.room, bytes);
    return error;
}

void service_release_room(struct service *s, uint64_t document_bytes)
{
    room_release(s->host.room, DOCUMENT_COPIES * document_bytes);
}

struct room_view service_get_room(const struct service *s)
{
    return room_get_view(s->host.room, service_now(s));
}
