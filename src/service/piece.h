/* SPDX-License-Identifier: Apache-2.0 */
/* piece - the descriptors behind memory handles, by the handle: no part of the core's state */
#ifndef GMSFS_SERVICE_PIECE_H
#define GMSFS_SERVICE_PIECE_H

#include "base/idvec.h"
#include "service/host.h"

struct spool_op;

struct piece_holder { /* the user whose processes share a descriptor of the piece */
    uint32_t uid;
    bool any;
};

struct piece {
    uint64_t id; /* the memory handle */
    struct vmm_piece memory;
    uint64_t store; /* which it is for: a reservation that is due gets what it gives back */
    uint64_t reserved_bytes; /* charged to the account of its tier for it */
    uint64_t moving_bytes;   /* made by a move: so many come from its source */
    uint64_t spooled_bytes;  /* charged to the share of `uid` of the spools: whoever began it */
    enum vmm_tier tier;
    uint32_t uid;
    struct piece_holder holders[2]; /* of the read-only descriptor, of the writable one */
    uint64_t new_serial; /* a spool whose first write is under way, for this allocation; else 0 */
    unsigned running;    /* jobs that use the descriptors */
    bool exclusive;      /* one of them changes the size: further spool operations queue */
    bool doomed;         /* to be freed when the last job is done */
    bool counted;        /* as being freed; one of pieces.freeing, where it is the device's */
    bool moved;          /* sealed in other memory, of which the keeper has not heard yet */
    struct spool_op *queue;    /* waiting for `exclusive`, first come first served */
    struct piece *next_doomed; /* piece_free_doomed's */
    struct piece *next_freeing, **link_freeing;
};

struct pieces {
    struct idvec all;          /* by the memory handle */
    struct free_job *gathered; /* to be freed, and no job has them yet; NULL: none */
    struct piece *freeing;     /* being given back */
    uint64_t freeing_beside_bytes[VMM_TIER_COUNT]; /* of the other tiers' */
    size_t doomed; /* that no job uses, to be freed at the end of the step */
};

/* piece.c */
/* For an allocation of this session; not yet in s->pieces. */
struct piece *piece_new(struct service *s, uint64_t session, uint64_t reserved_bytes);
void piece_begin(struct piece *piece);
/* All of them into the table, or none: -ENOMEM */
int piece_enter_all(struct service *s, struct piece **pieces, uint32_t count);
/* What was entered is the table's, and NULL here; or (error) is taken out again. */
void piece_leave_all(struct service *s, struct piece **pieces, uint32_t count, int error);
/* Charged for those that have no memory yet. */
uint64_t piece_count_missing(struct piece *const *pieces, uint32_t count);
/* Returns their memory handles, to be freed; NULL: no memory */
uint64_t *piece_list_ids(struct piece *const *pieces, uint32_t count);
/* So much of it counts as spooled from now on: no more than before. */
void piece_count_spooled(struct service *s, struct piece *piece, uint64_t bytes);
#define PIECE_DESCRIPTORS 2u
/* What the keeper is to hold of it, which has this memory: how many. Any thread. */
size_t piece_describe(const struct piece *piece, const struct vmm_piece *memory,
                      struct service_memory kept[PIECE_DESCRIPTORS]);
/* Counts it as coming back: it is certain that it goes, so waiters may count on it. */
void piece_count_freeing(struct service *s, struct piece *piece);
/* No record has this memory any more: it is freed at the end of the step, or of its last use. */
void piece_doom(struct service *s, uint64_t memory);
/* Is memory still being given back that was this store's? */
bool piece_is_freed_of(const struct service *s, uint64_t store);

/* piece_free.c */
void piece_end(struct service *s, struct piece *piece);
/* Gives back what it is charged with beyond this. */
void piece_shrink(struct service *s, struct piece *piece, uint64_t reserved_bytes);
/* By a job, which gives the account back. Small pieces are gathered: piece_free_gathered has to
 * follow before control goes back to the loop; piece_free_doomed calls it. */
void piece_free(struct service *s, struct piece *piece);
void piece_free_gathered(struct service *s);
/* All that were doomed at once, for a removal moves what is behind. */
void piece_free_doomed(struct service *s);

#endif
