/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_wait - the memory that a move needs, and moves that wait for it
 *
 * A move counts on memory that is on its way: bytes that are being freed, and stores that leave.
 * That memory may not come, for a client may use a store that was to leave; so the waiting moves
 * are looked at again after each end of a move, and now and then by the clock.
 */
#include "service/move_op.h"

#include <errno.h>

/* Makes the pieces, with the bytes charged for each. */
static int make_pieces(struct service *s, struct move_op *op)
{
    const struct layout *layout = core_find_store(s->core, op->store)->fixed;
    for (uint32_t i = 0; i < op->count; i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        uint64_t bytes = allocation->aligned_bytes;
        struct piece *piece = piece_new(s, 0, vmm_align_in(s->vmm, op->tier, bytes));
        if (!piece)
            return -ENOMEM;
        piece->store = op->store;
        piece->tier = op->tier;
        piece->moving_bytes = bytes;
        piece->size_bytes = allocation->size_bytes;
        op->pieces[i] = piece;
        op->charged_bytes += piece->reserved_bytes;
    }
    return 0;
}

/* Returns the bytes of the stores that are leaving the device. */
static uint64_t count_leaving(const struct service *s)
{
    uint64_t bytes = 0;
    for (const struct move_op *op = s->moves.all; op; op = op->next) {
        const struct core_store *store = core_find_store(s->core, op->store);
        if (store && store->places.place == CORE_PLACE_DEVICE && store->places.move.id == op->id &&
            !store->places.move.spare && !core_is_held(store))
            bytes += layout_total_bytes(store->fixed);
    }
    return bytes;
}

/* Returns true if the bytes on their way are enough, with the free ones, and beside the device with
 * those of unneeded spares. */
static bool is_coming(const struct service *s, const struct move_op *op)
{
    if (op->tier != VMM_TIER_DEVICE)
        return op->cost_bytes <= service_get_room_beside(s, op->to);
    uint64_t bytes = s->numbers.freeing_bytes + count_leaving(s);
    return bytes > 0 && op->cost_bytes <= vmm_get_free_in(s->vmm, op->tier) + bytes;
}

int move_op_take_memory(struct move_op *op, bool in_turn)
{
    struct service *s = op->service;
    if (move_op_verifies(op))
        return 0; /* it needs no memory */
    int error = in_turn ? vmm_reserve_in(s->vmm, op->tier, op->cost_bytes) : -ENOMEM;
    if (error == -ENOMEM && is_coming(s, op)) {
        move_op_go(op, MOVE_WAITS);
        return 0;
    }
    if (error)
        return error;
    error = make_pieces(s, op);
    if (error) /* the rest, which no piece has */
        vmm_unreserve_in(s->vmm, op->tier, op->cost_bytes - op->charged_bytes);
    return error;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Charges a waiting move, except for device memory that belongs to others by now. A store that was
 * to leave for it may have stayed: then others are asked first. */
static int charge_waiting(struct service *s, struct move_op *op)
{
    move_op_go(op, MOVE_BEGINS); /* so that it does not count as waiting before itself */
    int error = move_op_take_memory(op, true);
    if (move_op_waits(op) || op->tier != VMM_TIER_DEVICE)
        return error;
    if (error == -ENOMEM && op->charged_bytes == 0 && !op->no_victims) {
        move_op_go(op, MOVE_SHORT);
        return 0;
    }
    if (error)
        return error;
    const struct core_store *store = core_find_store(s->core, op->store);
    return core_check_promotion(s->core, store, vmm_get_free(s->vmm)) < 0 ? -ENOMEM : 0;
}

/* Returns the first move that has ended its wait: it begins, or fails. In each tier older moves
 * come first. */
static struct move_op *find_ready(struct service *s)
{
    bool is_short[VMM_TIER_COUNT] = {false};
    for (struct move_op *op = s->moves.all; op; op = op->next) {
        if (op->state == MOVE_CANCELLED && op->parts_running == 0)
            return op;
        if (!move_op_waits(op))
            continue;
        if (!is_short[op->tier])
            op->error = charge_waiting(s, op);
        if (!move_op_waits(op))
            return op;
        is_short[op->tier] = true;
    }
    return NULL;
}

static bool any_waits(const struct service *s)
{
    const struct move_op *op = s->moves.all;
    while (op && !move_op_waits(op))
        op = op->next;
    return op != NULL;
}

void service_resume_moves(struct service *s)
{
    struct move_op *op;
    while ((op = find_ready(s))) {
        bool begins = !op->error && op->state != MOVE_CANCELLED;
        if (begins)
            op->error = move_op_start(op);
        if (!begins || op->error)
            op->finish(op);
    }
    if (any_waits(s) && !service_is_backed_off(s, BACKOFF_MOVES, 0))
        service_back_off(s, BACKOFF_MOVES, 0, SERVICE_PROMOTE_RETRY_MS);
}

/* ---- moves for which no memory is on its way ---------------------------------------- */

const struct core_store *service_get_short_move(const struct service *s, uint64_t *move)
{
    const struct move_op *op = s->moves.all;
    while (op && op->state != MOVE_SHORT)
        op = op->next;
    *move = op ? op->id : 0;
    return op ? core_find_store(s->core, op->store) : NULL;
}

/* The choice of victims may have ended the move meanwhile, or found memory for it. */
void service_settle_short_move(struct service *s, uint64_t move, bool comes)
{
    struct move_op *op = s->moves.all;
    while (op && op->id != move)
        op = op->next;
    if (!op || op->state != MOVE_SHORT)
        return;
    move_op_go(op, MOVE_WAITS);
    op->no_victims = !comes;
    if (!comes)
        service_note_moves(s);
}
