/* SPDX-License-Identifier: Apache-2.0 */
/* Adds GGUF files to a model: their tensors, and their key-values as entries of a store. */
#include "model/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "safetensors_parts.h"
#include "tensor/long_value.h"

#define FIRST_READ_BYTES ((size_t)4 << 20)
#define SPLIT_PREFIX     "split."
#define SPLIT_COUNT      "split.count"

/* A file whose header is being added. */
struct gguf_file {
    struct model *model;
    uint32_t index; /* in model.files */
    size_t count;   /* files of the model */
    char *bytes;
    struct gguf_header header;
    struct failure *failure;
};

static int fail_memory(const struct gguf_file *file)
{
    return safetensors_fail(file->failure, -ENOMEM, file->model->files[file->index].path, NULL,
                            "out of memory");
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_some(struct gguf_file *file, size_t size_bytes)
{
    const struct model_file *from = &file->model->files[file->index];
    struct failure why = {0};

    free(file->bytes);
    file->bytes = NULL;
    gguf_free(&file->header);
    int error = safetensors_read(file->model->source, from->number, 0, size_bytes, &file->bytes,
                                 file->failure);
    if (error)
        return error;
    error = gguf_parse(file->bytes, size_bytes, &file->header, &why);
    if (error && error != -EAGAIN)
        safetensors_fail(file->failure, error, from->path, NULL, "%s", why.text);
    return error;
}

/* Reads more and more: only the end of a header shows its length. */
static int read_header(struct gguf_file *file)
{
    const struct model_file *from = &file->model->files[file->index];
    size_t most =
        from->size_bytes < GGUF_MAX_HEADER_BYTES ? (size_t)from->size_bytes : GGUF_MAX_HEADER_BYTES;
    size_t size_bytes = most < FIRST_READ_BYTES ? most : FIRST_READ_BYTES;
    int error;

    while ((error = read_some(file, size_bytes)) == -EAGAIN && size_bytes < most)
        size_bytes = size_bytes < most / 4 ? size_bytes * 4 : most;
    if (error == -EAGAIN && most < from->size_bytes)
        return safetensors_fail(file->failure, -EINVAL, from->path, NULL,
                                "its header has more than the %u bytes allowed",
                                GGUF_MAX_HEADER_BYTES);
    if (error == -EAGAIN)
        return safetensors_fail(file->failure, -EINVAL, from->path, NULL,
                                "ends within its header: it is truncated; fetch the file again");
    return error;
}

/* Checks the end: after the last tensor only padding to the alignment is allowed. */
static int check_end(const struct gguf_file *file)
{
    const struct model_file *from = &file->model->files[file->index];
    uint64_t end = file->header.end_bytes;

    if (file->header.tensor_count && end > from->size_bytes)
        return safetensors_fail(file->failure, -EINVAL, from->path, NULL,
                                "its tensors end at byte %" PRIu64
                                ", but the file has only %" PRIu64
                                ": it is truncated; fetch the file again",
                                end, from->size_bytes);
    if (from->size_bytes > end && from->size_bytes - end >= file->header.alignment_bytes)
        return safetensors_fail(file->failure, -EINVAL, from->path, NULL,
                                "the last %" PRIu64 " bytes of the file belong to no tensor; fetch "
                                "the file again",
                                from->size_bytes - end);
    return 0;
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* Converts the shape: in a store rows are the last dimension, and blocks are bytes. */
static int take_shape(const struct gguf_file *file, const struct gguf_tensor *from,
                      struct model_tensor *tensor)
{
    uint64_t size_bytes = 0;

    tensor->dtype = from->type.dtype;
    strcpy(tensor->ggml_type, from->type.name);
    tensor->ndim = from->ndim;
    tensor->shape = calloc(from->ndim + 1, sizeof(*tensor->shape));
    if (!tensor->shape)
        return fail_memory(file);
    for (uint32_t i = 0; i < from->ndim; i++)
        tensor->shape[from->ndim - 1 - i] = from->dims[i];
    if (from->type.dtype == SAFETENSORS_U8) /* so it has dimensions, as blocks have */
        tensor->shape[from->ndim - 1] = from->dims[0] / from->type.elements * from->type.bytes;
    if (safetensors_size(tensor->dtype, tensor->shape, tensor->ndim, &size_bytes) != 0 ||
        size_bytes != from->size_bytes)
        return safetensors_fail(file->failure, -EINVAL, file->model->files[file->index].path,
                                tensor->name, "its shape overflows; fetch the file again");
    return 0;
}

static bool is_reserved(const char *name)
{
    return strcmp(name, GGUF_ENTRY) == 0 || strcmp(name, SAFETENSORS_METADATA_KEY) == 0 ||
           strncmp(name, GGUF_KEY_PREFIX, strlen(GGUF_KEY_PREFIX)) == 0;
}

/* Adds a tensor; the model owns its fields, even after a failure. */
static int add_tensor(const struct gguf_file *file, const struct gguf_tensor *from)
{
    struct model *model = file->model;
    struct model_tensor *tensor = &model->tensors[model->tensor_count];

    memset(tensor, 0, sizeof(*tensor));
    model->tensor_count++;
    tensor->file = file->index;
    tensor->offset_bytes = from->offset_bytes;
    tensor->size_bytes = from->size_bytes;
    tensor->name = strndup(from->name.bytes, from->name.size_bytes);
    if (!tensor->name)
        return fail_memory(file);
    if (is_reserved(tensor->name))
        return safetensors_fail(file->failure, -EINVAL, model->files[file->index].path,
                                tensor->name,
                                "its name means something else in a store; rename "
                                "it in the file");
    return take_shape(file, from, tensor);
}

/* ---- key-values ---------------------------------------------------------------------------- */

/* NULL: out of memory. */
static char *make_key(const struct gguf_text *key)
{
    size_t prefix = strlen(GGUF_KEY_PREFIX);
    char *made = calloc(1, prefix + key->size_bytes + 1);

    if (!made)
        return NULL;
    strcpy(made, GGUF_KEY_PREFIX);
    memcpy(made + prefix, key->bytes, key->size_bytes);
    return made;
}

static int add_long_value(const struct gguf_file *file, const struct gguf_value *value, char *key)
{
    struct model *model = file->model;
    struct model_tensor *tensor = &model->tensors[model->tensor_count];

    *tensor = (struct model_tensor){.name = key,
                                    .dtype = SAFETENSORS_U8,
                                    .file = file->index,
                                    .ndim = 1,
                                    .shape = calloc(1, sizeof(*tensor->shape)),
                                    .offset_bytes = value->offset_bytes,
                                    .size_bytes = value->size_bytes,
                                    .long_format = LONG_VALUE_GGUF};
    model->tensor_count++;
    if (!tensor->shape)
        return fail_memory(file);
    tensor->shape[0] = value->size_bytes;
    return 0;
}

/* Takes over key and bytes. */
static int add_entry(const struct gguf_file *file, char *key, char *bytes, size_t size_bytes)
{
    struct model *model = file->model;

    model->entries[model->entry_count++] = (struct model_entry){key, bytes, size_bytes};
    return key && bytes ? 0 : fail_memory(file);
}

static int add_value(const struct gguf_file *file, const struct gguf_value *value)
{
    char *key = make_key(&value->key), *bytes;

    if (!key)
        return fail_memory(file);
    if (value->size_bytes > LONG_VALUE_BYTES)
        return add_long_value(file, value, key);
    bytes = malloc(value->size_bytes);
    if (bytes)
        memcpy(bytes, file->bytes + value->offset_bytes, value->size_bytes);
    return add_entry(file, key, bytes, value->size_bytes);
}

/* Returns true for keys about the split into several files, which do not concern the whole
 * model. */
static bool is_of_split(const struct gguf_file *file, const struct gguf_value *value)
{
    size_t prefix = strlen(SPLIT_PREFIX);

    return file->count > 1 && value->key.size_bytes > prefix &&
           memcmp(value->key.bytes, SPLIT_PREFIX, prefix) == 0;
}

/* Returns the number of files of the model, as this file has it in 16 bits; 0: none. */
static unsigned split_count(const struct gguf_file *file)
{
    for (size_t i = 0; i < file->header.value_count; i++) {
        const struct gguf_value *value = &file->header.values[i];
        const unsigned char *at = (const unsigned char *)file->bytes + value->offset_bytes;
        if (value->key.size_bytes == strlen(SPLIT_COUNT) &&
            memcmp(value->key.bytes, SPLIT_COUNT, value->key.size_bytes) == 0 &&
            value->size_bytes == sizeof(uint32_t) + sizeof(uint16_t))
            return at[sizeof(uint32_t)] | (unsigned)at[sizeof(uint32_t) + 1] << 8;
    }
    return 0;
}

static int check_split(const struct gguf_file *file)
{
    const char *path = file->model->files[file->index].path;
    unsigned count = split_count(file);

    if (count > 1 && count != file->count)
        return safetensors_fail(file->failure, -EINVAL, path, NULL,
                                "is one of %u files of a model, and %zu are given; name all of "
                                "them, or their directory",
                                count, file->count);
    if (count < 2 && file->count > 1)
        return safetensors_fail(file->failure, -EINVAL, path, NULL,
                                "is a model of its own; load it alone");
    for (size_t i = 0; file->index > 0 && i < file->header.value_count; i++)
        if (!is_of_split(file, &file->header.values[i]))
            return safetensors_fail(file->failure, -EINVAL, path, NULL,
                                    "has key-values, which only the first file of a model may "
                                    "have; name the files in their order");
    return 0;
}

/* Makes the value of GGUF_ENTRY. Takes over `keys`. NULL: out of memory. */
static char *make_order(const struct gguf_header *header, json_t *keys)
{
    json_auto_t *json = json_pack("{s:I, s:I, s:o}", "version", (json_int_t)header->version,
                                  "alignment", (json_int_t)header->alignment_bytes, "keys", keys);

    return json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

/* Adds the entry with the order of the keys and the other facts needed to write the file again. */
static int add_order(const struct gguf_file *file)
{
    json_t *keys = json_array();
    char *bytes;
    int failed = !keys;

    for (size_t i = 0; !failed && i < file->header.value_count; i++) {
        const struct gguf_value *value = &file->header.values[i];
        if (!is_of_split(file, value))
            failed =
                json_array_append_new(keys, json_stringn(value->key.bytes, value->key.size_bytes));
    }
    if (failed) {
        json_decref(keys);
        return fail_memory(file);
    }
    bytes = make_order(&file->header, keys);
    return add_entry(file, strdup(GGUF_ENTRY), bytes, bytes ? strlen(bytes) : 0);
}

static int add_values(const struct gguf_file *file)
{
    int error = file->index == 0 ? add_order(file) : 0;

    for (size_t i = 0; !error && i < file->header.value_count; i++)
        if (!is_of_split(file, &file->header.values[i]))
            error = add_value(file, &file->header.values[i]);
    return error;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int make_room(const struct gguf_file *file)
{
    const struct gguf_header *header = &file->header;
    struct model *model = file->model;
    struct model_tensor *tensors =
        safetensors_grow(model->tensors, model->tensor_count,
                         header->tensor_count + header->value_count, sizeof(*tensors));
    struct model_entry *entries;

    if (!tensors)
        return fail_memory(file);
    model->tensors = tensors;
    entries = safetensors_grow(model->entries, model->entry_count, header->value_count + 1,
                               sizeof(*entries));
    if (!entries)
        return fail_memory(file);
    model->entries = entries;
    return 0;
}

static int add_all(struct gguf_file *file)
{
    int error = read_header(file);

    if (!error)
        error = check_end(file);
    if (!error)
        error = check_split(file);
    if (!error)
        error = make_room(file);
    if (!error)
        error = add_values(file);
    for (size_t i = 0; !error && i < file->header.tensor_count; i++)
        error = add_tensor(file, &file->header.tensors[i]);
    return error;
}

int gguf_add_file(struct model *model, size_t from, size_t count, struct failure *failure)
{
    struct gguf_file file = {
        .model = model, .index = (uint32_t)model->file_count, .count = count, .failure = failure};
    int error = safetensors_add_opened(model, from, failure);

    if (!error)
        error = add_all(&file);
    gguf_free(&file.header);
    free(file.bytes);
    return error;
}
