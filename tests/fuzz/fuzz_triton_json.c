/* SPDX-License-Identifier: Apache-2.0 */
/* JSON bodies: our reader accepts the same as a stricter library; parsed requests point into their
 * body, and every answer about them is JSON. */
#include "fuzz.h"
#include "triton/wire_json.h"
#include "triton/wire_rest.h"

#include <errno.h>
#include <jansson.h>

static char *copy(const uint8_t *data, size_t size)
{
    char *bytes = malloc(size ? size : 1);

    must(bytes != NULL);
    memcpy(bytes, data, size);
    return bytes;
}

/* jansson refuses integers that we accept, NUL in keys, and documents deeper than we refuse; it
 * takes a byte of 0 for the end of the text. */
static bool is_json(const uint8_t *data, size_t size)
{
    json_t *root = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool good = root != NULL && !memchr(data, '\0', size);

    json_decref(root);
    return good;
}

static bool read_tokens(const uint8_t *data, size_t size)
{
    struct wire_json json;
    enum wire_json_token token;
    char *bytes = copy(data, size);
    size_t tokens = 0;

    wire_json_begin(&json, bytes, size);
    do {
        token = wire_json_next(&json);
        must(json.offset <= size && json.depth <= WIRE_JSON_MAX_DEPTH);
        must(++tokens <= 2 * size + 2);
        if (token == WIRE_JSON_KEY || token == WIRE_JSON_TEXT) {
            must(json.text.at >= bytes && json.text.at + json.text.bytes <= bytes + size);
            must(wire_text_is_utf8(json.text));
        }
    } while (token != WIRE_JSON_END && token != WIRE_JSON_ERROR);
    must(token == WIRE_JSON_END || fuzz_is_line(json.error));
    free(bytes);
    return token == WIRE_JSON_END;
}

static void check_answer(const struct wire_request *request, const struct wire_answer *answer)
{
    struct wire_buffer body = {.limit_bytes = 1 << 20};
    size_t json_bytes;

    must(wire_rest_encode(request, answer, &body, &json_bytes) >= 400);
    must(!body.has_failed && json_bytes == 0);
    must(is_json(body.bytes, body.size));
    wire_buffer_free(&body);
}

static void check_inside(struct wire_text text, const char *bytes, size_t size)
{
    must(!text.at || (text.at >= bytes && text.at + text.bytes <= bytes + size));
}

static void check_tensors(const struct wire_tensor *tensors, unsigned count, const char *bytes,
                          size_t size)
{
    must(count <= WIRE_MAX_TENSORS);
    for (unsigned i = 0; i < count; i++) {
        must(tensors[i].rank <= WIRE_MAX_RANK);
        check_inside(tensors[i].name, bytes, size);
        check_inside(tensors[i].region, bytes, size);
        check_inside(tensors[i].data, bytes, size);
        check_inside(tensors[i].json, bytes, size);
    }
}

static void try_request(enum wire_verb verb, enum gmsfs_region_kind kind, uint64_t json_bytes,
                        const uint8_t *data, size_t size)
{
    struct wire_request request = {
        .verb = verb, .kind = kind, .name = WIRE_TEXT("n"), .model = WIRE_TEXT("m")};
    struct wire_answer answer;
    char *bytes = copy(data, size);

    wire_answer_begin(&answer);
    int error = wire_rest_decode(bytes, size, json_bytes, &request, &answer);
    must((error == 0) == (answer.code == WIRE_OK));
    if (error == 0) {
        check_inside(request.key, bytes, size);
        check_tensors(request.inputs, request.input_count, bytes, size);
        check_tensors(request.outputs, request.output_count, bytes, size);
        error = wire_request_check(&request, &answer);
    }
    if (error)
        check_answer(&request, &answer);
    wire_answer_free(&answer);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Both must agree on this. */
    if (is_json(data, size) && size < WIRE_JSON_MAX_DEPTH)
        must(read_tokens(data, size));
    else
        read_tokens(data, size);
    try_request(WIRE_REGISTER, GMSFS_REGION_SYSTEM, UINT64_MAX, data, size);
    try_request(WIRE_REGISTER, GMSFS_REGION_CUDA, UINT64_MAX, data, size);
    try_request(WIRE_INFER, GMSFS_REGION_ANY, UINT64_MAX, data, size);
    try_request(WIRE_INFER, GMSFS_REGION_ANY, size / 2, data, size);
    return 0;
}
