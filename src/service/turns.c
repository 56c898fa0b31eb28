/* SPDX-License-Identifier: Apache-2.0 */
#include "service/turns.h"

#include <errno.h>
#include <stdlib.h>

/* Transfers at a time. The bytes of a read, a megabyte at most, are in memory while it runs and is
 * answered. */
#define SLOTS 16u

struct turn_queue {
    uint64_t id; /* the user; first, for idvec */
    struct turn *first, **last;
};

void turns_init(struct service *s)
{
    share_init(&s->turns.slots, SLOTS);
}

void turns_free(struct service *s)
{
    idvec_free_items(&s->turns.users);
    share_free(&s->turns.slots);
}

static bool may_run(const struct service *s, const struct turn *turn)
{
    enum share_rank rank = core_get_rank(s->core, core_find_store(s->core, turn->store), turn->uid);
    return share_check(&s->turns.slots, turn->uid, rank, 1) == 0;
}

/* -ENOMEM: no thread, or no memory to note it */
static int run(struct service *s, struct turn *turn)
{
    int error = share_take(&s->turns.slots, turn->uid, 1);
    if (error)
        return error;
    uint64_t former = service_work_for(s, turn->works_for);
    error = service_submit(s, SERVICE_POOL_TRANSFER, &turn->task);
    service_work_for(s, former);
    if (error)
        share_give(&s->turns.slots, turn->uid, 1);
    else
        steps_go(turn_steps, &turn->state, TURN_RUNS);
    return error;
}

static int enqueue(struct service *s, struct turn *turn)
{
    struct turn_queue *queue = idvec_find(&s->turns.users, turn->uid);
    int error = 0;
    if (!queue) {
        queue = calloc(1, sizeof *queue);
        if (!queue)
            return -ENOMEM;
        queue->id = turn->uid;
        queue->last = &queue->first;
        error = idvec_insert(&s->turns.users, queue);
    }
    if (error) {
        free(queue);
        return error;
    }
    turn->next = NULL;
    steps_go(turn_steps, &turn->state, TURN_WAITS);
    *queue->last = turn;
    queue->last = &turn->next;
    return 0;
}

int turn_begin(struct service *s, struct turn *turn, bool must)
{
    turn->error = 0;
    turn->state = TURN_BEGINS;
    turn->works_for = service_works_for(s);
    int error = must ? share_take(&s->bounds.shares[SERVICE_BOUND_TRANSFERS], turn->uid, 1)
                     : service_take(s, SERVICE_BOUND_TRANSFERS, turn->store, turn->uid, 1);
    if (error)
        return error;
    /* A user with queued transfers waits behind them. */
    error = !idvec_find(&s->turns.users, turn->uid) && may_run(s, turn) ? run(s, turn)
                                                                        : enqueue(s, turn);
    if (error)
        service_give(s, SERVICE_BOUND_TRANSFERS, turn->uid, 1);
    return error;
}

static void dequeue(struct service *s, struct turn_queue *queue)
{
    queue->first = queue->first->next;
    if (queue->first)
        return;
    free(idvec_remove(&s->turns.users, queue->id));
}

static void start_first(struct service *s, struct turn_queue *queue)
{
    struct turn *turn = queue->first;
    dequeue(s, queue);
    turn->error = run(s, turn);
    if (!turn->error)
        return;
    steps_go(turn_steps, &turn->state, TURN_FAILS);
    service_end_task(s, &turn->task);
}

/* Starts queued transfers as far as slots are free, one of each user in turn. */
static void start_waiting(struct service *s)
{
    size_t left = s->turns.users.count;
    while (left > 0 && s->turns.users.count > 0) {
        struct turn_queue *queue = NULL;
        for (size_t i = 0; !queue && i < s->turns.users.count; i++) {
            struct turn_queue *at = s->turns.users.items[i];
            if (at->id >= s->turns.next_user)
                queue = at;
        }
        if (!queue)
            queue = s->turns.users.items[0];
        s->turns.next_user = queue->id + 1;
        left--;
        if (!may_run(s, queue->first))
            continue;
        start_first(s, queue);
        left = s->turns.users.count;
    }
}

void turn_end(struct service *s, struct turn *turn)
{
    if (turn->state == TURN_RUNS)
        share_give(&s->turns.slots, turn->uid, 1);
    steps_go(turn_steps, &turn->state, TURN_ENDS);
    service_give(s, SERVICE_BOUND_TRANSFERS, turn->uid, 1);
    start_waiting(s);
}
