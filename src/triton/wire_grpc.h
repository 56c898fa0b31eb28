/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_grpc - Triton's requests and answers as protobuf messages
 *
 * Pure. Covers the calls of inference.GRPCInferenceService that the front end serves.
 */
#ifndef GMSFS_TRITON_WIRE_GRPC_H
#define GMSFS_TRITON_WIRE_GRPC_H

#include "triton/wire_request.h"

#define WIRE_GRPC_PREFIX_BYTES 5u /* before each message: compressed or not, and its length */

/* Finds the call that :path names. -ENOENT */
int wire_grpc_route(struct wire_text path, struct wire_request *request);
/* Decodes the message, without its prefix. 0, or -EINVAL and the reason in `answer`. */
int wire_grpc_decode(struct wire_text message, struct wire_request *request,
                     struct wire_answer *answer);
/* Encodes the message of an answer with code WIRE_OK, without its prefix. */
void wire_grpc_encode(const struct wire_request *request, const struct wire_answer *answer,
                      struct wire_buffer *message);

#endif
