/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/made_file.h"

#include "base/array.h"
#include "base/json_scan.h"
#include "base/number.h"
#include "meta/file_tree.h"
#include "meta/json_escape.h"
#include "tensor/form.h"
#include "tensor/gguf_file.h"
#include "tensor/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_DIMENSIONS 4u

struct found {
    const struct layout_entry *entry;
    const struct layout_allocation *allocation;
    uint64_t offset, size_bytes;
    enum safetensors_dtype dtype;
    uint32_t ndim;
    uint32_t number, elements, bytes; /* of its type in a GGUF file */
    uint64_t shape[KEPT_DIMENSIONS];  /* if there are no more: parsing takes most of the time */
};

/* The tensors of a layout. */
struct tensors {
    const struct layout *layout;
    struct found *list;
    size_t count, room;
    uint64_t data_bytes;
    char *metadata; /* an object in JSON without blanks; NULL: none */
    size_t metadata_bytes;
    size_t header_bytes;             /* of a safetensors file */
    const struct layout_entry *gguf; /* the entry of a GGUF file; NULL: none */
    struct gguf_order order;
    struct gguf_pairs pairs;
    bool has_files;  /* its own */
    const char *why; /* reason why no file can be made */
    const struct layout_entry *culprit;
};

static int refuse(struct tensors *tensors, const struct layout_entry *culprit, const char *why)
{
    tensors->why = why;
    tensors->culprit = culprit;
    return -EINVAL;
}

/* ---- metadata ------------------------------------------------------------------------------ */

struct key {
    const char *text; /* in the object that is being written */
    size_t bytes;
};

/* Appends a string in the file's spelling, which is never longer than another one. */
static bool put_string(struct tensors *tensors, const struct json_token *token, char *decoded)
{
    size_t bytes;

    if (!json_token_decode(token, decoded, &bytes))
        return false;
    tensors->metadata[tensors->metadata_bytes++] = '"';
    tensors->metadata_bytes +=
        json_escape(decoded, bytes, tensors->metadata + tensors->metadata_bytes);
    tensors->metadata[tensors->metadata_bytes++] = '"';
    return true;
}

static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return memcmp(a->text, b->text, a->bytes);
}

/* Sorts the keys: a user chooses them, and comparing each with all others would delay a worker's
 * start. */
static bool has_repeated(struct key *keys, size_t count)
{
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0)
            return true;
    return false;
}

static bool put_pair(struct tensors *tensors, struct json_scan *scan, char *decoded,
                     struct key *keys, size_t count)
{
    struct json_token key, value;

    if (count == MADE_FILE_MOST_PAIRS || !json_scan_string(scan, &key) ||
        !json_scan_take(scan, ':') || !json_scan_string(scan, &value))
        return false;
    if (count > 0)
        tensors->metadata[tensors->metadata_bytes++] = ',';
    keys[count].text = tensors->metadata + tensors->metadata_bytes;
    if (!put_string(tensors, &key, decoded))
        return false;
    keys[count].bytes = (size_t)(tensors->metadata + tensors->metadata_bytes - keys[count].text);
    tensors->metadata[tensors->metadata_bytes++] = ':';
    return put_string(tensors, &value, decoded);
}

static bool put_object(struct tensors *tensors, struct json_scan *scan, char *decoded,
                       struct key *keys)
{
    size_t count = 0;

    if (!json_scan_take(scan, '{'))
        return false;
    tensors->metadata[tensors->metadata_bytes++] = '{';
    if (!json_scan_take(scan, '}')) {
        do
            if (!put_pair(tensors, scan, decoded, keys, count++))
                return false;
        while (json_scan_take(scan, ','));
        if (!json_scan_take(scan, '}'))
            return false;
    }
    tensors->metadata[tensors->metadata_bytes++] = '}';
    return json_scan_is_over(scan) && !has_repeated(keys, count);
}

static int take_metadata(struct tensors *tensors)
{
    const struct layout_entry *entry = layout_find_entry(tensors->layout, SAFETENSORS_METADATA_KEY,
                                                         strlen(SAFETENSORS_METADATA_KEY));
    struct key *keys;

    if (!entry)
        return 0;
    struct json_scan scan = (struct json_scan){(const char *)entry->value,
                                               (const char *)entry->value + entry->value_bytes};
    keys = calloc(MADE_FILE_MOST_PAIRS, sizeof *keys);
    char *decoded = malloc(entry->value_bytes + 1);
    tensors->metadata = malloc((size_t)entry->value_bytes + 1);
    int error = keys && decoded && tensors->metadata ? 0 : -ENOMEM;
    if (!error && !put_object(tensors, &scan, decoded, keys))
        error = refuse(tensors, entry,
                       entry->slot == LAYOUT_UNBOUND
                           ? "it is not a JSON object of at most 1,024 strings"
                           : "it lies in an allocation, because it is longer than 1 MiB");
    free(decoded);
    free(keys);
    return error;
}

/* ---- key-values of a GGUF file -------------------------------------------------------------- */

static bool find_pair(const void *context, const char *key, size_t key_bytes,
                      struct gguf_stored *stored)
{
    const struct layout *layout = context;
    const struct layout_entry *entry = layout_find_entry(layout, key, key_bytes);

    if (!entry)
        return false;
    *stored = (struct gguf_stored){.key = entry->key,
                                   .key_bytes = entry->key_bytes,
                                   .value = entry->value,
                                   .value_bytes = entry->value_bytes};
    const struct layout_allocation *allocation = layout_find_slot(layout, entry->slot, NULL);
    if (!allocation)
        return true;
    stored->is_bound = true;
    stored->allocation = allocation->serial;
    stored->offset = entry->offset;
    stored->room_bytes = number_subtract(allocation->size_bytes, entry->offset);
    return true;
}

/* Parses the order of the keys. */
static int take_order(struct tensors *tensors)
{
    const struct layout_entry *entry =
        layout_find_entry(tensors->layout, GGUF_ENTRY, strlen(GGUF_ENTRY));

    tensors->gguf = entry;
    if (!entry)
        return 0;
    if (gguf_order_parse(entry->value, entry->value_bytes, &tensors->order) != 0)
        return refuse(tensors, entry, "it does not describe a GGUF file");
    if (tensors->order.key_count > MADE_FILE_MOST_KEYS)
        return refuse(tensors, entry, "it names more than 131,072 key-values");
    if (tensors->order.key_count > layout_count_entries(tensors->layout))
        return refuse(tensors, entry, "it names a key-value that is not there");
    return 0;
}

static int take_pairs(struct tensors *tensors)
{
    struct gguf_pairs *pairs = &tensors->pairs;
    int error = gguf_pairs_find(pairs, tensors->order, find_pair, tensors->layout);
    const struct layout_entry *entry;

    if (error != -EINVAL)
        return error;
    entry = layout_find_entry(tensors->layout, pairs->culprit, strlen(pairs->culprit));
    return entry ? refuse(tensors, entry, pairs->why)
                 : refuse(tensors, tensors->gguf, "it names a key-value that is not there");
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int add(struct tensors *tensors, const struct found *found)
{
    int error = ARRAY_RESERVE(tensors->list, tensors->room, tensors->count + 1);

    if (!error)
        tensors->list[tensors->count++] = *found;
    return error;
}

static bool has_key(const struct layout_entry *entry, const char *key)
{
    return entry->key_bytes == strlen(key) && memcmp(entry->key, key, entry->key_bytes) == 0;
}

static const char *find_fault(const struct tensors *tensors, const struct found *found)
{
    const struct layout_entry *entry = found->entry;
    uint64_t end;

    if (tensors->count == MADE_FILE_MOST_TENSORS)
        return "it is one of more than 131,072 tensors";
    if (memchr(entry->key, 0, entry->key_bytes))
        return "its name holds a NUL";
    if (has_key(entry, SAFETENSORS_METADATA_KEY))
        return "a tensor has the name of a file's metadata";
    if (__builtin_add_overflow(found->offset, found->size_bytes, &end) ||
        end > found->allocation->size_bytes) /* the contents id ends there */
        return "it reaches beyond its allocation's size";
    if (tensors->data_bytes + found->size_bytes > INT64_MAX / 2)
        return "all tensors together have more bytes than can be counted";
    return NULL;
}

/* Keeps the type that the tensor has in a GGUF file. */
static const char *keep_type(struct found *found, const struct tensor_form *form)
{
    struct gguf_type type;
    const char *why = gguf_choose_type(form->ggml_type, form->ggml_bytes, form->dtype, form->shape,
                                       form->ndim, &type);

    if (why)
        return why;
    found->number = type.number;
    found->elements = type.elements;
    found->bytes = type.bytes;
    return NULL;
}

static void keep_form(struct found *found, const struct tensor_form *form)
{
    found->size_bytes = form->size_bytes;
    found->dtype = form->dtype;
    found->ndim = form->ndim;
    if (form->ndim <= KEPT_DIMENSIONS)
        memcpy(found->shape, form->shape, form->ndim * sizeof *form->shape);
}

static int take_entry(struct tensors *tensors, const struct layout_entry *entry)
{
    struct found found = {.entry = entry, .offset = entry->offset};
    struct tensor_form form;
    const char *why = NULL;

    if (entry->slot == LAYOUT_UNBOUND)
        return 0;
    int error = tensor_form_parse(entry->value, entry->value_bytes, &form, &why);
    if (error == -ENOENT)
        return 0;
    found.allocation = layout_find_slot(tensors->layout, entry->slot, NULL);
    if (!found.allocation)
        return 0;
    if (!error) {
        keep_form(&found, &form);
        why = find_fault(tensors, &found);
    }
    if (!error && !why && tensors->gguf)
        why = keep_type(&found, &form);
    if (why)
        return refuse(tensors, entry, why);
    tensors->data_bytes += found.size_bytes;
    return add(tensors, &found);
}

static int compare(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    size_t common;

    if (a->allocation->slot != b->allocation->slot)
        return a->allocation->slot < b->allocation->slot ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    common = a->entry->key_bytes < b->entry->key_bytes ? a->entry->key_bytes : b->entry->key_bytes;
    int order = memcmp(a->entry->key, b->entry->key, common);
    return order ? order
                 : (a->entry->key_bytes > b->entry->key_bytes) -
                       (a->entry->key_bytes < b->entry->key_bytes);
}

/* True for a GGUF file without tensors, if an open of the file has an allocation to hold. */
static bool is_vocabulary(const struct tensors *tensors)
{
    return tensors->gguf && layout_count_allocations(tensors->layout) > 0;
}

/* -EINVAL: see tensors->why. */
static int take_all(struct tensors *tensors)
{
    struct layout_cursor cursor;
    const struct layout_entry *entry;

    tensors->has_files = file_tree_first(tensors->layout, NULL, 0) != NULL;
    if (tensors->has_files)
        return refuse(tensors, NULL, NULL);
    int error = take_order(tensors);
    if (error)
        return error;
    layout_cursor_first(&cursor, tensors->layout);
    while ((entry = layout_cursor_next(&cursor))) {
        error = take_entry(tensors, entry);
        if (error)
            return error;
    }
    if (tensors->count == 0 && !is_vocabulary(tensors))
        return refuse(tensors, NULL, "it has no tensors");
    if (tensors->count > 0)
        qsort(tensors->list, tensors->count, sizeof *tensors->list, compare);
    return tensors->gguf ? take_pairs(tensors) : take_metadata(tensors);
}

static void drop_all(struct tensors *tensors)
{
    gguf_pairs_free(&tensors->pairs);
    free(tensors->list);
    free(tensors->metadata);
}

/* ---- the file ------------------------------------------------------------------------------ */

static size_t write_header(const struct tensors *tensors, char *text)
{
    struct tensor_header header;
    struct tensor_form form;
    const char *why;

    tensor_header_begin(&header, text, tensors->metadata, tensors->metadata_bytes);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct found *found = &tensors->list[i];
        const struct layout_entry *entry = found->entry;
        bool is_kept = found->ndim <= KEPT_DIMENSIONS;

        if (!is_kept)
            tensor_form_parse(entry->value, entry->value_bytes, &form, &why); /* as before */
        tensor_header_add(&header, entry->key, entry->key_bytes, found->dtype,
                          is_kept ? found->shape : form.shape, found->ndim, found->size_bytes);
    }
    return tensor_header_end(&header);
}

/* Returns false if the header is longer than readers accept. */
static bool make_safetensors(struct tensors *tensors, struct file_plan *plan)
{
    if (tensors->header_bytes == 0)
        tensors->header_bytes = write_header(tensors, NULL);
    char *text = file_plan_add_text(plan, tensors->header_bytes);
    if (text)
        write_header(tensors, text);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct found *found = &tensors->list[i];

        file_plan_add_memory(plan, found->allocation->serial, found->offset, found->size_bytes);
    }
    return tensor_header_is_accepted(tensors->header_bytes);
}

static bool make_gguf(const struct tensors *tensors, struct file_plan *plan)
{
    struct gguf_writer writer;

    gguf_writer_begin(&writer, plan, &tensors->order, &tensors->pairs, tensors->count);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct found *found = &tensors->list[i];
        struct gguf_type type = {.number = found->number,
                                 .elements = found->elements,
                                 .bytes = found->bytes,
                                 .dtype = found->dtype};

        gguf_writer_describe(&writer, found->entry->key, found->entry->key_bytes, &type,
                             found->shape, found->ndim, found->size_bytes);
    }
    bool is_accepted = gguf_writer_end_header(&writer);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct found *found = &tensors->list[i];

        gguf_writer_add_data(&writer, found->allocation->serial, found->offset, found->size_bytes);
    }
    return is_accepted;
}

/* Counts the parts of the file, or makes them if there is room. */
static int make(struct tensors *tensors, struct file_plan *plan)
{
    bool is_accepted = tensors->gguf ? make_gguf(tensors, plan) : make_safetensors(tensors, plan);

    return is_accepted ? 0
                       : refuse(tensors, NULL, "the header would have more than 100,000,000 bytes");
}

int made_file_look(const struct layout *layout, struct made_file_facts *facts)
{
    struct tensors tensors = {.layout = layout};
    struct file_plan plan = {0};
    int error = take_all(&tensors);

    if (!error)
        error = make(&tensors, &plan);
    *facts =
        (struct made_file_facts){.has_files = tensors.has_files, .is_gguf = tensors.gguf != NULL};
    if (!error) {
        facts->size_bytes = plan.size_bytes;
        facts->plan_bytes = sizeof plan + file_plan_bytes(&plan);
    } else if (error == -EINVAL) {
        facts->why = tensors.why;
        facts->culprit = tensors.culprit ? tensors.culprit->serial : 0;
        error = 0;
    }
    drop_all(&tensors);
    return error;
}

int made_file_plan(const struct layout *layout, struct file_plan **plan)
{
    struct tensors tensors = {.layout = layout};

    *plan = calloc(1, sizeof **plan);
    int error = *plan ? take_all(&tensors) : -ENOMEM;
    if (!error)
        error = make(&tensors, *plan);
    if (!error)
        error = file_plan_room(*plan);
    if (!error)
        error = make(&tensors, *plan);
    drop_all(&tensors);
    if (error) {
        made_file_free(*plan);
        *plan = NULL;
    }
    return error;
}

void made_file_free(struct file_plan *plan)
{
    if (!plan)
        return;
    file_plan_free(plan);
    free(plan);
}
