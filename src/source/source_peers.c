/* SPDX-License-Identifier: Apache-2.0 */
#include "source/source_peers.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/scope.h"
#include "base/thread.h"
#include "source/direct.h"
#include "source/peer_node.h"
#include "source/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BETTER_MS 1000u /* after the first answer, for others that may be better */
#define LOOK_MS   200u
#define TELL_MS   1000u /* without a node to use, until the failures are told */
#define THREADS   8u

#define TURN_LOOK_MS      1000u  /* for the answers of one look */
#define TURN_PAUSE_MS     500u   /* between two looks, at least; at most twice as long */
#define TURN_LEAST_MS     10000u /* for a node with a writer in its store */
#define TURN_MOST_MS      60000u /* the same */
#define TURN_BYTES_PER_MS 31250u /* a quarter of 1 Gb/s: others use the link, too */
#define TURN_END_PART     8u     /* of the whole wait: pulls that end it together differ by it */

struct source_peers {
    struct peer_node nodes[PEERS_MAX];
    size_t count;
    struct peer_common common;
    uint64_t patience_ms;
    uint64_t began_ms;
    source_peers_tell *tell;
    void *context; /* of tell() */

    pthread_mutex_t lock;   /* of all below */
    pthread_cond_t changed; /* a node may be asked, or used */
    struct peers plan;
    bool has_id;
    uint8_t id[NODE_ID_BYTES];
    bool is_cancelled;
    pthread_t askers[PEERS_ASKED];
    size_t asker_count;
};

/* ---- questions ------------------------------------------------------------------------------ */

/* Keeps the node's last failure; of a barred node, the one that barred it. "": none. Under the
 * lock. */
static void note_why(struct source_peers *peers, size_t index, const char *why)
{
    struct peer_node *node = &peers->nodes[index];

    if (peers->plan.peer[index].state == PEER_BARRED)
        return;
    snprintf(node->why, sizeof(node->why), "%.*s", (int)sizeof(node->why) - 1, why);
}

/* Under the lock. */
static void wait_changed(struct source_peers *peers, uint64_t most_ms)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, (unsigned)most_ms);

    pthread_cond_timedwait(&peers->changed, &peers->lock, &until);
}

/* Compares the id that a node has with the wanted one, which the first answer sets. */
static enum peer_result judge_answer(struct source_peers *peers, size_t index, int error,
                                     const uint8_t id[NODE_ID_BYTES], const char *why)
{
    enum peer_result result = peer_node_result(error);

    if (error == 0 && !peers->has_id) {
        memcpy(peers->id, id, NODE_ID_BYTES);
        peers->has_id = true;
    }
    if (error == 0 && memcmp(peers->id, id, NODE_ID_BYTES) != 0) {
        note_why(peers, index, "it has other contents");
        return PEER_LACKS;
    }
    if (error)
        note_why(peers, index, error == -ENOENT ? "it has no committed store there" : why);
    return result;
}

/* Asks one node. Leaves the lock meanwhile. */
static void ask(struct source_peers *peers, size_t index)
{
    struct peer_node *node = &peers->nodes[index];
    uint64_t began_ms = clock_now_ms();
    uint8_t id[NODE_ID_BYTES];
    struct failure why;
    enum peer_result result;

    pthread_mutex_unlock(&peers->lock);
    int error = peer_node_ask(node, id, &why);
    /* The store of a writer has empty `pieces` until it has an allocation. */
    bool is_written = (error == -EAGAIN || error == -ENOENT) && peer_node_is_written(node);
    pthread_mutex_lock(&peers->lock);
    if (peers->is_cancelled)
        return;
    result =
        judge_answer(peers, index, error, id, is_written ? "a writer has its store" : why.text);
    if (is_written)
        result = PEER_WRITTEN;
    peers_answered(&peers->plan, index, began_ms, clock_now_ms(), result,
                   1000u * atomic_load(&node->retry_s));
    pthread_cond_broadcast(&peers->changed);
}

static void *ask_always(void *context)
{
    struct source_peers *peers = context;
    uint64_t wait_ms;

    SCOPED_LOCK(&peers->lock);
    while (!peers->is_cancelled) {
        size_t node = peers_next_ask(&peers->plan, clock_now_ms(), &wait_ms);

        if (node == PEERS_NONE)
            wait_changed(peers, wait_ms);
        else
            ask(peers, node);
    }
    return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int add_nodes(struct source_peers *peers, const struct source_peers_wish *wish,
                     struct failure *failure)
{
    SCOPED_FREE size_t *order = calloc(wish->url_count + 1, sizeof(*order));
    int error = 0;

    if (!order)
        return failure_no_memory(failure);
    peer_shuffle(order, wish->url_count);
    for (size_t i = 0; i < wish->url_count && peers->count < PEERS_MAX; i++) {
        error = peer_nodes_add(peers->nodes, &peers->count, wish->urls[order[i]], &peers->common,
                               failure);
        if (error && error != -EHOSTUNREACH) /* other hosts may be known */
            return error;
    }
    return peers->count > 0 ? 0 : error;
}

static int start_askers(struct source_peers *peers)
{
    int error = 0;

    while (!error && peers->asker_count < peers->count && peers->asker_count < PEERS_ASKED) {
        error = thread_start(&peers->askers[peers->asker_count], 0, ask_always, peers);
        peers->asker_count += error == 0;
    }
    return peers->asker_count > 0 ? 0 : error;
}

int source_peers_open(const struct source_peers_wish *wish, struct source_peers **out,
                      struct failure *failure)
{
    struct source_peers *peers = calloc(1, sizeof(*peers));

    if (!peers)
        return failure_no_memory(failure);
    pthread_mutex_init(&peers->lock, NULL);
    thread_init_condition(&peers->changed);
    atomic_store(&peers->common.text_ms, PEERS_FIRST_ANSWER_MS);
    peers->common.cert = wish->cert;
    peers->common.key = wish->key;
    peers->common.is_insecure = wish->is_insecure;
    peers->patience_ms = wish->patience_ms;
    peers->tell = wish->tell;
    peers->context = wish->context;
    peers->has_id = wish->id != NULL;
    if (wish->id)
        memcpy(peers->id, wish->id, NODE_ID_BYTES);
    int error = add_nodes(peers, wish, failure);
    peers->began_ms = clock_now_ms();
    peers_init(&peers->plan, peers->count, peers->began_ms);
    atomic_store(&peers->common.piece_ms, (unsigned)peers_deadline_ms(&peers->plan));
    if (!error) {
        error = start_askers(peers);
        if (error)
            failure_set(failure, error, "cannot start a thread: %s", failure_thread_reason(error));
    }
    if (error)
        source_peers_close(peers);
    else
        *out = peers;
    return error;
}

static void peers_cancel(void *state)
{
    struct source_peers *peers = state;

    pthread_mutex_lock(&peers->lock);
    peers->is_cancelled = true;
    pthread_cond_broadcast(&peers->changed);
    pthread_mutex_unlock(&peers->lock);
    for (size_t i = 0; i < peers->count; i++)
        peer_node_cancel(&peers->nodes[i]);
}

static void peers_close(void *state)
{
    struct source_peers *peers = state;

    peers_cancel(peers);
    for (size_t i = 0; i < peers->asker_count; i++)
        pthread_join(peers->askers[i], NULL);
    peer_nodes_free(peers->nodes, peers->count);
    pthread_cond_destroy(&peers->changed);
    pthread_mutex_destroy(&peers->lock);
    free(peers);
}

void source_peers_close(struct source_peers *peers)
{
    if (peers)
        peers_close(peers);
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* Names the nodes and why they do not help: some of them. */
static int fail_gone(const struct source_peers *peers, struct failure *failure)
{
    const size_t most = 4;
    size_t used = 0, room = sizeof(failure->text);

    used += (size_t)snprintf(failure->text, room, "no node sends the contents:");
    for (size_t i = 0; i < peers->count && i < most; i++) {
        const struct peer_node *node = &peers->nodes[i];

        used += (size_t)snprintf(failure->text + used, room - used, "%s %s: %s", i > 0 ? ";" : "",
                                 node->shown, *node->why ? node->why : "it does not answer");
    }
    if (peers->count > most)
        snprintf(failure->text + used, room - used, "; and %zu more", peers->count - most);
    return -EHOSTUNREACH;
}

static void tell_failure(struct source_peers *peers, size_t index)
{
    struct peer_node *node = &peers->nodes[index];
    bool is_barred = peers->plan.peer[index].state == PEER_BARRED;
    unsigned level = is_barred ? 2 : 1;

    if (!peers->tell || node->told >= level || !*node->why)
        return;
    peers->tell(peers->context, node->shown, node->why,
                is_barred ? SOURCE_PEERS_BARRED : SOURCE_PEERS_FAILED);
    node->told = level;
}

/* Tells each node's failure once; a node that was barred since, once more. Under the lock. */
static void tell_failures(struct source_peers *peers, bool barred_only)
{
    for (size_t i = 0; i < peers->count; i++)
        if (!barred_only || peers->plan.peer[i].state == PEER_BARRED)
            tell_failure(peers, i);
}

/* Takes the node for the next request, and waits until there is one. Under the lock. */
static int take_node(struct source_peers *peers, size_t avoid, size_t *node,
                     struct failure *failure)
{
    const uint64_t began_ms = clock_now_ms();
    uint64_t wait_ms;

    while (!peers->is_cancelled) {
        uint64_t now_ms = clock_now_ms();

        *node = peers_next(&peers->plan, now_ms, avoid, &wait_ms);
        if (*node != PEERS_NONE)
            return 0;
        if (peers_are_gone(&peers->plan, now_ms, peers->patience_ms))
            return fail_gone(peers, failure);
        if (now_ms - began_ms >= TELL_MS)
            tell_failures(peers, false);
        wait_changed(peers, wait_ms < LOOK_MS ? wait_ms : LOOK_MS);
    }
    return -ECANCELED;
}

int source_peers_find(struct source_peers *peers, uint8_t id[SOURCE_PEERS_ID_BYTES],
                      struct failure *failure)
{
    size_t node;

    SCOPED_LOCK(&peers->lock);
    int error = take_node(peers, PEERS_NONE, &node, failure);
    if (!error) {
        peers_drop(&peers->plan, node);
        memcpy(id, peers->id, NODE_ID_BYTES);
    }
    uint64_t until_ms = clock_now_ms() + BETTER_MS;
    while (!error && !peers->is_cancelled && peers_may_improve(&peers->plan) &&
           clock_now_ms() < until_ms)
        wait_changed(peers, until_ms - clock_now_ms());
    return error;
}

/* ---- the turn ------------------------------------------------------------------------------- */

/* Waits so long. Under the lock, as below. */
static void wait_ms_long(struct source_peers *peers, uint64_t ms)
{
    const uint64_t until_ms = clock_now_ms() + ms;
    uint64_t now_ms;

    while (!peers->is_cancelled && (now_ms = clock_now_ms()) < until_ms)
        wait_changed(peers, until_ms - now_ms);
}

/* Asks the nodes that lacked the contents, and waits for their answers. with_first: and for all
 * first answers. */
static void look(struct source_peers *peers, bool with_first)
{
    const uint64_t until_ms = clock_now_ms() + TURN_LOOK_MS;
    uint64_t now_ms = clock_now_ms();

    peers_look(&peers->plan, now_ms);
    pthread_cond_broadcast(&peers->changed);
    while (!peers->is_cancelled && now_ms < until_ms &&
           peers_are_looked_at(&peers->plan, now_ms, with_first)) {
        wait_changed(peers, until_ms - now_ms);
        now_ms = clock_now_ms();
    }
}

/* Tells the wait for this node, and for others like it. */
static void tell_wait(struct source_peers *peers, size_t index, uint64_t node_ms, uint64_t most_ms)
{
    char why[NODE_WHY_BYTES];

    if (!peers->tell)
        return;
    snprintf(why, sizeof(why),
             "a writer has its store, which may have the contents soon; waiting at most %" PRIu64
             " s for it, and at most %" PRIu64 " s for all such nodes",
             (node_ms + 999) / 1000, (most_ms + 999) / 1000);
    peers->tell(peers->context, peers->nodes[index].shown, why, SOURCE_PEERS_AWAITED);
}

/* Waits while another look finds a node to wait for, each for node_ms, all until until_ms. */
static void wait_for_written(struct source_peers *peers, uint64_t node_ms, uint64_t until_ms)
{
    bool is_told = false;

    for (;;) {
        look(peers, false);
        uint64_t now_ms = clock_now_ms();
        size_t node = peers_awaited(&peers->plan, now_ms, node_ms);
        if (peers->is_cancelled || now_ms >= until_ms || node == PEERS_NONE)
            return;
        if (!is_told)
            tell_wait(peers, node, node_ms, until_ms - now_ms);
        is_told = true;
        wait_ms_long(peers, TURN_PAUSE_MS + peer_random(TURN_PAUSE_MS));
    }
}

void source_peers_take_turn(struct source_peers *peers, uint64_t bytes)
{
    const uint64_t most_ms = PEERS_FULL_PATIENCE * peers->patience_ms;
    const uint64_t node_ms =
        number_smaller(TURN_LEAST_MS + bytes / TURN_BYTES_PER_MS, TURN_MOST_MS);

    if (peers->count == 1 || most_ms == 0)
        return;
    SCOPED_LOCK(&peers->lock);
    uint64_t until_ms = clock_now_ms() + most_ms;
    until_ms -= peer_random((uint32_t)number_smaller(most_ms / TURN_END_PART, UINT32_MAX - 1) + 1);
    look(peers, true);
    uint64_t spread_ms = number_smaller(peers_spread_ms(&peers->plan), most_ms);
    wait_ms_long(peers, peer_random((uint32_t)spread_ms + 1));
    wait_for_written(peers, number_smaller(node_ms, most_ms), until_ms);
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Tells the plan how a request ended. Under the lock. */
static void end_request(struct source_peers *peers, size_t index, uint64_t began_ms, int error,
                        const char *why)
{
    struct peer_node *node = &peers->nodes[index];
    enum peer_result result = peer_node_result(error);

    if (error == -ENOENT || error == -ESTALE)
        why = "it no longer has the contents";
    note_why(peers, index, error ? why : "");
    peers_end(&peers->plan, index, began_ms, clock_now_ms(), result,
              1000u * atomic_load(&node->retry_s));
    atomic_store(&peers->common.piece_ms, (unsigned)peers_deadline_ms(&peers->plan));
    pthread_cond_broadcast(&peers->changed);
}

struct peer_bounds {
    size_t pieces, layout;
};

/* True if another node may do better: the error is one of a node. */
static bool is_of_node(int error)
{
    return error != -ECANCELED && error != -ENOMEM;
}

/* Both from one node, so that it is known which one lied. A text takes at most a quarter of the
 * available memory. */
static int read_texts(struct source_peers *peers, const struct peer_bounds *most,
                      struct source_peers_texts *texts, struct failure *failure)
{
    struct peer_node *node = &peers->nodes[texts->node];
    uint64_t room = direct_available_bytes() / 4;
    int error = peer_node_read(node, peers->id, "pieces",
                               (size_t)(room < most->pieces ? room : most->pieces), &texts->pieces,
                               &texts->pieces_bytes, failure);

    if (error)
        return error;
    error = peer_node_read(node, peers->id, "layout",
                           (size_t)(room < most->layout ? room : most->layout), &texts->layout,
                           &texts->layout_bytes, failure);
    if (error)
        free(texts->pieces);
    return error;
}

int source_peers_read(struct source_peers *peers, size_t most_pieces_bytes,
                      size_t most_layout_bytes, struct source_peers_texts *texts,
                      struct failure *failure)
{
    const struct peer_bounds most = {most_pieces_bytes, most_layout_bytes};
    size_t avoid = PEERS_NONE;
    int error;

    pthread_mutex_lock(&peers->lock);
    peers_want(&peers->plan, clock_now_ms());
    while ((error = take_node(peers, avoid, &texts->node, failure)) == 0) {
        uint64_t began_ms = clock_now_ms();

        pthread_mutex_unlock(&peers->lock);
        error = read_texts(peers, &most, texts, failure);
        pthread_mutex_lock(&peers->lock);
        if (error && is_of_node(error))
            end_request(peers, texts->node, began_ms, error, failure->text);
        else
            peers_drop(&peers->plan, texts->node);
        if (!error || !is_of_node(error))
            break;
        avoid = texts->node;
    }
    peers_unwant(&peers->plan);
    pthread_mutex_unlock(&peers->lock);
    return error;
}

void source_peers_bar(struct source_peers *peers, size_t node, const char *why)
{
    SCOPED_LOCK(&peers->lock);
    note_why(peers, node, why);
    peers_bar(&peers->plan, node);
}

void source_peers_tell_barred(struct source_peers *peers)
{
    SCOPED_LOCK(&peers->lock);
    tell_failures(peers, true);
}

/* ---- the source ----------------------------------------------------------------------------- */

/* Where the bytes of a piece go. */
struct passage {
    struct source_receiver *receiver;
    int error; /* of the receiver; 0: none */
};

static int pass_on(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct passage *passage = context;

    passage->error = passage->receiver->put(passage->receiver, bytes, size_bytes);
    return passage->error;
}

/* Gets a piece from one node. Leaves the lock meanwhile. */
static int get_from(struct source_peers *peers, size_t index, const struct source_item *item,
                    uint64_t offset_bytes, uint64_t size_bytes, struct passage *passage,
                    struct failure *failure)
{
    uint64_t began_ms = clock_now_ms();

    pthread_mutex_unlock(&peers->lock);
    int error = peer_node_get(&peers->nodes[index], peers->id, item->number, item->file.size_bytes,
                              offset_bytes, size_bytes, pass_on, passage, failure);
    if (!error && passage->receiver->check(passage->receiver) != 0)
        error = failure_set(failure, -EBADMSG,
                            "sent bytes with another sum (allocation %zu, from byte %" PRIu64 ")",
                            item->number, offset_bytes);
    pthread_mutex_lock(&peers->lock);
    if (passage->error || !is_of_node(error))
        peers_drop(&peers->plan, index);
    else
        end_request(peers, index, began_ms, error, failure->text);
    return error;
}

static int peers_copy(void *state, const struct source_item *item, uint64_t offset_bytes,
                      uint64_t size_bytes, struct source_receiver *receiver,
                      struct failure *failure)
{
    struct source_peers *peers = state;
    struct passage passage = {.receiver = receiver};
    size_t node, avoid = PEERS_NONE;
    int error;

    SCOPED_LOCK(&peers->lock);
    peers_want(&peers->plan, clock_now_ms());
    while ((error = take_node(peers, avoid, &node, failure)) == 0) {
        error = get_from(peers, node, item, offset_bytes, size_bytes, &passage, failure);
        if (!error || passage.error || !is_of_node(error))
            break;
        receiver->restart(receiver);
        avoid = node;
    }
    peers_unwant(&peers->plan);
    return error;
}

static void peers_drop_file(void *state, struct source_item *item)
{
    (void)state;
    (void)item;
}

static unsigned peers_threads(void *state)
{
    (void)state;
    return THREADS;
}

/* Its files are only copied. */
static const struct source_backend source_peers_backend = {
    .close = peers_close,
    .drop = peers_drop_file,
    .copy = peers_copy,
    .cancel = peers_cancel,
    .threads = peers_threads,
};

struct source *source_peers_source(struct source_peers *peers, const uint64_t *sizes_bytes,
                                   size_t count)
{
    struct source *source = source_open_with(&source_peers_backend, peers);
    int error = source ? 0 : -ENOMEM;

    for (size_t i = 0; !error && i < count; i++) {
        char shown[32];

        snprintf(shown, sizeof(shown), "allocation %zu", i);
        error = source_add_own(source, shown, sizes_bytes[i]);
    }
    if (!error)
        return source;
    if (source)
        source_close(source);
    else
        peers_close(peers);
    return NULL;
}
