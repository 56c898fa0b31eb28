/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abi - what two builds of gmsfs share when one goes on with the mount of another
 *
 * A number for each format that outlives a process: in memory that the keeper holds, on the wire
 * between keeper and worker, and in what the kernel remembers of a mount. As a line of text,
 * "state=12 record=2 ...", which `gmsfs version --json` shows to people and which goes from the one
 * build to the other. Pure but for tests' hooks.
 */
#ifndef GMSFS_DAEMON_ABI_H
#define GMSFS_DAEMON_ABI_H

#include "base/failure.h"

#include <stddef.h>
#include <stdint.h>

#define ABI_TEXT_BYTES 256u

struct abi_number {
    const char *name, *meaning;
    uint32_t number, oldest; /* what this build writes; the oldest that it can go on with */
};

/* Those of this build; tests have builds that differ: tests/hooks.c. */
#ifdef GMSFS_TEST_HOOKS
struct abi_number abi_own_numbers(const struct abi_number *abi);
#else
#define abi_own_numbers(abi) (*(abi))
#endif

/* NULL behind the last one. */
const struct abi_number *abi_at(size_t index);
/* What this build writes. */
void abi_write(char text[ABI_TEXT_BYTES]);
/* Whether this build can go on with what one of these numbers has written: none is newer than its
 * own, or older than it reads. -EPROTONOSUPPORT */
int abi_check(const char *text, struct failure *failure);

#endif
