/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brief_wait - requests that wait for something that may hang: for a moment at most
 *
 * A measurement that is under way tells what others hold of the device now, and its end answers all
 * that want to know; where a management library hangs, they are told what was known before. A
 * client that frees and then asks the device itself for memory would find it full, so it waits
 * until what is being given back is free; others may go on freeing without rest.
 */
#include "service/account.h"
#include "service/allocations.h"
#include "service/views.h"

#include <errno.h>
#include <stdlib.h>

#define MEASURE_PATIENCE_MS 50u
#define FREEING_PATIENCE_MS 5000u

struct brief_wait {
    struct deadline deadline; /* first */
    struct service_request *request;
    struct brief_wait **link, *next;
};

static void unlink_wait(struct brief_wait **link, struct brief_wait *wait)
{
    *link = wait->next;
    if (wait->next)
        wait->next->link = link;
}

static void answer(struct service *s, struct brief_wait *wait, int error)
{
    struct service_request *request = wait->request;
    deadline_clear(s, &wait->deadline);
    free(wait);
    service_answer(request, error, NULL);
}

static void pass(struct service *s, struct deadline *deadline)
{
    struct brief_wait *wait = (struct brief_wait *)deadline;
    unlink_wait(wait->link, wait);
    answer(s, wait, 0);
}

/* It is answered 0 when its patience is over, unless end comes before. -ENOMEM */
static int begin(struct service *s, struct brief_wait **queue, struct service_request *request,
                 uint64_t patience_ms)
{
    struct brief_wait *wait = malloc(sizeof *wait);
    if (!wait)
        return -ENOMEM;
    while (*queue)
        queue = &(*queue)->next;
    *wait = (struct brief_wait){.deadline.pass = pass, .request = request, .link = queue};
    *queue = wait;
    deadline_set(s, &wait->deadline, service_now(s) + patience_ms);
    return 0;
}

/* Answers all, the oldest first. */
static void end(struct service *s, struct brief_wait **queue, int error)
{
    struct brief_wait *wait;
    while ((wait = *queue)) {
        unlink_wait(queue, wait);
        answer(s, wait, error);
    }
}

int service_measure(struct service *s, struct service_request *request)
{
    if (vmm_measure(s->vmm))
        return begin(s, &s->brief.measuring, request, MEASURE_PATIENCE_MS);
    service_answer(request, 0, NULL);
    return 0;
}

void service_on_measurement(struct service *s)
{
    end(s, &s->brief.measuring, 0);
}

int service_await_freeing(struct service *s, struct service_request *request)
{
    /* Without memory to wait in: what is not free yet is waited for by ALLOC. */
    if (s->numbers.freeing_bytes == 0 ||
        begin(s, &s->brief.freeing, request, FREEING_PATIENCE_MS) != 0)
        service_answer(request, 0, NULL);
    return 0;
}

void service_answer_freed(struct service *s)
{
    if (s->numbers.freeing_bytes == 0)
        end(s, &s->brief.freeing, 0);
}

void service_drop_brief_waits(struct service *s)
{
    end(s, &s->brief.measuring, -ENOTCONN);
    end(s, &s->brief.freeing, -ENOTCONN);
}
