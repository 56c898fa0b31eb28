/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi - the formats that two builds of gmsfs share when one continues the other's mount
 *
 * A version number for each format that outlives a process: in memory that the keeper holds, on the
 * wire between keeper and worker, and in the kernel's memory of a mount. As a line of text,
 * "state=12 record=2 ...", which `gmsfs version --json` shows to people and which one build passes
 * to the other. Pure except for the tests' hooks.
 */
#ifndef GMSFS_DAEMON_ABI_H
#define GMSFS_DAEMON_ABI_H

#include "base/failure.h"

#include <stddef.h>
#include <stdint.h>

#define ABI_TEXT_BYTES 256u

struct abi_number {
    const char *name, *meaning;
    uint32_t number, oldest; /* that this build writes; the oldest that it can read */
};

/* The numbers of this build; tests run builds with other numbers (tests/hooks.c). */
#ifdef GMSFS_TEST_HOOKS
struct abi_number abi_own_numbers(const struct abi_number *abi);
#else
#define abi_own_numbers(abi) (*(abi))
#endif

/* Returns NULL after the last one. */
const struct abi_number *abi_at(size_t index);
/* Writes the numbers of this build. */
void abi_write(char text[ABI_TEXT_BYTES]);
/* Returns 0 if this build can read formats of these numbers: none is newer than its own, or older
 * than it reads; else -EPROTONOSUPPORT. */
int abi_check(const char *text, struct failure *failure);

#endif
