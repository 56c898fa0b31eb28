/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/infer.h"

#include "triton/wire_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 16 /* of a row */

static const struct model {
    const char *name;
    int64_t max_batch;
} models[] = {{"simple", 8}, {"add_sub_large", 16384}};

static const char *const input_names[] = {"INPUT0", "INPUT1"};
static const char *const output_names[] = {"OUTPUT0", "OUTPUT1"}; /* sum, difference */

/* ---- regions ------------------------------------------------------------------------------- */

/* Returns inputs first, then outputs; NULL after the last. */
static const struct wire_tensor *get_tensor(const struct wire_request *request, unsigned at)
{
    if (at < request->input_count)
        return &request->inputs[at];
    at -= request->input_count;
    return at < request->output_count ? &request->outputs[at] : NULL;
}

/* Returns true if no earlier tensor is in the same region. */
static bool is_first(const struct wire_request *request, const struct wire_tensor *tensor)
{
    const struct wire_tensor *before;

    for (unsigned at = 0; (before = get_tensor(request, at)) != tensor; at++) {
        if (before->has_region && wire_text_is_same(before->region, tensor->region))
            return false;
    }
    return true;
}

/* Counts the distinct regions; with `name`, those before the region of that name. */
static unsigned count_until(const struct wire_request *request, const struct wire_text *name)
{
    const struct wire_tensor *tensor;
    unsigned count = 0;

    for (unsigned at = 0; (tensor = get_tensor(request, at)); at++) {
        if (!tensor->has_region || !is_first(request, tensor))
            continue;
        if (name && wire_text_is_same(tensor->region, *name))
            break;
        count++;
    }
    return count;
}

unsigned infer_count_regions(const struct wire_request *request)
{
    return count_until(request, NULL);
}

struct wire_text infer_get_region(const struct wire_request *request, unsigned index)
{
    const struct wire_tensor *tensor;

    for (unsigned at = 0; (tensor = get_tensor(request, at)); at++) {
        if (tensor->has_region && is_first(request, tensor) && index-- == 0)
            return tensor->region;
    }
    return (struct wire_text){0};
}

static struct registry_reference *find_reference(const struct wire_request *request,
                                                 struct registry_reference *const *references,
                                                 const struct wire_tensor *wanted)
{
    return references[count_until(request, &wanted->region)];
}

static int check_parameters(const struct wire_tensor *tensor, struct wire_answer *answer)
{
    if (tensor->has_region && !tensor->has_region_bytes)
        return wire_fail(answer, WIRE_INVALID,
                         "'shared_memory_byte_size' is needed beside 'shared_memory_region' of "
                         "'%.*s'",
                         WIRE_SHOW(tensor->name));
    if (!tensor->has_region && (tensor->has_region_bytes || tensor->has_region_offset))
        return wire_fail(answer, WIRE_INVALID,
                         "'shared_memory_byte_size' and 'shared_memory_offset' of '%.*s' mean "
                         "nothing without 'shared_memory_region'",
                         WIRE_SHOW(tensor->name));
    return 0;
}

int infer_check_tensors(const struct wire_request *request, struct wire_answer *answer)
{
    const struct wire_tensor *tensor;
    int error = 0;

    for (unsigned at = 0; !error && (tensor = get_tensor(request, at)); at++)
        error = check_parameters(tensor, answer);
    return error;
}

int infer_check_regions(const struct wire_request *request,
                        struct registry_reference *const *references, struct wire_answer *answer)
{
    const struct wire_tensor *tensor;
    int error = 0;

    for (unsigned at = 0; !error && (tensor = get_tensor(request, at)); at++) {
        enum gmsfs_region_reason reason = GMSFS_REGION_FINE;
        if (!tensor->has_region)
            continue;
        registry_check(find_reference(request, references, tensor), tensor->region_offset,
                       tensor->region_bytes, &reason);
        error = wire_region_check(tensor->region, reason, tensor->region_offset,
                                  tensor->region_bytes, answer);
    }
    return error;
}

/* ---- the model ----------------------------------------------------------------------------- */

static const struct model *find_model(const struct wire_request *request, bool has_test_models)
{
    bool is_version = request->version.bytes == 0 || wire_text_is(request->version, "1");

    for (size_t i = 0; has_test_models && is_version && i < sizeof models / sizeof *models; i++) {
        if (wire_text_is(request->model, models[i].name))
            return &models[i];
    }
    return NULL;
}

bool infer_has_model(const struct wire_request *request, bool has_test_models)
{
    return find_model(request, has_test_models) != NULL;
}

static const struct wire_tensor *find_tensor(const struct wire_tensor *tensors, unsigned count,
                                             const char *name)
{
    for (unsigned i = 0; i < count; i++) {
        if (wire_text_is(tensors[i].name, name))
            return &tensors[i];
    }
    return NULL;
}

static int check_shape(const struct wire_request *request, const struct model *model,
                       const struct wire_tensor *input, struct wire_answer *answer)
{
    if (!wire_text_is(input->datatype, "INT32"))
        return wire_fail(answer, WIRE_INVALID,
                         "inference input '%.*s' data-type is '%.*s', but model '%s' expects "
                         "'INT32'",
                         WIRE_SHOW(input->name), WIRE_SHOW(input->datatype), model->name);
    if (input->rank != 2 || input->shape[0] < 1 || input->shape[1] != WIDTH)
        return wire_fail(answer, WIRE_INVALID,
                         "unexpected shape for input '%.*s' for model '%s'. Expected [-1,16]",
                         WIRE_SHOW(input->name), model->name);
    if (input->shape[0] > model->max_batch)
        return wire_fail(answer, WIRE_INVALID,
                         "inference request batch-size must be <= %" PRId64 " for '%s'",
                         model->max_batch, model->name);
    if (input->shape[0] != request->inputs[0].shape[0])
        return wire_fail(answer, WIRE_INVALID,
                         "input '%.*s' batch size does not match other inputs for '%s'",
                         WIRE_SHOW(input->name), model->name);
    return 0;
}

/* Checks the size of the data, so that later code can take every size from the shape. */
static int check_size(const struct model *model, const struct wire_tensor *input,
                      struct wire_answer *answer)
{
    uint64_t wanted = (uint64_t)input->shape[0] * WIDTH * sizeof(int32_t), got;

    if (!input->has_region && !input->has_data && !input->has_json)
        return wire_fail(answer, WIRE_INVALID, "input '%.*s' for model '%s' has no data",
                         WIRE_SHOW(input->name), model->name);
    if (!input->has_region && !input->has_data)
        return 0; /* its numbers are counted when they are parsed */
    got = input->has_region ? input->region_bytes : input->data.bytes;
    if (got == wanted)
        return 0;
    return wire_fail(answer, WIRE_INVALID,
                     "input byte size mismatch for input '%.*s' for model '%s'. Expected %" PRIu64
                     ", got %" PRIu64,
                     WIRE_SHOW(input->name), model->name, wanted, got);
}

static int check_inputs(const struct wire_request *request, const struct model *model,
                        struct wire_answer *answer)
{
    int error = 0;

    if (request->input_count != 2)
        return wire_fail(answer, WIRE_INVALID, "expected 2 inputs but got %u inputs for model '%s'",
                         request->input_count, model->name);
    for (unsigned i = 0; i < 2; i++) {
        if (!find_tensor(request->inputs, 2, input_names[i]))
            return wire_fail(answer, WIRE_INVALID, "expected input '%s' is missing for model '%s'",
                             input_names[i], model->name);
    }
    for (unsigned i = 0; !error && i < 2; i++)
        error = check_shape(request, model, &request->inputs[i], answer);
    for (unsigned i = 0; !error && i < 2; i++)
        error = check_size(model, &request->inputs[i], answer);
    return error;
}

static int check_output(const struct wire_request *request, const struct model *model,
                        const struct wire_tensor *output, struct wire_answer *answer)
{
    uint64_t wanted = (uint64_t)request->inputs[0].shape[0] * WIDTH * sizeof(int32_t);

    if (!wire_text_is(output->name, output_names[0]) &&
        !wire_text_is(output->name, output_names[1]))
        return wire_fail(answer, WIRE_INVALID, "unexpected inference output '%.*s' for model '%s'",
                         WIRE_SHOW(output->name), model->name);
    if (output->has_region && output->region_bytes < wanted)
        return wire_fail(answer, WIRE_INTERNAL,
                         "shared memory size specified with the request for output '%.*s' (%" PRIu64
                         " bytes) should be at least %" PRIu64 " bytes to hold the results",
                         WIRE_SHOW(output->name), output->region_bytes, wanted);
    return 0;
}

int infer_check_model(const struct wire_request *request, bool has_test_models,
                      struct wire_answer *answer)
{
    const struct model *model = find_model(request, has_test_models);

    if (!model)
        return wire_fail(answer, WIRE_NOT_FOUND,
                         "Request for unknown model: '%.*s'%s%.*s is not found",
                         WIRE_SHOW(request->model), request->version.bytes ? " version " : "",
                         WIRE_SHOW(request->version));
    int error = check_inputs(request, model, answer);
    for (unsigned i = 0; !error && i < request->output_count; i++)
        error = check_output(request, model, &request->outputs[i], answer);
    return error;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Reads a flat list of numbers, or one nested by the shape. */
static int read_json(struct wire_text text, int32_t *values, size_t count)
{
    struct wire_json json;
    enum wire_json_token token;
    size_t got = 0;
    int64_t value;

    wire_json_begin(&json, (char *)text.at, text.bytes);
    while ((token = wire_json_next(&json)) != WIRE_JSON_END) {
        if (token == WIRE_JSON_ARRAY || token == WIRE_JSON_ARRAY_END)
            continue;
        if (token != WIRE_JSON_NUMBER || got == count || wire_json_int64(&json, &value) ||
            value < INT32_MIN || value > INT32_MAX)
            return -EINVAL;
        values[got++] = (int32_t)value;
    }
    return got == count ? 0 : -EINVAL;
}

static int explain_access(const struct wire_tensor *tensor, enum gmsfs_region_reason reason,
                          int error, struct wire_answer *answer)
{
    if (reason != GMSFS_REGION_FINE)
        return wire_region_check(tensor->region, reason, tensor->region_offset,
                                 tensor->region_bytes, answer);
    if (error == -EACCES)
        return wire_fail(answer, WIRE_INVALID, "shared memory region '%.*s' may only be read",
                         WIRE_SHOW(tensor->region));
    if (error == -EPIPE)
        return wire_fail(answer, WIRE_UNAVAILABLE,
                         "the process that had the CUDA memory of shared memory region '%.*s' open "
                         "has ended; the next request opens it again",
                         WIRE_SHOW(tensor->region));
    if (error == -ESTALE)
        return wire_fail(
            answer, WIRE_INVALID,
            "the CUDA memory of shared memory region '%.*s' opens no longer: the process "
            "that shared it has freed it or ended",
            WIRE_SHOW(tensor->region));
    return wire_fail(answer, WIRE_INTERNAL, "shared memory region '%.*s': %s",
                     WIRE_SHOW(tensor->region), strerror(-error));
}

static int read_input(const struct wire_request *request, const char *name,
                      struct registry_reference *const *references, int32_t *values, size_t bytes,
                      struct wire_answer *answer)
{
    const struct wire_tensor *input = find_tensor(request->inputs, request->input_count, name);
    enum gmsfs_region_reason reason = GMSFS_REGION_FINE;
    int error;

    if (input->has_region) {
        error = registry_read(find_reference(request, references, input), input->region_offset,
                              values, bytes, &reason);
        return error ? explain_access(input, reason, error, answer) : 0;
    }
    if (input->has_data) {
        memcpy(values, input->data.at, bytes);
        return 0;
    }
    if (read_json(input->json, values, bytes / sizeof *values) == 0)
        return 0;
    return wire_fail(answer, WIRE_INVALID,
                     "'data' of input '%s' must be %zu integers of 32 bits for model '%.*s'", name,
                     bytes / sizeof *values, WIRE_SHOW(request->model));
}

/* Leaves the result in the answer, or moves it into the region named for it. */
static int give_result(const struct wire_request *request,
                       struct registry_reference *const *references, struct wire_result *result,
                       struct wire_answer *answer)
{
    enum gmsfs_region_reason reason = GMSFS_REGION_FINE;

    if (!result->wanted || !result->wanted->has_region)
        return 0;
    int error = registry_write(find_reference(request, references, result->wanted),
                               result->wanted->region_offset, result->data, result->bytes, &reason);
    free(result->data);
    result->data = NULL;
    return error ? explain_access(result->wanted, reason, error, answer) : 0;
}

/* Integers wrap around, as in the hardware. */
static void compute(int32_t *restrict to, const int32_t *restrict left,
                    const int32_t *restrict right, size_t count, bool is_sum)
{
    if (is_sum) {
        for (size_t i = 0; i < count; i++)
            to[i] = (int32_t)((uint32_t)left[i] + (uint32_t)right[i]);
    } else {
        for (size_t i = 0; i < count; i++)
            to[i] = (int32_t)((uint32_t)left[i] - (uint32_t)right[i]);
    }
}

static int make_result(const struct wire_request *request, const struct wire_tensor *wanted,
                       const char *name, const int32_t *left, const int32_t *right,
                       struct registry_reference *const *references, struct wire_answer *answer)
{
    struct wire_result *result = &answer->results[answer->result_count++];
    size_t count = (size_t)request->inputs[0].shape[0] * WIDTH;

    *result = (struct wire_result){.name = wire_text_of(name),
                                   .shape = {request->inputs[0].shape[0], WIDTH},
                                   .rank = 2,
                                   .wanted = wanted,
                                   .bytes = count * sizeof(int32_t),
                                   .data = malloc(count * sizeof(int32_t))};
    if (!result->data)
        return wire_fail(answer, WIRE_UNAVAILABLE, "the server is out of memory");
    compute(result->data, left, right, count, strcmp(name, output_names[0]) == 0);
    return give_result(request, references, result, answer);
}

/* Makes the wanted outputs in the order of the request; all, if it names none. */
static int make_results(const struct wire_request *request, const int32_t *left,
                        const int32_t *right, struct registry_reference *const *references,
                        struct wire_answer *answer)
{
    int error = 0;

    for (unsigned i = 0; !error && i < request->output_count; i++) {
        const struct wire_tensor *wanted = &request->outputs[i];
        bool is_sum = wire_text_is(wanted->name, output_names[0]);
        error =
            make_result(request, wanted, output_names[!is_sum], left, right, references, answer);
    }
    for (unsigned i = 0; !error && request->output_count == 0 && i < 2; i++)
        error = make_result(request, NULL, output_names[i], left, right, references, answer);
    return error;
}

void infer_run(const struct wire_request *request, struct registry_reference *const *references,
               struct wire_answer *answer)
{
    size_t bytes = (size_t)request->inputs[0].shape[0] * WIDTH * sizeof(int32_t);
    int32_t *values = malloc(2 * bytes);

    if (!values) {
        wire_fail(answer, WIRE_UNAVAILABLE, "the server is out of memory");
        return;
    }
    int32_t *right = values + bytes / sizeof *values;
    if (!read_input(request, input_names[0], references, values, bytes, answer) &&
        !read_input(request, input_names[1], references, right, bytes, answer))
        make_results(request, values, right, references, answer);
    free(values);
}
