/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet that pulls one store at once: what its first node sends, on an artificial clock. The
 * steps of a pull are those of source_peers.c. */
#include "source/peers.h"

#include "tap.h"

#include <stdlib.h>

#define NODES    16u
#define THREADS  8u
#define HOUR_MS  3600000u
#define WORK     1000u /* of a piece */
#define NO_PIECE ((struct piece){.peer = PEERS_NONE})

enum stage {
    STARTS,
    WAITS, /* its turn */
    LOCKS, /* its store has a writer soon */
    PULLS,
    SERVES,
};

struct piece {
    size_t peer; /* PEERS_NONE: the thread has none */
    uint64_t began_ms;
    double left;
};

struct node {
    enum stage stage;
    uint64_t at_ms; /* end of this stage, or of a pause in it */
    struct peers peers;
    struct piece pieces[THREADS];
    size_t begun, come, sent;
};

static struct node nodes[NODES];
static size_t piece_count;
static uint64_t turn_ms; /* how long a node with a writer in its store is counted */
static uint64_t now;
static uint64_t random_state;

static uint64_t random_below(uint64_t count)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % count;
}

/* Each node has its own order of the others. */
static size_t node_of(const struct node *asking, size_t peer)
{
    return (peer + (size_t)(asking - nodes)) % NODES;
}

static enum peer_result tell(size_t node)
{
    if (nodes[node].stage == SERVES)
        return PEER_GOOD;
    return nodes[node].stage == PULLS ? PEER_WRITTEN : PEER_LACKS;
}

static void answer(struct node *node)
{
    uint64_t wait_ms;
    size_t peer;

    while ((peer = peers_next_ask(&node->peers, now, &wait_ms)) != PEERS_NONE)
        peers_answered(&node->peers, peer, now, now, tell(node_of(node, peer)), 0);
}

static void take_turn(struct node *node)
{
    peers_look(&node->peers, now);
    answer(node);
    if (peers_awaited(&node->peers, now, turn_ms) == PEERS_NONE) {
        node->stage = LOCKS;
        node->at_ms = now + 20 + random_below(180);
    } else {
        node->at_ms = now + 500 + random_below(500);
    }
}

static void begin_pieces(struct node *node)
{
    for (size_t i = 0; i < THREADS && node->begun < piece_count; i++) {
        uint64_t wait_ms;

        if (node->pieces[i].peer != PEERS_NONE)
            continue;
        node->pieces[i] =
            (struct piece){peers_next(&node->peers, now, PEERS_NONE, &wait_ms), now, WORK};
        node->begun += node->pieces[i].peer != PEERS_NONE;
    }
}

static void step(struct node *node)
{
    if (node->stage == PULLS) {
        answer(node);
        begin_pieces(node);
    }
    if (node->stage == SERVES || now < node->at_ms)
        return;
    if (node->stage == STARTS) {
        answer(node);
        node->stage = WAITS;
        node->at_ms = now + random_below(peers_spread_ms(&node->peers) + 1);
    } else if (node->stage == WAITS) {
        take_turn(node);
    } else if (node->stage == LOCKS) {
        node->stage = PULLS;
    } else if (node->come == piece_count) {
        node->stage = SERVES;
    }
}

static void end_piece(struct node *node, struct piece *piece)
{
    peers_end(&node->peers, piece->peer, piece->began_ms, now, PEER_GOOD, 0);
    nodes[node_of(node, piece->peer)].sent++;
    *piece = NO_PIECE;
    if (++node->come == piece_count)
        node->at_ms = now + 30 + random_below(120); /* the commit */
}

/* Each link gives its pieces `speed` a millisecond. */
static void move_pieces(double speed)
{
    unsigned sending[NODES] = {0}, taking[NODES] = {0};

    for (size_t i = 0; i < NODES * THREADS; i++) {
        const struct piece *piece = &nodes[i / THREADS].pieces[i % THREADS];

        if (piece->peer == PEERS_NONE)
            continue;
        sending[node_of(&nodes[i / THREADS], piece->peer)]++;
        taking[i / THREADS]++;
    }
    for (size_t i = 0; i < NODES * THREADS; i++) {
        struct piece *piece = &nodes[i / THREADS].pieces[i % THREADS];
        unsigned sharing;

        if (piece->peer == PEERS_NONE)
            continue;
        sharing = sending[node_of(&nodes[i / THREADS], piece->peer)];
        if (sharing < taking[i / THREADS])
            sharing = taking[i / THREADS];
        piece->left -= speed / sharing;
        if (piece->left <= 0)
            end_piece(&nodes[i / THREADS], piece);
    }
}

static bool all_serve(void)
{
    bool all = true;

    for (size_t i = 0; i < NODES; i++)
        all &= nodes[i].stage == SERVES;
    return all;
}

/* Returns how many pieces the first node has sent. */
static size_t run(unsigned seed, size_t pieces, uint64_t store_ms)
{
    memset(nodes, 0, sizeof(nodes));
    random_state = seed;
    piece_count = pieces;
    turn_ms = 10000 + 4 * store_ms < 60000 ? 10000 + 4 * store_ms : 60000;
    nodes[0].stage = SERVES;
    for (size_t i = 0; i < NODES; i++) {
        nodes[i].at_ms = random_below(300);
        peers_init(&nodes[i].peers, NODES, 0);
        for (size_t j = 0; j < THREADS; j++)
            nodes[i].pieces[j] = NO_PIECE;
    }
    for (now = 0; !all_serve() && now < HOUR_MS; now++) {
        for (size_t i = 1; i < NODES; i++)
            step(&nodes[i]);
        move_pieces((double)(pieces * WORK) / (double)store_ms);
    }
    check(all_serve());
    return nodes[0].sent;
}

/* Runs ten fleets with a store of so many pieces, which one link sends in store_ms. */
static void run_fleets(size_t pieces, uint64_t store_ms)
{
    size_t most = 0, sum = 0;

    for (unsigned seed = 1; seed <= 10; seed++) {
        size_t sent = run(seed, pieces, store_ms);

        most = sent > most ? sent : most;
        sum += sent;
    }
    printf("# %zu pieces, %llu ms: the first node sent %.2f stores, at most %.2f\n", pieces,
           (unsigned long long)store_ms, (double)sum / (double)pieces / 10,
           (double)most / (double)pieces);
    check(most <= 4 * pieces);
}

TAP_TEST(the_first_node_sends_a_small_store_four_times_at_most)
{
    run_fleets(4, 100);
    run_fleets(4, 1000);
}

TAP_TEST(the_first_node_sends_a_large_store_four_times_at_most)
{
    run_fleets(64, 1000);
    run_fleets(64, 20000);
}
