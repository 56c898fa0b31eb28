/* SPDX-License-Identifier: Apache-2.0 */
/* requests - answers, waits, the time, and jobs */
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>

uint64_t service_now(const struct service *s)
{
    return s->host.now_ms(s->host.context);
}

uint64_t service_wait_max_ms(const struct service_request *request)
{
    return request->wait_max_ms ? request->wait_max_ms : UINT64_MAX;
}

void service_answer(struct service_request *request, int error, const struct service_answer *answer)
{
    static const struct service_answer nothing;
    if (!request)
        return;
    request->parked = NULL;
    request->alloc = NULL;
    request->sums = NULL;
    request->done(request, error, answer ? answer : &nothing);
}

uint64_t service_work_for(struct service *s, uint64_t request)
{
    return s->host.work_for ? s->host.work_for(s->host.context, request) : 0;
}

uint64_t service_works_for(struct service *s)
{
    uint64_t request = service_work_for(s, 0);
    service_work_for(s, request);
    return request;
}

void service_free_task(struct service *s, struct task *task)
{
    (void)s;
    free(task);
}

void service_end_task(struct service *s, struct task *task)
{
    LIST_APPEND(s->step.done, task);
    s->step.is_unsettled = true;
}

static void on_done(struct job *job)
{
    struct task *task = (struct task *)job;
    task->service->numbers.jobs_in_flight--;
    service_end_task(task->service, task);
}

int service_submit(struct service *s, enum service_pool pool, struct task *task)
{
    if (s->ending)
        return -ENOMEM;
    task->service = s;
    task->job.done = on_done;
    s->numbers.jobs_in_flight++;
    int error = s->host.submit(s->host.context, pool, &task->job);
    if (error)
        s->numbers.jobs_in_flight--;
    return error;
}

void service_submit_or_run(struct service *s, enum service_pool pool, struct task *task)
{
    if (service_submit(s, pool, task) == 0)
        return;
    s->host.publish(s->host.context);
    task->job.run(&task->job);
    task->end(s, task);
}
