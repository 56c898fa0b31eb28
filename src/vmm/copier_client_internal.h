/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_client_internal - declarations shared by the parts of copier_client alone
 *
 * One mutex guards everything. It is held for moments only: no thread waits, starts a process,
 * sends to a full socket or copies under it, because the loop's thread takes it, too.
 */
#ifndef GMSFS_VMM_COPIER_CLIENT_INTERNAL_H
#define GMSFS_VMM_COPIER_CLIENT_INTERNAL_H

#include "copier/protocol.h"
#include "vmm/complaints.h"
#include "vmm/copier_client.h"

#include <pthread.h>

#define COPIER_START_MS 60000u /* the driver's start, with many GPUs and a cold cache */
#define COPIER_HANG_MS  30000u /* bound of one request: a mapping, a megabyte, or 64 of a move */
#define COPIER_END_MS   5000u  /* to end by itself, and then to end when killed */
#define LEAST_IDLE_MS   50u /* least idle time: between two read(2) of one file it must not end */

#define READAHEAD_BLOCKS  4u /* for each reader */
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

/* A request, and its block of the ring. Free if it is not pending and has no holders. */
struct ring_entry {
    bool pending;      /* the copier has the request */
    uint32_t sequence; /* of it */
    int window;        /* in use while pending; -1: none */
    int error;         /* of the last finished request */
    unsigned holders;  /* threads that wait for it or read its block, and readaheads that keep it */
};

enum window_state {
    WINDOW_FREE = 0,
    WINDOW_CHANGING, /* a thread maps or unmaps it */
    WINDOW_MAPPED,
};

struct window {
    enum window_state state;
    uint64_t serial;
    uint64_t leaving;   /* CHANGING: the piece that is still mapped; 0: none */
    unsigned users;     /* pending requests */
    uint64_t last_used; /* value of `uses` then */
};

/* The expected next reads of one open file, and the blocks for them. */
struct readahead {
    uint64_t reader; /* 0: free */
    uint64_t serial;
    uint64_t next;         /* expected offset of the next read */
    uint64_t fetched;      /* end of the last block */
    uint64_t end;          /* end of the wanted bytes */
    uint64_t last_ms;      /* time of the last read */
    unsigned run;          /* sequential reads */
    unsigned first, count; /* of the blocks below */
    struct {
        unsigned entry;
        uint64_t offset, bytes;
    } blocks[READAHEAD_BLOCKS];
};

struct copier_client {
    struct copier_client_options options;
    char name[64]; /* name of the device in messages */
    int ring_fd;
    struct copier_shared *shared;
    struct complaints complaints; /* about failed transfers */

    pthread_mutex_t mutex; /* guards all below; a leaf */
    pthread_cond_t changed;
    enum copier_state state;
    bool closing;      /* no further copier may be started */
    bool killed;       /* this copier was killed */
    int socket, pid;   /* of this copier */
    unsigned attempts; /* number of starts so far */
    unsigned failed;   /* the last start that failed, with start_error */
    int start_error;
    unsigned blamed; /* the last copier that was replaced because of a failed request */
    bool watched;    /* a thread watches it */
    uint32_t next_sequence;
    uint64_t last_use_ms;
    uint64_t uses;
    struct ring_entry entries[COPIER_ENTRIES];
    struct window windows[COPIER_WINDOWS];
    struct readahead readaheads[READAHEAD_READERS];
    unsigned movers; /* requests between quarantine_enter and quarantine_leave */
    /* A thread has the copier alone for a piece in quarantine, or will have it when the other
     * requests are done. */
    bool alone;
    struct {
        uint64_t serial, until_ms;
    } quarantine[QUARANTINE_PIECES];
};

/* All functions except ring_block, and those without a client, are called with the mutex held;
 * those marked * release it meanwhile. Calls go one way: process, readahead, windows, ring,
 * retire. */

/* copier_retire.c */
unsigned copier_client_hang_ms(void);
/* *Waits for this time, or until something changes. */
void copier_client_wait_ms(struct copier_client *client, unsigned ms);
/* Kills the copier, which has become useless; it is replaced when needed. */
void copier_process_retire(struct copier_client *client);
/* *Waits until the copier of this attempt has ended, for a bounded time. */
void copier_process_await_end(struct copier_client *client, unsigned attempt);

/* copier_process.c */
/* Starts a copier if there is none. -ENOMEM: no thread. */
int copier_process_start(struct copier_client *client);
/* *Waits until there is a copier, and returns 0. It is there until the mutex is released. */
int copier_process_need(struct copier_client *client);

/* copier_ring.c */
void *ring_block(const struct copier_client *client, unsigned entry);
/* *Takes one of the entries [first, first+count) and holds it. */
int ring_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry);
/* The same without waiting: -EAGAIN */
int ring_try_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry);
/* Sends the request; sets its entry and sequence. -EPIPE: the copier is gone. */
int ring_submit(struct copier_client *client, unsigned entry, struct copier_request request,
                int fd);
/* Returns the result; -EAGAIN: still pending; -EPIPE: the copier has gone. `why` may be NULL. */
int ring_poll(struct copier_client *client, unsigned entry, char *why);
/* *Waits for the result of ring_poll; -ETIMEDOUT: the copier hung, and was killed. */
int ring_wait(struct copier_client *client, unsigned entry, char *why);
void ring_release(struct copier_client *client, unsigned entry);
/* Fails all requests: the copier is gone. */
void ring_fail_all(struct copier_client *client);
bool ring_is_pending(struct copier_client *client);
bool ring_is_held(const struct copier_client *client);

/* copier_windows.c */
/* *Maps the piece; the window keeps it while the mutex is held. Errors of ring_wait. */
int window_take(struct copier_client *client, const struct copier_piece *piece, unsigned *window,
                char *why);
int window_find(const struct copier_client *client, uint64_t serial); /* -1: it is not mapped */
/* *Unmaps the piece for all requests. */
void window_forget(struct copier_client *client, uint64_t serial);
/* *Unmaps all windows that are not in use. */
void windows_rest(struct copier_client *client);
void windows_clear(struct copier_client *client);
/* *Makes the copier drop all of the file. */
void file_forget(struct copier_client *client, uint64_t serial);

/* copier_readahead.c */
/* Lends fetched blocks. -EAGAIN: the block *entry is not there yet; -ENOENT: nothing of the span
 * was fetched. */
int readahead_lend(struct copier_client *client, const struct copier_piece *piece,
                   const struct vmm_span *span, struct vmm_loan *loan, unsigned *entry);
/* Notes an ordinary read by this reader. */
void readahead_note(struct copier_client *client, const struct copier_piece *piece,
                    const struct vmm_span *span, size_t bytes_read);
void readahead_drop_reader(struct copier_client *client, uint64_t reader);
void readahead_drop_piece(struct copier_client *client, uint64_t serial);
void readahead_drop_all(struct copier_client *client);

#endif
