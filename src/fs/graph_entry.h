/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_entry - reads a graph pool's description of itself from its store's entry `gmsfs.graph`
 *
 * For `info` and `metrics`. Any writer may put any bytes under that key: only a text of exactly
 * this form is a graph, and its numbers are a client's claims, not facts. Pure.
 */
#ifndef GMSFS_FS_GRAPH_ENTRY_H
#define GMSFS_FS_GRAPH_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FS_GRAPH_BYTES_MAX 512

struct fs_graph {
    uint64_t chunk_bytes;
    uint64_t spaces;
    uint64_t address_bytes;
    uint64_t high_bytes;
};

/* Reads a JSON object with these four members, not negative, and perhaps others; of at most
 * FS_GRAPH_BYTES_MAX bytes. false: it is not one, or there is no memory to parse it. */
bool fs_graph_read(const void *bytes, size_t size, struct fs_graph *graph);

#endif
