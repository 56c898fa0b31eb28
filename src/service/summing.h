/* SPDX-License-Identifier: Apache-2.0 */
/* summing - the ends of sums of contents, for the other files of src/service */
#ifndef GMSFS_SERVICE_SUMMING_H
#define GMSFS_SERVICE_SUMMING_H

#include "service/contents.h"

struct sums;

/* Answers a request of service_sum; the last one that waited ends the computation. */
void service_cancel_sum(struct service *s, struct service_request *request, int error);
/* After a store's state has changed: frees its sums if a writer may have changed the bytes. */
void service_on_sums_state(struct service *s, uint64_t store);
/* Fails sums of suspect stores with -EIO: such sums stay wrong when the store is trusted again. */
void service_fail_suspect_sums(struct service *s);
/* For service_free: answers -ENOTCONN. */
void service_drop_sums(struct service *s);

#endif
