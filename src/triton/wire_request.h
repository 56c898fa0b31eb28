/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_request - a Triton client's request and its answer, in either protocol
 *
 * Pure. wire_route.c and wire_rest.c decode requests from HTTP and JSON, wire_grpc.c from gRPC and
 * protobuf, and both encode answers; the code between them does not know the protocol. Texts of a
 * request point into the received bytes.
 */
#ifndef GMSFS_TRITON_WIRE_REQUEST_H
#define GMSFS_TRITON_WIRE_REQUEST_H

#include "gmsfs_abi.h"
#include "triton/wire_text.h"

#define WIRE_MAX_TENSORS    8u /* of an inference, in each direction */
#define WIRE_MAX_RANK       8u
#define WIRE_MAX_TEXT_BYTES 8192u /* of an error */

enum wire_verb {
    WIRE_LIVE,
    WIRE_READY,
    WIRE_METADATA,
    WIRE_MODEL_READY,
    WIRE_REGISTER,
    WIRE_UNREGISTER, /* without a name: all of one kind */
    WIRE_STATUS,     /* likewise */
    WIRE_INFER,
};

/* gRPC's numbers; names are Triton's if it has one. */
enum wire_code {
    WIRE_OK = 0,
    WIRE_INVALID = 3,
    WIRE_NOT_FOUND = 5,
    WIRE_EXISTS = 6,
    WIRE_DENIED = 7,
    WIRE_EXHAUSTED = 8,
    WIRE_UNSUPPORTED = 12,
    WIRE_INTERNAL = 13,
    WIRE_UNAVAILABLE = 14,
    WIRE_UNAUTHENTICATED = 16,
};

/* An input, or a wanted output. */
struct wire_tensor {
    struct wire_text name, datatype;
    int64_t shape[WIRE_MAX_RANK];
    unsigned rank;
    bool has_region, has_region_bytes, has_region_offset;
    struct wire_text region;
    uint64_t region_offset, region_bytes;
    bool has_data, has_json; /* data: its bytes; json: an array, as sent */
    struct wire_text data, json;
    bool is_binary, has_binary; /* HTTP, of an output: its bytes follow the JSON */
    uint64_t binary_bytes;      /* HTTP, of an input: size of its bytes behind the JSON */
};

struct wire_request {
    enum wire_verb verb;
    enum gmsfs_region_kind kind;
    struct wire_text session; /* a token; at NULL: absent */
    struct wire_text name, key;
    uint64_t offset, byte_size;
    int64_t device_id;
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    struct wire_text model, version, id;
    struct wire_tensor inputs[WIRE_MAX_TENSORS], outputs[WIRE_MAX_TENSORS];
    unsigned input_count, output_count;
    bool is_binary; /* HTTP: default for outputs without their own setting */
};

struct wire_result {
    struct wire_text name;
    int64_t shape[WIRE_MAX_RANK];
    unsigned rank;
    const struct wire_tensor *wanted; /* NULL: the request names no outputs, so all are wanted */
    uint64_t bytes;
    int32_t *data; /* malloc'ed; NULL: already in the wanted region */
};

struct wire_answer {
    enum wire_code code;
    struct wire_buffer text; /* of the error */
    bool has_cuda, is_ready;
    struct gmsfs_region_info *regions; /* malloc'ed; sorted by name */
    size_t region_count;
    struct wire_result results[WIRE_MAX_TENSORS];
    unsigned result_count;
};

void wire_answer_begin(struct wire_answer *answer);
void wire_answer_free(struct wire_answer *answer);
/* Sets code and text of the error; returns -EINVAL, so that a caller fails in one statement. */
int wire_fail(struct wire_answer *answer, enum wire_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks that the request makes sense, with Triton's error texts. 0 or -EINVAL */
int wire_request_check(const struct wire_request *request, struct wire_answer *answer);

/* Turns the result of checking a tensor's range in its region into an error text. 0 or -EINVAL */
int wire_region_check(struct wire_text name, enum gmsfs_region_reason reason, uint64_t offset,
                      uint64_t bytes, struct wire_answer *answer);
/* Sets the error for a request that the registry refused; error: a negative errno. -EINVAL */
int wire_explain(const struct wire_request *request, enum gmsfs_region_reason reason, int error,
                 struct wire_answer *answer);
/* Sets the error of an inference that names an unknown region. -EINVAL */
int wire_explain_unknown(struct wire_text name, struct wire_answer *answer);

#endif
