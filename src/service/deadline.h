/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline - moments at which something of the service is due: one heap, behind one timer
 *
 * For the files of src/service. A deadline is embedded in what it is of, stays where it is while it
 * is set, and has to be cleared before that goes. Setting one needs no memory.
 */
#ifndef GMSFS_SERVICE_DEADLINE_H
#define GMSFS_SERVICE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

struct service;

struct deadline {
    uint64_t at_ms;
    void (*pass)(struct service *s, struct deadline *deadline); /* it is set no more by then */
    struct deadline *child, *next, **link; /* the heap's; link NULL: it is not set */
};

/* Also where it was set before. UINT64_MAX: never */
void deadline_set(struct service *s, struct deadline *deadline, uint64_t at_ms);
/* Harmless where it is not set. */
void deadline_clear(struct service *s, struct deadline *deadline);
/* The first of all; UINT64_MAX: none is set. */
uint64_t deadline_first(const struct service *s);
/* Calls pass() of all that are due, the first one first. */
void deadline_pass_all(struct service *s, uint64_t now_ms);

#endif
