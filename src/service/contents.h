/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contents - sums of a store's bytes, and the id that follows from them
 *
 * For front ends. The sums are made on demand by jobs of one piece each (meta/pieces.h), for one
 * store once at a time, while a request waits for them; each job uses the session of a waiting
 * request. The id becomes state (RECORD_CONTENTS). The text of the sums is a cache: bounded, and
 * made again if it is gone.
 */
#ifndef GMSFS_SERVICE_CONTENTS_H
#define GMSFS_SERVICE_CONTENTS_H

#include "service/service.h"

/* Starts the sums of the store that this file is in; answers once service_get_pieces has the text,
 * or at once if there are no committed bytes to sum. The file reads an allocation, which keeps
 * writers away; in a store without allocations any file will do. -ESTALE: its session or the
 * contents ended; -EIO: suspect memory, or the bytes were given up; -E2BIG; -EDQUOT, -ENOMEM;
 * -EINTR */
int service_sum(struct service *s, uint64_t file, struct service_request *request);
/* Returns the text of `pieces` of the store's present contents; NULL if it is not known. */
struct blob *service_get_pieces(struct service *s, const struct core_store *store);
/* Returns the size of that text, known or not; 0 if nothing is committed, or a writer may change
 * it. */
uint64_t service_count_pieces_bytes(const struct core_store *store);

#endif
