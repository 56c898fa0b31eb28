/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub_list - decodes what a hub of models says about a repository, and names of repositories
 *
 * For source_hub.c. Pure. The JSON is untrusted. Source of facts: huggingface_hub 0.26, and the
 * answers of /api/models/REPOSITORY/revision/REVISION?blobs=true.
 */
#ifndef GMSFS_SOURCE_HUB_LIST_H
#define GMSFS_SOURCE_HUB_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUB_MOST_NAME_BYTES 96u /* of an owner, of a model */
#define HUB_COMMIT_DIGITS   40u
#define HUB_SHA256_BYTES    32u

/* hf://OWNER/MODEL[@REVISION][/PATH]; old models have no owner: hf://MODEL[@REVISION]. */
struct hub_place {
    char repository[2 * HUB_MOST_NAME_BYTES + 2]; /* OWNER/MODEL */
    char revision[256];                           /* "main" if the place has none; not encoded */
    const char *path;                             /* in the place; "": the whole repository */
};

/* A file of a repository; valid during the call. */
struct hub_file {
    const char *name;
    uint64_t size_bytes; /* UINT64_MAX: not told */
    bool has_sha256;
    uint8_t sha256[HUB_SHA256_BYTES];
};

typedef int hub_add(void *context, const struct hub_file *file);

/* 0; -EINVAL: it is not such a place. */
int hub_parse(const char *place, struct hub_place *parsed);

/* Calls add() for each file, and takes the commit; an error of add() ends it. 0; -EPROTO, with
 * *fault; -ENOMEM. */
int hub_decode(const char *json, size_t bytes, hub_add *add, void *context,
               char commit[HUB_COMMIT_DIGITS + 1], const char **fault);

#endif
