/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_json.h"
#include "triton/wire_rest.h"

#include <inttypes.h>

void wire_rest_put_error(struct wire_buffer *body, struct wire_text text)
{
    wire_print(body, "{\"error\":");
    wire_json_put_text(body, text);
    wire_print(body, "}");
}

static void put_member(struct wire_buffer *body, const char *key, struct wire_text text)
{
    wire_print(body, "\"%s\":", key);
    wire_json_put_text(body, text);
}

static void put_metadata(struct wire_buffer *body, const struct wire_answer *answer)
{
    wire_print(body,
               "{\"name\":\"gmsfs\",\"version\":\"" GMSFS_VERSION
               "\",\"extensions\":[\"system_shared_memory\"%s]}",
               answer->has_cuda ? ",\"cuda_shared_memory\"" : "");
}

static void put_region(struct wire_buffer *body, const struct gmsfs_region_info *region)
{
    wire_print(body, "{");
    put_member(body, "name", wire_text_of(region->name));
    if (region->kind == GMSFS_REGION_CUDA) {
        wire_print(body, ",\"device_id\":%" PRId64, region->device_id);
    } else {
        wire_print(body, ",");
        put_member(body, "key", wire_text_of(region->key));
        wire_print(body, ",\"offset\":%" PRIu64, region->offset);
    }
    wire_print(body, ",\"byte_size\":%" PRIu64 "}", region->byte_size);
}

static void put_regions(struct wire_buffer *body, const struct wire_answer *answer)
{
    wire_print(body, "[");
    for (size_t i = 0; i < answer->region_count; i++) {
        if (i > 0)
            wire_print(body, ",");
        put_region(body, &answer->regions[i]);
    }
    wire_print(body, "]");
}

static bool is_binary(const struct wire_request *request, const struct wire_result *result)
{
    return result->data && (result->wanted ? result->wanted->is_binary : request->is_binary);
}

static void put_placement(struct wire_buffer *body, const struct wire_result *result)
{
    wire_print(body, ",\"parameters\":{");
    put_member(body, "shared_memory_region", result->wanted->region);
    wire_print(body, ",\"shared_memory_byte_size\":%" PRIu64, result->bytes);
    if (result->wanted->region_offset)
        wire_print(body, ",\"shared_memory_offset\":%" PRIu64, result->wanted->region_offset);
    wire_print(body, "}");
}

static void put_result(struct wire_buffer *body, const struct wire_request *request,
                       const struct wire_result *result)
{
    wire_print(body, "{");
    put_member(body, "name", result->name);
    wire_print(body, ",\"datatype\":\"INT32\",\"shape\":[");
    for (unsigned i = 0; i < result->rank; i++)
        wire_print(body, "%s%" PRId64, i ? "," : "", result->shape[i]);
    wire_print(body, "]");
    if (!result->data) {
        put_placement(body, result);
    } else if (is_binary(request, result)) {
        wire_print(body, ",\"parameters\":{\"binary_data_size\":%" PRIu64 "}", result->bytes);
    } else {
        wire_print(body, ",\"data\":[");
        for (size_t i = 0; i < result->bytes / sizeof *result->data; i++)
            wire_print(body, "%s%" PRId32, i ? "," : "", result->data[i]);
        wire_print(body, "]");
    }
    wire_print(body, "}");
}

static void put_inference(struct wire_buffer *body, const struct wire_request *request,
                          const struct wire_answer *answer, size_t *json_bytes)
{
    bool has_binary = false;

    wire_print(body, "{");
    if (request->id.bytes > 0) {
        put_member(body, "id", request->id);
        wire_print(body, ",");
    }
    put_member(body, "model_name", request->model);
    wire_print(body, ",\"model_version\":\"1\",\"outputs\":[");
    for (unsigned i = 0; i < answer->result_count; i++) {
        if (i > 0)
            wire_print(body, ",");
        put_result(body, request, &answer->results[i]);
        has_binary |= is_binary(request, &answer->results[i]);
    }
    wire_print(body, "]}");
    if (!has_binary)
        return;
    *json_bytes = body->size;
    for (unsigned i = 0; i < answer->result_count; i++) {
        if (is_binary(request, &answer->results[i]))
            wire_put(body, answer->results[i].data, answer->results[i].bytes);
    }
}

static unsigned status_of(enum wire_code code)
{
    switch (code) {
    case WIRE_OK:
        return 200;
    case WIRE_NOT_FOUND:
        return 404;
    case WIRE_DENIED:
        return 403;
    case WIRE_EXHAUSTED:
        return 429;
    case WIRE_UNSUPPORTED:
        return 501;
    case WIRE_UNAVAILABLE:
        return 503;
    case WIRE_UNAUTHENTICATED:
        return 401;
    case WIRE_INTERNAL:
        return 500;
    default:
        return 400;
    }
}

unsigned wire_rest_encode(const struct wire_request *request, const struct wire_answer *answer,
                          struct wire_buffer *body, size_t *json_bytes)
{
    *json_bytes = 0;
    if (answer->code != WIRE_OK) {
        wire_rest_put_error(
            body, (struct wire_text){(const char *)answer->text.bytes, answer->text.size});
        return status_of(answer->code);
    }
    if (request->verb == WIRE_METADATA)
        put_metadata(body, answer);
    else if (request->verb == WIRE_STATUS)
        put_regions(body, answer);
    else if (request->verb == WIRE_INFER)
        put_inference(body, request, answer, json_bytes);
    else if (!answer->is_ready &&
             (request->verb == WIRE_READY || request->verb == WIRE_MODEL_READY))
        return 400;
    return 200;
}
