/* SPDX-License-Identifier: Apache-2.0 */
/*
 * triton - the front end for clients of NVIDIA Triton: HTTP/REST and gRPC over the mount's regions
 *
 * For `gmsfs triton`. Two processes: one serves clients and has no rights (started by root, it runs
 * as nobody), the other opens objects for it (opener.h), except CUDA memory, which a process of
 * each user opens (cuda_helpers.h). The rest of the folder belongs to them.
 */
#ifndef GMSFS_TRITON_TRITON_H
#define GMSFS_TRITON_TRITON_H

#include "base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRITON_MAX_ADDRESSES 8u

struct triton_options {
    const char *mount;
    const char *http[TRITON_MAX_ADDRESSES], *grpc[TRITON_MAX_ADDRESSES];
    size_t http_count, grpc_count;
    const char *token_file; /* NULL: none */
    bool has_test_models;
    uint64_t delay_ms; /* of the test models */
    uint64_t drain_ms; /* how long an unregistered region may be used; UINT64_MAX: no bound */
    /* Called when the server listens; `text` names the addresses. */
    void (*on_serving)(const char *text);
};

/* Command with which the opener starts a process of cuda_helper.c; not for users. */
#define TRITON_CUDA_COMMAND "triton-cuda"
int triton_cuda_main(void);

/* Serves until SIGTERM, SIGINT or SIGHUP, which stay blocked after it returns. 0, or a negative
 * errno with a failure. */
int triton_run(const struct triton_options *options, struct failure *failure);

#endif
