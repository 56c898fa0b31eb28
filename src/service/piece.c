/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece - the descriptors behind a memory handle: their uses, and their end
 *
 * The ledger dooms a piece that no record has any more; piece_free.c frees it.
 */
#include "service/service_internal.h"

#include <stdlib.h>

struct piece *piece_new(struct service *s, uint64_t session, uint64_t reserved_bytes)
{
    const struct core_session *held = core_find_session(s->core, session);
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        return NULL;
    piece->id = s->next_memory++;
    piece->store = held ? held->store : 0;
    piece->memory.fd = -1;
    piece->memory.fd_readonly = -1;
    piece->reserved_bytes = reserved_bytes;
    return piece;
}

void piece_leave_all(struct service *s, struct piece **pieces, uint32_t count, int error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (error && pieces[i])
            idvec_remove(&s->pieces.all, pieces[i]->id);
        else
            pieces[i] = NULL;
    }
}

int piece_enter_all(struct service *s, struct piece **pieces, uint32_t count)
{
    for (uint32_t entered = 0; entered < count; entered++) {
        int error = idvec_insert(&s->pieces.all, pieces[entered]);
        if (error) {
            piece_leave_all(s, pieces, entered, error);
            return error;
        }
    }
    return 0;
}

uint64_t piece_count_missing(struct piece *const *pieces, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += pieces[i] && pieces[i]->memory.fd < 0 ? pieces[i]->reserved_bytes : 0;
    return bytes;
}

uint64_t *piece_list_ids(struct piece *const *pieces, uint32_t count)
{
    uint64_t *ids = calloc(count ? count : 1, sizeof *ids);
    for (uint32_t i = 0; ids && i < count; i++)
        ids[i] = pieces[i]->id;
    return ids;
}

void piece_begin(struct piece *piece)
{
    piece->running++;
}

void piece_count_spooled(struct service *s, struct piece *piece, uint64_t bytes)
{
    if (bytes < piece->spooled_bytes)
        service_charge(s, SERVICE_BOUND_SPOOLS, piece->uid, &piece->spooled_bytes, bytes);
}

size_t piece_describe(const struct piece *piece, const struct vmm_piece *memory,
                      struct service_memory kept[PIECE_DESCRIPTORS])
{
    kept[0] =
        (struct service_memory){.id = piece->id, .fd = memory->fd, .bytes = memory->aligned_bytes};
    if (memory->fd_readonly < 0 || memory->fd_readonly == memory->fd)
        return 1;
    kept[1] = (struct service_memory){.id = piece->id | SERVICE_MEMORY_READONLY,
                                      .fd = memory->fd_readonly};
    return 2;
}

void piece_count_freeing(struct service *s, struct piece *piece)
{
    if (piece->counted)
        return;
    piece->counted = true;
    if (piece->tier != VMM_TIER_DEVICE) {
        s->pieces.freeing_beside_bytes[piece->tier] += piece->reserved_bytes;
        return;
    }
    s->numbers.freeing_bytes += piece->reserved_bytes;
    piece->next_freeing = s->pieces.freeing;
    piece->link_freeing = &s->pieces.freeing;
    if (s->pieces.freeing)
        s->pieces.freeing->link_freeing = &piece->next_freeing;
    s->pieces.freeing = piece;
}

bool piece_is_freed_of(const struct service *s, uint64_t store)
{
    const struct piece *piece = s->pieces.freeing;

    while (piece && piece->store != store)
        piece = piece->next_freeing;
    return piece != NULL;
}

void piece_doom(struct service *s, uint64_t memory, size_t *at)
{
    struct piece *piece = idvec_find_near(&s->pieces.all, memory, at);
    if (!piece || s->ending)
        return;
    piece->doomed = true;
    piece_count_freeing(s, piece);
    if (piece->running == 0) /* else piece_end frees it */
        s->pieces.doomed++;
}
