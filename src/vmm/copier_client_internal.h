/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_client_internal - what the parts of copier_client share; included by them alone
 *
 * One mutex for everything. It is held for moments only: nobody waits, starts, sends to a full
 * socket or copies under it, for the loop's thread takes it, too.
 */
#ifndef GMSFS_VMM_COPIER_CLIENT_INTERNAL_H
#define GMSFS_VMM_COPIER_CLIENT_INTERNAL_H

#include "copier/protocol.h"
#include "vmm/complaints.h"
#include "vmm/copier_client.h"

#include <pthread.h>

#define COPIER_START_MS 60000u /* the driver's start, with many GPUs and a cold cache */
#define COPIER_HANG_MS  30000u /* for one request: a mapping, a megabyte, or 64 of a move */
#define COPIER_END_MS   5000u  /* to go by itself, and then to go when killed */
#define LEAST_IDLE_MS   50u    /* between two read(2) of one file it must not leave */

#define READAHEAD_BLOCKS  4u /* of each reader */
#define READAHEAD_READERS 6u
_Static_assert(READAHEAD_BLOCKS *READAHEAD_READERS + 8 <= COPIER_BLOCKS,
               "blocks remain for all others");

#define QUARANTINE_PIECES 8u

enum copier_state {
    COPIER_DOWN,
    COPIER_STARTING,
    COPIER_UP,
    COPIER_ENDING,
};

/* A request, and the block of the ring that goes with it. Free: not pending and without holders. */
struct ring_entry {
    bool pending;      /* the copier has the request */
    uint32_t sequence; /* of it */
    int window;        /* that it uses while it is pending; -1: none */
    int error;         /* of the last one that is done */
    unsigned holders;  /* who waits for it, reads its block, or keeps that for a reader */
};

enum window_state {
    WINDOW_FREE = 0,
    WINDOW_CHANGING, /* somebody maps or unmaps it */
    WINDOW_MAPPED,
};

struct window {
    enum window_state state;
    uint64_t serial;
    uint64_t leaving;   /* CHANGING: the piece that it still has; 0: none */
    unsigned users;     /* requests that are pending */
    uint64_t last_used; /* by `uses` */
};

/* Of one open file: what it will read next, and the blocks that hold it. */
struct readahead {
    uint64_t reader; /* 0: free */
    uint64_t serial;
    uint64_t next;         /* where it will go on */
    uint64_t fetched;      /* the end of the last block */
    uint64_t end;          /* nothing beyond is wanted */
    uint64_t last_ms;      /* it read */
    unsigned run;          /* reads in a row */
    unsigned first, count; /* of the blocks that follow */
    struct {
        unsigned entry;
        uint64_t offset, bytes;
    } blocks[READAHEAD_BLOCKS];
};

struct copier_client {
    struct copier_client_options options;
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
    uint32_t next_sequence;
    uint64_t last_use_ms;
    uint64_t uses;
    struct ring_entry entries[COPIER_ENTRIES];
    struct window windows[COPIER_WINDOWS];
    struct readahead readaheads[READAHEAD_READERS];
    unsigned movers; /* requests between quarantine_enter and quarantine_leave */
    /* Somebody has the copier for a piece in quarantine, or will have it when the others are done.
     */
    bool alone;
    struct {
        uint64_t serial, until_ms;
    } quarantine[QUARANTINE_PIECES];
};

/* All but ring_block and what has no client with the mutex held; those marked * give it up
 * meanwhile. Calls go one way: process, readahead, windows, ring, retire. */

/* copier_retire.c */
unsigned copier_client_hang_ms(void);
/* *For so long, or until something changes. */
void copier_client_wait_ms(struct copier_client *client, unsigned ms);
/* It is of no use any more: killed, and replaced when it is needed. */
void copier_process_retire(struct copier_client *client);
/* *Until the one of this attempt is no more, for a bounded time. */
void copier_process_await_end(struct copier_client *client, unsigned attempt);

/* copier_process.c */
/* There is none. -ENOMEM: no thread */
int copier_process_start(struct copier_client *client);
/* *0: there is one. What it says stays true until the mutex is given up. */
int copier_process_need(struct copier_client *client);

/* copier_ring.c */
void *ring_block(const struct copier_client *client, unsigned entry);
/* *One of entries [first, first+count), held. */
int ring_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry);
/* The same without waiting: -EAGAIN */
int ring_try_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry);
/* Hands the request over; entry, sequence are filled in. -EPIPE: the copier is gone */
int ring_submit(struct copier_client *client, unsigned entry, struct copier_request request,
                int fd);
/* -EAGAIN: still pending; -EPIPE: the copier went; else what came of it. `why` may be NULL. */
int ring_poll(struct copier_client *client, unsigned entry, char *why);
/* *As ring_poll, but waits; -ETIMEDOUT: the copier hangs, and was killed. */
int ring_wait(struct copier_client *client, unsigned entry, char *why);
void ring_release(struct copier_client *client, unsigned entry);
/* The copier is gone. */
void ring_fail_all(struct copier_client *client);
bool ring_is_pending(struct copier_client *client);
bool ring_is_held(const struct copier_client *client);

/* copier_quarantine.c */
bool quarantine_has(const struct copier_client *client, uint64_t serial);
void quarantine_add(struct copier_client *client, uint64_t serial);
/* *Around a request: not while somebody is alone; and when nobody else has one. */
void quarantine_enter(struct copier_client *client, bool alone);
void quarantine_leave(struct copier_client *client, bool alone);

/* copier_windows.c */
/* *The window that has it mapped, for as long as the mutex is held. Errors of ring_wait. */
int window_take(struct copier_client *client, const struct copier_piece *piece, unsigned *window,
                char *why);
int window_find(const struct copier_client *client, uint64_t serial); /* -1: it is not mapped */
/* *Unmaps it; when it returns nobody has it mapped. */
void window_forget(struct copier_client *client, uint64_t serial);
/* *Unmaps all that are not in use. */
void windows_rest(struct copier_client *client);
void windows_clear(struct copier_client *client);
/* *When it returns the copier keeps nothing of the file. */
void file_forget(struct copier_client *client, uint64_t serial);

/* copier_readahead.c */
/* -EAGAIN: the first block that it needs is not there yet, *entry says which one; -ENOENT: nothing
 * of it was fetched. */
int readahead_lend(struct copier_client *client, const struct copier_piece *piece,
                   const struct vmm_span *span, struct vmm_loan *loan, unsigned *entry);
/* It read this, in the ordinary way. */
void readahead_note(struct copier_client *client, const struct copier_piece *piece,
                    const struct vmm_span *span, size_t bytes_read);
void readahead_drop_reader(struct copier_client *client, uint64_t reader);
void readahead_drop_piece(struct copier_client *client, uint64_t serial);
void readahead_drop_all(struct copier_client *client);

#endif
