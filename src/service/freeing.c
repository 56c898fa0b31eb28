/* SPDX-License-Identifier: Apache-2.0 */
/*
 * freeing - requests that are answered when what is being given back is free
 *
 * Whoever frees and then asks the device itself for memory would else find it full. Others may go
 * on freeing without rest, and a driver may hang: so nobody waits for longer than a moment.
 */
#include "service/allocations.h"
#include "service/brief_wait.h"
#include "service/service_internal.h"

#define PATIENCE_MS 5000u

int service_await_freeing(struct service *s, struct service_request *request)
{
    /* Without memory to wait in: what is not free yet is waited for by ALLOC. */
    if (s->numbers.freeing_bytes == 0 ||
        brief_wait_begin(s, &s->brief.freeing, request, PATIENCE_MS) != 0)
        service_answer(request, 0, NULL);
    return 0;
}

void service_answer_freed(struct service *s)
{
    if (s->numbers.freeing_bytes == 0)
        brief_wait_end(s, &s->brief.freeing, 0);
}
