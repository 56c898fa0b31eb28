/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_bytes - reading and writing GPU memory, by way of the copier
 *
 * For src/vmm/cuda.c. This process has no CUDA context, so the bytes are moved by another one
 * (src/copier), which is started when it is first needed and let go when nothing was moved for a
 * while. They pass through a ring that both map: a read is answered out of it. When the copier
 * dies, what it was about to move is moved by a new one, once; one that hangs is killed.
 *
^ *   copier_client.c  what the backend calls: lend, write, forget
 *   cuda_copier.c    the process: its start, its watcher, its end
 *   cuda_places.c    requests under way, and the blocks of the ring
 *   cuda_slots.c     which pieces it has mapped
 *   cuda_ahead.c     blocks fetched before they are asked for
 *   cuda_suspects.c  pieces whose requests fail, and have the copier for themselves
 *
 * Threads: all functions from any; they may be slow but for cuda_bytes_lend_now and
 * cuda_bytes_end_reader, which never wait, and cuda_bytes_end_loan, which hardly does.
 * Errors: -ENOMEM (no memory for the copier's context), -ENODEV, -EIO; the log tells more.
 */
#ifndef GMSFS_VMM_CUDA_BYTES_H
#define GMSFS_VMM_CUDA_BYTES_H

#include "vmm/vmm.h"

struct cuda_bytes;

struct cuda_bytes_options {
    uint8_t uuid[16];
    const char *pci_id; /* for messages */
    uint64_t idle_ms;   /* without transfers, before the copier is let go */
};

/* A piece as the copier knows it. */
struct cuda_bytes_piece {
    uint64_t serial; /* never used for another piece */
    uint64_t bytes;  /* of the device */
    int fd;
};

int cuda_bytes_new(const struct cuda_bytes_options *options, struct cuda_bytes **bytes);
/* There is no transfer and no loan. Waits for the copier's end. */
void cuda_bytes_free(struct cuda_bytes *bytes);

/* See vmm_lend, vmm_lend_now, vmm_end_loan, vmm_end_reader. */
int cuda_bytes_lend(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                    const struct vmm_span *span, struct vmm_loan *loan);
int cuda_bytes_lend_now(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                        const struct vmm_span *span, struct vmm_loan *loan);
void cuda_bytes_end_loan(struct cuda_bytes *bytes, struct vmm_loan *loan);
void cuda_bytes_end_reader(struct cuda_bytes *bytes, uint64_t reader);

int cuda_bytes_write(struct cuda_bytes *bytes, const struct cuda_bytes_piece *piece,
                     const void *from, size_t count, uint64_t offset);
/* The piece is about to go: when this returns the copier holds nothing of it. */
void cuda_bytes_forget(struct cuda_bytes *bytes, uint64_t serial);

#endif
