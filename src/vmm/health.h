/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health - a device's failures, until they are taken
 *
 * Backends report from any thread, as often as they like: reports of a kind are one until taken.
 * The listener is called once for the first, on the reporting thread. For src/vmm.
 */
#ifndef GMSFS_VMM_HEALTH_H
#define GMSFS_VMM_HEALTH_H

#include "vmm/vmm.h"

#include <pthread.h>

struct health {
    pthread_mutex_t mutex; /* guards everything below */
    struct vmm_health news;
    void (*call)(void *context);
    void *context;
};

void health_init(struct health *health);
void health_destroy(struct health *health);
void health_report_suspect(struct health *health, const char *why);
void health_report_lost(struct health *health, const char *why);
void health_listen(struct health *health, void (*call)(void *context), void *context);
bool health_take(struct health *health, struct vmm_health *news);

#endif
