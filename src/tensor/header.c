/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/header.h"

#include "meta/json_escape.h"

#include <string.h>

#define PREFIX_BYTES 8u /* of the length, little-endian; the header's size is a multiple */
#define DIGITS       20u

static void put(struct tensor_header *header, const char *bytes, size_t count)
{
    if (header->text)
        memcpy(header->text + header->bytes, bytes, count);
    header->bytes += count;
}

static void put_word(struct tensor_header *header, const char *word)
{
    put(header, word, strlen(word));
}

static void put_number(struct tensor_header *header, uint64_t number)
{
    char digits[DIGITS];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    put(header, digits + at, sizeof digits - at);
}

static void put_name(struct tensor_header *header, const char *name, size_t bytes)
{
    put_word(header, header->has_members ? ",\"" : "\"");
    header->has_members = true;
    header->bytes += json_escape(name, bytes, header->text ? header->text + header->bytes : NULL);
    put_word(header, "\":");
}

void tensor_header_begin(struct tensor_header *header, char *text, const char *metadata,
                         size_t metadata_bytes)
{
    *header = (struct tensor_header){.text = text, .bytes = PREFIX_BYTES};
    put_word(header, "{");
    if (!metadata)
        return;
    put_name(header, SAFETENSORS_METADATA_KEY, strlen(SAFETENSORS_METADATA_KEY));
    put(header, metadata, metadata_bytes);
}

void tensor_header_add(struct tensor_header *header, const char *name, size_t name_bytes,
                       enum safetensors_dtype dtype, const uint64_t *shape, uint32_t ndim,
                       uint64_t size_bytes)
{
    put_name(header, name, name_bytes);
    put_word(header, "{\"dtype\":\"");
    put_word(header, safetensors_dtype_name(dtype));
    put_word(header, "\",\"shape\":[");
    for (uint32_t i = 0; i < ndim; i++) {
        if (i)
            put_word(header, ",");
        put_number(header, shape[i]);
    }
    put_word(header, "],\"data_offsets\":[");
    put_number(header, header->data_bytes);
    put_word(header, ",");
    header->data_bytes += size_bytes;
    put_number(header, header->data_bytes);
    put_word(header, "]}");
}

size_t tensor_header_end(struct tensor_header *header)
{
    put_word(header, "}");
    while (header->bytes % PREFIX_BYTES)
        put_word(header, " ");
    size_t length = header->bytes - PREFIX_BYTES;
    for (unsigned i = 0; header->text && i < PREFIX_BYTES; i++)
        header->text[i] = (char)(unsigned char)((uint64_t)length >> (8 * i));
    return header->bytes;
}

bool tensor_header_is_accepted(size_t bytes)
{
    return bytes - PREFIX_BYTES <= SAFETENSORS_MAX_HEADER_BYTES;
}
