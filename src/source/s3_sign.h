/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_sign - AWS' signature, version 4, of a request without a body
 *
 * For source_s3.c. Pure. Not by libcurl: its releases up to 7.88 take the query in the order of the
 * address, and leave the session token and the payload's hash out of the signature. Source of
 * facts: "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference, whose
 * examples are the unit test's.
 */
#ifndef GMSFS_SOURCE_S3_SIGN_H
#define GMSFS_SOURCE_S3_SIGN_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct s3_keys {
    char *id, *secret; /* NULL: no credentials, requests are not signed */
    char *token;       /* of a session; NULL: none */
};

/*
 * Writes the header lines for a request (method: GET or HEAD) of an address, whose path and query
 * are encoded as url_encode does, the query in any order. more: a further header, "name:value\n"
 * with a name that sorts between "host" and "x-amz-content"; "": none. 0; -E2BIG: there is not
 * enough room; -EINVAL: not an address, or a secret that is too long; -ENOMEM.
 */
int s3_sign(const struct s3_keys *keys, const char *region, const char *method, const char *url,
            time_t now, const char *more, char *lines, size_t room);

#endif
