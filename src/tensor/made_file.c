/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/made_file.h"

#include "base/array.h"
#include "base/json_scan.h"
#include "meta/file_tree.h"
#include "meta/json_escape.h"
#include "tensor/form.h"
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
    uint64_t shape[KEPT_DIMENSIONS]; /* if there are no more: parsing takes most of the time */
};

/* The tensors of a layout. */
struct tensors {
    const struct layout *layout;
    struct found *list;
    size_t count, room;
    uint64_t data_bytes;
    char *metadata; /* an object in JSON without blanks; NULL: none */
    size_t metadata_bytes;
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

/* Sorts the keys: a user chooses them, and comparing each with all takes a recovery's time. */
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
    struct json_scan scan;
    struct key *keys;
    char *decoded;
    int error;

    if (!entry)
        return 0;
    scan = (struct json_scan){(const char *)entry->value,
                              (const char *)entry->value + entry->value_bytes};
    keys = calloc(MADE_FILE_MOST_PAIRS, sizeof *keys);
    decoded = malloc(entry->value_bytes + 1);
    tensors->metadata = malloc((size_t)entry->value_bytes + 1);
    error = keys && decoded && tensors->metadata ? 0 : -ENOMEM;
    if (!error && !put_object(tensors, &scan, decoded, keys))
        error = refuse(tensors, entry,
                       entry->slot == LAYOUT_UNBOUND
                           ? "it is not a JSON object of at most 1,024 strings"
                           : "it lies in an allocation, because it is longer than 1 MiB");
    free(decoded);
    free(keys);
    return error;
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
    int error;

    if (entry->slot == LAYOUT_UNBOUND)
        return 0;
    error = tensor_form_parse(entry->value, entry->value_bytes, &form, &why);
    if (error == -ENOENT)
        return 0;
    found.allocation = layout_find_slot(tensors->layout, entry->slot, NULL);
    if (!found.allocation)
        return 0;
    if (!error) {
        keep_form(&found, &form);
        why = find_fault(tensors, &found);
    }
    if (why)
        return refuse(tensors, entry, why);
    tensors->data_bytes += found.size_bytes;
    return add(tensors, &found);
}

static int compare(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    size_t common;
    int order;

    if (a->allocation->slot != b->allocation->slot)
        return a->allocation->slot < b->allocation->slot ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    common = a->entry->key_bytes < b->entry->key_bytes ? a->entry->key_bytes : b->entry->key_bytes;
    order = memcmp(a->entry->key, b->entry->key, common);
    return order ? order
                 : (a->entry->key_bytes > b->entry->key_bytes) -
                       (a->entry->key_bytes < b->entry->key_bytes);
}

/* -EINVAL: see tensors->why. */
static int take_all(struct tensors *tensors)
{
    struct layout_cursor cursor;
    const struct layout_entry *entry;
    int error;

    tensors->has_files = file_tree_first(tensors->layout, NULL, 0) != NULL;
    if (tensors->has_files)
        return refuse(tensors, NULL, NULL);
    entry = layout_find_entry(tensors->layout, TENSOR_GGUF_KEY, strlen(TENSOR_GGUF_KEY));
    if (entry)
        return refuse(tensors, entry,
                      "its tensors are of a GGUF file: write it by 'gmsfs save STORE FILE.gguf'");
    layout_cursor_first(&cursor, tensors->layout);
    while ((entry = layout_cursor_next(&cursor))) {
        error = take_entry(tensors, entry);
        if (error)
            return error;
    }
    if (tensors->count == 0)
        return refuse(tensors, NULL, "it has no tensors");
    qsort(tensors->list, tensors->count, sizeof *tensors->list, compare);
    return take_metadata(tensors);
}

static void drop_all(struct tensors *tensors)
{
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

int made_file_look(const struct layout *layout, struct made_file_facts *facts)
{
    struct tensors tensors = {.layout = layout};
    int error = take_all(&tensors);
    size_t header_bytes = error ? 0 : write_header(&tensors, NULL);

    if (!error && !tensor_header_is_accepted(header_bytes))
        error = refuse(&tensors, NULL, "the header would have more than 100,000,000 bytes");
    *facts = (struct made_file_facts){.has_files = tensors.has_files};
    if (!error) {
        facts->size_bytes = header_bytes + tensors.data_bytes;
        facts->plan_bytes = sizeof(struct made_file) + header_bytes +
                            tensors.count * sizeof(struct made_file_extent);
    } else if (error == -EINVAL) {
        facts->why = tensors.why;
        facts->culprit = tensors.culprit ? tensors.culprit->serial : 0;
        error = 0;
    }
    drop_all(&tensors);
    return error;
}

static void add_extents(const struct tensors *tensors, struct made_file *made)
{
    uint64_t at = made->header_bytes;

    for (size_t i = 0; i < tensors->count; i++) {
        const struct found *found = &tensors->list[i];

        if (found->size_bytes > 0)
            made->extents[made->count++] =
                (struct made_file_extent){at, found->allocation->serial, found->offset};
        at += found->size_bytes;
    }
    made->size_bytes = at;
}

static int plan(const struct tensors *tensors, struct made_file *made)
{
    made->header_bytes = write_header(tensors, NULL);
    if (!tensor_header_is_accepted(made->header_bytes))
        return -EINVAL;
    made->header = malloc(made->header_bytes);
    made->extents = calloc(tensors->count, sizeof *made->extents);
    if (!made->header || !made->extents)
        return -ENOMEM;
    write_header(tensors, made->header);
    add_extents(tensors, made);
    return 0;
}

int made_file_plan(const struct layout *layout, struct made_file **made)
{
    struct tensors tensors = {.layout = layout};
    int error;

    *made = calloc(1, sizeof **made);
    error = *made ? take_all(&tensors) : -ENOMEM;
    if (!error)
        error = plan(&tensors, *made);
    drop_all(&tensors);
    if (error) {
        made_file_free(*made);
        *made = NULL;
    }
    return error;
}

void made_file_free(struct made_file *made)
{
    if (!made)
        return;
    free(made->header);
    free(made->extents);
    free(made);
}

size_t made_file_find(const struct made_file *made, uint64_t at)
{
    size_t index = 0;

    ARRAY_SEARCH(index, made->count, made->extents[index].at <= at);
    return index - 1;
}

uint64_t made_file_end(const struct made_file *made, size_t index)
{
    return index + 1 < made->count ? made->extents[index + 1].at : made->size_bytes;
}
