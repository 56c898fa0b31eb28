/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 requests: the result does not depend on the pieces in which they arrive, and every step
 * stays within the received bytes. */
#include "fuzz.h"
#include "triton/wire_http.h"
#include "triton/wire_rest.h"

#include <errno.h>

struct reading {
    int error;
    struct wire_http_head head;
    struct wire_http_refusal refusal;
    size_t used, body_bytes;
    uint64_t sum; /* of the body, in order */
};

static void check_inside(struct wire_text text, const char *bytes, size_t size)
{
    must(!text.at || (text.at >= bytes && text.at + text.bytes <= bytes + size));
}

static void check_head(const struct wire_http_head *head, const char *bytes, size_t size)
{
    must(head->head_bytes <= size && head->head_bytes <= WIRE_HTTP_MAX_HEAD_BYTES);
    check_inside(head->method, bytes, head->head_bytes);
    check_inside(head->path, bytes, head->head_bytes);
    check_inside(head->session, bytes, head->head_bytes);
    check_inside(head->encoding, bytes, head->head_bytes);
    must(head->method.bytes > 0);
    for (size_t i = 0; i < head->path.bytes; i++)
        must((uint8_t)head->path.at[i] > ' ' && head->path.at[i] != '?');
}

static void read_body(struct reading *reading, const char *bytes, size_t size, size_t step)
{
    struct wire_http_body body;
    struct wire_text data;
    size_t at = reading->head.head_bytes, taken;

    wire_http_body_begin(&body, &reading->head);
    do {
        size_t give = size - at < step ? size - at : step;
        reading->error =
            wire_http_body_take(&body, bytes + at, give, &taken, &data, &reading->refusal);
        must(taken <= give);
        check_inside(data, bytes + at, taken);
        for (size_t i = 0; i < data.bytes; i++)
            reading->sum = reading->sum * 31 + (uint8_t)data.at[i];
        reading->body_bytes += data.bytes;
        at += taken;
        must(reading->error != 0 || reading->body_bytes == body.total_bytes);
    } while (reading->error == -EAGAIN && at < size);
    reading->used = at;
}

static struct reading read_all(const char *bytes, size_t size, size_t step)
{
    struct reading reading = {.error = -EAGAIN};
    size_t scanned = 0;

    for (size_t came = step; reading.error == -EAGAIN; came += step) {
        if (came > size)
            came = size;
        reading.error = wire_http_parse(bytes, came, &scanned, &reading.head, &reading.refusal);
        must(scanned <= came);
        if (came == size)
            break;
    }
    if (reading.error) {
        must(reading.error == -EAGAIN || reading.error == -EPROTO);
        return reading;
    }
    check_head(&reading.head, bytes, size);
    read_body(&reading, bytes, size, step);
    return reading;
}

static void try_route(const struct wire_http_head *head)
{
    struct wire_request request;
    char *path = malloc(head->path.bytes + 1);

    must(path != NULL);
    memcpy(path, head->path.at, head->path.bytes);
    int error = wire_rest_route(head->method, path, head->path.bytes, &request);
    must(error == 0 || error == -ENOENT || error == -EOPNOTSUPP || error == -EINVAL);
    if (error == 0) {
        check_inside(request.name, path, head->path.bytes);
        check_inside(request.model, path, head->path.bytes);
        check_inside(request.version, path, head->path.bytes);
    }
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct reading whole = read_all(bytes, size, size ? size : 1);

    if (whole.error == -EPROTO) {
        must(whole.refusal.status >= 400 && whole.refusal.status < 600);
        must(strcmp(wire_http_reason(whole.refusal.status), "Error") != 0);
        must(fuzz_is_line(whole.refusal.text));
    }
    if (whole.head.method.bytes > 0 && whole.head.head_bytes > 0 && whole.error != -EPROTO)
        try_route(&whole.head);
    for (size_t step = 1; step <= 7; step += 3) {
        struct reading pieces = read_all(bytes, size, step);
        must(pieces.error == whole.error);
        if (whole.error != 0)
            continue;
        must(pieces.used == whole.used && pieces.sum == whole.sum);
        must(pieces.head.head_bytes == whole.head.head_bytes);
    }
    return 0;
}
