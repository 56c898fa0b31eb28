/* SPDX-License-Identifier: Apache-2.0 */
/* operands - STORE=SOURCE, once or several times for a store: of `gmsfs load` and `pull --group` */
#ifndef GMSFS_CLI_OPERANDS_H
#define GMSFS_CLI_OPERANDS_H

#include <stdbool.h>
#include <stddef.h>

/* source: name in an error, "FILE". Ends the process after an error. */
void operands_check(char **operands, size_t count, const char *source);
bool operands_are_of_one_store(const char *left, const char *right);
/* True if one of the first `count` is of the same store as this operand. */
bool operands_have_store(char **operands, size_t count, const char *operand);

#endif
