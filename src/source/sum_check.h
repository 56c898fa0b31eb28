/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum_check - compares the bytes of a file with the sum that its server promises, while they pass
 *
 * For source_remote.c. Such sums go over all bytes in order, but threads read a file in pieces.
 * Bytes that come in order are summed as they pass. Of bytes ahead of these it notes where they
 * went, a file of store memory, and sums them from there when their turn comes: nothing is fetched
 * twice. Memory that is no file (a GPU's) cannot be read again: the sum of such a file is known
 * only if its bytes came in order.
 *
 * From any thread.
 */
#ifndef GMSFS_SOURCE_SUM_CHECK_H
#define GMSFS_SOURCE_SUM_CHECK_H

#include "source/source.h"

#include <stdatomic.h>

struct sum_check;

/* NULL: no sum is promised, or no memory: *error tells. Once is_cancelled is set, no sum is
 * known. */
struct sum_check *sum_check_new(const struct source_sum *sum, uint64_t size_bytes,
                                const atomic_bool *is_cancelled, int *error);
/* NULL is fine. */
void sum_check_free(struct sum_check *check);

/* Takes bytes of the file from an offset on. fd: they are in this file, from at_bytes on, and stay
 * there; -1: they are nowhere. */
void sum_check_pass(struct sum_check *check, uint64_t offset_bytes, const uint8_t *bytes,
                    size_t size_bytes, int fd, uint64_t at_bytes);

/* Returns true, and the next bytes that are missing, if less is missing than has passed, and only a
 * little: what a model's reader leaves out. False: nothing is missing, or too much, or the bytes
 * did not come in order. */
bool sum_check_misses(struct sum_check *check, uint64_t *offset_bytes, uint64_t *size_bytes);

/* 0: the sum is right, or cannot be known; -EBADMSG: it is another, with both in the failure. */
int sum_check_compare(struct sum_check *check, struct failure *failure);

#endif
