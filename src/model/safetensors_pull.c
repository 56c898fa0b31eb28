/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the header of a safetensors file in one pass, without a JSON tree, if it has the form that
 * all writers produce: names of plain ASCII, whole numbers, and exactly the three members of a
 * tensor. Every other header, valid or not, is left to the tree (safetensors_header.c), which knows
 * all of JSON and has all messages; so nothing is accepted here that would be refused there.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors_parts.h"

#define FIRST_ROOM  64u
#define DTYPE_BYTES 16u

struct pull {
    struct model *model;
    uint32_t file;
    size_t first, room; /* of model.tensors */
    const char *at, *end;
};

/* A string of the text, without escapes. */
struct pull_text {
    const char *bytes;
    size_t size_bytes;
};

enum member {
    MEMBER_DTYPE = 1,
    MEMBER_SHAPE = 2,
    MEMBER_OFFSETS = 4,
    MEMBERS = 7
};

/* ---- pieces of JSON ------------------------------------------------------------------------ */

static void skip_space(struct pull *pull)
{
    while (pull->at < pull->end &&
           (*pull->at == ' ' || *pull->at == '\n' || *pull->at == '\t' || *pull->at == '\r'))
        pull->at++;
}

/* Takes that character, with space around it. */
static bool take(struct pull *pull, char wanted)
{
    skip_space(pull);
    if (pull->at == pull->end || *pull->at != wanted)
        return false;
    pull->at++;
    skip_space(pull);
    return true;
}

static bool take_text(struct pull *pull, struct pull_text *text)
{
    skip_space(pull);
    if (pull->at == pull->end || *pull->at != '"')
        return false;
    text->bytes = ++pull->at;
    while (pull->at < pull->end && *pull->at != '"') {
        if (*pull->at == '\\' || *pull->at < ' ' || *pull->at > '~')
            return false;
        pull->at++;
    }
    text->size_bytes = (size_t)(pull->at - text->bytes);
    return take(pull, '"');
}

static bool text_is(const struct pull_text *text, const char *wanted)
{
    return text->size_bytes == strlen(wanted) && memcmp(text->bytes, wanted, text->size_bytes) == 0;
}

static bool take_number(struct pull *pull, uint64_t *number)
{
    const char *first = pull->at;

    *number = 0;
    for (; pull->at < pull->end && *pull->at >= '0' && *pull->at <= '9'; pull->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*pull->at - '0'), number))
            return false;
    if (pull->at == first || (*first == '0' && pull->at - first > 1) || *number > INT64_MAX)
        return false;
    return pull->at < pull->end && (*pull->at == ',' || *pull->at == ']' || *pull->at == ' ');
}

/* Takes the object that begins here as text; its reader checks the content. */
static bool take_object(struct pull *pull, struct pull_text *object)
{
    unsigned depth = 0;
    bool in_text = false;

    skip_space(pull);
    object->bytes = pull->at;
    for (; pull->at < pull->end; pull->at++) {
        if (in_text && *pull->at == '\\')
            pull->at++;
        else if (*pull->at == '"')
            in_text = !in_text;
        else if (!in_text && *pull->at == '{')
            depth++;
        else if (!in_text && *pull->at == '}' && --depth == 0)
            break;
        if (depth == 0)
            return false;
    }
    if (pull->at >= pull->end)
        return false;
    pull->at++;
    object->size_bytes = (size_t)(pull->at - object->bytes);
    skip_space(pull);
    return true;
}

/* ---- a tensor ------------------------------------------------------------------------------ */

static bool take_dtype(struct pull *pull, struct model_tensor *tensor)
{
    char name[DTYPE_BYTES];
    struct pull_text text;

    if (!take_text(pull, &text) || text.size_bytes >= sizeof(name))
        return false;
    memcpy(name, text.bytes, text.size_bytes);
    name[text.size_bytes] = '\0';
    return safetensors_dtype_parse(name, &tensor->dtype) == 0;
}

/* Takes [1, 2, 3], at most `room` numbers; false: another form. */
static bool take_numbers(struct pull *pull, uint64_t *numbers, uint32_t room, uint32_t *count)
{
    *count = 0;
    if (!take(pull, '['))
        return false;
    if (take(pull, ']'))
        return true;
    do {
        if (*count == room || !take_number(pull, &numbers[*count]))
            return false;
        ++*count;
    } while (take(pull, ','));
    return take(pull, ']');
}

static bool take_shape(struct pull *pull, struct model_tensor *tensor)
{
    uint64_t shape[SAFETENSORS_MAX_DIMENSIONS];

    if (!take_numbers(pull, shape, SAFETENSORS_MAX_DIMENSIONS, &tensor->ndim))
        return false;
    tensor->shape = calloc(tensor->ndim ? tensor->ndim : 1, sizeof(*shape));
    if (!tensor->shape)
        return false;
    memcpy(tensor->shape, shape, tensor->ndim * sizeof(*shape));
    return true;
}

/* Takes each member once, in any order. */
static bool take_members(struct pull *pull, struct model_tensor *tensor, uint64_t offsets[2])
{
    unsigned seen = 0, member;
    struct pull_text name;
    uint32_t count;
    bool is_fine;

    do {
        if (!take_text(pull, &name) || !take(pull, ':'))
            return false;
        member = text_is(&name, "dtype")          ? MEMBER_DTYPE
                 : text_is(&name, "shape")        ? MEMBER_SHAPE
                 : text_is(&name, "data_offsets") ? MEMBER_OFFSETS
                                                  : 0;
        if (!member || seen & member)
            return false;
        seen |= member;
        if (member == MEMBER_DTYPE)
            is_fine = take_dtype(pull, tensor);
        else if (member == MEMBER_SHAPE)
            is_fine = take_shape(pull, tensor);
        else
            is_fine = take_numbers(pull, offsets, 2, &count) && count == 2;
    } while (is_fine && take(pull, ','));
    return is_fine && seen == MEMBERS;
}

static struct model_tensor *make_tensor(struct pull *pull)
{
    struct model *model = pull->model;
    struct model_tensor *grown, *tensor;

    if (model->tensor_count == pull->room) {
        pull->room = pull->room < FIRST_ROOM ? FIRST_ROOM : pull->room * 2;
        grown = safetensors_grow(model->tensors, model->tensor_count,
                                 pull->room - model->tensor_count, sizeof(*grown));
        if (!grown)
            return NULL;
        model->tensors = grown;
    }
    tensor = &model->tensors[model->tensor_count++];
    memset(tensor, 0, sizeof(*tensor));
    tensor->file = pull->file;
    return tensor;
}

static bool take_tensor(struct pull *pull, const struct pull_text *name)
{
    const struct model_file *file = &pull->model->files[pull->file];
    struct model_tensor *tensor = make_tensor(pull);
    uint64_t offsets[2];

    if (!tensor)
        return false;
    tensor->name = strndup(name->bytes, name->size_bytes);
    if (!tensor->name || !take(pull, '{') || !take_members(pull, tensor, offsets) ||
        !take(pull, '}') ||
        safetensors_size(tensor->dtype, tensor->shape, tensor->ndim, &tensor->size_bytes) != 0)
        return false;
    tensor->offset_bytes = file->data_offset_bytes + offsets[0];
    return offsets[0] <= offsets[1] && offsets[1] - offsets[0] == tensor->size_bytes &&
           offsets[1] <= file->size_bytes - file->data_offset_bytes;
}

/* ---- the header ------------------------------------------------------------------------------ */

static bool take_all(struct pull *pull, struct pull_text *metadata)
{
    struct pull_text name;
    bool is_fine = take(pull, '{');

    if (is_fine && take(pull, '}'))
        return pull->at == pull->end;
    do {
        is_fine = is_fine && take_text(pull, &name) && take(pull, ':');
        if (!is_fine)
            return false;
        if (!text_is(&name, SAFETENSORS_METADATA_KEY))
            is_fine = take_tensor(pull, &name);
        else
            is_fine = !metadata->bytes && take_object(pull, metadata);
    } while (is_fine && take(pull, ','));
    return is_fine && take(pull, '}') && pull->at == pull->end;
}

void safetensors_drop_tensors(struct model *model, size_t first)
{
    while (model->tensor_count > first) {
        struct model_tensor *tensor = &model->tensors[--model->tensor_count];
        free(tensor->name);
        free(tensor->shape);
    }
}

int safetensors_pull_header(struct model *model, uint32_t file, const char *bytes,
                            size_t size_bytes, const char **metadata, size_t *metadata_bytes)
{
    struct pull pull = {.model = model,
                        .file = file,
                        .first = model->tensor_count,
                        .room = model->tensor_count,
                        .at = bytes,
                        .end = bytes + size_bytes};
    struct pull_text found = {0};
    bool is_taken = take_all(&pull, &found);

    *metadata = found.bytes;
    *metadata_bytes = found.size_bytes;
    if (is_taken)
        return 0;
    safetensors_drop_tensors(model, pull.first);
    return -EAGAIN;
}
