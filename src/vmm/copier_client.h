/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_client - reading and writing GPU memory, by way of the copier
 *
 * For src/vmm/gpu.c. This process has no context of a GPU, so the bytes are moved by another one
 * (src/copier), which is started when it is first needed and let go when nothing was moved for a
 * while. They pass through a ring that both map: a read is answered out of it; or the copier moves
 * them to or from a file, without passing us. When the copier
 * dies, what it was about to move is moved by a new one, once; one that hangs is killed.
 *
 *   copier_client.c      what the backend calls: lend, write, move, forget
 *   copier_process.c     the process: its start, its watcher, its end
 *   copier_ring.c        requests under way, and the blocks of the ring
 *   copier_windows.c     which pieces it has mapped
 *   copier_readahead.c   blocks fetched before they are asked for
 *   copier_quarantine.c  pieces whose requests fail, and have the copier for themselves
 *
 * Threads: all functions from any; they may be slow but for copier_client_lend_now and
 * copier_client_end_reader, which never wait, and copier_client_end_loan, which hardly does.
 * Errors: -ENOMEM (no memory for the copier's context), -ENODEV, -EIO; the log tells more.
 */
#ifndef GMSFS_VMM_COPIER_CLIENT_H
#define GMSFS_VMM_COPIER_CLIENT_H

#include "vmm/vmm.h"

struct copier_client;

struct copier_client_options {
    const char *driver; /* whose table of functions the copier takes (copier/gpu.h): "cuda" */
    const char *tool;   /* that shows the machine's GPUs: "nvidia-smi" */
    uint8_t uuid[16];
    const char *pci_id; /* for messages, as the two before; all texts live as long */
    uint64_t idle_ms;   /* without transfers, before the copier is let go */
    bool stays;         /* it is never let go: when the device is full, a new one has no room */
};

/* A piece as the copier knows it. */
struct copier_piece {
    uint64_t serial; /* never used for another piece */
    uint64_t bytes;  /* of the device */
    int fd;
};

/* The other side of a move. */
struct copier_file {
    uint64_t serial; /* never used for another file; 0: the copier does not keep it */
    int fd;
};

int copier_client_new(const struct copier_client_options *options, struct copier_client **client);
/* Before it is needed; does not wait for it. Why it does not start, the log tells. */
void copier_client_start(struct copier_client *client);
/* There is no transfer and no loan. Waits for the copier's end. */
void copier_client_free(struct copier_client *client);

/* See vmm_lend, vmm_lend_now, vmm_end_loan, vmm_end_reader. */
int copier_client_lend(struct copier_client *client, const struct copier_piece *piece,
                       const struct vmm_span *span, struct vmm_loan *loan);
int copier_client_lend_now(struct copier_client *client, const struct copier_piece *piece,
                           const struct vmm_span *span, struct vmm_loan *loan);
void copier_client_end_loan(struct copier_client *client, struct vmm_loan *loan);
void copier_client_end_reader(struct copier_client *client, uint64_t reader);

int copier_client_write(struct copier_client *client, const struct copier_piece *piece,
                        const void *from, size_t count, uint64_t offset);
/* Bytes of the piece to the same place of a file (out), or from there; the copier reads or writes
 * it by itself. Also -ENOSPC. */
int copier_client_move(struct copier_client *client, const struct copier_piece *piece,
                       const struct copier_file *file, bool out, uint64_t offset, uint64_t count);
/* Pieces that nobody reads, writes or moves are unmapped. */
void copier_client_rest(struct copier_client *client);
/* The piece is about to go: when this returns the copier holds nothing of it. */
void copier_client_forget(struct copier_client *client, uint64_t serial);
/* The same, of a file. */
void copier_client_forget_file(struct copier_client *client, uint64_t serial);

#endif
