/* SPDX-License-Identifier: Apache-2.0 */
/*
 * payload - the argument of an ioctl, old and new meeting
 *
 * Pure; called by ioctl.c and its test. A shorter argument than this daemon knows is extended by
 * zeros, a longer one must end in zeros. A command is found by its number alone: its direction and
 * size bits may differ between versions.
 */
#ifndef GMSFS_FS_PAYLOAD_H
#define GMSFS_FS_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#define PAYLOAD_MAX_BYTES 16383u

/* `out` has `known` bytes. 0, -E2BIG */
int payload_decode(const void *in, size_t in_bytes, void *out, size_t known);
/* The number of a command of type 'G'; 0: it is none. */
unsigned payload_get_number(unsigned command);

#endif
