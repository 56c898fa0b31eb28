/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every way in which the reader of one safetensors file refuses. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/safetensors.h"
#include "safetensors_fixture.h"
#include "tap.h"

/* Checks that the file is refused, in words that hold `cause`. */
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
                  2, "occurs twice");
    check_refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "occurs twice");
    check_refused("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],"
                  "\"data_offsets\":[0,1]}}",
                  1, "occurs twice");
}

TAP_TEST(a_header_that_is_not_json_is_refused)
{
    check_refused("", 0, "has 8 bytes, too few");
    check_refused("[]", 0, "is neither a safetensors nor a GGUF file");
    check_refused(" []", 0, "is neither a safetensors nor a GGUF file");
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
    auto_fd fd = new_file();

    fill(fd, "{}", 1);
    put(fd, &length, sizeof(length), 0);
    check_int(open_path(path, &model), -EINVAL);
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
    check_refused("{\"__metadata__\":{\"a\":1}}", 0, "key 'a'");
    check_refused("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "key 'a'");
}

TAP_TEST(an_empty_header_of_the_reference_implementation_is_refused)
{
    static const char *const headers[] = {"{}", " {}", "\n\t\r {}", "{\"__metadata__\":null}"};
    struct model *model = NULL;

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        require(open_text(headers[i], 0, &model) == 0);
        check_int(model->tensor_count + model->pair_count, 0);
        safetensors_close(model);
    }
}

TAP_TEST(a_file_shorter_than_a_length_is_refused)
{
    struct model *model = NULL;
    auto_fd fd = new_file();

    for (off_t size = 0; size < 8; size++) {
        require(ftruncate(fd, size) == 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "too few") != NULL);
    }
}

TAP_TEST(a_header_length_beyond_the_file_is_refused)
{
    static const uint64_t lengths[] = {3, 1000, SAFETENSORS_MAX_HEADER_BYTES};
    struct model *model = NULL;
    auto_fd fd = new_file();

    fill(fd, "{}", 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t length = htole64(lengths[i]);

        put(fd, &length, sizeof(length), 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "truncated") != NULL);
    }
}

TAP_TEST(a_header_length_beyond_the_bound_is_refused)
{
    static const uint64_t lengths[] = {SAFETENSORS_MAX_HEADER_BYTES + 1ull, 1ull << 63,
                                       UINT64_MAX - 7, UINT64_MAX};
    struct model *model = NULL;
    auto_fd fd = new_file();

    fill(fd, "{}", 0);
    require(ftruncate(fd, SAFETENSORS_MAX_HEADER_BYTES + 100ll) == 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint64_t length = htole64(lengths[i]);

        put(fd, &length, sizeof(length), 0);
        check_int(open_path(path, &model), -EINVAL);
        check(strstr(error.text, "allowed") != NULL);
    }
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
        /* Also if its first bytes make a header length that the file could have. */
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
    auto_fd fd = new_file();

    put(fd, &length, sizeof(length), 0);
    put(fd, "{\"a", 3, sizeof(length));
    check_int(open_path(path, &model), -EINVAL);
    check(strstr(error.text, "truncated") != NULL);
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
    auto_fd fd = new_file();

    for (off_t size = 0; size < (off_t)(8 + strlen(header) + 7); size++) {
        fill(fd, header, 7);
        require(ftruncate(fd, size) == 0);
        require(open_path(path, &model) == -EINVAL);
    }
}

TAP_TEST(control_characters_of_a_name_do_not_reach_the_terminal)
{
    check_refused("{\"a\\u001b[2J\\n\":1}", 0, "tensor 'a?[2J?'");
}

TAP_TEST(a_name_of_any_length_fits_the_error)
{
    size_t size = 100000;
    auto_free char *header = malloc(size + 16);
    struct model *model = NULL;

    require(header != NULL);
    memcpy(header, "{\"", 2);
    memset(header + 2, 'n', size);
    strcpy(header + 2 + size, "\":1}");
    check_int(open_text(header, 0, &model), -EINVAL);
    check(strstr(error.text, "not described by an object") != NULL);
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

    check_int(open_places(NULL, 0, &model), -EINVAL);
}
