/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_op - a move under way
 *
 * For move.c, whose it is, move_wait.c, which has the memory charged that it comes to, and
 * move_step.c, which makes that and copies its bytes on helper threads, by steps.
 */
#ifndef GMSFS_SERVICE_MOVE_OP_H
#define GMSFS_SERVICE_MOVE_OP_H

#include "service/moves.h"
#include "service/steps.h"

#include <pthread.h>
#include <stdatomic.h>

/* More than can be copied at a time: some make the pages meanwhile that others fill next. */
#define MOVE_MAX_PARTS   12u
#define MOVE_OPEN_PIECES 8u /* out of which spans are taken by turns */
/* Pieces that are begun in one step, and told the keeper at its end. */
#define MOVE_STEP_COUNT 64u
#define MOVE_DISK_COUNT 4u /* that are looked at there, or have come there, in one step */

/* Bytes of a piece that some part has. */
struct move_span {
    uint32_t index;
    uint64_t offset, bytes; /* 0: it has none */
};

struct move_cursor {
    uint32_t index;  /* of the piece; count: none */
    uint64_t offset; /* of what nobody has taken */
};

/* One thread's share. */
struct move_part {
    struct task task; /* first */
    struct move_op *op;
    struct move_span span;
    uint64_t step_bytes; /* copied by the last step */
    int error;
    bool is_over; /* there is nothing left to take */
    size_t made;  /* by this step */
    struct service_memory batch[MOVE_STEP_COUNT * PIECE_DESCRIPTORS];
    size_t described; /* of the batch */
};

struct move_op {
    struct move_part parts[MOVE_MAX_PARTS];
    uint32_t parts_running;
    enum move_state state;
    atomic_uint_fast32_t taken; /* pieces that some part has in this state */
    pthread_mutex_t mutex;      /* of the cursors */
    struct move_cursor cursors[MOVE_OPEN_PIECES];
    uint32_t turn, begun; /* the next cursor; pieces that some cursor had */
    struct service *service;
    void (*finish)(struct move_op *op); /* all parts are through: it goes */
    uint64_t store, id;
    enum core_place to;
    enum vmm_tier tier;     /* the same */
    enum service_pool pool; /* whose threads work for it */
    uint32_t count;
    struct piece **sources; /* by rank: those that are read */
    struct piece *
        *pieces; /* by rank: those that are made; NULL: it checks a copy, and makes none */
    uint64_t all_bytes, done_bytes, began_ms;
    uint64_t cost_bytes,
        charged_bytes; /* in the tier's account: of all; of pieces that are there */
    bool no_victims;   /* no store can leave for it: it fails once nothing is on its way any more */
    int error;
    struct move_op *next;
};

static inline void move_op_go(struct move_op *op, enum move_state state)
{
    steps_go(move_steps, &op->state, state);
}

static inline bool move_op_waits(const struct move_op *op)
{
    return op->state == MOVE_WAITS || op->state == MOVE_SHORT;
}

/* Returns true if the move checks a copy that its store has in the tier, and makes none. */
static inline bool move_op_looks(const struct move_op *op)
{
    return !op->pieces;
}

/* op->finish is called on the loop's thread, perhaps much later. Fails only if no part could start.
 */
int move_op_start(struct move_op *op);

/* move_wait.c: of a move that begins: charges it and has its pieces, or has it wait: also behind
 * others that do. */
int move_op_take_memory(struct move_op *op, bool in_turn);

#endif
