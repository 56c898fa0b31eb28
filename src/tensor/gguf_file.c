/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/gguf_file.h"

#include "base/number.h"
#include "base/scope.h"
#include "tensor/long_value.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALIGNMENT (1u << 20)
#define PREFIX_BYTES  (sizeof GGUF_KEY_PREFIX - 1)

/* ---- order --------------------------------------------------------------------------------- */

static bool take_keys(struct json_scan *scan, struct gguf_order *order)
{
    struct json_token key;

    if (order->keys.at || !json_scan_take(scan, '['))
        return false;
    order->keys = *scan;
    if (json_scan_take(scan, ']'))
        return true;
    do {
        if (!json_scan_string(scan, &key))
            return false;
        order->key_count++;
    } while (json_scan_take(scan, ','));
    return json_scan_take(scan, ']');
}

/* Takes a number that is no 0 and was not there before. */
static bool take_number(struct json_scan *scan, uint32_t *number)
{
    uint64_t taken;

    if (*number != 0 || !json_scan_number(scan, &taken) || taken == 0 || taken > UINT32_MAX)
        return false;
    *number = (uint32_t)taken;
    return true;
}

static bool take_member(struct json_scan *scan, struct gguf_order *order)
{
    struct json_token name;

    if (!json_scan_string(scan, &name) || !json_scan_take(scan, ':'))
        return false;
    if (json_token_is(&name, "version"))
        return take_number(scan, &order->version);
    if (json_token_is(&name, "alignment"))
        return take_number(scan, &order->alignment_bytes);
    if (json_token_is(&name, "keys"))
        return take_keys(scan, order);
    return json_scan_skip(scan);
}

int gguf_order_parse(const void *value, size_t value_bytes, struct gguf_order *order)
{
    struct json_scan scan = {value, (const char *)value + value_bytes};

    *order = (struct gguf_order){0};
    if (!json_scan_take(&scan, '{'))
        return -EINVAL;
    do
        if (!take_member(&scan, order))
            return -EINVAL;
    while (json_scan_take(&scan, ','));
    if (!json_scan_take(&scan, '}') || !json_scan_is_over(&scan))
        return -EINVAL;
    uint32_t alignment = order->alignment_bytes;
    return (order->version == 2 || order->version == 3) && order->keys.at && alignment > 0 &&
                   alignment <= MAX_ALIGNMENT && (alignment & (alignment - 1)) == 0
               ? 0
               : -EINVAL;
}

/* ---- key-values ---------------------------------------------------------------------------- */

/* Writes the next key, with the prefix and an end, into pairs->culprit. Returns its bytes; 0 if the
 * key is no valid text. */
static size_t next_key(struct gguf_pairs *pairs, struct gguf_order *order)
{
    struct json_token token = {0};
    size_t bytes = 0;
    bool is_text = json_scan_string(&order->keys, &token) &&
                   json_token_decode(&token, pairs->culprit + PREFIX_BYTES, &bytes);

    json_scan_take(&order->keys, ',');
    bytes = is_text ? bytes : 0;
    pairs->culprit[PREFIX_BYTES + bytes] = '\0';
    return is_text ? PREFIX_BYTES + bytes : 0;
}

static const char *take_pair(const struct gguf_stored *stored, struct gguf_pair *pair)
{
    uint64_t bytes = stored->value_bytes;

    if (stored->is_bound &&
        long_value_parse(LONG_VALUE_GGUF, stored->value, stored->value_bytes, &bytes) != 0)
        return "no value of a file of that format";
    if (stored->is_bound && bytes > stored->room_bytes)
        return "it reaches beyond its allocation";
    if (bytes > GGUF_MAX_HEADER_BYTES)
        return "it is longer than 100,000,000 bytes";
    *pair = (struct gguf_pair){.key = stored->key + PREFIX_BYTES,
                               .key_bytes = stored->key_bytes - PREFIX_BYTES,
                               .bytes = stored->is_bound ? NULL : stored->value,
                               .size_bytes = bytes,
                               .allocation = stored->allocation,
                               .offset = stored->offset};
    return NULL;
}

static int compare_entries(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;

    return (*a > *b) - (*a < *b);
}

/* Sorts the keys: a user chooses them, and comparing each with all others would delay a worker's
 * start. */
static int refuse_repeated(struct gguf_pairs *pairs, const struct gguf_stored *stored)
{
    const char **keys = malloc((pairs->count + 1) * sizeof(const char *));

    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < pairs->count; i++)
        keys[i] = stored[i].key;
    qsort(keys, pairs->count, sizeof *keys, compare_entries);
    for (size_t i = 1; i < pairs->count && !pairs->why; i++)
        if (keys[i] == keys[i - 1])
            pairs->why = "it names a key-value twice";
    free(keys);
    if (pairs->why)
        strcpy(pairs->culprit, GGUF_ENTRY);
    return pairs->why ? -EINVAL : 0;
}

static int find_entries(struct gguf_pairs *pairs, struct gguf_order *order, gguf_find *find,
                        const void *context, struct gguf_stored *stored)
{
    for (; pairs->count < order->key_count; pairs->count++) {
        size_t bytes = next_key(pairs, order);

        if (bytes == 0 || !find(context, pairs->culprit, bytes, &stored[pairs->count])) {
            pairs->why = "the entry is not there";
            return -EINVAL;
        }
    }
    return 0;
}

static int take_pairs(struct gguf_pairs *pairs, const struct gguf_stored *stored)
{
    for (size_t i = 0; i < pairs->count; i++) {
        pairs->why = take_pair(&stored[i], &pairs->list[i]);
        if (pairs->why) {
            memcpy(pairs->culprit, stored[i].key, stored[i].key_bytes);
            pairs->culprit[stored[i].key_bytes] = '\0';
            return -EINVAL;
        }
    }
    return 0;
}

/* Refuses repeated keys before any value is parsed, so that each is parsed once. */
int gguf_pairs_find(struct gguf_pairs *pairs, struct gguf_order order, gguf_find *find,
                    const void *context)
{
    size_t room = (size_t)(order.keys.end - order.keys.at);
    SCOPED_FREE struct gguf_stored *stored = calloc(order.key_count + 1, sizeof *stored);

    pairs->list = calloc(order.key_count + 1, sizeof *pairs->list);
    pairs->culprit = calloc(1, room + sizeof GGUF_KEY_PREFIX + sizeof GGUF_ENTRY);
    if (!stored || !pairs->list || !pairs->culprit)
        return -ENOMEM;
    strcpy(pairs->culprit, GGUF_KEY_PREFIX);
    int error = find_entries(pairs, &order, find, context, stored);
    if (!error)
        error = refuse_repeated(pairs, stored);
    return error ? error : take_pairs(pairs, stored);
}

void gguf_pairs_free(struct gguf_pairs *pairs)
{
    free(pairs->list);
    free(pairs->culprit);
    *pairs = (struct gguf_pairs){0};
}

/* ---- types --------------------------------------------------------------------------------- */

static bool find_type(const char *name, size_t name_bytes, enum safetensors_dtype dtype,
                      struct gguf_type *type)
{
    char text[SAFETENSORS_GGML_BYTES] = "";

    if (name_bytes > 0 && name_bytes < sizeof text) {
        memcpy(text, name, name_bytes);
        if (gguf_find_type_name(text, type))
            return true;
    }
    return gguf_find_type_of(dtype, type);
}

const char *gguf_choose_type(const char *name, size_t name_bytes, enum safetensors_dtype dtype,
                             const uint64_t *shape, uint32_t ndim, struct gguf_type *type)
{
    if (!find_type(name, name_bytes, dtype, type))
        return "its dtype is none that GGUF has";
    if (ndim > GGUF_MAX_DIMENSIONS)
        return "it has more than four dimensions";
    if (type->dtype != dtype ||
        (dtype == SAFETENSORS_U8 && (ndim == 0 || shape[ndim - 1] % type->bytes != 0)))
        return "its dtype and shape are not those of its ggml_type";
    return NULL;
}

/* ---- the file ------------------------------------------------------------------------------ */

static void put(struct file_plan *plan, const void *bytes, size_t size_bytes)
{
    char *to = file_plan_add_text(plan, size_bytes);

    if (to && size_bytes)
        memcpy(to, bytes, size_bytes);
}

static void put_u32(struct file_plan *plan, uint32_t number)
{
    number = htole32(number);
    put(plan, &number, sizeof number);
}

static void put_u64(struct file_plan *plan, uint64_t number)
{
    number = htole64(number);
    put(plan, &number, sizeof number);
}

static void put_text(struct file_plan *plan, const char *text, size_t bytes)
{
    put_u64(plan, bytes);
    put(plan, text, bytes);
}

void gguf_writer_begin(struct gguf_writer *writer, struct file_plan *plan,
                       const struct gguf_order *order, const struct gguf_pairs *pairs,
                       uint64_t tensor_count)
{
    *writer = (struct gguf_writer){plan, order->alignment_bytes, tensor_count, 0};
    put(plan, GGUF_MAGIC, strlen(GGUF_MAGIC));
    put_u32(plan, order->version);
    put_u64(plan, tensor_count);
    put_u64(plan, pairs->count);
    for (size_t i = 0; i < pairs->count; i++) {
        const struct gguf_pair *pair = &pairs->list[i];

        put_text(plan, pair->key, pair->key_bytes);
        if (pair->bytes)
            put(plan, pair->bytes, (size_t)pair->size_bytes);
        else
            file_plan_add_memory(plan, pair->allocation, pair->offset, pair->size_bytes);
    }
}

static uint64_t count_padding(const struct gguf_writer *writer, uint64_t bytes)
{
    return number_round_up(bytes, writer->alignment_bytes) - bytes;
}

void gguf_writer_describe(struct gguf_writer *writer, const char *name, size_t name_bytes,
                          const struct gguf_type *type, const uint64_t *shape, uint32_t ndim,
                          uint64_t size_bytes)
{
    struct file_plan *plan = writer->plan;

    put_text(plan, name, name_bytes);
    put_u32(plan, ndim);
    for (uint32_t i = ndim; i > 0; i--)
        put_u64(plan, type->dtype == SAFETENSORS_U8 && i == ndim
                          ? shape[i - 1] / type->bytes * type->elements
                          : shape[i - 1]);
    put_u32(plan, type->number);
    put_u64(plan, writer->data_bytes);
    writer->data_bytes += size_bytes + count_padding(writer, size_bytes);
}

bool gguf_writer_end_header(struct gguf_writer *writer)
{
    uint64_t bytes = writer->plan->size_bytes;

    if (writer->tensor_count > 0) /* a file with only a vocabulary has no padding */
        file_plan_add_zeros(writer->plan, count_padding(writer, bytes));
    return bytes <= GGUF_MAX_HEADER_BYTES;
}

void gguf_writer_add_data(struct gguf_writer *writer, uint64_t allocation, uint64_t offset,
                          uint64_t size_bytes)
{
    file_plan_add_memory(writer->plan, allocation, offset, size_bytes);
    file_plan_add_zeros(writer->plan, count_padding(writer, size_bytes));
}
