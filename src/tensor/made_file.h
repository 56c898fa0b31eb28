/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_file - the safetensors file of a layout's tensors: MADE_FILE_NAME in a store's `files`
 *
 * Pure. For a store that keeps no files of its own. Where there is one, it is byte for byte the
 * file that `gmsfs save` writes: a header, then the tensors as they lie in the store, by rank,
 * offset and name. Takes time linear in the entries.
 */
#ifndef GMSFS_TENSOR_MADE_FILE_H
#define GMSFS_TENSOR_MADE_FILE_H

#include "meta/layout.h"

#define MADE_FILE_NAME         "model.safetensors"
#define MADE_FILE_MOST_TENSORS 131072u
/* Pairs in the entry __metadata__. */
#define MADE_FILE_MOST_PAIRS 1024u

/* Facts of the file that a layout would make. */
struct made_file_facts {
    uint64_t size_bytes; /* 0: there is none */
    const char *why;     /* reason, a constant; NULL: there is one, or the store has other files */
    uint64_t culprit;    /* serial of the entry that is the reason; 0: none is */
    uint64_t plan_bytes; /* memory of its plan */
    bool has_files;      /* the layout has files of its own */
};

/* A tensor's bytes. */
struct made_file_extent {
    uint64_t at;     /* in the file; they end where the next begin */
    uint64_t serial; /* of the allocation */
    uint64_t offset; /* in the allocation */
};

struct made_file {
    uint64_t size_bytes;
    char *header;
    size_t header_bytes;
    struct made_file_extent *extents; /* from the end of the header on, without gaps */
    size_t count;
};

/* -ENOMEM */
int made_file_look(const struct layout *layout, struct made_file_facts *facts);
/* Makes the file of a layout that has one; else -EINVAL. -ENOMEM */
int made_file_plan(const struct layout *layout, struct made_file **made);
void made_file_free(struct made_file *made); /* NULL is fine */
/* Returns the index of the extent with this byte, which is behind the header. */
size_t made_file_find(const struct made_file *made, uint64_t at);
/* Returns the offset behind an extent's last byte, in the file. */
uint64_t made_file_end(const struct made_file *made, size_t index);

#endif
