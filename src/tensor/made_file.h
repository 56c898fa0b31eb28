/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made_file - the file of a layout's tensors: MADE_FILE_NAME or MADE_GGUF_NAME in a store's `files`
 *
 * Pure. For a store that keeps no files of its own. Where there is one, it is byte for byte the
 * file that `gmsfs save` writes: a header, then the tensors as they lie in the store, by rank,
 * offset and name. A layout with the entry GGUF_ENTRY makes a GGUF file, another layout one of
 * safetensors. Parses each value once, and sorts tensors and keys.
 */
#ifndef GMSFS_TENSOR_MADE_FILE_H
#define GMSFS_TENSOR_MADE_FILE_H

#include "meta/layout.h"
#include "tensor/file_plan.h"

#define MADE_FILE_NAME         "model.safetensors"
#define MADE_GGUF_NAME         "model.gguf"
#define MADE_FILE_MOST_TENSORS 131072u
/* Pairs in the entry __metadata__. */
#define MADE_FILE_MOST_PAIRS 1024u
/* Key-values of a GGUF file. */
#define MADE_FILE_MOST_KEYS 131072u

/* Facts of the file that a layout would make. */
struct made_file_facts {
    uint64_t size_bytes; /* 0: there is none */
    const char *why;     /* reason, a constant; NULL: there is one, or the store has other files */
    uint64_t culprit;    /* serial of the entry that is the reason; 0: none is */
    uint64_t plan_bytes; /* memory of its plan */
    bool has_files;      /* the layout has files of its own */
    bool is_gguf;
};

/* -ENOMEM */
int made_file_look(const struct layout *layout, struct made_file_facts *facts);
/* Plans the file of a layout that has one; else -EINVAL. The allocations in the plan are serials.
 * -ENOMEM */
int made_file_plan(const struct layout *layout, struct file_plan **plan);
void made_file_free(struct file_plan *plan); /* NULL is fine */

#endif
