/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the protobuf messages of Triton's gRPC interface against bytes that its Python client and
 * its own server put on the wire. */
#include "tap.h"
#include "triton/wire_grpc.h"
#include "triton/wire_proto.h"

#include <errno.h>
#include <stdlib.h>

static uint8_t message[512];
static struct wire_request request;
static struct wire_answer answer;

static struct wire_text from_hex(const char *hex)
{
    size_t bytes = strlen(hex) / 2;

    for (size_t i = 0; i < bytes; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        message[i] = (uint8_t)byte;
    }
    return (struct wire_text){(const char *)message, bytes};
}

static void route(const char *call)
{
    char path[128];

    snprintf(path, sizeof path, "/inference.GRPCInferenceService/%s", call);
    check_int(wire_grpc_route(wire_text_of(path), &request), 0);
}

static int decode(const char *call, const char *hex)
{
    wire_answer_free(&answer);
    route(call);
    return wire_grpc_decode(from_hex(hex), &request, &answer);
}

static void check_encoded(const char *hex)
{
    struct wire_buffer encoded = {.limit_bytes = 4096};
    struct wire_text expected = from_hex(hex);

    wire_grpc_encode(&request, &answer, &encoded);
    check_bytes(encoded.bytes, encoded.size, expected.at, expected.bytes);
    wire_buffer_free(&encoded);
}

static void check_text(struct wire_text text, const char *expected)
{
    check_bytes(text.at, text.bytes, expected, strlen(expected));
}

TAP_TEST(calls_are_known_by_their_path)
{
    route("SystemSharedMemoryRegister");
    check_int(request.verb, WIRE_REGISTER);
    check_int(request.kind, GMSFS_REGION_SYSTEM);
    route("CudaSharedMemoryStatus");
    check_int(request.verb, WIRE_STATUS);
    check_int(request.kind, GMSFS_REGION_CUDA);
    check_int(wire_grpc_route(WIRE_TEXT("/inference.GRPCInferenceService/ModelConfig"), &request),
              -ENOENT);
    check_int(wire_grpc_route(WIRE_TEXT("/inference.GRPCInferenceService/"), &request), -ENOENT);
    check_int(wire_grpc_route(WIRE_TEXT("/other.Service/ServerLive"), &request), -ENOENT);
    check_int(wire_grpc_route((struct wire_text){0}, &request), -ENOENT);
}

TAP_TEST(registrations_are_read_as_the_client_sends_them)
{
    check_int(decode("SystemSharedMemoryRegister",
                     "0a0b696e707574305f64617461120c2f696e707574305f646174612040"),
              0);
    check_text(request.name, "input0_data");
    check_text(request.key, "/input0_data");
    check_int(request.byte_size, 64);
    check_int(decode("SystemSharedMemoryRegister", "0a016212022f6218802020ffffffffffffffffff01"),
              0);
    check_text(request.name, "b");
    check_int(request.offset, 4096);
    check(request.byte_size == UINT64_MAX);
    check_int(decode("SystemSharedMemoryStatus", "0a0162"), 0);
    check_text(request.name, "b");
    check_int(decode("CudaSharedMemoryUnregister", ""), 0);
    check_int(request.name.bytes, 0);
}

#define HANDLE                                                         \
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" \
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"

TAP_TEST(a_cuda_handle_is_64_bytes)
{
    check_int(decode("CudaSharedMemoryRegister", "0a036375301240" HANDLE "2040"), 0);
    check_text(request.name, "cu0");
    for (int i = 0; i < 64; i++)
        check_int(request.handle[i], i);
    check_int(request.device_id, 0);
    check_int(request.byte_size, 64);
    check_int(decode("CudaSharedMemoryRegister", "0a036375301202000120402803"), -EINVAL);
    check_int(answer.code, WIRE_INVALID);
    check_int(decode("CudaSharedMemoryRegister", "0a03637530"), -EINVAL);
}

TAP_TEST(an_input_in_a_region_is_read_as_the_client_sends_it)
{
    check_int(
        decode("ModelInfer",
               "0a0673696d706c65"
               "2a590a06494e505554301205494e5433321a020110221d0a177368617265645f6d656d6f72795f"
               "627974655f73697a651202104022250a147368617265645f6d656d6f72795f726567696f6e120d"
               "1a0b696e707574305f64617461"),
        0);
    check_text(request.model, "simple");
    check_int(request.input_count, 1);
    const struct wire_tensor *input = &request.inputs[0];
    check_text(input->name, "INPUT0");
    check_text(input->datatype, "INT32");
    check_int(input->rank, 2);
    check_int(input->shape[0], 1);
    check_int(input->shape[1], 16);
    check(input->has_region && input->has_region_bytes && !input->has_region_offset);
    check_text(input->region, "input0_data");
    check_int(input->region_bytes, 64);
}

TAP_TEST(raw_contents_are_those_of_inputs_in_no_region)
{
    check_int(decode("ModelInfer", "2a030a01412a030a01423a0161"), -EINVAL);
    check_int(answer.code, WIRE_INVALID);
    check_int(decode("ModelInfer", "2a030a01412a030a01423a01613a026263"), 0);
    check_text(request.inputs[0].data, "a");
    check_text(request.inputs[1].data, "bc");
    check_int(decode("ModelInfer", "3a0161"), -EINVAL);
    check_int(decode("ModelInfer", "2a022a00"), -EINVAL); /* contents */
    check_int(answer.code, WIRE_UNSUPPORTED);
}

TAP_TEST(malformed_messages_are_refused)
{
    static const char *const bad[] = {
        "0a",                     /* no length */
        "0a0261",                 /* cut off */
        "08",                     /* no varint */
        "0801",                   /* a name that is a number */
        "0a01ff",                 /* a name that is not UTF-8 */
        "0b",                     /* a group */
        "00",                     /* field 0 */
        "20ffffffffffffffffff02", /* 2^64 and more */
        "2080808080808080808080808001",
        "2a",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_int(decode("SystemSharedMemoryRegister", bad[i]), -EINVAL);
        check_int(answer.code, WIRE_INTERNAL);
    }
}

TAP_TEST(unknown_fields_are_skipped_and_the_last_of_several_counts)
{
    check_int(decode("SystemSharedMemoryStatus",
                     "0a01617801790102030405060708f201027879fd01010203040a0162"),
              0);
    check_text(request.name, "b");
}

TAP_TEST(answers_are_the_bytes_that_tritons_server_sends)
{
    wire_answer_free(&answer);
    route("ServerLive");
    check_encoded("0801");
    route("ServerReady");
    check_encoded("");
    answer.is_ready = true;
    check_encoded("0801");
    route("SystemSharedMemoryRegister");
    check_encoded("");
    route("SystemSharedMemoryStatus");
    check_encoded("");
    answer.regions = calloc(2, sizeof *answer.regions);
    answer.region_count = 2;
    answer.regions[0] = (struct gmsfs_region_info){.kind = GMSFS_REGION_SYSTEM,
                                                   .name = "b",
                                                   .key = "/b",
                                                   .offset = 4096,
                                                   .byte_size = UINT64_MAX};
    answer.regions[1] = (struct gmsfs_region_info){
        .kind = GMSFS_REGION_SYSTEM, .name = "input0_data", .key = "/input0_data", .byte_size = 64};
    check_encoded("0a1a0a016212150a016212022f6218802020ffffffffffffffffff010a2c0a0b696e707574305f64"
                  "617461121d0a0b696e707574305f64617461120c2f696e707574305f646174612040");
    answer.region_count = 1;
    answer.regions[0] =
        (struct gmsfs_region_info){.kind = GMSFS_REGION_CUDA, .name = "cu0", .byte_size = 64};
    check_encoded("0a0e0a0363753012070a036375301840");
    wire_answer_free(&answer);
}

TAP_TEST(metadata_are_the_fields_of_the_client)
{
    struct wire_buffer encoded = {.limit_bytes = 256};
    struct wire_buffer expected = {.limit_bytes = 256};
    wire_answer_free(&answer);
    route("ServerMetadata");
    answer.has_cuda = true;
    wire_grpc_encode(&request, &answer, &encoded);
    wire_put_text(&expected, from_hex("0a05676d736673"));
    wire_proto_put_text(&expected, 2, WIRE_TEXT(GMSFS_VERSION));
    wire_put_text(&expected, from_hex("1a1473797374656d5f7368617265645f6d656d6f72791a12637564615f7"
                                      "368617265645f6d656d6f7279"));
    check_bytes(encoded.bytes, encoded.size, expected.bytes, expected.size);
    wire_buffer_free(&encoded);
    wire_buffer_free(&expected);
}

TAP_TEST(an_inference_has_one_raw_entry_for_each_output)
{
    struct wire_tensor placed = {.has_region = true, .region = WIRE_TEXT("o"), .region_offset = 64};
    wire_answer_free(&answer);
    route("ModelInfer");
    request.model = WIRE_TEXT("m");
    request.id = WIRE_TEXT("7");
    answer.result_count = 2;
    answer.results[0] = (struct wire_result){
        .name = WIRE_TEXT("A"), .shape = {1, 16}, .rank = 2, .wanted = &placed, .bytes = 64};
    answer.results[1] = (struct wire_result){
        .name = WIRE_TEXT("B"), .shape = {1, 1}, .rank = 2, .bytes = 4, .data = malloc(4)};
    memcpy(answer.results[1].data, "wxyz", 4);
    check_encoded("0a016d1201311a01372a660a01411205494e5433321a020110221b0a147368617265645f6d656d6f"
                  "72795f726567696f6e12031a016f221d0a177368617265645f6d656d6f72795f627974655f73697a"
                  "6512021040221a0a147368617265645f6d656d6f72795f6f666673657412021040"
                  "2a0e0a01421205494e5433321a0201013200320477"
                  "78797a");
    wire_answer_free(&answer);
}
