/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the way from metadata values to tensors, to the header of a file, and to shards. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/safetensors_write.h"
#include "tap.h"

static int parse(const char *value, struct model_tensor *tensor)
{
    const char *why = NULL;
    int r = safetensors_from_value(value, strlen(value), tensor, &why);

    check((r == -EINVAL) == (why != NULL));
    return r;
}

static void refuse(const char *value, int error)
{
    struct model_tensor tensor;
    int r = parse(value, &tensor);

    check_int(r, error);
    if (r == 0)
        free(tensor.shape);
}

/* Checks that a tensor of that dtype and shape comes back from its value. */
static void come_back(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
    uint64_t dimensions[4] = {0};
    struct model_tensor from = {.dtype = dtype, .ndim = ndim, .shape = dimensions}, to;
    char *value, *again;

    if (ndim)
        memcpy(dimensions, shape, ndim * sizeof(*shape));
    require(safetensors_size(dtype, shape, ndim, &from.size_bytes) == 0);
    value = safetensors_value_json(&from);
    require(value && parse(value, &to) == 0);
    check_int(to.size_bytes, from.size_bytes);
    again = safetensors_value_json(&to);
    check_str(again, value);
    check_str(safetensors_torch_name(to.dtype), safetensors_torch_name(dtype));
    free(to.shape);
    free(again);
    free(value);
}

TAP_TEST(every_dtype_comes_back_from_its_value)
{
    const uint64_t shape[] = {3, 2, 8}, none[] = {0, 8}, flat[] = {8, 3};

    for (unsigned i = 0; i < SAFETENSORS_DTYPES; i++) {
        come_back((enum safetensors_dtype)i, shape, 3);
        come_back((enum safetensors_dtype)i, none, 2);
        come_back((enum safetensors_dtype)i, flat, 2);
        if (i < SAFETENSORS_F4)
            come_back((enum safetensors_dtype)i, NULL, 0);
    }
}

TAP_TEST(a_pair_of_4_bit_floats_is_two_elements)
{
    struct model_tensor tensor;

    require(parse("{\"dtype\":\"torch.float4_e2m1fn_x2\",\"shape\":[2,3]}", &tensor) == 0);
    check_str(safetensors_dtype_name(tensor.dtype), "F4");
    check_int(tensor.ndim, 2);
    check_int(tensor.shape[0], 2);
    check_int(tensor.shape[1], 6);
    check_int(tensor.size_bytes, 6);
    free(tensor.shape);
}

TAP_TEST(values_without_a_tensor_differ_from_tensors_that_no_file_can_hold)
{
    refuse("", -ENOENT);
    refuse("7", -ENOENT);
    refuse("{\"dtype\":\"torch.int8\"}", -ENOENT);
    refuse("{\"dtype\":7,\"shape\":[]}", -ENOENT);
    refuse("{\"dtype\":\"torch.int8\",\"dtype\":\"torch.int8\",\"shape\":[]}", -ENOENT);
    refuse("{\"dtype\":\"torch.qint8\",\"shape\":[1]}", -EINVAL);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[-1]}", -EINVAL);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[1.0]}", -EINVAL);
    refuse("{\"dtype\":\"torch.int16\",\"shape\":[4611686018427387904]}", -EINVAL);
    refuse("{\"dtype\":\"torch.float4_e2m1fn_x2\",\"shape\":[9223372036854775807,2]}", -EINVAL);
}

TAP_TEST(strides_of_a_view_are_refused_and_those_that_mean_nothing_are_not)
{
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[2,3],\"stride\":[1,2]}", -EINVAL);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[2,3],\"stride\":[3]}", -EINVAL);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[2],\"stride\":\"x\"}", -EINVAL);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[2,3],\"stride\":[3,1]}", 0);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[1,3],\"stride\":[99,1]}", 0);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[0,3],\"stride\":[7,7]}", 0);
    refuse("{\"dtype\":\"torch.int8\",\"shape\":[],\"stride\":[]}", 0);
}

TAP_TEST(more_dimensions_than_can_be_read_are_refused)
{
    char value[1024] = "{\"dtype\":\"torch.int8\",\"shape\":[1";

    for (unsigned i = 0; i < SAFETENSORS_MAX_DIMENSIONS; i++)
        strcat(value, ",1");
    strcat(value, "]}");
    refuse(value, -EINVAL);
}

TAP_TEST(a_header_is_padded_and_its_tensors_follow_each_other)
{
    uint64_t shape[] = {2, 3}, length;
    char b[] = "b", a[] = "a", *bytes;
    struct model_tensor first = {.name = b, .dtype = SAFETENSORS_BF16, .ndim = 2, .shape = shape},
                        second = {.name = a, .dtype = SAFETENSORS_U8, .size_bytes = 1};
    const struct model_tensor *both[] = {&first, &second};
    json_t *metadata = json_pack("{s:s}", "k", "v");
    const char *wanted = "{\"__metadata__\":{\"k\":\"v\"},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                         "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}";
    size_t size;

    first.size_bytes = 12;
    require(safetensors_make_header(both, 2, metadata, &bytes, &size) == 0);
    json_decref(metadata);
    memcpy(&length, bytes, sizeof(length));
    check_int(le64toh(length), size - sizeof(length));
    check_int(size % 8, 0);
    check_bytes(bytes + 8, strlen(wanted), wanted, strlen(wanted));
    for (size_t i = 8 + strlen(wanted); i < size; i++)
        check_int(bytes[i], ' ');
    free(bytes);

    require(safetensors_make_header(both, 0, NULL, &bytes, &size) == 0);
    check_bytes(bytes, size, "\10\0\0\0\0\0\0\0{}      ", 16);
    free(bytes);
}

TAP_TEST(shards_are_as_full_as_their_size_allows)
{
    struct model_tensor small = {.size_bytes = 10}, large = {.size_bytes = 100},
                        empty = {.size_bytes = 0};
    const struct model_tensor *list[] = {&small, &small, &empty, &small, &large, &small};

    check_int(safetensors_shard_count(list, 6, 0, 0), 6);
    check_int(safetensors_shard_count(list, 6, 0, 20), 3);
    check_int(safetensors_shard_count(list, 6, 3, 20), 1);
    check_int(safetensors_shard_count(list, 6, 4, 20), 1);
    check_int(safetensors_shard_count(list, 6, 5, 20), 1);
    check_int(safetensors_shard_count(list, 6, 0, 1), 1);
    check_int(safetensors_shard_count(list, 6, 0, UINT64_MAX), 6);
    check_int(safetensors_shard_count(list, 0, 0, 20), 0);
}
