/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the header of one safetensors file: length, JSON and tensors, which must cover the data. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "safetensors_parts.h"

#define LENGTH_BYTES    8u
#define BEGINNING_BYTES 256u /* enough to recognise a file */
#define FETCH_AGAIN     "fetch the file again"
#define WRITE_AGAIN     "write the file again with the safetensors library"
#define EITHER_AGAIN    FETCH_AGAIN ", or if that is the same, " WRITE_AGAIN
#define NO_MODEL                                                                       \
    "is neither a safetensors nor a GGUF file, or its beginning is damaged; name the " \
    "model's files, or fetch this one again"

/* Start of a file: the length of its header, and the header's first bytes. */
struct beginning {
    uint64_t header_bytes;
    bool is_object;
    const char *other; /* another format that it may be; NULL: unknown */
};

/* Allows space before '{', as the reference implementation does against the format's text. */
static bool begins_object(const char *bytes, size_t size_bytes)
{
    size_t at = 0;

    while (at < size_bytes && bytes[at] != '\0' && strchr(" \t\r\n", bytes[at]))
        at++;
    return at < size_bytes && bytes[at] == '{';
}

static int read_beginning(struct source *source, const struct model_file *file,
                          struct beginning *beginning, struct failure *failure)
{
    size_t size_bytes =
        file->size_bytes < BEGINNING_BYTES ? (size_t)file->size_bytes : BEGINNING_BYTES;
    char *bytes = NULL;

    if (file->size_bytes <= LENGTH_BYTES)
        return safetensors_fail(failure, -EINVAL, file->path, NULL,
                                "has %" PRIu64
                                " bytes, too few for a safetensors or GGUF file; " FETCH_AGAIN,
                                file->size_bytes);
    int error = safetensors_read(source, file->number, 0, size_bytes, &bytes, failure);
    if (error != 0)
        return error;
    memcpy(&beginning->header_bytes, bytes, sizeof(beginning->header_bytes));
    beginning->header_bytes = le64toh(beginning->header_bytes);
    beginning->is_object = beginning->header_bytes > 0 &&
                           begins_object(bytes + LENGTH_BYTES, size_bytes - LENGTH_BYTES);
    beginning->other = safetensors_other(bytes, size_bytes);
    free(bytes);
    return 0;
}

/* Checks for another format before it reports errors of this one. */
static int check_beginning(const struct model_file *file, const struct beginning *beginning,
                           struct failure *failure)
{
    uint64_t header_bytes = beginning->header_bytes;
    bool is_too_long = header_bytes > SAFETENSORS_MAX_HEADER_BYTES;

    if (beginning->is_object && !is_too_long && header_bytes <= file->size_bytes - LENGTH_BYTES)
        return 0;
    if (beginning->other || !beginning->is_object)
        return safetensors_fail(failure, -EINVAL, file->path, NULL, "%s",
                                beginning->other ? beginning->other : NO_MODEL);
    if (is_too_long)
        return safetensors_fail(failure, -EINVAL, file->path, NULL,
                                "its header has %" PRIu64
                                " bytes, more than the %u allowed; " WRITE_AGAIN,
                                header_bytes, SAFETENSORS_MAX_HEADER_BYTES);
    return safetensors_fail(
        failure, -EINVAL, file->path, NULL,
        "ends within its header of %" PRIu64 " bytes: it is truncated; " FETCH_AGAIN, header_bytes);
}

/* Reads the header's text, which the caller frees, and sets where the data starts. */
static int read_header(struct source *source, struct model_file *file, char **header,
                       size_t *header_bytes, struct failure *failure)
{
    struct beginning beginning = {0};
    int error = read_beginning(source, file, &beginning, failure);

    if (error == 0)
        error = check_beginning(file, &beginning, failure);
    if (error != 0)
        return error;
    *header_bytes = (size_t)beginning.header_bytes;
    file->data_offset_bytes = LENGTH_BYTES + beginning.header_bytes;
    return safetensors_read(source, file->number, LENGTH_BYTES, *header_bytes, header, failure);
}

static int add_pairs(struct model *model, uint32_t file, json_t *metadata, struct failure *failure)
{
    const char *path = model->files[file].path;
    struct model_pair *pairs;
    const char *key;
    json_t *value;

    if (json_is_null(metadata)) /* the reference implementation ignores it */
        return 0;
    if (!json_is_object(metadata))
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "__metadata__ is not an object of strings; " WRITE_AGAIN);
    pairs = safetensors_grow(model->pairs, model->pair_count, json_object_size(metadata),
                             sizeof(*pairs));
    if (pairs == NULL)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    model->pairs = pairs;
    json_object_foreach (metadata, key, value) {
        struct model_pair *pair = &model->pairs[model->pair_count];

        if (!json_is_string(value))
            return safetensors_fail(failure, -EINVAL, path, NULL,
                                    "__metadata__ key '%.200s' is not a string; " WRITE_AGAIN, key);
        *pair = (struct model_pair){strdup(key), strdup(json_string_value(value)), file};
        model->pair_count++;
        if (pair->key == NULL || pair->value == NULL)
            return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    }
    return 0;
}

static int parse_shape(struct model_tensor *tensor, const char *path, json_t *shape,
                       struct failure *failure)
{
    json_t *value;
    size_t i;

    if (!json_is_array(shape))
        return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                "has no array \"shape\"; " WRITE_AGAIN);
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMENSIONS)
        return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                "has %zu dimensions, at most %u can be loaded; " WRITE_AGAIN,
                                json_array_size(shape), SAFETENSORS_MAX_DIMENSIONS);
    tensor->ndim = (uint32_t)json_array_size(shape);
    tensor->shape = calloc(tensor->ndim > 0 ? tensor->ndim : 1, sizeof(*tensor->shape));
    if (tensor->shape == NULL)
        return safetensors_fail(failure, -ENOMEM, path, tensor->name, "out of memory");
    json_array_foreach (shape, i, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                    "dimension %zu is not a whole number from 0 up; " WRITE_AGAIN,
                                    i);
        tensor->shape[i] = (uint64_t)json_integer_value(value);
    }
    return 0;
}

/* Parses dtype and shape, and computes the size. */
static int parse_type(struct model_tensor *tensor, const char *path, json_t *info,
                      struct failure *failure)
{
    const char *dtype = json_string_value(json_object_get(info, "dtype"));

    if (dtype == NULL)
        return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                "has no string \"dtype\"; " WRITE_AGAIN);
    if (safetensors_dtype_parse(dtype, &tensor->dtype) != 0)
        return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                "dtype \"%.40s\" is not known; convert it, or use a newer gmsfs",
                                dtype);
    int error = parse_shape(tensor, path, json_object_get(info, "shape"), failure);
    if (error != 0)
        return error;
    switch (safetensors_size(tensor->dtype, tensor->shape, tensor->ndim, &tensor->size_bytes)) {
    case -EOVERFLOW:
        return safetensors_fail(
            failure, -EINVAL, path, tensor->name,
            "its shape overflows: no tensor has that many elements; " EITHER_AGAIN);
    case -EDOM:
        return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                "its %s elements do not fill whole bytes; " WRITE_AGAIN, dtype);
    default:
        return 0;
    }
}

static int parse_offsets(struct model_tensor *tensor, const struct model_file *file, json_t *pair,
                         struct failure *failure)
{
    uint64_t data_bytes = file->size_bytes - file->data_offset_bytes;
    json_int_t begin = -1;
    json_int_t end = -1;

    if (json_is_array(pair) && json_array_size(pair) == 2 &&
        json_is_integer(json_array_get(pair, 0)) && json_is_integer(json_array_get(pair, 1))) {
        begin = json_integer_value(json_array_get(pair, 0));
        end = json_integer_value(json_array_get(pair, 1));
    }
    if (begin < 0 || end < 0)
        return safetensors_fail(
            failure, -EINVAL, file->path, tensor->name,
            "\"data_offsets\" are not two whole numbers from 0 up; " WRITE_AGAIN);
    if (begin > end)
        return safetensors_fail(failure, -EINVAL, file->path, tensor->name,
                                "\"data_offsets\" end before they begin (%" PRId64 " > %" PRId64
                                "); " EITHER_AGAIN,
                                (int64_t)begin, (int64_t)end);
    if ((uint64_t)(end - begin) != tensor->size_bytes)
        return safetensors_fail(failure, -EINVAL, file->path, tensor->name,
                                "\"data_offsets\" hold %" PRIu64 " bytes, but dtype and shape "
                                "need %" PRIu64 "; " EITHER_AGAIN,
                                (uint64_t)(end - begin), tensor->size_bytes);
    if ((uint64_t)end > data_bytes)
        return safetensors_fail(failure, -EINVAL, file->path, tensor->name,
                                "ends at byte %" PRId64
                                " of the data, but the file holds only %" PRIu64
                                ": it is truncated; " FETCH_AGAIN,
                                (int64_t)end, data_bytes);
    tensor->offset_bytes = file->data_offset_bytes + (uint64_t)begin;
    return 0;
}

/* Adds a tensor; the model owns its fields, even after a failure. */
static int add_tensor(struct model *model, uint32_t index, const char *name, json_t *info,
                      struct failure *failure)
{
    const struct model_file *file = &model->files[index];
    struct model_tensor *tensor = &model->tensors[model->tensor_count];

    memset(tensor, 0, sizeof(*tensor));
    model->tensor_count++;
    tensor->file = index;
    tensor->name = strdup(name);
    if (tensor->name == NULL)
        return safetensors_fail(failure, -ENOMEM, file->path, name, "out of memory");
    if (!json_is_object(info))
        return safetensors_fail(failure, -EINVAL, file->path, name,
                                "is not described by an object; " WRITE_AGAIN);
    int error = parse_type(tensor, file->path, info, failure);
    if (error == 0)
        error = parse_offsets(tensor, file, json_object_get(info, "data_offsets"), failure);
    return error;
}

static int offset_compare(const void *left, const void *right)
{
    const struct model_tensor *l = left;
    const struct model_tensor *r = right;

    if (l->offset_bytes != r->offset_bytes)
        return l->offset_bytes < r->offset_bytes ? -1 : 1;
    if (l->size_bytes != r->size_bytes)
        return l->size_bytes < r->size_bytes ? -1 : 1;
    return strcmp(l->name, r->name);
}

/*
 * Checks that sorted tensors start where the one before ends and that the last ends with the file,
 * as the reference reader does: polyglot files need hidden or shared bytes.
 */
static int check_cover(struct model_tensor *tensors, size_t count, const struct model_file *file,
                       struct failure *failure)
{
    uint64_t end = file->data_offset_bytes;

    if (count > 0)
        qsort(tensors, count, sizeof(*tensors), offset_compare);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = tensors[i].offset_bytes;

        if (start < end && strcmp(tensors[i].name, tensors[i - 1].name) == 0)
            return safetensors_fail(failure, -EINVAL, file->path, tensors[i].name,
                                    "occurs twice in the header; " WRITE_AGAIN);
        if (start < end)
            return safetensors_fail(failure, -EINVAL, file->path, tensors[i].name,
                                    "overlaps with tensor '%.200s'; " WRITE_AGAIN,
                                    tensors[i - 1].name);
        if (start > end)
            return safetensors_fail(
                failure, -EINVAL, file->path, tensors[i].name,
                "the %" PRIu64 " bytes before it belong to no tensor; " WRITE_AGAIN, start - end);
        end += tensors[i].size_bytes;
    }
    if (end != file->size_bytes)
        return safetensors_fail(
            failure, -EINVAL, file->path, count > 0 ? tensors[count - 1].name : NULL,
            "the last %" PRIu64 " bytes of the file belong to no tensor; " EITHER_AGAIN,
            file->size_bytes - end);
    return 0;
}

/* Adds the header by a full JSON parse, for headers of any form. */
static int add_header(struct model *model, uint32_t file, const char *bytes, size_t size_bytes,
                      struct failure *failure)
{
    struct model_tensor *tensors;
    json_t *header = NULL;
    const char *name;
    json_t *value;
    int error = safetensors_parse_object(model->files[file].path, "the header", bytes, size_bytes,
                                         &header, failure);

    if (error != 0)
        return error;
    tensors = safetensors_grow(model->tensors, model->tensor_count, json_object_size(header),
                               sizeof(*tensors));
    if (tensors == NULL)
        error = safetensors_fail(failure, -ENOMEM, model->files[file].path, NULL, "out of memory");
    else
        model->tensors = tensors;
    json_object_foreach (header, name, value) {
        if (error != 0)
            break;
        if (strcmp(name, SAFETENSORS_METADATA_KEY) == 0)
            error = add_pairs(model, file, value, failure);
        else
            error = add_tensor(model, file, name, value, failure);
    }
    json_decref(header);
    return error;
}

/* Adds a header of the usual form in one pass; -EAGAIN: it has another form. */
static int pull_header(struct model *model, uint32_t file, const char *bytes, size_t size_bytes,
                       struct failure *failure)
{
    size_t first = model->tensor_count, metadata_bytes;
    const char *metadata;
    int error = safetensors_pull_header(model, file, bytes, size_bytes, &metadata, &metadata_bytes);

    if (error != 0 || metadata == NULL)
        return error;
    json_t *pairs = json_loadb(metadata, metadata_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (pairs == NULL) {
        safetensors_drop_tensors(model, first);
        return -EAGAIN;
    }
    error = add_pairs(model, file, pairs, failure);
    json_decref(pairs);
    return error;
}

int safetensors_add_file(struct model *model, size_t from, struct failure *failure)
{
    size_t first = model->tensor_count, header_bytes = 0;
    uint32_t file = (uint32_t)model->file_count;
    char *header = NULL;
    int error = safetensors_add_opened(model, from, failure);

    if (error != 0)
        return error;
    error = read_header(model->source, &model->files[file], &header, &header_bytes, failure);
    if (error == 0)
        error = pull_header(model, file, header, header_bytes, failure);
    if (error == -EAGAIN)
        error = add_header(model, file, header, header_bytes, failure);
    free(header);
    if (error != 0)
        return error;
    /* without any tensor there is no list either */
    return check_cover(model->tensors ? model->tensors + first : NULL, model->tensor_count - first,
                       &model->files[file], failure);
}
