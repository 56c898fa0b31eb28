/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - lines of the service in the log at level debug
 *
 * For the ledger, evictions and (trace_plan.c) the end of a step. The caller asks log_is_debug() or
 * log_begin_trace() first: off, a site costs one branch. Nothing here changes anything.
 */
#ifndef GMSFS_SERVICE_TRACE_H
#define GMSFS_SERVICE_TRACE_H

#include "base/log.h"
#include "service/plan.h"

#include <limits.h>

/* Writes a record with its outcome, the effects from number `first` of the queue on, and the time
 * since `began_us`. */
void trace_record(struct service *s, const struct record *record, const struct outcome *outcome,
                  int error, size_t first, uint64_t began_us);
/* Returns `name`, cleaned for quotes; "" for a store that is gone. */
const char *trace_store_name(const struct service *s, uint64_t store, char name[NAME_MAX + 1]);
/* Writes a deed of a planner, its reason, and whether the deed makes room. */
void trace_deed(struct service *s, service_planner *planner, const struct deed *deed, bool comes);
/* Writes how many stores the last choice took for this store, or why it took none. */
void trace_eviction(struct service *s, uint64_t store, uint64_t bytes, long chosen, bool comes);

#endif
