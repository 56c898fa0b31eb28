/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of one safetensors file: what it accepts, and every way in which it refuses. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "safetensors_fixture.h"
#include "tap.h"

#define FLIP_ROUNDS 50000

static char path[64];

/* A file without a directory, reachable at `path` as long as it is open. */
static int new_file(void)
{
    int fd = memfd_create("safetensors", MFD_CLOEXEC);

    require(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fd;
}

/* Opens a file of that header and so much data. */
static int open_text(const char *header, size_t data_bytes, struct model **model)
{
    int fd = new_file();

    fill(fd, header, data_bytes);
    int err = open_path(path, model);
    close(fd);
    return err;
}

/* The file must be refused, in words that hold `cause`. */
static void check_refused(const char *header, size_t data_bytes, const char *cause)
{
    struct model *model = NULL;

    check_int(open_text(header, data_bytes, &model), -EINVAL);
    check(model == NULL);
    if (!check(strstr(error.text, cause) != NULL))
        fprintf(stderr, "#   it said: %s\n", error.text);
    check(strncmp(error.text, path, strlen(path)) == 0);
    safetensors_close(model);
}

/* One file's data of that dtype: opens it, and gives its only tensor's value. */
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

TAP_TEST(the_descriptor_of_an_open_model_reads_the_tensor)
{
    struct model *model = NULL;
    char byte = 0;
    int fd = new_file();

    fill(fd, "{" TENSOR("t", "U8", "[1]", "[0,1]") "}", 1);
    put(fd, "\x5a", 1, lseek(fd, 0, SEEK_END) - 1);
    require(open_path(path, &model) == 0);
    check_int(pread(model->files[0].fd, &byte, 1, (off_t)model->tensors[0].offset_bytes), 1);
    check_int(byte, 0x5a);
    check((fcntl(model->files[0].fd, F_GETFD) & FD_CLOEXEC) != 0);
    safetensors_close(model);
    close(fd);
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

TAP_TEST(sub_byte_elements_that_leave_part_of_a_byte_are_refused)
{
    check_refused("{" TENSOR("t", "F4", "[3]", "[0,2]") "}", 2, "whole bytes");
    check_refused("{" TENSOR("t", "F4", "[]", "[0,1]") "}", 1, "whole bytes");
    check_refused("{" TENSOR("t", "F6_E2M3", "[2]", "[0,2]") "}", 2, "whole bytes");
}

TAP_TEST(an_unknown_dtype_is_refused_and_named)
{
    check_refused("{" TENSOR("t", "F7", "[1]", "[0,1]") "}", 1, "tensor 't': dtype \"F7\"");
    check_refused("{" TENSOR("t", "bf16", "[1]", "[0,2]") "}", 2, "dtype \"bf16\"");
    check_refused("{\"t\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "\"dtype\"");
    check_refused("{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "\"dtype\"");
}

TAP_TEST(bad_shapes_are_refused)
{
    check_refused("{" TENSOR("t", "U8", "3", "[0,3]") "}", 3, "\"shape\"");
    check_refused("{" TENSOR("t", "U8", "{}", "[0,3]") "}", 3, "\"shape\"");
    check_refused("{" TENSOR("t", "U8", "[-1]", "[0,1]") "}", 1, "dimension 0");
    check_refused("{" TENSOR("t", "U8", "[1,2.0]", "[0,2]") "}", 2, "dimension 1");
    check_refused("{" TENSOR("t", "U8", "[\"2\"]", "[0,2]") "}", 2, "dimension 0");
    check_refused("{" TENSOR("t", "U8", "[true]", "[0,1]") "}", 1, "dimension 0");
    check_refused("{" TENSOR("t", "U8", "[null]", "[0,1]") "}", 1, "dimension 0");
    check_refused("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "\"shape\"");
    check_refused("{" TENSOR("t", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "JSON");
}

TAP_TEST(shapes_whose_product_overflows_are_refused)
{
    check_refused("{" TENSOR("t", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "overflows");
    check_refused("{" TENSOR("t", "F64", "[1152921504606846976]", "[0,0]") "}", 0, "overflows");
    check_refused("{" TENSOR("t", "U8", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "overflows");
    check_refused("{" TENSOR("t", "U8", "[9223372036854775807]", "[0,0]") "}", 0, "overflows");
}

TAP_TEST(more_dimensions_than_the_bound_are_refused)
{
    char shape[512] = "[1";
    char header[1024];

    for (unsigned int i = 0; i < SAFETENSORS_MAX_DIMENSIONS; i++)
        strcat(shape, ",1");
    strcat(shape, "]");
    snprintf(header, sizeof(header),
             "{\"t\":{\"dtype\":\"U8\",\"shape\":%s,\"data_offsets\":[0,1]}}", shape);
    check_refused(header, 1, "65 dimensions");
}

TAP_TEST(bad_offsets_are_refused)
{
    check_refused("{" TENSOR("t", "U8", "[1]", "[1]") "}", 1, "data_offsets");
    check_refused("{" TENSOR("t", "U8", "[1]", "[0,1,2]") "}", 1, "data_offsets");
    check_refused("{" TENSOR("t", "U8", "[1]", "[-1,0]") "}", 1, "data_offsets");
    check_refused("{" TENSOR("t", "U8", "[1]", "[0,-1]") "}", 1, "data_offsets");
    check_refused("{" TENSOR("t", "U8", "[1]", "[0.0,1]") "}", 1, "data_offsets");
    check_refused("{" TENSOR("t", "U8", "[1]", "\"0,1\"") "}", 1, "data_offsets");
    check_refused("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets");
}

TAP_TEST(offsets_that_end_before_they_begin_are_refused)
{
    check_refused("{" TENSOR("t", "U8", "[1]", "[1,0]") "}", 1, "end before they begin");
}

TAP_TEST(offsets_that_do_not_fit_dtype_and_shape_are_refused)
{
    check_refused("{" TENSOR("t", "BF16", "[2]", "[0,2]") "}", 2, "need 4");
    check_refused("{" TENSOR("t", "BF16", "[2]", "[0,8]") "}", 8, "need 4");
}

TAP_TEST(offsets_beyond_the_file_are_refused_as_truncation)
{
    check_refused("{" TENSOR("t", "U8", "[4]", "[0,4]") "}", 3, "truncated");
    check_refused("{" TENSOR("t", "U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
                  "truncated");
}

TAP_TEST(overlapping_tensors_are_refused_and_both_named)
{
    check_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[2,6]") "}",
                  6, "tensor 'b': overlaps with tensor 'a'");
    check_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[4]", "[0,4]") "}",
                  4, "overlaps");
}

TAP_TEST(an_empty_tensor_inside_another_is_refused)
{
    check_refused("{" TENSOR("a", "U8", "[4]", "[0,4]") "," TENSOR("b", "U8", "[0]", "[2,2]") "}",
                  4, "overlaps");
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

TAP_TEST(bytes_that_belong_to_no_tensor_are_refused)
{
    check_refused("{" TENSOR("a", "U8", "[1]", "[1,2]") "}", 2, "bytes before it");
    check_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("b", "U8", "[1]", "[2,3]") "}",
                  3, "tensor 'b': the 1 bytes before it");
    check_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") "}", 2, "last 1 bytes");
    check_refused("{}", 1, "last 1 bytes");
}

TAP_TEST(a_duplicate_name_in_a_header_is_refused)
{
    check_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}",
                  2, "duplicate");
    check_refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate");
    check_refused("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],"
                  "\"data_offsets\":[0,1]}}",
                  1, "duplicate");
}

TAP_TEST(a_header_that_is_not_json_is_refused)
{
    check_refused("", 0, "has 8 bytes, too few");
    check_refused("[]", 0, "is neither a safetensors nor a GGUF file");
    check_refused(" {}", 0, "is neither a safetensors nor a GGUF file");
    check_refused("{", 0, "JSON");
    check_refused("{\"a\":}", 0, "JSON");
    check_refused("{} x", 0, "JSON");
    check_refused("{}{}", 0, "JSON");
    check_refused("{\"a\xff\":1}", 0, "JSON");
    check_refused("{\"a\\u0000b\":"
                  "{}}",
                  0, "NUL byte");
}

TAP_TEST(a_header_with_a_nul_behind_it_is_refused)
{
    struct model *model = NULL;
    uint64_t length = htole64(3);
    int fd = new_file();

    fill(fd, "{}", 1);
    put(fd, &length, sizeof(length), 0);
    check_int(open_path(path, &model), -EINVAL);
    close(fd);
}

TAP_TEST(a_tensor_that_is_no_object_is_refused)
{
    check_refused("{\"t\":[]}", 0, "tensor 't'");
    check_refused("{\"t\":null}", 0, "tensor 't'");
    check_refused("{\"t\":\"U8\"}", 0, "tensor 't'");
}

TAP_TEST(metadata_that_is_not_strings_is_refused)
{
    check_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    check_refused("{\"__metadata__\":\"pt\"}", 0, "__metadata__");
    check_refused("{\"__metadata__\":null}", 0, "__metadata__");
    check_refused("{\"__metadata__\":{\"a\":1}}", 0, "key 'a'");
    check_refused("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "key 'a'");
}

TAP_TEST(unknown_fields_of_a_tensor_are_ignored_as_the_reference_does)
{
    struct model *model = NULL;

    check_int(open_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}",
                        1, &model),
              0);
    safetensors_close(model);
}

TAP_TEST(a_file_shorter_than_a_length_is_refused)
{
    struct model *model = NULL;
    int fd = new_file();

    for (off_t size = 0; size < 8; size++) {
        require(ftruncate(fd, size) == 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "too few") != NULL);
    }
    close(fd);
}

TAP_TEST(a_header_length_beyond_the_file_is_refused)
{
    static const uint64_t lengths[] = {3, 1000, SAFETENSORS_MAX_HEADER_BYTES};
    struct model *model = NULL;
    int fd = new_file();

    fill(fd, "{}", 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t length = htole64(lengths[i]);

        put(fd, &length, sizeof(length), 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "truncated") != NULL);
    }
    close(fd);
}

TAP_TEST(a_header_length_beyond_the_bound_is_refused)
{
    static const uint64_t lengths[] = {SAFETENSORS_MAX_HEADER_BYTES + 1ull, 1ull << 63,
                                       UINT64_MAX - 7, UINT64_MAX};
    struct model *model = NULL;
    int fd = new_file();

    fill(fd, "{}", 0);
    require(ftruncate(fd, SAFETENSORS_MAX_HEADER_BYTES + 100ll) == 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t length = htole64(lengths[i]);

        put(fd, &length, sizeof(length), 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "allowed") != NULL);
    }
    close(fd);
}

TAP_TEST(a_file_of_another_format_is_named)
{
#define OF(bytes) bytes, sizeof(bytes) - 1
    static const struct {
        const char *bytes;
        size_t size_bytes;
        const char *says;
    } files[] = {
        {OF("GGUF\x03\0\0\0\0\0\0\0"), "is a GGUF file"},
        {OF("PK\x03\x04\0\0\x08\x08\0\0\0\0"), "is a ZIP archive, as PyTorch writes .bin"},
        {OF("PK\x03\x04\0\0\0\0\0\0\0\0"), "is a ZIP archive"},
        {OF("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), "is a pickle"},
        {OF("\x89HDF\r\n\x1a\n\0\0\0\0"), "is an HDF5 file"},
        {OF("\x93NUMPY\x01\0v\0{'descr'"), "is a NumPy array"},
        {OF("version https://git-lfs.github.com/spec/v1\n"), "'git lfs pull' fetches that"},
        {OF("<!DOCTYPE html>\n<html>"), "is a web page"},
        {OF("{\"metadata\":{}}"), "an index has to be named *.json"},
    };
#undef OF
    struct model *model;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int fd = new_file();

        put(fd, files[i].bytes, files[i].size_bytes, 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, files[i].says) != NULL);
        /* Also where the length that its bytes make is one that the file could have. */
        require(ftruncate(fd, 200 << 20) == 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, files[i].says) != NULL);
        close(fd);
    }
}

TAP_TEST(a_file_that_is_cut_off_is_none_of_another_format)
{
    struct model *model;
    uint64_t length = htole64(0x7b); /* '{' */
    int fd = new_file();

    put(fd, &length, sizeof(length), 0);
    put(fd, "{\"a", 3, sizeof(length));
    check_int(open_path(path, &model), -EINVAL);
    check(strstr(error.text, "truncated") != NULL);
    close(fd);
}

TAP_TEST(a_nul_in_a_name_is_said_with_the_name)
{
    static const struct {
        const char *header, *says;
    } files[] = {
        {"{" TENSOR("plain", "U8", "[0]", "[0,0]") "," TENSOR("a\\u0000b", "U8", "[0]",
                                                              "[0,0]") "}",
         "the name of tensor 'a\\u0000b' has a NUL byte"},
        {"{" TENSOR("\\\"\\\\u0000", "U8", "[0]", "[0,0]") "," TENSOR("\\\\\\u0000", "U8", "[0]",
                                                                      "[0,0]") "}",
         "the name of tensor '\\\\\\u0000' has a NUL byte"},
        {"{\"__metadata__\":{\"k\\u0000\" : \"v\"}}", "the name 'k\\u0000' has a NUL byte"},
        {"{\"__metadata__\":{\"k\":\"v\\u0000\"}}", "the text 'v\\u0000' has a NUL byte"},
    };
    struct model *model;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        int fd = new_file();

        fill(fd, files[i].header, 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, files[i].says) != NULL);
        check(strstr(error.text, "fetch") == NULL);
        close(fd);
    }
}

TAP_TEST(every_truncation_of_a_valid_file_is_refused)
{
    static const char header[] =
        "{" TENSOR("a", "F16", "[2]", "[0,4]") "," TENSOR("b", "U8", "[3]", "[4,7]") "}";
    struct model *model = NULL;
    int fd = new_file();

    for (off_t size = 0; size < (off_t)(8 + strlen(header) + 7); size++) {
        fill(fd, header, 7);
        require(ftruncate(fd, size) == 0);
        require(open_path(path, &model) == -EINVAL);
    }
    close(fd);
}

TAP_TEST(control_characters_of_a_name_do_not_reach_the_terminal)
{
    check_refused("{\"a\\u001b[2J\\n\":1}", 0, "tensor 'a?[2J?'");
}

TAP_TEST(a_name_of_any_length_fits_the_error)
{
    size_t size = 100000;
    char *header = malloc(size + 16);
    struct model *model = NULL;

    require(header != NULL);
    memcpy(header, "{\"", 2);
    memset(header + 2, 'n', size);
    strcpy(header + 2 + size, "\":1}");
    check_int(open_text(header, 0, &model), -EINVAL);
    check(strstr(error.text, "not described by an object") != NULL);
    free(header);
}

TAP_TEST(a_missing_file_is_enoent)
{
    struct model *model = NULL;

    check_int(open_path("/nonexistent/model.safetensors", &model), -ENOENT);
    check(strstr(error.text, "/nonexistent/model.safetensors: ") == error.text);
    check_int(open_path("/nonexistent/model.safetensors.index.json", &model), -ENOENT);
}

TAP_TEST(a_directory_and_a_device_are_refused)
{
    struct model *model = NULL;

    check_int(open_path("/tmp", &model), -EISDIR);
    check_int(open_path("/dev/zero", &model), -EINVAL);
}

TAP_TEST(no_file_at_all_is_refused)
{
    struct model *model = NULL;

    check_int(safetensors_open(NULL, 0, &model, &error), -EINVAL);
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Whatever is accepted lies within the file; whatever is not has its reason in words. */
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
    int fd = new_file();

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
    close(fd);
}
