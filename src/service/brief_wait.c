/* SPDX-License-Identifier: Apache-2.0 */
#include "service/brief_wait.h"

#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>

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

int brief_wait_begin(struct service *s, struct brief_wait **queue, struct service_request *request,
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

void brief_wait_end(struct service *s, struct brief_wait **queue, int error)
{
    struct brief_wait *wait;
    while ((wait = *queue)) {
        unlink_wait(queue, wait);
        answer(s, wait, error);
    }
}
