/* SPDX-License-Identifier: Apache-2.0 */
/* Fields are those of Triton's grpc_service.proto; their numbers stand where they are used. */
#include "triton/wire_grpc.h"

#include "triton/wire_proto.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *path;
    enum wire_verb verb;
    enum gmsfs_region_kind kind;
} calls[] = {
    {"ServerLive", WIRE_LIVE, GMSFS_REGION_ANY},
    {"ServerReady", WIRE_READY, GMSFS_REGION_ANY},
    {"ServerMetadata", WIRE_METADATA, GMSFS_REGION_ANY},
    {"ModelReady", WIRE_MODEL_READY, GMSFS_REGION_ANY},
    {"ModelInfer", WIRE_INFER, GMSFS_REGION_ANY},
    {"SystemSharedMemoryRegister", WIRE_REGISTER, GMSFS_REGION_SYSTEM},
    {"SystemSharedMemoryUnregister", WIRE_UNREGISTER, GMSFS_REGION_SYSTEM},
    {"SystemSharedMemoryStatus", WIRE_STATUS, GMSFS_REGION_SYSTEM},
    {"CudaSharedMemoryRegister", WIRE_REGISTER, GMSFS_REGION_CUDA},
    {"CudaSharedMemoryUnregister", WIRE_UNREGISTER, GMSFS_REGION_CUDA},
    {"CudaSharedMemoryStatus", WIRE_STATUS, GMSFS_REGION_CUDA},
};

int wire_grpc_route(struct wire_text path, struct wire_request *request)
{
    *request = (struct wire_request){0};
    if (!wire_text_cut_front(&path, "/inference.GRPCInferenceService/"))
        return -ENOENT;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!wire_text_is(path, calls[i].path))
            continue;
        request->verb = calls[i].verb;
        request->kind = calls[i].kind;
        return 0;
    }
    return -ENOENT;
}

/* ---- decoding ------------------------------------------------------------------------------ */

struct reader {
    struct wire_request *request;
    struct wire_answer *answer;
    struct wire_tensor *tensor;
    unsigned raw_inputs;
    struct wire_text raw[WIRE_MAX_TENSORS];
    struct wire_text parameter; /* key of the parameter */
};

/* Reads one field of a message. */
typedef int read_field(struct reader *reader, const struct wire_field *field);

static int fail_parse(struct reader *reader)
{
    return wire_fail(reader->answer, WIRE_INTERNAL, "Error parsing the request's protobuf message");
}

static int read_message(struct reader *reader, struct wire_text message, read_field *each)
{
    struct wire_proto proto = wire_proto_begin(message);
    struct wire_field field;
    int got;

    while ((got = wire_proto_next(&proto, &field)) > 0) {
        int error = each(reader, &field);
        if (error)
            return error;
    }
    return got == 0 ? 0 : fail_parse(reader);
}

static int read_text(struct reader *reader, const struct wire_field *field, struct wire_text *text)
{
    if (field->type != WIRE_PROTO_BYTES || !wire_text_is_utf8(field->text))
        return fail_parse(reader);
    *text = field->text;
    return 0;
}

static int read_number(struct reader *reader, const struct wire_field *field, uint64_t *number)
{
    if (field->type != WIRE_PROTO_VARINT)
        return fail_parse(reader);
    *number = field->value;
    return 0;
}

static int read_name(struct reader *reader, const struct wire_field *field)
{
    return field->number == 1 ? read_text(reader, field, &reader->request->name) : 0;
}

static int read_model(struct reader *reader, const struct wire_field *field)
{
    if (field->number == 1)
        return read_text(reader, field, &reader->request->model);
    if (field->number == 2)
        return read_text(reader, field, &reader->request->version);
    return 0;
}

static int read_system(struct reader *reader, const struct wire_field *field)
{
    switch (field->number) {
    case 2:
        return read_text(reader, field, &reader->request->key);
    case 3:
        return read_number(reader, field, &reader->request->offset);
    case 4:
        return read_number(reader, field, &reader->request->byte_size);
    default:
        return read_name(reader, field);
    }
}

static int read_handle(struct reader *reader, const struct wire_field *field)
{
    if (field->type != WIRE_PROTO_BYTES)
        return fail_parse(reader);
    reader->parameter = field->text;
    return 0;
}

static int read_cuda(struct reader *reader, const struct wire_field *field)
{
    uint64_t number = 0;
    int error;

    switch (field->number) {
    case 2:
        return read_handle(reader, field);
    case 3:
        error = read_number(reader, field, &number);
        if (!error)
            reader->request->device_id = (int64_t)number;
        return error;
    case 4:
        return read_number(reader, field, &reader->request->byte_size);
    default:
        return read_name(reader, field);
    }
}

/* Reads a parameter's value: in a map's entry, field 1 is the key and field 2 the value. */
static int read_value(struct reader *reader, const struct wire_field *field)
{
    struct wire_tensor *tensor = reader->tensor;

    if (field->number == 3 && wire_text_is(reader->parameter, "shared_memory_region")) {
        tensor->has_region = true;
        return read_text(reader, field, &tensor->region);
    }
    if (field->number != 2 && field->number != 5) /* int64_param, uint64_param */
        return 0;
    if (wire_text_is(reader->parameter, "shared_memory_byte_size")) {
        tensor->has_region_bytes = true;
        return read_number(reader, field, &tensor->region_bytes);
    }
    if (wire_text_is(reader->parameter, "shared_memory_offset")) {
        tensor->has_region_offset = true;
        return read_number(reader, field, &tensor->region_offset);
    }
    return 0;
}

static int read_entry_key(struct reader *reader, const struct wire_field *field)
{
    return field->number == 1 ? read_text(reader, field, &reader->parameter) : 0;
}

static int read_entry_value(struct reader *reader, const struct wire_field *field)
{
    if (field->number != 2)
        return 0;
    return field->type == WIRE_PROTO_BYTES ? read_message(reader, field->text, read_value)
                                           : fail_parse(reader);
}

static int read_parameter(struct reader *reader, const struct wire_field *field)
{
    if (field->type != WIRE_PROTO_BYTES)
        return fail_parse(reader);
    reader->parameter = (struct wire_text){0};
    int error = read_message(reader, field->text, read_entry_key);
    return error ? error : read_message(reader, field->text, read_entry_value);
}

static int add_dimension(struct reader *reader, uint64_t value)
{
    struct wire_tensor *tensor = reader->tensor;

    if (tensor->rank == WIRE_MAX_RANK)
        return wire_fail(reader->answer, WIRE_INVALID, "a shape has more than %u dimensions",
                         WIRE_MAX_RANK);
    tensor->shape[tensor->rank++] = (int64_t)value;
    return 0;
}

static int read_shape(struct reader *reader, const struct wire_field *field)
{
    struct wire_proto packed = wire_proto_begin(field->text);
    uint64_t value;
    int got, error = 0;

    if (field->type == WIRE_PROTO_VARINT)
        return add_dimension(reader, field->value);
    if (field->type != WIRE_PROTO_BYTES)
        return fail_parse(reader);
    while (!error && (got = wire_proto_next_packed(&packed, &value)) != 0)
        error = got > 0 ? add_dimension(reader, value) : fail_parse(reader);
    return error;
}

static int read_input(struct reader *reader, const struct wire_field *field)
{
    switch (field->number) {
    case 1:
        return read_text(reader, field, &reader->tensor->name);
    case 2:
        return read_text(reader, field, &reader->tensor->datatype);
    case 3:
        return read_shape(reader, field);
    case 4:
        return read_parameter(reader, field);
    case 5:
        return wire_fail(reader->answer, WIRE_UNSUPPORTED,
                         "tensors in 'contents' are not served; send them in raw_input_contents, "
                         "or in a shared memory region");
    default:
        return 0;
    }
}

static int read_output(struct reader *reader, const struct wire_field *field)
{
    if (field->number == 1)
        return read_text(reader, field, &reader->tensor->name);
    return field->number == 2 ? read_parameter(reader, field) : 0;
}

static int read_tensor(struct reader *reader, const struct wire_field *field,
                       struct wire_tensor *tensors, unsigned *count, read_field *each)
{
    if (field->type != WIRE_PROTO_BYTES)
        return fail_parse(reader);
    if (*count == WIRE_MAX_TENSORS)
        return wire_fail(reader->answer, WIRE_INVALID,
                         "there are more than %u tensors in one direction", WIRE_MAX_TENSORS);
    reader->tensor = &tensors[(*count)++];
    return read_message(reader, field->text, each);
}

static int read_raw(struct reader *reader, const struct wire_field *field)
{
    if (field->type != WIRE_PROTO_BYTES)
        return fail_parse(reader);
    if (reader->raw_inputs == WIRE_MAX_TENSORS)
        return wire_fail(reader->answer, WIRE_INVALID,
                         "there are more than %u tensors in one direction", WIRE_MAX_TENSORS);
    reader->raw[reader->raw_inputs++] = field->text;
    return 0;
}

static int read_infer(struct reader *reader, const struct wire_field *field)
{
    struct wire_request *request = reader->request;

    switch (field->number) {
    case 3:
        return read_text(reader, field, &request->id);
    case 5:
        return read_tensor(reader, field, request->inputs, &request->input_count, read_input);
    case 6:
        return read_tensor(reader, field, request->outputs, &request->output_count, read_output);
    case 7:
        return read_raw(reader, field);
    default:
        return read_model(reader, field);
    }
}

/* Gives each input that is in no region its bytes from the message, in order. */
static int give_raw(struct reader *reader)
{
    struct wire_request *request = reader->request;
    unsigned given = 0, wanted = 0;

    for (unsigned i = 0; i < request->input_count; i++) {
        struct wire_tensor *input = &request->inputs[i];
        if (input->has_region)
            continue;
        wanted++;
        if (given == reader->raw_inputs)
            continue;
        input->data = reader->raw[given++];
        input->has_data = true;
    }
    if (given == wanted && given == reader->raw_inputs)
        return 0;
    return wire_fail(reader->answer, WIRE_INVALID,
                     "expected %u entries in raw_input_contents, one for each input that is in no "
                     "shared memory region, got %u",
                     wanted, reader->raw_inputs);
}

/* Checks the length: with fewer bytes we would read beyond them. */
static int take_handle(struct reader *reader)
{
    struct wire_request *request = reader->request;

    if (reader->parameter.bytes != sizeof request->handle)
        return wire_explain(request, GMSFS_REGION_BAD_HANDLE, -EINVAL, reader->answer);
    memcpy(request->handle, reader->parameter.at, sizeof request->handle);
    return 0;
}

int wire_grpc_decode(struct wire_text message, struct wire_request *request,
                     struct wire_answer *answer)
{
    struct reader reader = {.request = request, .answer = answer};
    read_field *each = read_name;

    if (request->verb == WIRE_INFER)
        each = read_infer;
    else if (request->verb == WIRE_MODEL_READY)
        each = read_model;
    else if (request->verb == WIRE_REGISTER)
        each = request->kind == GMSFS_REGION_CUDA ? read_cuda : read_system;
    int error = read_message(&reader, message, each);
    if (!error && request->verb == WIRE_INFER)
        error = give_raw(&reader);
    if (!error && request->verb == WIRE_REGISTER && request->kind == GMSFS_REGION_CUDA)
        error = take_handle(&reader);
    return error;
}
