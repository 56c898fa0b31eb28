/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer - the models of Triton's tests, on regions: sum and difference of two INT32 tensors
 *
 * For call.c. `simple` takes [B,16] up to B = 8, `add_sub_large` up to B = 16,384. They are there
 * for tests and for a first try, and show that what a client registered is what a server reads and
 * writes. By pread and pwrite alone, or through a lease of CUDA memory: what a client does to its
 * memory meanwhile is an error of its own request.
 */
#ifndef GMSFS_TRITON_INFER_H
#define GMSFS_TRITON_INFER_H

#include "triton/registry.h"
#include "triton/wire_request.h"

/* The regions of a request, each once: those of its inputs, then those of its outputs. Of each
 * there is one reference, in this order. */
unsigned infer_count_regions(const struct wire_request *request);
struct wire_text infer_get_region(const struct wire_request *request, unsigned index);

/* 0, or -EINVAL and the answer says why. */
int infer_check_tensors(const struct wire_request *request, struct wire_answer *answer);
int infer_check_regions(const struct wire_request *request,
                        struct registry_reference *const *references, struct wire_answer *answer);
bool infer_has_model(const struct wire_request *request, bool has_test_models);
int infer_check_model(const struct wire_request *request, bool has_test_models,
                      struct wire_answer *answer);

/* Results or an error are in the answer. The request has been checked. */
void infer_run(const struct wire_request *request, struct registry_reference *const *references,
               struct wire_answer *answer);

#endif
