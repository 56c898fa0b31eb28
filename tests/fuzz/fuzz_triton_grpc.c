/* SPDX-License-Identifier: Apache-2.0 */
/* The protobuf messages of gRPC calls: each call reads every message without a step beside it, and
 * the parts of an answer come out as fields again. */
#include "fuzz.h"
#include "triton/wire_grpc.h"
#include "triton/wire_proto.h"

#include <errno.h>

static const char *const calls[] = {
    "ServerLive",
    "ModelReady",
    "ModelInfer",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
};

static void check_inside(struct wire_text text, const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;

    must(!text.at || (text.at >= bytes && text.at + text.bytes <= bytes + size));
}

static void check_request(const struct wire_request *request, const uint8_t *data, size_t size)
{
    check_inside(request->name, data, size);
    check_inside(request->key, data, size);
    check_inside(request->model, data, size);
    must(wire_text_is_utf8(request->name) && wire_text_is_utf8(request->key));
    must(request->input_count <= WIRE_MAX_TENSORS && request->output_count <= WIRE_MAX_TENSORS);
    for (unsigned i = 0; i < request->input_count; i++) {
        must(request->inputs[i].rank <= WIRE_MAX_RANK);
        check_inside(request->inputs[i].region, data, size);
        check_inside(request->inputs[i].data, data, size);
        must(request->inputs[i].has_region != request->inputs[i].has_data);
    }
}

/* Puts the fields of a message together again: the same fields come out. */
static void try_fields(const uint8_t *data, size_t size)
{
    struct wire_proto proto = wire_proto_begin((struct wire_text){(const char *)data, size}), again;
    struct wire_buffer buffer = {.limit_bytes = 1 << 20};
    struct wire_field field, same;
    int got;

    while ((got = wire_proto_next(&proto, &field)) > 0) {
        must(proto.at <= proto.end && field.number > 0);
        buffer.size = 0;
        if (field.type == WIRE_PROTO_BYTES)
            wire_proto_put_message(&buffer, field.number, field.text);
        else
            wire_proto_put_uint(&buffer, field.number, field.value);
        again = wire_proto_begin((struct wire_text){(const char *)buffer.bytes, buffer.size});
        if (buffer.size == 0)
            continue; /* a zero */
        must(wire_proto_next(&again, &same) == 1 && again.at == again.end);
        must(same.number == field.number && same.value == field.value);
        must(wire_text_is_same(same.text, field.text));
    }
    must(got == 0 || got == -EPROTO);
    wire_buffer_free(&buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_fields(data, size);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct wire_request request;
        struct wire_answer answer;
        char path[128];
        snprintf(path, sizeof path, "/inference.GRPCInferenceService/%s", calls[i]);
        must(wire_grpc_route(wire_text_of(path), &request) == 0);
        wire_answer_begin(&answer);
        int error =
            wire_grpc_decode((struct wire_text){(const char *)data, size}, &request, &answer);
        must((error == 0) == (answer.code == WIRE_OK));
        if (error == 0)
            check_request(&request, data, size);
        else
            must(answer.text.size > 0);
        wire_answer_free(&answer);
    }
    return 0;
}
