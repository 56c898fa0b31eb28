/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/health.h"

#include "base/thread.h"

#include <stdio.h>

void health_init(struct health *health)
{
    *health = (struct health){.mutex = PTHREAD_MUTEX_INITIALIZER};
}

void health_destroy(struct health *health)
{
    pthread_mutex_destroy(&health->mutex);
}

static bool has_news(const struct vmm_health *news)
{
    return news->suspect || news->lost;
}

/* Reports a failure. The first reason stays, but loss replaces doubt. */
static void report(struct health *health, bool lost, const char *why)
{
    struct vmm_health *news = &health->news;

    SCOPED_LOCK(&health->mutex);
    bool had_news = has_news(news);
    if (!had_news || (lost && !news->lost))
        snprintf(news->why, sizeof(news->why), "%s", why);
    news->suspect |= !lost;
    news->lost |= lost;
    if (!had_news && health->call)
        health->call(health->context);
}

void health_report_suspect(struct health *health, const char *why)
{
    report(health, false, why);
}

void health_report_lost(struct health *health, const char *why)
{
    report(health, true, why);
}

void health_listen(struct health *health, void (*call)(void *context), void *context)
{
    SCOPED_LOCK(&health->mutex);
    health->call = call;
    health->context = context;
    if (call && has_news(&health->news))
        call(context);
}

bool health_take(struct health *health, struct vmm_health *news)
{
    SCOPED_LOCK(&health->mutex);
    *news = health->news;
    health->news = (struct vmm_health){0};
    return has_news(news);
}
