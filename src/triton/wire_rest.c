/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_rest.h"

#include "triton/wire_json.h"

#include <inttypes.h>

/* State of a decoding: the reader, the request to fill, the answer for an error. */
struct reader {
    struct wire_json json;
    struct wire_request *request;
    struct wire_answer *answer;
    struct wire_tensor *tensor; /* being read */
};

/* Reads the value of the member whose key was just read. */
typedef int read_member(struct reader *reader, struct wire_text key);

static int fail_json(struct reader *reader)
{
    return wire_fail(reader->answer, WIRE_INVALID,
                     "failed to parse the request JSON buffer: %s at %zu", reader->json.error,
                     reader->json.offset);
}

static int fail_type(struct reader *reader, struct wire_text key, const char *wanted)
{
    if (reader->json.error)
        return fail_json(reader);
    return wire_fail(reader->answer, WIRE_INVALID, "attempt to access JSON member '%.*s' as %s",
                     WIRE_SHOW(key), wanted);
}

static int skip(struct reader *reader)
{
    return wire_json_skip(&reader->json, wire_json_next(&reader->json)) ? 0 : fail_json(reader);
}

/* Reads the members of an object after its opening bracket. */
static int read_members(struct reader *reader, read_member *member)
{
    enum wire_json_token token;

    while ((token = wire_json_next(&reader->json)) == WIRE_JSON_KEY) {
        int error = member(reader, reader->json.text);
        if (error)
            return error;
    }
    return token == WIRE_JSON_OBJECT_END ? 0 : fail_json(reader);
}

static int read_object(struct reader *reader, struct wire_text key, read_member *member)
{
    if (wire_json_next(&reader->json) != WIRE_JSON_OBJECT)
        return fail_type(reader, key, "an object");
    return read_members(reader, member);
}

static int read_text(struct reader *reader, struct wire_text key, struct wire_text *text)
{
    if (wire_json_next(&reader->json) != WIRE_JSON_TEXT)
        return fail_type(reader, key, "a string");
    *text = reader->json.text;
    return 0;
}

static int read_uint64(struct reader *reader, struct wire_text key, uint64_t *number)
{
    if (wire_json_next(&reader->json) != WIRE_JSON_NUMBER ||
        wire_json_uint64(&reader->json, number))
        return fail_type(reader, key, "an unsigned integer of 64 bits");
    return 0;
}

static int read_int64(struct reader *reader, struct wire_text key, int64_t *number)
{
    if (wire_json_next(&reader->json) != WIRE_JSON_NUMBER || wire_json_int64(&reader->json, number))
        return fail_type(reader, key, "an integer of 64 bits");
    return 0;
}

static int read_bool(struct reader *reader, struct wire_text key, bool *truth)
{
    enum wire_json_token token = wire_json_next(&reader->json);

    if (token != WIRE_JSON_TRUE && token != WIRE_JSON_FALSE)
        return fail_type(reader, key, "true or false");
    *truth = token == WIRE_JSON_TRUE;
    return 0;
}

/* ---- registering --------------------------------------------------------------------------- */

static int read_handle(struct reader *reader, struct wire_text key)
{
    struct wire_text text;
    size_t size;

    if (!wire_text_is(key, "b64"))
        return skip(reader);
    int error = read_text(reader, key, &text);
    if (error)
        return error;
    if (wire_base64_decode(text, reader->request->handle, sizeof reader->request->handle, &size) ||
        size != sizeof reader->request->handle)
        return wire_fail(reader->answer, WIRE_INVALID,
                         "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
    reader->request->key = text; /* marks the handle as present */
    return 0;
}

static int read_register(struct reader *reader, struct wire_text key)
{
    struct wire_request *request = reader->request;
    bool is_cuda = request->kind == GMSFS_REGION_CUDA;

    if (wire_text_is(key, "byte_size"))
        return read_uint64(reader, key, &request->byte_size);
    if (!is_cuda && wire_text_is(key, "key"))
        return read_text(reader, key, &request->key);
    if (!is_cuda && wire_text_is(key, "offset"))
        return read_uint64(reader, key, &request->offset);
    if (is_cuda && wire_text_is(key, "device_id"))
        return read_int64(reader, key, &request->device_id);
    if (is_cuda && wire_text_is(key, "raw_handle"))
        return read_object(reader, key, read_handle);
    return skip(reader);
}

static int check_register(struct reader *reader)
{
    struct wire_request *request = reader->request;

    if (!request->key.at)
        return wire_fail(reader->answer, WIRE_INVALID,
                         "attempt to access non-existing object member '%s'",
                         request->kind == GMSFS_REGION_CUDA ? "raw_handle" : "key");
    if (request->kind == GMSFS_REGION_CUDA)
        request->key = (struct wire_text){0};
    return 0;
}

/* ---- inference ----------------------------------------------------------------------------- */

static int read_tensor_parameter(struct reader *reader, struct wire_text key)
{
    struct wire_tensor *tensor = reader->tensor;

    if (wire_text_is(key, "shared_memory_region")) {
        tensor->has_region = true;
        return read_text(reader, key, &tensor->region);
    }
    if (wire_text_is(key, "shared_memory_byte_size")) {
        tensor->has_region_bytes = true;
        return read_uint64(reader, key, &tensor->region_bytes);
    }
    if (wire_text_is(key, "shared_memory_offset")) {
        tensor->has_region_offset = true;
        return read_uint64(reader, key, &tensor->region_offset);
    }
    if (wire_text_is(key, "binary_data_size")) {
        tensor->has_binary = true;
        return read_uint64(reader, key, &tensor->binary_bytes);
    }
    if (wire_text_is(key, "binary_data")) {
        tensor->has_binary = true;
        return read_bool(reader, key, &tensor->is_binary);
    }
    return skip(reader);
}

static int read_shape(struct reader *reader, struct wire_text key)
{
    struct wire_tensor *tensor = reader->tensor;
    enum wire_json_token token = wire_json_next(&reader->json);

    if (token != WIRE_JSON_ARRAY)
        return fail_type(reader, key, "an array of integers");
    tensor->rank = 0;
    while ((token = wire_json_next(&reader->json)) == WIRE_JSON_NUMBER) {
        if (tensor->rank == WIRE_MAX_RANK)
            return wire_fail(reader->answer, WIRE_INVALID, "a shape has more than %u dimensions",
                             WIRE_MAX_RANK);
        if (wire_json_int64(&reader->json, &tensor->shape[tensor->rank++]))
            return fail_type(reader, key, "an array of integers");
    }
    return token == WIRE_JSON_ARRAY_END ? 0 : fail_type(reader, key, "an array of integers");
}

/* Stores the array's text; it is parsed when the model's type is known. */
static int read_data(struct reader *reader)
{
    struct wire_tensor *tensor = reader->tensor;
    enum wire_json_token token = wire_json_next(&reader->json);

    if (token != WIRE_JSON_ARRAY)
        return fail_type(reader, WIRE_TEXT("data"), "an array");
    size_t begin = reader->json.offset - 1;
    if (!wire_json_skip(&reader->json, token))
        return fail_json(reader);
    tensor->json = (struct wire_text){reader->json.bytes + begin, reader->json.offset - begin};
    tensor->has_json = true;
    return 0;
}

static int read_tensor(struct reader *reader, struct wire_text key)
{
    if (wire_text_is(key, "name"))
        return read_text(reader, key, &reader->tensor->name);
    if (wire_text_is(key, "datatype"))
        return read_text(reader, key, &reader->tensor->datatype);
    if (wire_text_is(key, "shape"))
        return read_shape(reader, key);
    if (wire_text_is(key, "parameters"))
        return read_object(reader, key, read_tensor_parameter);
    if (wire_text_is(key, "data"))
        return read_data(reader);
    return skip(reader);
}

static int read_tensors(struct reader *reader, struct wire_text key, struct wire_tensor *tensors,
                        unsigned *count)
{
    enum wire_json_token token = wire_json_next(&reader->json);

    if (token != WIRE_JSON_ARRAY)
        return fail_type(reader, key, "an array");
    while ((token = wire_json_next(&reader->json)) == WIRE_JSON_OBJECT) {
        if (*count == WIRE_MAX_TENSORS)
            return wire_fail(reader->answer, WIRE_INVALID, "there are more than %u '%.*s'",
                             WIRE_MAX_TENSORS, WIRE_SHOW(key));
        reader->tensor = &tensors[(*count)++];
        int error = read_members(reader, read_tensor);
        if (error)
            return error;
    }
    return token == WIRE_JSON_ARRAY_END ? 0 : fail_type(reader, key, "an array of objects");
}

static int read_infer_parameter(struct reader *reader, struct wire_text key)
{
    if (wire_text_is(key, "binary_data_output"))
        return read_bool(reader, key, &reader->request->is_binary);
    return skip(reader);
}

static int read_infer(struct reader *reader, struct wire_text key)
{
    struct wire_request *request = reader->request;

    if (wire_text_is(key, "id"))
        return read_text(reader, key, &request->id);
    if (wire_text_is(key, "inputs"))
        return read_tensors(reader, key, request->inputs, &request->input_count);
    if (wire_text_is(key, "outputs"))
        return read_tensors(reader, key, request->outputs, &request->output_count);
    if (wire_text_is(key, "parameters"))
        return read_object(reader, key, read_infer_parameter);
    return skip(reader);
}

/* Refuses an input with several sources: a client cannot know which one would count. */
static int check_sources(struct reader *reader)
{
    const struct wire_request *request = reader->request;

    for (unsigned i = 0; i < request->input_count; i++) {
        const struct wire_tensor *input = &request->inputs[i];
        if (input->has_region + input->has_json + input->has_binary > 1)
            return wire_fail(reader->answer, WIRE_INVALID,
                             "input '%.*s' has more than one of 'data', 'binary_data_size' and "
                             "'shared_memory_region': send one of them",
                             WIRE_SHOW(input->name));
    }
    return 0;
}

/* Takes the raw tensors that follow the JSON, in the order of the inputs. */
static int take_binary(struct reader *reader, struct wire_text binary)
{
    struct wire_request *request = reader->request;

    for (unsigned i = 0; i < request->input_count; i++) {
        struct wire_tensor *input = &request->inputs[i];
        if (!input->has_binary)
            continue;
        if (input->binary_bytes > binary.bytes)
            return wire_fail(reader->answer, WIRE_INVALID,
                             "unexpected size for input '%.*s', expecting %" PRIu64
                             " additional bytes for model '%.*s'",
                             WIRE_SHOW(input->name), input->binary_bytes - binary.bytes,
                             WIRE_SHOW(request->model));
        input->data = (struct wire_text){binary.at, input->binary_bytes};
        input->has_data = true;
        binary.at += input->binary_bytes;
        binary.bytes -= input->binary_bytes;
    }
    if (binary.bytes > 0)
        return wire_fail(reader->answer, WIRE_INVALID,
                         "unexpected additional input data for model '%.*s'",
                         WIRE_SHOW(request->model));
    for (unsigned i = 0; i < request->output_count; i++) {
        struct wire_tensor *output = &request->outputs[i];
        if (!output->has_binary)
            output->is_binary = request->is_binary;
    }
    return 0;
}

static int read_document(struct reader *reader, read_member *member)
{
    if (wire_json_next(&reader->json) != WIRE_JSON_OBJECT)
        return fail_type(reader, WIRE_TEXT("(the document)"), "an object");
    int error = read_members(reader, member);
    if (!error && wire_json_next(&reader->json) != WIRE_JSON_END)
        error = fail_json(reader);
    return error;
}

int wire_rest_decode(char *body, size_t body_bytes, uint64_t json_bytes,
                     struct wire_request *request, struct wire_answer *answer)
{
    struct reader reader = {.request = request, .answer = answer};

    if (json_bytes == UINT64_MAX)
        json_bytes = body_bytes;
    if (request->verb != WIRE_REGISTER && request->verb != WIRE_INFER)
        return 0;
    if (json_bytes > body_bytes || (request->verb == WIRE_REGISTER && json_bytes != body_bytes))
        return wire_fail(answer, WIRE_INVALID,
                         "Inference-Header-Content-Length does not fit the request's length");
    wire_json_begin(&reader.json, body, json_bytes);
    int error = read_document(&reader, request->verb == WIRE_REGISTER ? read_register : read_infer);
    if (error)
        return error;
    if (request->verb == WIRE_REGISTER)
        return check_register(&reader);
    error = check_sources(&reader);
    return error ? error
                 : take_binary(&reader, (struct wire_text){body ? body + json_bytes : NULL,
                                                           body_bytes - json_bytes});
}
