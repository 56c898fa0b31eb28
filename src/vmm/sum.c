/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum - sums of bytes of a piece
 *
 * Host memory is summed where it lies: a copy by read(2) takes as long as the sum. It is sealed and
 * committed, so the mapping raises no SIGBUS, except for a page with a memory error: the kernel
 * looks at all pages first (MADV_POPULATE_READ). Only a page that breaks between that look and the
 * sum ends the worker.
 */
#include "base/digest.h"
#include "vmm/memfd.h"
#include "vmm/vmm_internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define STEP_BYTES (UINT64_C(1) << 20)

/* -EAGAIN: it cannot be mapped; -EIO: a page cannot be read. */
static int sum_mapped(const struct vmm_piece *piece, uint64_t offset, uint64_t bytes,
                      uint8_t sum[DIGEST_BYTES])
{
    struct stat stat;
    size_t length;
    int error = 0;
    void *at;

    /* Huge pages of a file (its block size) are mapped and unmapped whole. */
    if (fstat(piece->fd_readonly, &stat) < 0 || offset % (uint64_t)stat.st_blksize != 0)
        return -EAGAIN;
    length = ((bytes - 1) / (uint64_t)stat.st_blksize + 1) * (uint64_t)stat.st_blksize;
    at = mmap(NULL, length, PROT_READ, MAP_SHARED, piece->fd_readonly, (off_t)offset);
    if (at == MAP_FAILED)
        return -EAGAIN;
    if (madvise(at, length, MADV_POPULATE_READ) == 0)
        digest_make(at, bytes, sum);
    else /* before Linux 5.14: EINVAL */
        error = errno == EFAULT || errno == EHWPOISON ? -EIO : -EAGAIN;
    munmap(at, length);
    return error;
}

static int sum_lent(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes,
                    uint8_t sum[DIGEST_BYTES])
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t end = offset + bytes;
    struct vmm_loan loan;
    int error = state ? 0 : -ENOMEM;

    if (state)
        XXH3_128bits_reset(state);
    while (!error && offset < end) {
        struct vmm_span span = {.offset = offset,
                                .bytes = end - offset < STEP_BYTES ? end - offset : STEP_BYTES};
        error = vmm_lend(vmm, piece, &span, &loan);
        for (unsigned i = 0; !error && i < loan.count; i++) {
            XXH3_128bits_update(state, loan.parts[i].at, loan.parts[i].bytes);
            offset += loan.parts[i].bytes;
        }
        if (!error)
            vmm_end_loan(vmm, &loan);
    }
    if (!error)
        digest_put(XXH3_128bits_digest(state), sum);
    XXH3_freeState(state);
    return error;
}

int vmm_sum(struct vmm *vmm, const struct vmm_piece *piece, uint64_t offset, uint64_t bytes,
            uint8_t sum[16])
{
    int error = -EAGAIN;

    if (!piece->sealed || bytes == 0 || offset > piece->aligned_bytes ||
        bytes > piece->aligned_bytes - offset)
        return -EINVAL;
    if (!vmm_backend_of(vmm, piece)->lend && memfd_is_file(piece->fd_readonly))
        error = sum_mapped(piece, offset, bytes, sum);
    return error == -EAGAIN ? sum_lent(vmm, piece, offset, bytes, sum) : error;
}
