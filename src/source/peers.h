/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers - which of several servers is asked for the next piece
 *
 * For source_peers.c. Pure: no I/O, no clock; times are milliseconds of any clock that never goes
 * back. All servers, the peers, are to send the same contents, but each may lack them, be slow,
 * full or dead, or lie. The caller asks peers whether they have the contents (peers_next_ask,
 * peers_answered), takes a piece from one that has (peers_next, peers_end), and tells the result.
 * The rules:
 *
 *  - Peers are in random order. The first PEERS_ASKED are asked at once; others only while none of
 *    these has the contents.
 *  - Of the peers that have the contents and may be used now, the PEERS_USED that answered fastest
 *    are used; among these, pieces go where they are expected soonest. The others are spares.
 *  - Peers that got the contents since the first question send before those that had them: so a
 *    fleet that begins at once spares its source. Such a new peer sends one piece alone until it
 *    has sent one; older peers are used meanwhile, but not for the first PEERS_PROBE_MS. It loses
 *    the preference when a piece of it fails, until it has sent another, and while its pieces take
 *    PEERS_SLOW times as long as an older peer's pieces.
 *  - A puller begins when a writer has the stores of fewer peers than have the contents, or
 *    PEERS_USED have them. Each such peer counts for a bounded time since it was first seen so.
 *    Before it looks, a puller waits a random part of peers_spread_ms().
 *  - A peer that fails is left for a growing time, then asked again whether it has the contents.
 *  - A full peer gets no more pieces at the same time than it took. One that took none is left
 *    alone as long as it wants. A peer that is shut (drained, or its store has a writer) is treated
 *    alike, but only a full one lengthens the patience, PEERS_FULL_PATIENCE times.
 *  - A piece that takes longer than peers_deadline_ms() counts as failed.
 *  - PEERS_WRONG pieces in a row with wrong bytes bar a peer for good; so does an answer that no
 * later one can change.
 */
#ifndef GMSFS_SOURCE_PEERS_H
#define GMSFS_SOURCE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEERS_MAX   64u
#define PEERS_ASKED 16u
#define PEERS_USED  4u
#define PEERS_WRONG 2u
#define PEERS_SLOW  4u
#define PEERS_TIMES 63u /* durations that make the median */

#define PEERS_FULL_PATIENCE   10u
#define PEERS_FIRST_ANSWER_MS 60000u /* a node may have to sum all bytes before */
#define PEERS_NONE            SIZE_MAX

#define PEERS_LEAST_DEADLINE_MS  5000u
#define PEERS_FIRST_DEADLINE_MS  20000u /* while no piece has come */
#define PEERS_MEDIAN_DEADLINE_MS 60000u /* the most that follows from the median */
#define PEERS_MOST_DEADLINE_MS   640000u
#define PEERS_MOST_PAUSE_MS      30000u
#define PEERS_MOST_LACK_MS       2000u  /* until a peer without the contents is asked again */
#define PEERS_MOST_RETRY_MS      60000u /* that a full peer may ask for */
#define PEERS_PROBE_MS           4000u  /* for the first piece of a new peer */
#define PEERS_SPREAD_MS          128u   /* for each peer without the contents */

enum peer_state {
    PEER_NEW, /* to be asked, again or for the first time */
    PEER_ASKED,
    PEER_HAS, /* has the contents */
    PEER_BARRED,
};

/* How a question, or a piece, ended. */
enum peer_result {
    PEER_GOOD,
    PEER_FULL,    /* it refused for now: it sends to other clients */
    PEER_SHUT,    /* it refused for now, and may refuse all clients */
    PEER_LATE,    /* its time was over; of a piece alone */
    PEER_DEAD,    /* it does not answer, or the transfer broke */
    PEER_WRONG,   /* the bytes have another sum; of a piece alone */
    PEER_LACKS,   /* it has no or other contents */
    PEER_WRITTEN, /* a writer has its store, and may commit the contents; of a question alone */
    PEER_USELESS, /* it refuses this client, or is no server of stores: for good */
};

struct peer {
    enum peer_state state;
    uint64_t until_ms;   /* earliest time of the next request */
    uint64_t probe_ms;   /* others wait until then for its first piece; 0: it is not new */
    uint64_t answer_ms;  /* duration of its last answer */
    uint64_t piece_ms;   /* average duration of a piece; 0: none has come */
    unsigned open, most; /* pieces now, and at most */
    unsigned good;       /* pieces since `most` changed */
    unsigned failed;     /* in a row */
    unsigned wrong;      /* the same */
    unsigned full;       /* refusals since it sent a piece or answered */
    bool has_failed;     /* a piece of it failed since it sent one */
    bool has_answered;   /* its first question has ended */
    bool is_full;        /* its last result was PEER_FULL */
    uint64_t written_ms; /* time of its first PEER_WRITTEN; 0: none */
    bool is_written;     /* its last answer was PEER_WRITTEN */
    bool has_lacked;     /* an answer was PEER_LACKS or PEER_WRITTEN: what it has is new */
};

struct peers {
    struct peer peer[PEERS_MAX];
    size_t count;
    uint64_t times_ms[PEERS_TIMES]; /* of the last pieces that came, in a ring */
    size_t times;                   /* pieces that came */
    unsigned late;                  /* doublings of the deadline */
    uint64_t late_ms;               /* time of the last doubling */
    unsigned wanted;                /* calls of peers_want() without a peers_unwant() */
    uint64_t alive_ms; /* when a piece came, or `wanted` became 1; at first the begin */
};

/* count: 1..PEERS_MAX. */
void peers_init(struct peers *peers, size_t count, uint64_t now_ms);

/* Returns the peer to ask now, and marks it as asked. PEERS_NONE: there is none until *wait_ms have
 * passed, or another call has changed something. */
size_t peers_next_ask(struct peers *peers, uint64_t now_ms, uint64_t *wait_ms);
/* Takes the result of a question that began at began_ms. retry_ms: pause that a full peer asked
 * for; 0 if none. */
void peers_answered(struct peers *peers, size_t peer, uint64_t began_ms, uint64_t now_ms,
                    enum peer_result result, uint64_t retry_ms);

/* Returns the peer to take a piece from, and counts the piece as begun; PEERS_NONE: as
 * peers_next_ask(). avoid: a peer that failed with this piece, used only if there is no other; or
 * PEERS_NONE. */
size_t peers_next(struct peers *peers, uint64_t now_ms, size_t avoid, uint64_t *wait_ms);
/* Takes the result of a piece that began at began_ms. */
void peers_end(struct peers *peers, size_t peer, uint64_t began_ms, uint64_t now_ms,
               enum peer_result result, uint64_t retry_ms);
/* Takes back peers_next(), without a result: the caller was stopped. */
void peers_drop(struct peers *peers, size_t peer);

/* Returns true if a question under way may find a peer to use: fewer than PEERS_USED have the
 * contents. */
bool peers_may_improve(const struct peers *peers);

/* Returns how many peers have the contents. */
size_t peers_count_having(const struct peers *peers);
/* Returns the longest wait before the first look: 0 where no peer lacks the contents. */
uint64_t peers_spread_ms(const struct peers *peers);
/* Makes the peers that lacked the contents due to be asked, but for full ones. */
void peers_look(struct peers *peers, uint64_t now_ms);
/* Returns true while such a question is due or under way; with_first: or the first one of any peer,
 * if some peer lacked the contents. */
bool peers_are_looked_at(const struct peers *peers, uint64_t now_ms, bool with_first);
/* Returns a peer that the pull waits for before it begins; PEERS_NONE: it may begin, as far as the
 * answers tell. most_ms: how long a peer with a writer in its store is counted. */
size_t peers_awaited(const struct peers *peers, uint64_t now_ms, uint64_t most_ms);

/* Bars a peer that lied about more than a piece. */
void peers_bar(struct peers *peers, size_t peer);

/* Returns how long a piece may take now: PEERS_FIRST_DEADLINE_MS; after the first piece 8 times the
 * median, from PEERS_LEAST_DEADLINE_MS to PEERS_MEDIAN_DEADLINE_MS. Doubles when a piece is late
 * that began after the last doubling, until a piece comes within the time that the median gives; at
 * most PEERS_MOST_DEADLINE_MS. */
uint64_t peers_deadline_ms(const struct peers *peers);

/* Begins and ends a time in which the caller wants bytes; the patience counts in none other. Times
 * of several threads overlap. */
void peers_want(struct peers *peers, uint64_t now_ms);
void peers_unwant(struct peers *peers);

/* Returns true if no peer will send another piece: all are barred, or none sent one for
 * patience_ms; for PEERS_FULL_PATIENCE times as long while a peer is full, and for at least
 * PEERS_FIRST_ANSWER_MS while the first question of a peer is due or under way. */
bool peers_are_gone(const struct peers *peers, uint64_t now_ms, uint64_t patience_ms);

#endif
