/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors file; a model that opens can be written again, and is then the same. */
#include "fuzz.h"

#include "safetensors_check.h"

#include <endian.h>

static json_t *describe(const struct model *model, const struct model_tensor *tensor)
{
    uint64_t begin = tensor->offset_bytes - model->files[0].data_offset_bytes;
    json_t *shape = json_array();

    for (uint32_t i = 0; i < tensor->ndim; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtype_name(tensor->dtype),
                     "shape", shape, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + tensor->size_bytes));
}

/* Writes the parsed header again, and as much data. */
static int write_again(const struct model *model)
{
    json_t *header = json_object(), *pairs = json_object();
    int fd = memfd_create("again", MFD_CLOEXEC);
    uint64_t length;

    must(fd >= 0);
    for (size_t i = 0; i < model->tensor_count; i++)
        must(json_object_set_new(header, model->tensors[i].name,
                                 describe(model, &model->tensors[i])) == 0);
    for (size_t i = 0; i < model->pair_count; i++)
        must(json_object_set_new(pairs, model->pairs[i].key, json_string(model->pairs[i].value)) ==
             0);
    must(json_object_set_new(header, SAFETENSORS_METADATA_KEY, pairs) == 0);
    char *text = json_dumps(header, JSON_COMPACT);
    must(text != NULL);
    length = htole64(strlen(text));
    must(write(fd, &length, sizeof length) == sizeof length);
    must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    must(ftruncate(fd, (off_t)(sizeof length + strlen(text) + model->tensor_bytes)) == 0);
    json_decref(header);
    free(text);
    return fd;
}

static void check_same(const struct model *a, const struct model *b)
{
    must(a->tensor_count == b->tensor_count && a->pair_count == b->pair_count);
    for (size_t i = 0; i < a->tensor_count; i++) {
        const struct model_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        must(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->ndim == y->ndim);
        must(fuzz_same(x->shape, x->ndim * sizeof *x->shape, y->shape, y->ndim * sizeof *y->shape));
        must(x->size_bytes == y->size_bytes && x->offset_bytes - a->files[0].data_offset_bytes ==
                                                   y->offset_bytes - b->files[0].data_offset_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];

    if (fd < 0)
        fd = memfd_create("model", MFD_CLOEXEC);
    write_all(fd, data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct source *source = source_open();
    must(source != NULL);
    struct model *model = open_checked(source, path);
    if (!model) {
        source_close(source);
        return 0;
    }
    int again_fd = write_again(model);
    snprintf(path, sizeof path, "/proc/self/fd/%d", again_fd);
    struct model *again = open_checked(source, path);
    must(again != NULL);
    check_same(model, again);
    safetensors_close(again);
    safetensors_close(model);
    source_close(source);
    close(again_fd);
    return 0;
}
