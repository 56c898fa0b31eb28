/* SPDX-License-Identifier: Apache-2.0 */
/* summing - the ends of sums of contents, for the other files of src/service */
#ifndef GMSFS_SERVICE_SUMMING_H
#define GMSFS_SERVICE_SUMMING_H

#include "service/contents.h"

struct sums;

/* Answers a request of service_sum; the last one that waited ends the computation. */
void service_cancel_sum(struct service *s, struct service_request *request, int error);
/* Fails sums of suspect stores with -EIO: such sums stay wrong when the store is trusted again. */
void service_fail_suspect_sums(struct service *s);
/* For service_free: answers -ENOTCONN. */
void service_drop_sums(struct service *s);

#endif
