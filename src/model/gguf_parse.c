/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a GGUF header: each read is bounded by the available bytes; -EAGAIN asks for more. */
#include "model/gguf.h"

#include "base/number.h"
#include "base/scope.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define CONVERT_AGAIN \
    "fetch the file again, or if that is the same, convert the model again with llama.cpp"
#define FIRST_VERSION      2u /* with counts of 64 bits */
#define LAST_VERSION       3u
#define ALIGNMENT_KEY      "general.alignment"
#define MAX_ALIGNMENT      (1u << 20)
#define LEAST_VALUE_BYTES  13u /* a key's length, a type, one byte */
#define MAX_DERIVED        8u  /* unknown types of one file */
#define LEAST_TENSOR_BYTES 24u /* a name's length, dimensions, type, offset */

enum value_type {
    VALUE_UINT32 = 4,
    VALUE_STRING = 8,
    VALUE_ARRAY = 9,
    VALUE_TYPES = 13,
};

/* Size of one value; 0: it begins with its length. */
static const uint8_t value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct input {
    const char *bytes;
    size_t size_bytes, at;
    struct failure *failure;
};

/* Takes bytes; -EAGAIN if there are too few. */
static int input_skip(struct input *input, uint64_t size_bytes, const char **from)
{
    if (size_bytes > input->size_bytes - input->at)
        return -EAGAIN;
    *from = input->bytes + input->at;
    input->at += (size_t)size_bytes;
    return 0;
}

static int input_copy(struct input *input, void *to, size_t size_bytes)
{
    const char *from;
    int error = input_skip(input, size_bytes, &from);

    if (!error)
        memcpy(to, from, size_bytes);
    return error;
}

static int input_u32(struct input *input, uint32_t *number)
{
    int error = input_copy(input, number, sizeof(*number));

    *number = error ? 0 : le32toh(*number);
    return error;
}

static int input_u64(struct input *input, uint64_t *number)
{
    int error = input_copy(input, number, sizeof(*number));

    *number = error ? 0 : le64toh(*number);
    return error;
}

static int input_text(struct input *input, struct gguf_text *text)
{
    uint64_t size_bytes = 0;
    int error = input_u64(input, &size_bytes);

    if (!error && size_bytes > GGUF_MAX_HEADER_BYTES)
        return failure_set(input->failure, -EINVAL,
                           "a text of its header has %" PRIu64 " bytes; fetch the file again",
                           size_bytes);
    if (!error)
        error = input_skip(input, size_bytes, &text->bytes);
    text->size_bytes = (size_t)size_bytes;
    return error;
}

/* Takes a key or the name of a tensor, which becomes a key of the store. */
static int input_name(struct input *input, const char *what, struct gguf_text *name)
{
    int error = input_text(input, name);
    json_auto_t *text = NULL;

    if (error)
        return error;
    if (memchr(name->bytes, '\0', name->size_bytes))
        return failure_set(input->failure, -EINVAL,
                           "the name of a %s has a NUL byte; write the file again without it",
                           what);
    text = json_stringn(name->bytes, name->size_bytes); /* fails for invalid UTF-8 */
    if (!text)
        return failure_set(input->failure, -EINVAL,
                           "the name of a %s is not UTF-8; write the file again", what);
    return 0;
}

/* ---- key-values ---------------------------------------------------------------------------- */

static int parse_strings(struct input *input, uint64_t count)
{
    struct gguf_text text;
    int error = 0;

    for (uint64_t i = 0; !error && i < count; i++)
        error = input_text(input, &text);
    return error;
}

static int parse_of_type(struct input *input, const struct gguf_text *key, uint32_t type,
                         uint64_t count)
{
    const char *from;

    if (type >= VALUE_TYPES || type == VALUE_ARRAY)
        return failure_set(input->failure, -EINVAL,
                           "key '%.*s': %s; write the file again, or use a newer gmsfs",
                           (int)(key->size_bytes < 200 ? key->size_bytes : 200), key->bytes,
                           type == VALUE_ARRAY ? "an array of arrays, which llama.cpp does not have"
                                               : "the type of its value is not known");
    if (type == VALUE_STRING)
        return parse_strings(input, count);
    if (count > GGUF_MAX_HEADER_BYTES)
        return failure_set(input->failure, -EINVAL,
                           "key '%.*s': its array has %" PRIu64 " items; fetch the file again",
                           (int)(key->size_bytes < 200 ? key->size_bytes : 200), key->bytes, count);
    return input_skip(input, count * value_bytes[type], &from);
}

static int parse_content(struct input *input, const struct gguf_text *key)
{
    uint32_t type = 0;
    uint64_t count = 1;
    int error = input_u32(input, &type);

    if (error || type != VALUE_ARRAY)
        return error ? error : parse_of_type(input, key, type, count);
    error = input_u32(input, &type);
    if (!error)
        error = input_u64(input, &count);
    return error ? error : parse_of_type(input, key, type, count);
}

static bool text_is(const struct gguf_text *text, const char *other)
{
    return text->size_bytes == strlen(other) && memcmp(text->bytes, other, text->size_bytes) == 0;
}

static int take_alignment(struct input *input, const struct gguf_value *value,
                          struct gguf_header *header)
{
    struct input from = {.bytes = input->bytes, .size_bytes = input->at, .at = value->offset_bytes};
    uint32_t type = 0, alignment = 0;

    if (input_u32(&from, &type) != 0 || type != VALUE_UINT32 || input_u32(&from, &alignment) != 0 ||
        alignment == 0 || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0)
        return failure_set(input->failure, -EINVAL,
                           "key '" ALIGNMENT_KEY "' is no power of two of 32 bits; " CONVERT_AGAIN);
    header->alignment_bytes = alignment;
    return 0;
}

static int parse_value(struct input *input, struct gguf_header *header)
{
    struct gguf_value *value = &header->values[header->value_count];
    int error = input_name(input, "key", &value->key);

    value->offset_bytes = input->at;
    if (!error)
        error = parse_content(input, &value->key);
    if (error)
        return error;
    value->size_bytes = input->at - value->offset_bytes;
    header->value_count++;
    return text_is(&value->key, ALIGNMENT_KEY) ? take_alignment(input, value, header) : 0;
}

static int key_compare(const void *left, const void *right)
{
    const struct gguf_text *a = *(const struct gguf_text *const *)left;
    const struct gguf_text *b = *(const struct gguf_text *const *)right;
    size_t common = a->size_bytes < b->size_bytes ? a->size_bytes : b->size_bytes;
    int order = common ? memcmp(a->bytes, b->bytes, common) : 0;

    return order ? order : (a->size_bytes > b->size_bytes) - (a->size_bytes < b->size_bytes);
}

static int check_keys(struct input *input, const struct gguf_header *header)
{
    SCOPED_FREE const struct gguf_text **keys = calloc(header->value_count + 1, sizeof(*keys));

    if (!keys)
        return failure_no_memory(input->failure);
    for (size_t i = 0; i < header->value_count; i++)
        keys[i] = &header->values[i].key;
    qsort(keys, header->value_count, sizeof(*keys), key_compare);
    for (size_t i = 1; i < header->value_count; i++)
        if (key_compare(&keys[i - 1], &keys[i]) == 0)
            return failure_set(input->failure, -EINVAL, "key '%.*s' is there twice; " CONVERT_AGAIN,
                               (int)(keys[i]->size_bytes < 200 ? keys[i]->size_bytes : 200),
                               keys[i]->bytes);
    return 0;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int fail_tensor(struct input *input, const struct gguf_tensor *tensor, const char *what)
{
    return failure_set(input->failure, -EINVAL, "tensor '%.*s': %s",
                       (int)(tensor->name.size_bytes < 200 ? tensor->name.size_bytes : 200),
                       tensor->name.bytes, what);
}

/* Computes the size; rows must be whole blocks. */
static int count_bytes(struct input *input, struct gguf_tensor *tensor)
{
    uint64_t row = tensor->ndim ? tensor->dims[0] : 1, size_bytes;

    if (row % tensor->type.elements || (tensor->ndim == 0 && tensor->type.dtype == SAFETENSORS_U8))
        return fail_tensor(input, tensor,
                           "its rows are no whole blocks of its type; " CONVERT_AGAIN);
    size_bytes = row / tensor->type.elements;
    if (__builtin_mul_overflow(size_bytes, tensor->type.bytes, &size_bytes))
        size_bytes = UINT64_MAX;
    for (uint32_t i = 1; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(size_bytes, tensor->dims[i], &size_bytes))
            size_bytes = UINT64_MAX;
    if (size_bytes > INT64_MAX)
        return fail_tensor(input, tensor,
                           "its shape overflows: no tensor has that many elements; "
                           "" CONVERT_AGAIN);
    tensor->size_bytes = size_bytes;
    return 0;
}

/* Takes the type; the size of an unknown one is derived later from all tensors. */
static int parse_type(struct input *input, struct gguf_tensor *tensor)
{
    uint32_t number = 0;
    int error = input_u32(input, &number);

    if (error)
        return error;
    if (gguf_find_type(number, &tensor->type))
        return count_bytes(input, tensor);
    tensor->type.number = number;
    return 0;
}

/* Derived types of a file. */
struct derived {
    struct gguf_type types[MAX_DERIVED];
    size_t count;
};

static bool derive_type(const struct gguf_header *header, uint32_t number, struct derived *derived,
                        struct gguf_type *type)
{
    for (size_t i = 0; i < derived->count; i++)
        if (derived->types[i].number == number) {
            *type = derived->types[i];
            return true;
        }
    if (derived->count == MAX_DERIVED || !gguf_derive_type(header->tensors, header->tensor_count,
                                                           header->alignment_bytes, number, type))
        return false;
    derived->types[derived->count++] = *type;
    return true;
}

/* Derives the sizes of unknown types from the offsets of the tensors. */
static int derive_types(struct input *input, struct gguf_header *header)
{
    struct derived derived = {.count = 0};
    char text[160];
    int error = 0;

    for (size_t i = 0; !error && i < header->tensor_count; i++) {
        struct gguf_tensor *tensor = &header->tensors[i];
        uint32_t number = tensor->type.number;
        if (tensor->type.elements > 0)
            continue;
        snprintf(text, sizeof(text),
                 "its type, number %" PRIu32 " of ggml, is not known, and the file does not tell "
                 "its size; use a newer gmsfs",
                 number);
        error = derive_type(header, number, &derived, &tensor->type)
                    ? count_bytes(input, tensor)
                    : fail_tensor(input, tensor, text);
    }
    return error;
}

static int parse_tensor(struct input *input, struct gguf_header *header)
{
    struct gguf_tensor *tensor = &header->tensors[header->tensor_count];
    int error = input_name(input, "tensor", &tensor->name);

    if (!error)
        error = input_u32(input, &tensor->ndim);
    if (!error && tensor->ndim > GGUF_MAX_DIMENSIONS)
        return fail_tensor(input, tensor, "has more dimensions than llama.cpp has; " CONVERT_AGAIN);
    for (uint32_t i = 0; !error && i < tensor->ndim; i++)
        error = input_u64(input, &tensor->dims[i]);
    for (uint32_t i = 0; !error && i < tensor->ndim; i++)
        if (tensor->dims[i] > INT64_MAX)
            return fail_tensor(input, tensor, "has a dimension below 0; " CONVERT_AGAIN);
    if (!error)
        error = parse_type(input, tensor);
    if (!error)
        error = input_u64(input, &tensor->offset_bytes);
    header->tensor_count += !error;
    return error;
}

/* Checks the offsets, which count from the start of the data, and makes them count from the start
 * of the file. */
static int place_tensors(struct input *input, struct gguf_header *header)
{
    uint64_t end = 0;

    header->data_offset_bytes = number_round_up(input->at, header->alignment_bytes);
    header->end_bytes = header->data_offset_bytes;
    for (size_t i = 0; i < header->tensor_count; i++) {
        struct gguf_tensor *tensor = &header->tensors[i];
        uint64_t begin = number_round_up(end, header->alignment_bytes);

        if (tensor->offset_bytes != begin)
            return fail_tensor(input, tensor,
                               "does not begin where the one before it ends; " CONVERT_AGAIN);
        if (tensor->size_bytes > INT64_MAX / 2 - begin)
            return fail_tensor(input, tensor, "ends beyond any file; " CONVERT_AGAIN);
        end = begin + tensor->size_bytes;
        tensor->offset_bytes += header->data_offset_bytes;
        header->end_bytes = header->data_offset_bytes + end;
    }
    return 0;
}

/* ---- the header ------------------------------------------------------------------------------ */

static int parse_version(struct input *input, uint32_t *version)
{
    const char *magic;
    int error = input_skip(input, strlen(GGUF_MAGIC), &magic);

    if (!error && memcmp(magic, GGUF_MAGIC, strlen(GGUF_MAGIC)) != 0)
        return failure_set(input->failure, -EINVAL, "is no GGUF file");
    if (!error)
        error = input_u32(input, version);
    if (error || (*version >= FIRST_VERSION && *version <= LAST_VERSION))
        return error;
    if ((*version & 0xffff) == 0)
        return failure_set(input->failure, -EINVAL,
                           "is a GGUF file of a big-endian machine; convert it on a little-endian "
                           "one");
    return failure_set(input->failure, -EINVAL,
                       "is a GGUF file of version %" PRIu32 "; gmsfs knows 2 and 3: %s", *version,
                       *version < FIRST_VERSION ? "convert the model again with llama.cpp"
                                                : "use a newer gmsfs");
}

/* Allocates the arrays; rejects counts that cannot fit into a header. */
static int make_room(struct input *input, struct gguf_header *header, uint64_t values,
                     uint64_t tensors)
{
    uint64_t left = input->size_bytes - input->at;

    if (values > GGUF_MAX_HEADER_BYTES / LEAST_VALUE_BYTES ||
        tensors > GGUF_MAX_HEADER_BYTES / LEAST_TENSOR_BYTES)
        return failure_set(input->failure, -EINVAL,
                           "says that it has %" PRIu64 " tensors and %" PRIu64
                           " key-values; fetch the file again",
                           tensors, values);
    if (values > left / LEAST_VALUE_BYTES || tensors > left / LEAST_TENSOR_BYTES)
        return -EAGAIN;
    header->values = calloc((size_t)values + 1, sizeof(*header->values));
    header->tensors = calloc((size_t)tensors + 1, sizeof(*header->tensors));
    return header->values && header->tensors ? 0 : failure_no_memory(input->failure);
}

int gguf_parse(const char *bytes, size_t size_bytes, struct gguf_header *header,
               struct failure *failure)
{
    struct input input = {.bytes = bytes, .size_bytes = size_bytes, .failure = failure};
    uint64_t values = 0, tensors = 0;

    memset(header, 0, sizeof(*header));
    header->alignment_bytes = GGUF_DEFAULT_ALIGNMENT;
    int error = parse_version(&input, &header->version);
    if (!error)
        error = input_u64(&input, &tensors);
    if (!error)
        error = input_u64(&input, &values);
    if (!error)
        error = make_room(&input, header, values, tensors);
    while (!error && header->value_count < values)
        error = parse_value(&input, header);
    while (!error && header->tensor_count < tensors)
        error = parse_tensor(&input, header);
    if (!error)
        error = check_keys(&input, header);
    if (!error)
        error = derive_types(&input, header);
    return error ? error : place_tensors(&input, header);
}

void gguf_free(struct gguf_header *header)
{
    free(header->values);
    free(header->tensors);
    header->values = NULL;
    header->tensors = NULL;
}
