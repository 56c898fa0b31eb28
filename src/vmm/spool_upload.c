/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/spool_upload.h"

#include <errno.h>
#include <sys/mman.h>

#define WINDOW_BYTES (UINT64_C(64) << 20)

int spool_upload(struct copier_client *copier, struct vmm_piece *piece, uint64_t size_bytes)
{
    struct copier_piece to = {
        .serial = piece->made.serial,
        .bytes = piece->made.aligned_bytes,
        .fd = piece->made.fd,
    };
    int error = 0;

    while (error == 0 && piece->made.clean_bytes < size_bytes) {
        uint64_t at = piece->made.clean_bytes;
        uint64_t start = at - at % WINDOW_BYTES;
        uint64_t end = size_bytes - start < WINDOW_BYTES ? size_bytes : start + WINDOW_BYTES;
        char *map =
            mmap(NULL, end - start, PROT_READ, MAP_SHARED | MAP_NORESERVE, piece->fd, (off_t)start);

        if (map == MAP_FAILED)
            return -errno;
        madvise(map, end - start, MADV_DONTFORK); /* elsewhere it would outlive the piece */
        error = copier_client_write(copier, &to, map + (at - start), end - at, at);
        munmap(map, end - start);
        if (error == 0)
            piece->made.clean_bytes = end;
    }
    return error;
}
