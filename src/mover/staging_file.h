/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_file - bytes of a file on their way into the memory of a store
 *
 * For the commands that load. Read once, to where the GPU fetches them or where they stay; only
 * what is read past the page cache for host memory is copied on from a buffer, for a tensor does
 * not lie in a file as a direct read has to. On a lane, by its thread.
 */
#ifndef GMSFS_MOVER_STAGING_FILE_H
#define GMSFS_MOVER_STAGING_FILE_H

#include "mover/direct.h"
#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAGING_FILE_BYTES ((size_t)4 << 20) /* of a direct read for host memory */

/*
 * Reads the next 1..most_bytes (*size_bytes) at an offset, which are to go to `to`; *bytes is
 * where they can be looked at until staging_send() sends them. 0 or a negative errno; -ENODATA: the
 * file ends before.
 */
int staging_read(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 struct direct_file *file, uint64_t offset_bytes, size_t most_bytes,
                 const uint8_t **bytes, size_t *size_bytes);

/* Whether a file of store memory is best filled by write(2): a page that is written whole is never
 * cleared. Huge pages have no write(2), and beyond RLIMIT_FSIZE it is refused. */
bool staging_file_is_written(int fd, uint64_t size_bytes);

#endif
