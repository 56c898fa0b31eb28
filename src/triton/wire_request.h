/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_request - what a Triton client asks and is answered, whichever protocol it speaks
 *
 * Pure. wire_route.c and wire_rest.c make requests of HTTP and JSON, wire_grpc.c of gRPC and
 * protobuf, and both turn answers into their bytes; in between nobody knows which it was. Texts of
 * a request point into what was sent.
 */
#ifndef GMSFS_TRITON_WIRE_REQUEST_H
#define GMSFS_TRITON_WIRE_REQUEST_H

#include "gmsfs_abi.h"
#include "triton/wire_text.h"

#define WIRE_MAX_TENSORS    8u /* of an inference, each way */
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

/* gRPC's numbers; the names are Triton's where it has one. */
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

/* An input, or an output that is wanted. */
struct wire_tensor {
    struct wire_text name, datatype;
    int64_t shape[WIRE_MAX_RANK];
    unsigned rank;
    bool has_region, has_region_bytes, has_region_offset;
    struct wire_text region;
    uint64_t region_offset, region_bytes;
    bool has_data, has_json; /* data: its bytes; json: an array, as it was sent */
    struct wire_text data, json;
    bool is_binary, has_binary; /* HTTP, of an output: its bytes follow the JSON */
    uint64_t binary_bytes;      /* HTTP, of an input: so many of them are its data */
};

struct wire_request {
    enum wire_verb verb;
    enum gmsfs_region_kind kind;
    struct wire_text session; /* a token; at NULL: none was sent */
    struct wire_text name, key;
    uint64_t offset, byte_size;
    int64_t device_id;
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    struct wire_text model, version, id;
    struct wire_tensor inputs[WIRE_MAX_TENSORS], outputs[WIRE_MAX_TENSORS];
    unsigned input_count, output_count;
    bool is_binary; /* HTTP: outputs that are not told apart are */
};

struct wire_result {
    struct wire_text name;
    int64_t shape[WIRE_MAX_RANK];
    unsigned rank;
    const struct wire_tensor *wanted; /* NULL: all outputs are */
    uint64_t bytes;
    int32_t *data; /* malloc'ed; NULL: it lies in the region that was wanted */
};

struct wire_answer {
    enum wire_code code;
    struct wire_buffer text; /* why not */
    bool has_cuda, is_ready;
    struct gmsfs_region_info *regions; /* malloc'ed; by name */
    size_t region_count;
    struct wire_result results[WIRE_MAX_TENSORS];
    unsigned result_count;
};

void wire_answer_begin(struct wire_answer *answer);
void wire_answer_free(struct wire_answer *answer);
/* Says why not; returns -EINVAL, so that a failure is one statement. */
int wire_fail(struct wire_answer *answer, enum wire_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether what was asked makes sense at all, in Triton's words. 0 or -EINVAL */
int wire_request_check(const struct wire_request *request, struct wire_answer *answer);

/* The region's bytes as an input or output is to lie in them. 0 or -EINVAL */
int wire_region_check(struct wire_text name, enum gmsfs_region_reason reason, uint64_t offset,
                      uint64_t bytes, struct wire_answer *answer);
/* Why the registry did not do what was asked; error: a negative errno. -EINVAL */
int wire_explain(const struct wire_request *request, enum gmsfs_region_reason reason, int error,
                 struct wire_answer *answer);
/* Of an inference: there is no region of this name. -EINVAL */
int wire_explain_unknown(struct wire_text name, struct wire_answer *answer);

#endif
