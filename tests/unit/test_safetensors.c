/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reader of one safetensors file: accepted files, and the model it makes of them. Refused
 * files are in test_safetensors_refused.c. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "safetensors_fixture.h"
#include "tap.h"

#define FLIP_ROUNDS 50000

/* Opens one file with data of that dtype, and returns the value of its only tensor. */
static void check_value(const char *dtype, const char *shape, size_t bytes, const char *value)
{
    char header[256];
    struct model *model = NULL;

    snprintf(header, sizeof(header),
             "{\"t\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%zu]}}", dtype, shape,
             bytes);
    require(open_text(header, bytes, &model) == 0);
    require(model->tensor_count == 1);
    check_str(safetensors_dtype_name(model->tensors[0].dtype), dtype);
    check_int(model->tensors[0].size_bytes, bytes);
    char *json = safetensors_value_json(&model->tensors[0]);
    check_str(json, value);
    free(json);
    safetensors_close(model);
}

TAP_TEST(a_valid_file_gives_its_tensors_sorted_by_name)
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
        "b", "BF16", "[2,3]", "[0,12]") "," TENSOR("a", "F32", "[4]", "[12,28]") "}  ";
    struct model *model = NULL;

    require(open_text(header, 28, &model) == 0);
    check_int(model->file_count, 1);
    check_int(model->tensor_count, 2);
    check_int(model->tensor_bytes, 28);
    check_str(model->tensors[0].name, "a");
    check_int(model->tensors[0].dtype, SAFETENSORS_F32);
    check_int(model->tensors[0].offset_bytes, 8 + strlen(header) + 12);
    check_int(model->tensors[0].size_bytes, 16);
    check_str(model->tensors[1].name, "b");
    check_int(model->tensors[1].ndim, 2);
    check_int(model->tensors[1].shape[1], 3);
    check_int(model->pair_count, 1);
    check_str(model->pairs[0].value, "pt");
    check(safetensors_find(model, "b") == &model->tensors[1]);
    check(safetensors_find(model, "c") == NULL);
    safetensors_close(model);
}

TAP_TEST(a_file_without_tensors_is_valid)
{
    struct model *model = NULL;
    char *json = NULL;

    require(open_text("{}", 0, &model) == 0);
    check_int(model->tensor_count, 0);
    check_int(safetensors_metadata_json(model, &json), 0);
    check(json == NULL);
    safetensors_close(model);
}

TAP_TEST(the_source_of_an_open_model_reads_the_tensor)
{
    struct model *model = NULL;
    char byte = 0;
    int fd = new_file();

    fill(fd, "{" TENSOR("t", "U8", "[1]", "[0,1]") "}", 1);
    put(fd, "\x5a", 1, lseek(fd, 0, SEEK_END) - 1);
    require(open_path(path, &model) == 0);
    close(fd);
    check_int(source_read(model->source, model->files[0].number, model->tensors[0].offset_bytes,
                          &byte, 1, &error),
              0);
    check_int(byte, 0x5a);
    safetensors_close(model);
}

TAP_TEST(the_value_has_sorted_keys_and_row_major_strides)
{
    check_value("BF16", "[2,3,4]", 48,
                "{\"dtype\":\"torch.bfloat16\",\"shape\":[2,3,4],\"stride\":[12,4,1],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(a_scalar_has_an_empty_shape)
{
    check_value("F64", "[]", 8,
                "{\"dtype\":\"torch.float64\",\"shape\":[],\"stride\":[],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(an_empty_tensor_has_the_strides_of_torch)
{
    check_value("F32", "[3,0,2]", 0,
                "{\"dtype\":\"torch.float32\",\"shape\":[3,0,2],\"stride\":[2,2,1],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(every_dtype_has_its_width_and_its_torch_name)
{
    static const struct {
        const char *name;
        const char *torch_name;
        unsigned int bits;
    } rows[] = {
        {"BOOL", "torch.bool", 8},
        {"U8", "torch.uint8", 8},
        {"I8", "torch.int8", 8},
        {"U16", "torch.uint16", 16},
        {"I16", "torch.int16", 16},
        {"U32", "torch.uint32", 32},
        {"I32", "torch.int32", 32},
        {"U64", "torch.uint64", 64},
        {"I64", "torch.int64", 64},
        {"F16", "torch.float16", 16},
        {"BF16", "torch.bfloat16", 16},
        {"F32", "torch.float32", 32},
        {"F64", "torch.float64", 64},
        {"C64", "torch.complex64", 64},
        {"F8_E4M3", "torch.float8_e4m3fn", 8},
        {"F8_E5M2", "torch.float8_e5m2", 8},
        {"F8_E8M0", "torch.float8_e8m0fnu", 8},
        {"F8_E4M3FNUZ", "torch.float8_e4m3fnuz", 8},
        {"F8_E5M2FNUZ", "torch.float8_e5m2fnuz", 8},
        {"F4", "torch.float4_e2m1fn_x2", 4},
        {"F6_E2M3", "torch.uint8", 6},
        {"F6_E3M2", "torch.uint8", 6},
    };

    check_int(sizeof(rows) / sizeof(rows[0]), SAFETENSORS_DTYPES);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t shape = 8;
        uint64_t size_bytes = 0;
        enum safetensors_dtype dtype;

        require(safetensors_dtype_parse(rows[i].name, &dtype) == 0);
        check_str(safetensors_dtype_name(dtype), rows[i].name);
        check_str(safetensors_torch_name(dtype), rows[i].torch_name);
        check_int(safetensors_size(dtype, &shape, 1, &size_bytes), 0);
        check_int(size_bytes, rows[i].bits);
    }
}

TAP_TEST(four_bit_floats_are_pairs_for_torch)
{
    check_value("F4", "[2,8]", 8,
                "{\"dtype\":\"torch.float4_e2m1fn_x2\",\"shape\":[2,4],\"stride\":[4,1],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(four_bit_floats_with_an_odd_row_are_one_row_of_pairs)
{
    check_value("F4", "[2,3]", 3,
                "{\"dtype\":\"torch.float4_e2m1fn_x2\",\"shape\":[3],\"stride\":[1],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(six_bit_floats_are_bytes_for_torch)
{
    check_value("F6_E2M3", "[2,4]", 6,
                "{\"dtype\":\"torch.uint8\",\"shape\":[2,3],\"stride\":[3,1],"
                "\"tensor_type\":\"parameter\"}");
    check_value("F6_E3M2", "[2,2]", 3,
                "{\"dtype\":\"torch.uint8\",\"shape\":[3],\"stride\":[1],"
                "\"tensor_type\":\"parameter\"}");
}

TAP_TEST(an_empty_tensor_between_two_others_is_valid)
{
    struct model *model = NULL;

    check_int(open_text("{" TENSOR("c", "U8", "[2]", "[2,4]") "," TENSOR(
                            "b", "U8", "[0]", "[2,2]") "," TENSOR("a", "U8", "[2]", "[0,2]") "}",
                        4, &model),
              0);
    safetensors_close(model);
}

TAP_TEST(unknown_fields_of_a_tensor_are_ignored_as_the_reference_does)
{
    struct model *model = NULL;

    check_int(open_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}",
                        1, &model),
              0);
    safetensors_close(model);
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* An accepted file's tensors lie within the file; a refused file has a reason in words. */
static void check_outcome(int err, const struct model *model, uint64_t size_bytes)
{
    if (err != 0) {
        require(err < 0 && model == NULL && error.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        char *json = safetensors_value_json(tensor);

        require(json != NULL);
        free(json);
        require(tensor->offset_bytes <= size_bytes);
        require(tensor->size_bytes <= size_bytes - tensor->offset_bytes);
    }
}

TAP_TEST(random_bit_flips_of_a_valid_file_never_crash)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR("a", "BF16", "[2,3]", "[0,12]") "," TENSOR(
            "b", "F4", "[2,4]", "[12,16]") "," TENSOR("c", "U8", "[0,7]", "[16,16]") "}   ";
    const size_t head_bytes = 8 + strlen(header);
    const size_t size_bytes = head_bytes + 16;
    unsigned int accepted = 0;
    unsigned int refused = 0;
    uint8_t good[512];
    uint8_t bad[512];
    auto_fd fd = new_file();

    fill(fd, header, 16);
    require(size_bytes <= sizeof(good) && pread(fd, good, size_bytes, 0) == (ssize_t)size_bytes);
    for (int round = 0; round < FLIP_ROUNDS; round++) {
        struct model *model = NULL;
        uint64_t flips = 1 + random_next() % 4;

        memcpy(bad, good, size_bytes);
        for (uint64_t i = 0; i < flips; i++) {
            uint64_t bit = random_next() % (head_bytes * 8);

            bad[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        put(fd, bad, size_bytes, 0);
        int err = open_path(path, &model);
        check_outcome(err, model, size_bytes);
        accepted += err == 0;
        refused += err != 0;
        safetensors_close(model);
    }
    check(accepted > 0 && refused > 0);
}
