/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline - the times at which the service has to act: one heap, behind one timer
 *
 * For the files of src/service. A deadline is embedded in its object, must not move while it is
 * set, and must be cleared before the object is freed. Setting one needs no memory.
 */
#ifndef GMSFS_SERVICE_DEADLINE_H
#define GMSFS_SERVICE_DEADLINE_H

#include <stdint.h>

struct service;

struct deadline {
    uint64_t at_ms;
    void (*pass)(struct service *s,
                 struct deadline *deadline); /* called after the deadline was cleared */
    struct deadline *child, *next, **link;   /* owned by the heap; link NULL: not set */
};

/* Sets a deadline, in place of a former time. UINT64_MAX: never */
void deadline_set(struct service *s, struct deadline *deadline, uint64_t at_ms);
/* Clears a deadline; harmless if it is not set. */
void deadline_clear(struct service *s, struct deadline *deadline);
/* Returns the earliest time; UINT64_MAX: none is set. */
uint64_t deadline_first(const struct service *s);
/* Calls pass() of all deadlines up to now, the earliest first. */
void deadline_pass_all(struct service *s, uint64_t now_ms);

#endif
