/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_client - reading and writing GPU memory through the copier
 *
 * For src/vmm/gpu.c. This process has no context of a GPU, so another one (src/copier) moves the
 * bytes, which is started when it is first needed and ends after a while without transfers. They
 * pass through a ring that both map: a read is answered out of it; or the copier moves them to or
 * from a file by itself. If the copier dies, a new one repeats its requests, once; one that hangs
 * is killed.
 *
 *   copier_client.c      the backend's calls: lend, write, move, forget
 *   copier_process.c     the process: its start, its watcher, its end
 *   copier_ring.c        pending requests, and the blocks of the ring
 *   copier_windows.c     pieces that it has mapped
 *   copier_readahead.c   blocks fetched in advance
 *
 * Threads: all functions from any; they may be slow, except copier_client_lend_now and
 * copier_client_end_reader, which never wait, and copier_client_end_loan, which hardly does.
 * Errors: -ENOMEM (no memory for the copier's context), -ENODEV, -EIO; the log has the details.
 */
#ifndef GMSFS_VMM_COPIER_CLIENT_H
#define GMSFS_VMM_COPIER_CLIENT_H

#include "vmm/vmm.h"

struct copier_client;

struct copier_client_options {
    const char *driver; /* name of the copier's driver (copier/gpu.h): "cuda" */
    const char *tool;   /* program that shows the machine's GPUs: "nvidia-smi" */
    uint8_t uuid[16];
    const char *pci_id; /* for messages, as the two before; all texts live as long */
    uint64_t idle_ms;   /* time without transfers until the copier ends */
    bool stays;         /* it never ends: a new one would find no room on a full device */
};

/* A piece, for the copier. */
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
/* Starts the copier before it is needed, without waiting for it. The log has the reason if it
 * fails. */
void copier_client_start(struct copier_client *client);
/* Frees the client when there is no transfer and no loan. Waits for the copier's end. */
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
/* Moves bytes of the piece to the same place of a file (out), or from there; the copier reads or
 * writes the file by itself. Also -ENOSPC. */
int copier_client_move(struct copier_client *client, const struct copier_piece *piece,
                       const struct copier_file *file, bool out, uint64_t offset, uint64_t count);
/* Unmaps pieces that are not in use. */
void copier_client_rest(struct copier_client *client);
/* Makes the copier drop all of a piece that is about to be freed. */
void copier_client_forget(struct copier_client *client, uint64_t serial);
/* The same for a file. */
void copier_client_forget_file(struct copier_client *client, uint64_t serial);

#endif
