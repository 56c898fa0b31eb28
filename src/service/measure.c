/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure - requests that want to know what others hold of the device now
 *
 * A measurement is under way, and its end answers all of them. A management library that hangs
 * answers nobody, so they wait for a moment only, and then are told what was known before.
 */
#include "service/service_internal.h"

#include "service/views.h"

#include <errno.h>
#include <stdlib.h>

#define PATIENCE_MS 50u

struct measuring {
    struct service_request *request;
    uint64_t until_ms;
    struct measuring *next;
};

static void answer(struct measuring *measuring, int error)
{
    struct service_request *request = measuring->request;
    free(measuring);
    service_answer(request, error, NULL);
}

int service_measure(struct service *s, struct service_request *request)
{
    struct measuring *measuring, **last = &s->measuring;
    if (!vmm_measure(s->vmm)) {
        service_answer(request, 0, NULL);
        return 0;
    }
    measuring = malloc(sizeof *measuring);
    if (!measuring)
        return -ENOMEM;
    *measuring = (struct measuring){.request = request, .until_ms = service_now(s) + PATIENCE_MS};
    while (*last)
        last = &(*last)->next;
    *last = measuring;
    s->is_unsettled = true;
    return 0;
}

static void answer_until(struct service *s, uint64_t now_ms, int error)
{
    while (s->measuring && s->measuring->until_ms <= now_ms) {
        struct measuring *measuring = s->measuring;
        s->measuring = measuring->next;
        answer(measuring, error);
    }
}

void service_on_measurement(struct service *s)
{
    answer_until(s, UINT64_MAX, 0);
    s->is_unsettled = true;
}

void service_expire_measuring(struct service *s, uint64_t now_ms)
{
    answer_until(s, now_ms, 0);
}

uint64_t service_measure_moment(const struct service *s)
{
    return s->measuring ? s->measuring->until_ms : UINT64_MAX;
}

void service_drop_measuring(struct service *s)
{
    answer_until(s, UINT64_MAX, -ENOTCONN);
}
