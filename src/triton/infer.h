/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer - the models of Triton's tests, on regions: sum and difference of two INT32 tensors
 *
 * For call.c. `simple` takes [B,16] up to B = 8, `add_sub_large` up to B = 16,384. They serve tests
 * and a first try, and show that a server reads and writes the memory that a client registered.
 * Uses pread and pwrite, or a lease of CUDA memory: a client that changes its memory meanwhile
 * harms its own request alone.
 */
#ifndef GMSFS_TRITON_INFER_H
#define GMSFS_TRITON_INFER_H

#include "triton/registry.h"
#include "triton/wire_request.h"

/* Counts or returns the regions of a request, each once: those of the inputs, then of the outputs.
 * `references` below has one reference for each, in this order. */
unsigned infer_count_regions(const struct wire_request *request);
struct wire_text infer_get_region(const struct wire_request *request, unsigned index);

/* 0, or -EINVAL and the reason in `answer`. */
int infer_check_tensors(const struct wire_request *request, struct wire_answer *answer);
int infer_check_regions(const struct wire_request *request,
                        struct registry_reference *const *references, struct wire_answer *answer);
bool infer_has_model(const struct wire_request *request, bool has_test_models);
int infer_check_model(const struct wire_request *request, bool has_test_models,
                      struct wire_answer *answer);

/* Puts results, or an error, into `answer`. The request must have been checked. */
void infer_run(const struct wire_request *request, struct registry_reference *const *references,
               struct wire_answer *answer);

#endif
