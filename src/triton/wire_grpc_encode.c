/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_grpc.h"
#include "triton/wire_proto.h"

#include <stdint.h>

/* Begins a nested message: it is made first, because its length stands before it. */
static struct wire_buffer part_begin(void)
{
    return (struct wire_buffer){.limit_bytes = UINT32_MAX};
}

static void part_end(struct wire_buffer *message, uint32_t number, struct wire_buffer *part)
{
    wire_proto_put_message(message, number,
                           (struct wire_text){(const char *)part->bytes, part->size});
    message->has_failed |= part->has_failed;
    wire_buffer_free(part);
}

static void put_metadata(struct wire_buffer *message, const struct wire_answer *answer)
{
    wire_proto_put_text(message, 1, WIRE_TEXT("gmsfs"));
    wire_proto_put_text(message, 2, WIRE_TEXT(GMSFS_VERSION));
    wire_proto_put_text(message, 3, WIRE_TEXT("system_shared_memory"));
    if (answer->has_cuda)
        wire_proto_put_text(message, 3, WIRE_TEXT("cuda_shared_memory"));
}

/* Writes an entry of the map of names to regions. */
static void put_region(struct wire_buffer *message, const struct gmsfs_region_info *region)
{
    struct wire_text name = wire_text_of(region->name);
    struct wire_buffer entry = part_begin(), facts = part_begin();

    wire_proto_put_text(&facts, 1, name);
    if (region->kind == GMSFS_REGION_CUDA) {
        wire_proto_put_uint(&facts, 2, (uint64_t)region->device_id);
        wire_proto_put_uint(&facts, 3, region->byte_size);
    } else {
        wire_proto_put_text(&facts, 2, wire_text_of(region->key));
        wire_proto_put_uint(&facts, 3, region->offset);
        wire_proto_put_uint(&facts, 4, region->byte_size);
    }
    wire_proto_put_text(&entry, 1, name);
    part_end(&entry, 2, &facts);
    part_end(message, 1, &entry);
}

/* Writes `text`, or if that is NULL, `value`. */
static void put_parameter(struct wire_buffer *tensor, struct wire_text key, struct wire_text text,
                          uint64_t value)
{
    struct wire_buffer entry = part_begin(), parameter = part_begin();

    if (text.at)
        wire_proto_put_message(&parameter, 3, text); /* string_param */
    else
        wire_proto_put_uint(&parameter, 2, value); /* int64_param */
    wire_proto_put_text(&entry, 1, key);
    part_end(&entry, 2, &parameter);
    part_end(tensor, 4, &entry);
}

static void put_result(struct wire_buffer *message, const struct wire_result *result)
{
    struct wire_buffer tensor = part_begin(), shape = part_begin();

    wire_proto_put_text(&tensor, 1, result->name);
    wire_proto_put_text(&tensor, 2, WIRE_TEXT("INT32"));
    for (unsigned i = 0; i < result->rank; i++)
        wire_proto_put_varint(&shape, (uint64_t)result->shape[i]);
    part_end(&tensor, 3, &shape);
    if (!result->data) {
        put_parameter(&tensor, WIRE_TEXT("shared_memory_region"), result->wanted->region, 0);
        put_parameter(&tensor, WIRE_TEXT("shared_memory_byte_size"), (struct wire_text){0},
                      result->bytes);
        if (result->wanted->region_offset)
            put_parameter(&tensor, WIRE_TEXT("shared_memory_offset"), (struct wire_text){0},
                          result->wanted->region_offset);
    }
    part_end(message, 5, &tensor);
}

static void put_inference(struct wire_buffer *message, const struct wire_request *request,
                          const struct wire_answer *answer)
{
    wire_proto_put_text(message, 1, request->model);
    wire_proto_put_text(message, 2, WIRE_TEXT("1"));
    wire_proto_put_text(message, 3, request->id);
    for (unsigned i = 0; i < answer->result_count; i++)
        put_result(message, &answer->results[i]);
    /* one for each output: clients count them */
    for (unsigned i = 0; i < answer->result_count; i++) {
        const struct wire_result *result = &answer->results[i];
        wire_proto_put_message(
            message, 6,
            (struct wire_text){(const char *)result->data, result->data ? result->bytes : 0});
    }
}

void wire_grpc_encode(const struct wire_request *request, const struct wire_answer *answer,
                      struct wire_buffer *message)
{
    switch (request->verb) {
    case WIRE_LIVE:
        wire_proto_put_uint(message, 1, 1);
        break;
    case WIRE_READY:
    case WIRE_MODEL_READY:
        wire_proto_put_uint(message, 1, answer->is_ready);
        break;
    case WIRE_METADATA:
        put_metadata(message, answer);
        break;
    case WIRE_STATUS:
        for (size_t i = 0; i < answer->region_count; i++)
            put_region(message, &answer->regions[i]);
        break;
    case WIRE_INFER:
        put_inference(message, request, answer);
        break;
    default:
        break;
    }
}
