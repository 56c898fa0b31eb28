/* SPDX-License-Identifier: Apache-2.0 */
/*
 * freeing - requests that are answered when what is being given back is free
 *
 * Whoever frees and then asks the device itself for memory would else find it full. Others may go
 * on freeing without rest, and a driver may hang: so nobody waits for longer than a moment.
 */
#include "service/allocations.h"
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>

#define PATIENCE_MS 5000u

struct awaiting {
    struct service_request *request;
    uint64_t until_ms;
    struct awaiting *next;
};

int service_await_freeing(struct service *s, struct service_request *request)
{
    struct awaiting *awaiting = NULL, **last = &s->awaiting;
    if (s->numbers.freeing_bytes > 0)
        awaiting = malloc(sizeof *awaiting);
    if (!awaiting) { /* without memory to wait in: what is not free yet is waited for by ALLOC */
        service_answer(request, 0, NULL);
        return 0;
    }
    *awaiting = (struct awaiting){.request = request, .until_ms = service_now(s) + PATIENCE_MS};
    while (*last)
        last = &(*last)->next;
    *last = awaiting;
    s->is_unsettled = true;
    return 0;
}

static void answer_until(struct service *s, uint64_t now_ms, int error)
{
    while (s->awaiting && s->awaiting->until_ms <= now_ms) {
        struct awaiting *first = s->awaiting;
        struct service_request *request = first->request;
        s->awaiting = first->next;
        free(first);
        service_answer(request, error, NULL);
    }
}

void service_answer_freed(struct service *s)
{
    if (s->numbers.freeing_bytes == 0)
        answer_until(s, UINT64_MAX, 0);
}

void service_expire_awaiting(struct service *s, uint64_t now_ms)
{
    answer_until(s, now_ms, 0);
}

uint64_t service_awaiting_moment(const struct service *s)
{
    return s->awaiting ? s->awaiting->until_ms : UINT64_MAX;
}

void service_drop_awaiting(struct service *s)
{
    answer_until(s, UINT64_MAX, -ENOTCONN);
}
