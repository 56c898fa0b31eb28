/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_rest - Triton's requests as paths and JSON, and its answers as JSON
 *
 * Pure. On top of wire_json and wire_request; wire_http has read what comes in here.
 */
#ifndef GMSFS_TRITON_WIRE_REST_H
#define GMSFS_TRITON_WIRE_REST_H

#include "triton/wire_request.h"

/* What the request line asks for. The path is unquoted in place. 0; -ENOENT: there is no such
 * thing; -EOPNOTSUPP: not by this method; -EINVAL: the path is malformed */
int wire_rest_route(struct wire_text method, char *path, size_t path_bytes,
                    struct wire_request *request);

/*
 * What the body says, which is changed in place. json_bytes: how many bytes of it are JSON (an
 * inference may have raw tensors behind it); UINT64_MAX: that was not said. 0 or -EINVAL, and
 * `answer` says why.
 */
int wire_rest_decode(char *body, size_t body_bytes, uint64_t json_bytes,
                     struct wire_request *request, struct wire_answer *answer);

/* The status, and the body of the answer. json_bytes: 0, or how many of them are JSON where raw
 * tensors follow. */
unsigned wire_rest_encode(const struct wire_request *request, const struct wire_answer *answer,
                          struct wire_buffer *body, size_t *json_bytes);
/* {"error":"text"} */
void wire_rest_put_error(struct wire_buffer *body, struct wire_text text);

#endif
