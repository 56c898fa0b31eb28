/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_fenced - whether a store is closed for a checkpoint, and how that is ended
 *
 * For the commands, where a lock was refused by ENODEV, which has other causes too.
 */
#ifndef GMSFS_CLI_STORE_FENCED_H
#define GMSFS_CLI_STORE_FENCED_H

#include <stdbool.h>

bool store_is_fenced(const char *path);

/* "cannot DOING: PATH: it is fenced ..."; nothing where it is not, or cannot be looked at. Whether
 * it was said. */
bool store_explain_fence(const char *path, const char *doing);

#endif
