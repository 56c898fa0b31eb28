/* SPDX-License-Identifier: Apache-2.0 */
/* Worker and copier: a request, a hello, a result, or nothing. */
#include "fuzz.h"

#include "copier/protocol.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static void must_be_line(const char *text, size_t room)
{
    size_t length = strnlen(text, room);

    must(length < room);
    for (size_t i = 0; i < length; i++)
        must(isprint((unsigned char)text[i]));
}

static void try_request(const uint8_t *data, size_t size, bool has_descriptor)
{
    struct copier_request request;

    if (copier_check_request(data, size, has_descriptor, &request))
        return;
    must(size == sizeof request && memcmp(&request, data, size) == 0);
    bool moves = request.act == COPIER_MOVE_OUT || request.act == COPIER_MOVE_IN;
    must(has_descriptor == (request.act == COPIER_MAP || moves));
    must(moves == (request.entry >= COPIER_FIRST_MOVE));
    must(request.window < COPIER_WINDOWS && request.entry < COPIER_ENTRIES);
    if (request.act == COPIER_GET || request.act == COPIER_PUT) {
        must(request.entry < COPIER_BLOCKS);
        must(request.bytes > 0 && request.bytes <= COPIER_BLOCK_BYTES);
        must(request.offset + request.bytes > request.offset);
    }
    must(request.act != COPIER_FORGET || request.file != 0);
    if (moves) {
        must(request.bytes > 0 && request.bytes <= COPIER_MOVE_BYTES);
        must(request.offset + request.bytes <= INT64_MAX);
    }
}

static void try_hello(const uint8_t *data, size_t size)
{
    struct copier_hello hello;

    if (copier_check_hello(data, size, &hello))
        return;
    must(size == sizeof hello && hello.magic == COPIER_MAGIC);
    must(hello.error <= 0 && hello.error >= -4095);
    must_be_line(hello.why, sizeof hello.why);
}

/* The result lies at the end of the readable bytes. */
static void try_result(const uint8_t *data, size_t size)
{
    struct copier_result *result = malloc(sizeof *result);
    char why[COPIER_WHY_BYTES];

    if (!result || size < sizeof *result) {
        free(result);
        return;
    }
    memcpy(result, data, sizeof *result);
    uint32_t done = result->done;
    int error = copier_check_result(result, COPIER_FIRST_SEQUENCE, why);
    must((error == -EAGAIN) == (done == COPIER_PENDING));
    must((error == -EPIPE) == (done != COPIER_PENDING && done != COPIER_FIRST_SEQUENCE));
    must(error <= 0 && error >= -4095);
    if (done == COPIER_FIRST_SEQUENCE)
        must_be_line(why, sizeof why);
    free(result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_request(data, size, false);
    try_request(data, size, true);
    try_hello(data, size);
    try_result(data, size);
    return 0;
}
