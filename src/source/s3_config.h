/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_config - credentials, region and endpoint of S3, from the environment and AWS' usual files
 *
 * For source_s3.c. Each setting is looked for in this order: the environment (AWS_ACCESS_KEY_ID
 * with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; AWS_REGION, AWS_DEFAULT_REGION;
 * AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL), then the profile of AWS_PROFILE ("default") in
 * ~/.aws/credentials (AWS_SHARED_CREDENTIALS_FILE) and ~/.aws/config (AWS_CONFIG_FILE). Roles,
 * single sign-on and machines' own credentials are not known: "aws configure export-credentials
 * --format env" writes the environment of any of these.
 */
#ifndef GMSFS_SOURCE_S3_CONFIG_H
#define GMSFS_SOURCE_S3_CONFIG_H

#include "base/failure.h"
#include "source/s3_sign.h"

#include <stdbool.h>

struct s3_config {
    struct s3_keys keys;
    char *region;
    char *endpoint; /* without '/' at its end; NULL: Amazon's */
};

/* Afterwards s3_config_free(), also after an error. -EINVAL: a profile that was named is not there;
 * -E2BIG, -ENOMEM. */
int s3_config_read(struct s3_config *config, struct failure *failure);
void s3_config_free(struct s3_config *config);

/* Pure: copies the value of a key in a [section] of an INI text; the caller frees it. NULL: there
 * is none, or no memory. *has_section: whether the section is there; may be NULL. */
char *s3_config_find(const char *text, const char *section, const char *key, bool *has_section);

/* Returns the address of a key (encoded), or with key NULL of the bucket. The caller frees it;
 * NULL: no memory. Pure. */
char *s3_config_url(const struct s3_config *config, const char *bucket, const char *key);

#endif
