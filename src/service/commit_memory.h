/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit_memory - makes the memory of a layout final before its commit
 *
 * From then on no process can seal it (fcntl(2)), which would surprise the next writer; that of an
 * immutable layout can be written by no process either. Memory that cannot be sealed so (of a GPU,
 * or committed before) is left as it is: the layout is then immutable by promise.
 *
 * The kernel tells of a writable mapping only by refusing the seal, so no look comes before, and
 * memory that was sealed stays so if the commit fails. Then only an immutable commit takes it: a
 * plain one is refused, because the next writer could not write it in place.
 *
 * For commit.c: all functions on the loop's thread, but commit_memory_run on a helper's.
 */
#ifndef GMSFS_SERVICE_COMMIT_MEMORY_H
#define GMSFS_SERVICE_COMMIT_MEMORY_H

#include "service/service_internal.h"

struct commit_memory {
    struct piece **pieces; /* memory to seal or to refuse; in use until commit_memory_end */
    bool *is_immutable;    /* results, by piece */
    uint32_t count, done;
    bool wants_immutable;
    int error; /* of the piece at `done` */
};

/* Returns true if the layout that this session may commit has memory to seal or to refuse. */
bool commit_memory_is_needed(const struct service *s, uint64_t session, bool immutable);
/* Lists that memory. -ENOMEM */
int commit_memory_begin(struct commit_memory *memory, struct service *s, uint64_t session,
                        bool immutable);
void commit_memory_run(struct commit_memory *memory, struct vmm *vmm);
/* Returns the error of the run, and in `why` the reason for clients, or "" if errno says all:
 * -EBUSY: mapped for writing; -EINVAL: sealed against writes. */
int commit_memory_explain(const struct commit_memory *memory, const struct service *s,
                          uint64_t session, char why[256]);
/* Notes what was made final, and ends the use of all. */
void commit_memory_end(struct commit_memory *memory, struct service *s);

#endif
