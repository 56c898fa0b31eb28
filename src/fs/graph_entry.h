/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_entry - what a graph pool says of itself in its store, read out of the entry `gmsfs.graph`
 *
 * For `info` and `metrics`. Any writer may put any bytes under that key: what is not exactly such a
 * text is no graph, and no number is believed to be more than what it says. Pure.
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

/* A JSON object with these four members, not negative, and perhaps others; of at most
 * FS_GRAPH_BYTES_MAX bytes. false: it is none, or there is no memory to tell. */
bool fs_graph_read(const void *bytes, size_t size, struct fs_graph *graph);

#endif
