/* SPDX-License-Identifier: Apache-2.0 */
/* Tests paths and JSON of Triton's HTTP interface: clients' requests, and their answers. */
#include "tap.h"
#include "triton/wire_rest.h"

#include <errno.h>
#include <stdlib.h>

static char path_text[512], body_text[1024];
static struct wire_request request;
static struct wire_answer answer;

static int route(const char *method, const char *path)
{
    size_t bytes = strlen(path);

    memcpy(path_text, path, bytes);
    return wire_rest_route(wire_text_of(method), path_text, bytes, &request);
}

static void check_text(struct wire_text text, const char *expected)
{
    check_bytes(text.at, text.bytes, expected, strlen(expected));
}

static void check_answer(const char *expected)
{
    check_bytes(answer.text.bytes, answer.text.size, expected, strlen(expected));
}

static int decode(const char *path, const char *body, uint64_t json_bytes)
{
    size_t bytes = strlen(body);

    wire_answer_free(&answer);
    check_int(route("POST", path), 0);
    memcpy(body_text, body, bytes);
    return wire_rest_decode(body_text, bytes, json_bytes, &request, &answer);
}

static int decode_region(const char *body)
{
    return decode("/v2/systemsharedmemory/region/n/register", body, UINT64_MAX);
}

static void check_encoded(unsigned status, const char *expected, size_t expected_json)
{
    struct wire_buffer body = {.limit_bytes = 65536};
    size_t json_bytes;

    check_int(wire_rest_encode(&request, &answer, &body, &json_bytes), status);
    check_bytes(body.bytes, body.size, expected, strlen(expected));
    check_int(json_bytes, expected_json);
    wire_buffer_free(&body);
}

/* ---- paths --------------------------------------------------------------------------------- */

TAP_TEST(each_call_has_its_path_and_its_method)
{
    check_int(route("GET", "/v2/health/live"), 0);
    check_int(request.verb, WIRE_LIVE);
    check_int(route("GET", "/v2/health/ready"), 0);
    check_int(request.verb, WIRE_READY);
    check_int(route("GET", "/v2"), 0);
    check_int(request.verb, WIRE_METADATA);
    check_int(route("GET", "/v2/models/simple/ready"), 0);
    check_int(request.verb, WIRE_MODEL_READY);
    check_text(request.model, "simple");
    check_int(route("POST", "/v2/systemsharedmemory/region/a/register"), 0);
    check_int(request.verb, WIRE_REGISTER);
    check_int(request.kind, GMSFS_REGION_SYSTEM);
    check_int(route("POST", "/v2/cudasharedmemory/region/a/unregister"), 0);
    check_int(request.verb, WIRE_UNREGISTER);
    check_int(request.kind, GMSFS_REGION_CUDA);
    check_int(route("GET", "/v2/cudasharedmemory/region/a/status"), 0);
    check_int(request.verb, WIRE_STATUS);
    check_text(request.name, "a");
    check_int(route("POST", "/v2/systemsharedmemory/unregister"), 0);
    check_int(request.name.bytes, 0);
    check_int(route("GET", "/v2/systemsharedmemory/status"), 0);
}

TAP_TEST(a_name_is_all_between_region_and_the_last_word_unquoted_once)
{
    check_int(route("POST", "/v2/systemsharedmemory/region/in%20a/b%20%C3%A9%25/register"), 0);
    check_text(request.name, "in a/b \xc3\xa9%");
    check_int(route("POST", "/v2/systemsharedmemory/region/a/register/register"), 0);
    check_text(request.name, "a/register");
    check_int(route("GET", "/v2/systemsharedmemory/region/%2525/status"), 0);
    check_text(request.name, "%25");
}

TAP_TEST(models_may_have_versions_and_slashes)
{
    check_int(route("POST", "/v2/models/a/b%20c/versions/2/infer"), 0);
    check_int(request.verb, WIRE_INFER);
    check_text(request.model, "a/b c");
    check_text(request.version, "2");
}

TAP_TEST(unknown_paths_and_wrong_methods_are_refused)
{
    check_int(route("GET", "/"), -ENOENT);
    check_int(route("GET", "/v3"), -ENOENT);
    check_int(route("GET", "/v2/models/simple"), -ENOENT);
    check_int(route("POST", "/v2/repository/index"), -ENOENT);
    check_int(route("POST", "/v2/models//infer"), -ENOENT);
    check_int(route("POST", "/v2/systemsharedmemory/region//register"), -ENOENT);
    check_int(route("POST", "/v2/systemsharedmemory/regional/register"), -ENOENT);
    check_int(route("GET", "/v2/systemsharedmemory/region/a/register"), -EOPNOTSUPP);
    check_int(route("POST", "/v2/systemsharedmemory/status"), -EOPNOTSUPP);
    check_int(route("PUT", "/v2"), -EOPNOTSUPP);
    check_int(route("POST", "/v2/systemsharedmemory/region/%zz/register"), -EINVAL);
}

/* ---- registering --------------------------------------------------------------------------- */

TAP_TEST(registrations_are_read_in_any_order_with_all_64_bits)
{
    check_int(decode_region("{\"key\":\"/input0_data\",\"offset\":0,\"byte_size\":64}"), 0);
    check_text(request.key, "/input0_data");
    check_int(request.byte_size, 64);
    check_int(decode_region("{\"byte_size\":18446744073709551615,\"more\":[{}],\"key\":\"k\"}"), 0);
    check(request.byte_size == UINT64_MAX && request.offset == 0);
}

TAP_TEST(a_cuda_handle_is_64_bytes_of_base64)
{
    static const char path[] = "/v2/cudasharedmemory/region/cu0/register";
    char body[256];
    snprintf(
        body, sizeof body, "{\"raw_handle\":{\"b64\":\"%s==\"},\"device_id\":1,\"byte_size\":64}",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw");
    check_int(decode(path, body, UINT64_MAX), 0);
    for (int i = 0; i < 64; i++)
        check_int(request.handle[i], i);
    check_int(request.device_id, 1);
    check_int(decode(path, "{\"raw_handle\":{\"b64\":\"AAEC\"},\"device_id\":0,\"byte_size\":64}",
                     UINT64_MAX),
              -EINVAL);
    check_answer("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
    check_int(decode(path, "{\"device_id\":0}", UINT64_MAX), -EINVAL);
    check_answer("attempt to access non-existing object member 'raw_handle'");
}

TAP_TEST(errors_of_registrations_are_reported)
{
    check_int(decode_region(""), -EINVAL);
    check_answer("failed to parse the request JSON buffer: it is empty at 0");
    check_int(decode_region("[]"), -EINVAL);
    check_answer("attempt to access JSON member '(the document)' as an object");
    check_int(decode_region("{\"key\":\"/a\",\"offset\":-1,\"byte_size\":64}"), -EINVAL);
    check_answer("attempt to access JSON member 'offset' as an unsigned integer of 64 bits");
    check_int(decode_region("{\"key\":7}"), -EINVAL);
    check_answer("attempt to access JSON member 'key' as a string");
    check_int(decode_region("{\"byte_size\":64}"), -EINVAL);
    check_answer("attempt to access non-existing object member 'key'");
    check_int(decode_region("{\"key\":\"/a\"} x"), -EINVAL);
    check_int(decode("/v2/systemsharedmemory/region/n/register", "{\"key\":\"/a\"}", 5), -EINVAL);
}

TAP_TEST(keys_and_names_are_checked_in_tritons_words)
{
    check_int(decode_region("{\"key\":\"///\",\"byte_size\":64}"), 0);
    check_int(wire_request_check(&request, &answer), -EINVAL);
    check_answer("cannot register shared memory region 'n' - invalid shm key '///'");
    check_int(decode_region("{\"key\":\"//triton_python_backend_shm_region_x\",\"byte_size\":64}"),
              0);
    check_int(wire_request_check(&request, &answer), -EINVAL);
    check_answer("cannot register shared memory region 'n' with key "
                 "'//triton_python_backend_shm_region_x' as the key contains the reserved prefix "
                 "'triton_python_backend_shm_region_'");
    check_int(decode_region("{\"key\":\"/a\",\"byte_size\":64}"), 0);
    check_int(wire_request_check(&request, &answer), 0);
    request.name = WIRE_TEXT("a\0b");
    check_int(wire_request_check(&request, &answer), -EINVAL);
    request.name = WIRE_TEXT("\xff");
    check_int(wire_request_check(&request, &answer), -EINVAL);
    request.name = (struct wire_text){0};
    check_int(wire_request_check(&request, &answer), -EINVAL);
    check_answer("'region name' is necessary to register system shared memory region");
}

/* ---- inference ----------------------------------------------------------------------------- */

#define INFER "/v2/models/simple/infer"

TAP_TEST(an_inference_on_regions_is_read_as_the_client_sends_it)
{
    check_int(
        decode(INFER,
               "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1,16],\"datatype\":\"INT32\","
               "\"parameters\":{\"shared_memory_region\":\"input0_data\","
               "\"shared_memory_byte_size\":64}},{\"name\":\"INPUT1\",\"shape\":[1,16],"
               "\"datatype\":\"INT32\",\"parameters\":{\"shared_memory_region\":\"input1_data\","
               "\"shared_memory_byte_size\":64,\"shared_memory_offset\":64}}],"
               "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"binary_data\":false,"
               "\"shared_memory_region\":\"output0_data\",\"shared_memory_byte_size\":64}}]}",
               UINT64_MAX),
        0);
    check_int(request.input_count, 2);
    check_int(request.output_count, 1);
    check_text(request.inputs[0].name, "INPUT0");
    check_text(request.inputs[0].datatype, "INT32");
    check_int(request.inputs[0].rank, 2);
    check_int(request.inputs[0].shape[1], 16);
    check(request.inputs[0].has_region && request.inputs[0].has_region_bytes);
    check(!request.inputs[0].has_region_offset && !request.inputs[0].has_data);
    check_int(request.inputs[1].region_offset, 64);
    check_text(request.outputs[0].region, "output0_data");
    check(!request.outputs[0].is_binary);
}

TAP_TEST(raw_tensors_follow_the_json)
{
    static const char json[] = "{\"id\":\"q\",\"inputs\":[{\"name\":\"A\",\"parameters\":"
                               "{\"binary_data_size\":3}},{\"name\":\"B\",\"data\":[1,[2]]},"
                               "{\"name\":\"C\",\"parameters\":{\"binary_data_size\":2}}],"
                               "\"parameters\":{\"binary_data_output\":true}}";
    char body[512];
    snprintf(body, sizeof body, "%sabcde", json);
    check_int(decode(INFER, body, sizeof json - 1), 0);
    check_text(request.inputs[0].data, "abc");
    check_text(request.inputs[1].json, "[1,[2]]");
    check_text(request.inputs[2].data, "de");
    check_text(request.id, "q");
    check(request.is_binary);
    snprintf(body, sizeof body, "%sabcd", json);
    check_int(decode(INFER, body, sizeof json - 1), -EINVAL);
    check_answer("unexpected size for input 'C', expecting 1 additional bytes for model 'simple'");
    snprintf(body, sizeof body, "%sabcdef", json);
    check_int(decode(INFER, body, sizeof json - 1), -EINVAL);
    check_answer("unexpected additional input data for model 'simple'");
    check_int(decode(INFER, body, strlen(body) + 1), -EINVAL);
}

TAP_TEST(tensors_and_dimensions_have_bounds)
{
    char body[512] = "{\"inputs\":[{}";
    for (unsigned i = 1; i < WIRE_MAX_TENSORS; i++)
        strcat(body, ",{}");
    strcat(body, ",{}]}");
    check_int(decode(INFER, body, UINT64_MAX), -EINVAL);
    check_answer("there are more than 8 'inputs'");
    check_int(decode(INFER, "{\"inputs\":[{\"shape\":[1,1,1,1,1,1,1,1,1]}]}", UINT64_MAX), -EINVAL);
    check_answer("a shape has more than 8 dimensions");
}

/* ---- answers ------------------------------------------------------------------------------- */

TAP_TEST(status_is_an_array_of_the_registered_regions)
{
    wire_answer_free(&answer);
    check_int(route("GET", "/v2/systemsharedmemory/status"), 0);
    check_encoded(200, "[]", 0);
    answer.regions = calloc(2, sizeof *answer.regions);
    answer.region_count = 2;
    answer.regions[0] = (struct gmsfs_region_info){
        .kind = GMSFS_REGION_SYSTEM, .name = "input0_data", .key = "/input0_data", .byte_size = 64};
    answer.regions[1] = (struct gmsfs_region_info){
        .kind = GMSFS_REGION_CUDA, .name = "cu\"0", .device_id = 3, .byte_size = UINT64_MAX};
    check_encoded(200,
                  "[{\"name\":\"input0_data\",\"key\":\"/input0_data\",\"offset\":0,"
                  "\"byte_size\":64},{\"name\":\"cu\\\"0\",\"device_id\":3,"
                  "\"byte_size\":18446744073709551615}]",
                  0);
    wire_answer_free(&answer);
}

TAP_TEST(each_code_has_its_status)
{
    static const struct {
        enum wire_code code;
        unsigned status;
    } rows[] = {{WIRE_INVALID, 400},         {WIRE_EXISTS, 400},      {WIRE_NOT_FOUND, 404},
                {WIRE_INTERNAL, 500},        {WIRE_UNSUPPORTED, 501}, {WIRE_UNAVAILABLE, 503},
                {WIRE_UNAUTHENTICATED, 401}, {WIRE_DENIED, 403},      {WIRE_EXHAUSTED, 429}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wire_fail(&answer, rows[i].code, "t%c", '"');
        check_encoded(rows[i].status, "{\"error\":\"t\\\"\"}", 0);
    }
    wire_answer_free(&answer);
}

TAP_TEST(metadata_names_the_extensions)
{
    wire_answer_free(&answer);
    check_int(route("GET", "/v2"), 0);
    check_encoded(200,
                  "{\"name\":\"gmsfs\",\"version\":\"" GMSFS_VERSION
                  "\",\"extensions\":[\"system_shared_memory\"]}",
                  0);
    answer.has_cuda = true;
    check_encoded(200,
                  "{\"name\":\"gmsfs\",\"version\":\"" GMSFS_VERSION
                  "\",\"extensions\":[\"system_shared_memory\",\"cuda_shared_memory\"]}",
                  0);
    check_int(route("POST", "/v2/systemsharedmemory/unregister"), 0);
    check_encoded(200, "", 0);
    wire_answer_free(&answer);
}

TAP_TEST(results_lie_in_their_region_or_follow_the_json_or_stand_in_it)
{
    struct wire_tensor placed = {.has_region = true, .region = WIRE_TEXT("out")}, binary = {0};
    struct wire_tensor text = {0};
    binary.is_binary = true;
    wire_answer_free(&answer);
    check_int(route("POST", INFER), 0);
    request.id = WIRE_TEXT("7");
    for (int i = 0; i < 3; i++) {
        struct wire_result *result = &answer.results[answer.result_count++];
        *result =
            (struct wire_result){.name = WIRE_TEXT("O"), .shape = {1, 2}, .rank = 2, .bytes = 8};
        result->wanted = i == 0 ? &placed : i == 1 ? &binary : &text;
        if (i > 0) {
            result->data = malloc(8);
            memcpy(result->data, (int32_t[]){-1, 0x61626364}, 8);
        }
    }
    struct wire_buffer body = {.limit_bytes = 4096};
    size_t json_bytes;
    check_int(wire_rest_encode(&request, &answer, &body, &json_bytes), 200);
    static const char expected[] =
        "{\"id\":\"7\",\"model_name\":\"simple\",\"model_version\":\"1\",\"outputs\":["
        "{\"name\":\"O\",\"datatype\":\"INT32\",\"shape\":[1,2],\"parameters\":"
        "{\"shared_memory_region\":\"out\",\"shared_memory_byte_size\":8}},"
        "{\"name\":\"O\",\"datatype\":\"INT32\",\"shape\":[1,2],\"parameters\":"
        "{\"binary_data_size\":8}},"
        "{\"name\":\"O\",\"datatype\":\"INT32\",\"shape\":[1,2],\"data\":[-1,1633837924]}]}"
        "\xff\xff\xff\xff"
        "dcba";
    check_bytes(body.bytes, body.size, expected, sizeof expected - 1);
    check_int(json_bytes, sizeof expected - 1 - 8);
    wire_buffer_free(&body);
    wire_answer_free(&answer);
}
