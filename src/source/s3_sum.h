/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_sum - the sums of an object's bytes that S3 promises in an answer's headers
 *
 * For source_s3.c. Pure. Source of facts: "Checking object integrity" of the S3 user guide.
 */
#ifndef GMSFS_SOURCE_S3_SUM_H
#define GMSFS_SOURCE_S3_SUM_H

#include "source/http_reply.h"
#include "source/source.h"

#include <stdbool.h>

/* The ETag of an object that was sent as a whole is its MD5, if S3 does not encrypt it with a key
 * of the user's. False, and the kind SOURCE_SUM_NONE: it is no sum. */
bool s3_sum_of_etag(const struct http_reply *reply, struct source_sum *sum);

/* Finds the strongest x-amz-checksum-* of the whole object, which S3 tells to a HEAD with
 * S3_SUM_HEADER. A sum of the sums of parts is none. False, and that kind: there is none. */
bool s3_sum_of_headers(const struct http_reply *reply, struct source_sum *sum);

#define S3_SUM_HEADER "x-amz-checksum-mode:ENABLED\n"

#endif
