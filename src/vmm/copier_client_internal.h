/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_bytes_internal - what the parts of cuda_bytes share; included by them alone
 *
 * One mutex for everything. It is held for moments only: nobody waits, starts, sends to a full
 * socket or copies under it, for the loop's thread takes it, too.
 */
#ifndef GMSFS_VMM_CUDA_BYTES_INTERNAL_H
#define GMSFS_VMM_CUDA_BYTES_INTERNAL_H

#include "copier/protocol.h"
#include "vmm/complaints.h"
#include "vmm/copier_client.h"

#include <pthread.h>

#define COPIER_START_MS 60000u /* the driver's start, with many GPUs and a cold cache */
#define COPIER_HANG_MS  30000u /* for one request: a megabyte, or a mapping */
#define COPIER_END_MS   5000u  /* to go by itself, and then to go when killed */
#define LEAST_IDLE_MS   50u    /* between two read(2) of one file it must not leave */

#define AHEAD_BLOCKS  4u /* of each reader */
#define AHEAD_READERS 6u
_Static_assert(AHEAD_BLOCKS *AHEAD_READERS + 8 <= COPIER_BLOCKS, "blocks remain for all others");

#define SUSPECTS 8u

enum copier_state {
    COPIER_DOWN,
    COPIER_STARTING,
    COPIER_UP,
    COPIER_ENDING,
};

/* A request, and the block of the ring that goes with it. Free: not pending and without holders. */
struct place {
    bool pending;     /* the copier has the request */
    uint32_t ticket;  /* of it */
    int slot;         /* that it uses while it is pending; -1: none */
    int error;        /* of the last one that is done */
    unsigned holders; /* who waits for it, reads its block, or keeps that for a reader */
};

enum slot_state {
    SLOT_FREE = 0,
    SLOT_CHANGING, /* somebody maps or unmaps it */
    SLOT_MAPPED,
};

struct slot {
    enum slot_state state;
    uint64_t serial;
    uint64_t leaving;   /* CHANGING: the piece that it still has; 0: none */
    unsigned users;     /* requests that are pending */
    uint64_t last_used; /* by `uses` */
};

/* Of one open file: what it will read next, and the blocks that hold it. */
struct ahead {
    uint64_t reader; /* 0: free */
    uint64_t serial;
    uint64_t next;         /* where it will go on */
    uint64_t fetched;      /* the end of the last block */
    uint64_t end;          /* nothing beyond is wanted */
    uint64_t last_ms;      /* it read */
    unsigned run;          /* reads in a row */
    unsigned first, count; /* of the blocks that follow */
    struct {
        unsigned place;
        uint64_t offset, bytes;
    } blocks[AHEAD_BLOCKS];
};

struct cuda_bytes {
    struct cuda_bytes_options options;
    char name[64]; /* of the device, in messages */
    int ring_fd;
    struct copier_shared *shared;
    struct complaints complaints; /* of transfers that failed */

    pthread_mutex_t mutex; /* of all below; a leaf */
    pthread_cond_t changed;
    enum copier_state state;
    bool closing;      /* no further one is to be started */
    bool killed;       /* this one was */
    int socket, pid;   /* of this one */
    unsigned attempts; /* to start one */
    unsigned failed;   /* the last one that did, with start_error */
    int start_error;
    unsigned blamed; /* the last one that was replaced since a request failed */
    bool watched;    /* there is a thread that has it */
    uint32_t next_ticket;
    uint64_t last_use_ms;
    uint64_t uses;
    struct place places[COPIER_PLACES];
    struct slot slots[COPIER_SLOTS];
    struct ahead aheads[AHEAD_READERS];
    unsigned movers; /* requests between suspect_enter and suspect_leave */
    bool
        alone; /* somebody has the copier for a suspect, or will have it when the others are done */
    struct {
        uint64_t serial, until_ms;
    } suspects[SUSPECTS];
};

/* All but bytes_now_ms, bytes_hang_ms and block_of with the mutex held; those marked * give it up
 * meanwhile. */

uint64_t bytes_now_ms(void);

/* cuda_copier.c */
/* *0: there is one. What it says stays true until the mutex is given up. */
int copier_need(struct cuda_bytes *bytes);
/* It is of no use any more: killed, and replaced when it is needed. */
void copier_retire(struct cuda_bytes *bytes);
/* *Until the one of this attempt is no more, for a bounded time. */
void copier_await_end(struct cuda_bytes *bytes, unsigned attempt);
unsigned bytes_hang_ms(void);

/* cuda_places.c */
void *block_of(const struct cuda_bytes *bytes, unsigned place);
/* *One of places [first, first+count), held. */
int place_take(struct cuda_bytes *bytes, unsigned first, unsigned count, unsigned *place);
/* The same without waiting: -EAGAIN */
int place_try(struct cuda_bytes *bytes, unsigned first, unsigned count, unsigned *place);
/* Hands the request over; place, ticket are filled in. -EPIPE: the copier is gone */
int place_send(struct cuda_bytes *bytes, unsigned place, struct copier_request request, int fd);
/* -EAGAIN: still pending; -EPIPE: the copier went; else what came of it. `why` may be NULL. */
int place_look(struct cuda_bytes *bytes, unsigned place, char *why);
/* *As place_look, but waits; -ETIMEDOUT: the copier hangs, and was killed. */
int place_wait(struct cuda_bytes *bytes, unsigned place, char *why);
void place_drop(struct cuda_bytes *bytes, unsigned place);
/* The copier is gone. */
void places_fail(struct cuda_bytes *bytes);
bool places_are_pending(struct cuda_bytes *bytes);
bool places_are_held(const struct cuda_bytes *bytes);

/* *For so long, or until something changes. */
void bytes_wait_ms(struct cuda_bytes *bytes, unsigned ms);

/* cuda_suspects.c */
bool suspect_is(const struct cuda_bytes *bytes, uint64_t serial);
void suspect_note(struct cuda_bytes *bytes, uint64_t serial);
/* *Around a request: not while somebody is alone; and when nobody else has one. */
void suspect_enter(struct cuda_bytes *bytes, bool alone);
void suspect_leave(struct cuda_bytes *bytes, bool alone);

/* cuda_slots.c */
/* *The slot that has it mapped, for as long as the mutex is held. Errors of place_wait. */
int slot_take(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece, unsigned *slot,
              char *why);
int slot_find(const struct cuda_bytes *bytes, uint64_t serial); /* -1: it is not mapped */
void slot_drop(struct cuda_bytes *bytes, unsigned slot);
/* *Unmaps it; when it returns nobody has it mapped. */
void slot_forget(struct cuda_bytes *bytes, uint64_t serial);
void slots_clear(struct cuda_bytes *bytes);

/* cuda_ahead.c */
/* -EAGAIN: the first block that it needs is not there yet, *place says which one; -ENOENT: nothing
 * of it was fetched. */
int ahead_lend(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
               const struct vmm_span *span, struct vmm_loan *loan, unsigned *place);
/* It read this, in the ordinary way. */
void ahead_note(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                const struct vmm_span *span, size_t bytes_read);
void ahead_drop(struct cuda_bytes *bytes, struct ahead *ahead);
void aheads_drop_reader(struct cuda_bytes *bytes, uint64_t reader);
void aheads_drop_piece(struct cuda_bytes *bytes, uint64_t serial);
void aheads_drop_all(struct cuda_bytes *bytes);

#endif
