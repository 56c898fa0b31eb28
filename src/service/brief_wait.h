/* SPDX-License-Identifier: Apache-2.0 */
/* brief_wait - requests that wait for something that may hang: for a moment at most */
#ifndef GMSFS_SERVICE_BRIEF_WAIT_H
#define GMSFS_SERVICE_BRIEF_WAIT_H

#include "service/service.h"

struct brief_wait;

/* It is answered 0 when `patience_ms` are over, unless brief_wait_end comes before. -ENOMEM */
int brief_wait_begin(struct service *s, struct brief_wait **queue, struct service_request *request,
                     uint64_t patience_ms);
/* Answers all, the oldest first. */
void brief_wait_end(struct service *s, struct brief_wait **queue, int error);

#endif
