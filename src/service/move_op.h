/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_op - a move under way
 *
 * For move.c, which owns it, move_wait.c, which charges the memory that it needs, and move_step.c,
 * which makes that memory and copies the bytes on helper threads, step by step.
 */
#ifndef GMSFS_SERVICE_MOVE_OP_H
#define GMSFS_SERVICE_MOVE_OP_H

#include "service/moves.h"
#include "service/steps.h"

#include <pthread.h>
#include <stdatomic.h>

/* More than can copy at a time: some make the pages that others fill next. */
#define MOVE_MAX_PARTS   12u
#define MOVE_OPEN_PIECES 8u /* pieces that the parts copy spans of, by turns */
/* Pieces that one step makes at most; the keeper gets them at its end. */
#define MOVE_STEP_COUNT 64u
#define MOVE_DISK_COUNT 4u /* pieces that one step verifies or syncs on the disk at most */

/* Bytes of a piece that one part copies. */
struct move_span {
    uint32_t index;
    uint64_t offset, bytes; /* 0: no span */
};

struct move_cursor {
    uint32_t index;  /* of the piece; op->count: none */
    uint64_t offset; /* first byte that no part has taken */
};

/* The share of one thread. */
struct move_part {
    struct task task; /* first */
    struct move_op *op;
    struct move_span span;
    uint64_t step_bytes; /* copied by the last step */
    int error;
    bool is_over; /* no piece or span is left to take */
    size_t made;  /* pieces that this step has made */
    struct service_memory batch[MOVE_STEP_COUNT * PIECE_DESCRIPTORS];
    size_t described; /* descriptors in the batch */
};

struct move_op {
    struct move_part parts[MOVE_MAX_PARTS];
    uint32_t parts_running;
    enum move_state state;
    atomic_uint_fast32_t taken; /* pieces that the parts have taken in this state */
    pthread_mutex_t mutex;      /* of the cursors and of `begun` */
    struct move_cursor cursors[MOVE_OPEN_PIECES];
    uint32_t turn, begun; /* the next cursor; pieces that the cursors have taken so far */
    struct service *service;
    void (*finish)(struct move_op *op); /* called when all parts have ended; frees the operation */
    uint64_t store, id;
    enum core_place to;
    enum vmm_tier tier;     /* the tier of `to` */
    enum service_pool pool; /* threads that run its parts */
    uint32_t count;
    struct piece **sources; /* by rank: the pieces that it reads */
    struct piece **pieces; /* by rank: the pieces that it makes; NULL: it verifies a copy instead */
    uint64_t all_bytes, done_bytes, began_ms;
    uint64_t cost_bytes, charged_bytes; /* charged to the tier's account: for all pieces; for the
                                           pieces made so far */
    bool seals;                         /* its memory becomes immutable, as the layout is */
    bool no_victims; /* no store can leave for it: it fails once no memory is on its way */
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

/* Returns true if the move verifies the copy that its store has in the tier already. */
static inline bool move_op_verifies(const struct move_op *op)
{
    return !op->pieces;
}

/* Starts the parts. op->finish is called on the loop's thread, perhaps much later. Fails only if no
 * part could start. */
int move_op_start(struct move_op *op);

/* move_wait.c: charges a move that begins and makes its pieces, or has it wait for memory. in_turn:
 * false has it wait behind older moves. */
int move_op_take_memory(struct move_op *op, bool in_turn);

#endif
