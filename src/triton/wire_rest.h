/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_rest - Triton's requests as paths and JSON, and its answers as JSON
 *
 * Pure. Built on wire_json and wire_request; wire_http parsed the bytes before.
 */
#ifndef GMSFS_TRITON_WIRE_REST_H
#define GMSFS_TRITON_WIRE_REST_H

#include "triton/wire_request.h"

/* Finds the request that method and path name. Unquotes the path in place. 0; -ENOENT: unknown
 * path; -EOPNOTSUPP: wrong method; -EINVAL: the path is malformed */
int wire_rest_route(struct wire_text method, char *path, size_t path_bytes,
                    struct wire_request *request);

/*
 * Decodes the body, and changes it in place. json_bytes: size of the JSON at its start (raw tensors
 * may follow in an inference); UINT64_MAX: not given. 0, or -EINVAL and the reason in `answer`.
 */
int wire_rest_decode(char *body, size_t body_bytes, uint64_t json_bytes,
                     struct wire_request *request, struct wire_answer *answer);

/* Returns the status, and writes the body of the answer. json_bytes: size of the JSON if raw
 * tensors follow, else 0. */
unsigned wire_rest_encode(const struct wire_request *request, const struct wire_answer *answer,
                          struct wire_buffer *body, size_t *json_bytes);
/* {"error":"text"} */
void wire_rest_put_error(struct wire_buffer *body, struct wire_text text);

#endif
