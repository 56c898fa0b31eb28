/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_key - the file names of metadata keys
 *
 * For the commands of src/cli, and its unit test. Pure.
 */
#ifndef GMSFS_CLI_STORE_KEY_H
#define GMSFS_CLI_STORE_KEY_H

#include "gmsfs.h"

#define STORE_ENCODED_BYTES (GMSFS_NAME_MAX + 1)

/*
 * The file name of a metadata key: % / and a leading . are written %25 %2F %2E. -EINVAL: empty, or
 * longer than GMSFS_NAME_MAX encoded. The store itself refuses keys that are not UTF-8.
 */
int store_encode_key(const char *key, char name[STORE_ENCODED_BYTES]);

#endif
