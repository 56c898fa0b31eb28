/* SPDX-License-Identifier: Apache-2.0 */
/*
 * brief_wait - requests that wait a moment for something that may hang
 *
 * The end of a measurement answers all requests that want to know the bytes of other programs;
 * where a management library hangs, they get the last known value. A client that frees memory and
 * then asks the device itself for some would find it full, so it waits until its memory is free;
 * others may free memory without end.
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
    struct brief_wait *next;
};

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
    LIST_REMOVE(s->brief.measuring, wait);
    LIST_REMOVE(s->brief.freeing, wait);
    answer(s, wait, 0);
}

/* Queues the request, which is answered 0 after `patience_ms`, unless end() answers it before.
 * -ENOMEM */
static int begin(struct service *s, struct brief_wait **queue, struct service_request *request,
                 uint64_t patience_ms)
{
    struct brief_wait *wait = malloc(sizeof *wait);
    if (!wait)
        return -ENOMEM;
    *wait = (struct brief_wait){.deadline.pass = pass, .request = request};
    LIST_APPEND(*queue, wait);
    deadline_set(s, &wait->deadline, service_now(s) + patience_ms);
    return 0;
}

/* Answers all, the oldest first. */
static void end(struct service *s, struct brief_wait **queue, int error)
{
    struct brief_wait *wait;
    while ((wait = *queue)) {
        *queue = wait->next;
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
    /* Without memory for a wait the answer comes now: the client's ALLOC waits for the memory
     * instead. */
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
