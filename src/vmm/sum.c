/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum - sums of bytes of a piece
 *
 * Host memory is read through a buffer that stays in the processor's cache. A mapping saves the
 * copy, but threads that map and unmap wait for each other, and a page with a memory error would
 * end the worker where read(2) fails with EIO.
 */
#include "base/digest.h"
#include "base/file_io.h"
#include "vmm/memfd.h"
#include "vmm/vmm_internal.h"

#include <errno.h>
#include <stdlib.h>

#define STEP_BYTES (UINT64_C(1) << 20)
#define READ_BYTES (UINT64_C(64) << 10) /* below the size from which malloc(3) maps memory */

static int sum_read(const struct vmm_piece *piece, uint64_t offset, uint64_t bytes,
                    uint8_t sum[DIGEST_BYTES])
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *buffer = malloc(READ_BYTES);
    int error = state && buffer ? 0 : -ENOMEM;

    if (state)
        XXH3_128bits_reset(state);
    while (!error && bytes > 0) {
        uint64_t step = bytes < READ_BYTES ? bytes : READ_BYTES;
        error = file_read_at(piece->fd_readonly, buffer, step, offset);
        if (!error)
            XXH3_128bits_update(state, buffer, step);
        offset += step;
        bytes -= step;
    }
    if (!error)
        digest_put(XXH3_128bits_digest(state), sum);
    XXH3_freeState(state);
    free(buffer);
    return error == -ENODATA ? -EIO : error;
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
    if (!piece->sealed || bytes == 0 || offset > piece->aligned_bytes ||
        bytes > piece->aligned_bytes - offset)
        return -EINVAL;
    if (!vmm_backend_of(vmm, piece)->lend && memfd_is_file(piece->fd_readonly))
        return sum_read(piece, offset, bytes, sum);
    return sum_lent(vmm, piece, offset, bytes, sum);
}
