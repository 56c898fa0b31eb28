/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure - requests that want to know what others hold of the device now
 *
 * A measurement is under way, and its end answers all of them. A management library that hangs
 * answers nobody, so they wait for a moment only, and then are told what was known before.
 */
#include "service/brief_wait.h"
#include "service/service_internal.h"
#include "service/views.h"

#define PATIENCE_MS 50u

int service_measure(struct service *s, struct service_request *request)
{
    if (vmm_measure(s->vmm))
        return brief_wait_begin(s, &s->brief.measuring, request, PATIENCE_MS);
    service_answer(request, 0, NULL);
    return 0;
}

void service_on_measurement(struct service *s)
{
    brief_wait_end(s, &s->brief.measuring, 0);
}
