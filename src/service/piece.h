/* SPDX-License-Identifier: Apache-2.0 */
/* piece - the descriptors behind memory handles, by handle: not a part of the core's state */
#ifndef GMSFS_SERVICE_PIECE_H
#define GMSFS_SERVICE_PIECE_H

#include "base/idvec.h"
#include "service/deadline.h"
#include "service/host.h"

struct spool_op;

struct piece_holder { /* the user with the processes that share a descriptor of the piece */
    uint32_t uid;
    bool any;
};

struct piece {
    uint64_t id; /* the memory handle */
    struct vmm_piece memory;
    uint64_t store;          /* its store; a writer's reservation may get a refund of it */
    uint64_t reserved_bytes; /* charged to the account of its tier */
    uint64_t moving_bytes;   /* made by a move: bytes that come from the source */
    uint64_t size_bytes;     /* made by a move: of its allocation */
    uint64_t spooled_bytes;  /* charged to the spools' bound for `uid`, which began the spool */
    enum vmm_tier tier;
    uint32_t uid;
    struct piece_holder holders[2]; /* of the read-only descriptor, of the writable one */
    uint64_t new_serial;    /* a spool with its first write under way: its allocation; else 0 */
    unsigned running;       /* jobs that use the descriptors */
    bool exclusive;         /* one of them changes the size: further spool operations queue */
    bool doomed;            /* to be freed when the last job has ended */
    bool counted;           /* counted as being freed; device memory is in pieces.freeing */
    uint32_t backing;       /* number of its file in the kernel; 0: none */
    bool backing_is_known;  /* the keeper was asked: 0 is final */
    bool may_be_backed;     /* its file may be registered, also for an earlier worker */
    uint64_t file_bytes;    /* length of its file; known with `backing` */
    bool is_mapped;         /* given up, and processes still have it open or mapped */
    bool moved;             /* sealed into other memory, which the keeper does not have yet */
    struct spool_op *queue; /* waiting for `exclusive`, in order */
    struct piece *next_leaving;
    struct piece *next_freeing, **link_freeing;
};

struct piece_table {
    struct idvec all;          /* by memory handle */
    struct free_job *gathered; /* to be freed, not in a job yet; NULL: none */
    struct piece *freeing;     /* device memory that is being freed */
    struct piece *mapped;      /* given up, but still mapped */
    size_t mapped_count;
    struct deadline look; /* for its end */
    uint64_t pause_ms;
    bool is_looking;                               /* a job looks */
    uint64_t freeing_beside_bytes[VMM_TIER_COUNT]; /* being freed in the other tiers */
    size_t doomed; /* pieces without jobs, to be freed at the end of the step */
    struct piece *leaving, *last_leaving;   /* out of the table, and not in a job yet */
    unsigned free_jobs[SERVICE_POOL_COUNT]; /* jobs that free pieces */
};

/* piece.c */
/* Makes a piece for an allocation of this session; not yet in s->pieces. */
struct piece *piece_new(struct service *s, uint64_t session, uint64_t reserved_bytes);
void piece_begin(struct piece *piece);
/* Enters all of them into the table, or none: -ENOMEM */
int piece_enter_all(struct service *s, struct piece **pieces, uint32_t count);
/* Leaves the pieces to the table, and sets them to NULL here; or (error) takes them out of it
 * again. */
void piece_leave_all(struct service *s, struct piece **pieces, uint32_t count, int error);
/* Returns the bytes charged for pieces that have no memory yet. */
uint64_t piece_count_missing(struct piece *const *pieces, uint32_t count);
/* Returns the pieces' memory handles, to be freed; NULL: no memory */
uint64_t *piece_list_ids(struct piece *const *pieces, uint32_t count);
/* Lowers the bytes that count as spooled; never raises them. */
void piece_count_spooled(struct service *s, struct piece *piece, uint64_t bytes);
#define PIECE_DESCRIPTORS 2u
/* Fills in the descriptors of this memory for the keeper, and returns their number. Any thread. */
size_t piece_describe(const struct piece *piece, const struct vmm_piece *memory,
                      struct service_memory kept[PIECE_DESCRIPTORS]);
/* Counts the piece as being freed: it will surely be, so waiters may count on it. */
void piece_count_freeing(struct service *s, struct piece *piece);
/* Dooms memory that no record has any more: it is freed at the end of the step, or of its last use.
 * at: idvec_find_near's, of the table of pieces. */
void piece_doom(struct service *s, uint64_t memory, size_t *at);
/* Returns true while memory of this store is being freed. */
bool piece_is_freed_of(const struct service *s, uint64_t store);

/* piece_free.c */
/* Looks whether a process has the piece open or mapped, for is_mapped. Ends its registration first:
 * until then the kernel may open it once more, for a process that was answered before. Any thread
 * that has the piece alone. */
void piece_look(const struct service_host *host, struct piece *piece);
/* Keeps a piece that is to be freed, and charged, until no process maps it. */
void piece_stays_mapped(struct service *s, struct piece *piece);
void piece_drop_mapped(struct service *s); /* for service_free */
void piece_end(struct service *s, struct piece *piece);
/* Gives back the bytes that the piece is charged with beyond `reserved_bytes`. */
void piece_shrink(struct service *s, struct piece *piece, uint64_t reserved_bytes);
/* Frees a piece by a job, and its account when that has ended. Small pieces are gathered:
 * piece_free_gathered has to follow before control returns to the loop; piece_free_doomed calls
 * it. */
void piece_free(struct service *s, struct piece *piece);
void piece_free_gathered(struct service *s);
/* Takes all doomed pieces out of the table in one pass, and frees as many as may be in jobs at
 * once; the end of such a job has it called again. */
void piece_free_doomed(struct service *s);

#endif
