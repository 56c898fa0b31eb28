/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_group - targets that are committed together, all or none
 *
 * For `gmsfs copy` and `gmsfs pull --group`. targets[i] is the store i of the group. Errors are
 * printed here, once.
 */
#ifndef GMSFS_CLI_TARGET_GROUP_H
#define GMSFS_CLI_TARGET_GROUP_H

#include "cli/store_group.h"
#include "cli/target.h"

/* Ends a commit that returned `error`: explains the failure, or keeps the stores and compares their
 * hashes. An exit status. */
int target_group_end_commit(struct target *const *targets, const struct store_group *group,
                            const uint8_t id[DIGEST_BYTES], bool immutable, int error);

#endif
