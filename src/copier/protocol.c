/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/protocol.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_ERRNO 4095

/* Copies printable text; the other side may change it meanwhile. */
static void copy_printable(char *to, size_t to_bytes, const char *from)
{
    size_t i;

    for (i = 0; i + 1 < to_bytes; i++) {
        char c = ((const volatile char *)from)[i];

        if (!c)
            break;
        to[i] = isprint((unsigned char)c) ? c : '?';
    }
    to[i] = '\0';
}

static int check_errno(int32_t error)
{
    return error <= 0 && error >= -MAX_ERRNO ? error : -EIO;
}

/* Finds the range of entries for an act, and its largest number of bytes. -EINVAL: no such act. */
static int find_bounds(uint32_t act, unsigned *first, unsigned *end, uint64_t *most_bytes)
{
    *first = 0;
    switch (act) {
    case COPIER_MAP:
    case COPIER_UNMAP:
    case COPIER_FORGET:
        *end = COPIER_FIRST_MOVE;
        *most_bytes = UINT64_MAX;
        return 0;
    case COPIER_GET:
    case COPIER_PUT:
        *end = COPIER_BLOCKS;
        *most_bytes = COPIER_BLOCK_BYTES;
        return 0;
    case COPIER_MOVE_OUT:
    case COPIER_MOVE_IN:
        *first = COPIER_FIRST_MOVE;
        *end = COPIER_ENTRIES;
        *most_bytes = COPIER_MOVE_BYTES;
        return 0;
    default:
        return -EINVAL;
    }
}

int copier_check_request(const void *message, size_t bytes, bool has_descriptor,
                         struct copier_request *request)
{
    unsigned first, end;
    uint64_t most_bytes;

    if (bytes != sizeof(*request))
        return -EINVAL;
    memcpy(request, message, sizeof(*request));
    bool moves = request->act == COPIER_MOVE_OUT || request->act == COPIER_MOVE_IN;
    if (find_bounds(request->act, &first, &end, &most_bytes) < 0 ||
        request->sequence < COPIER_FIRST_SEQUENCE || request->window >= COPIER_WINDOWS ||
        has_descriptor != (request->act == COPIER_MAP || moves))
        return -EINVAL;
    if (request->entry < first || request->entry >= end)
        return -EINVAL;
    if (request->act == COPIER_UNMAP)
        return 0;
    if (request->act == COPIER_FORGET)
        return request->file ? 0 : -EINVAL;
    if (request->bytes == 0 || request->bytes > most_bytes ||
        request->offset > (moves ? INT64_MAX : UINT64_MAX) - request->bytes)
        return -EINVAL;
    return 0;
}

int copier_check_hello(const void *message, size_t bytes, struct copier_hello *hello)
{
    struct copier_hello raw;

    if (bytes != sizeof(raw))
        return -EPROTO;
    memcpy(&raw, message, sizeof(raw));
    if (raw.magic != COPIER_MAGIC)
        return -EPROTO;
    hello->magic = raw.magic;
    hello->error = check_errno(raw.error);
    copy_printable(hello->why, sizeof(hello->why), raw.why);
    return 0;
}

int copier_check_result(const struct copier_result *result, uint32_t sequence, char *why)
{
    uint32_t done = atomic_load_explicit(&result->done, memory_order_acquire);

    if (done == COPIER_PENDING)
        return -EAGAIN;
    if (done != sequence)
        return -EPIPE;
    if (why)
        copy_printable(why, COPIER_WHY_BYTES, result->why);
    /* -EAGAIN and -EPIPE are only for the worker's own findings */
    int error = check_errno(*(const volatile int32_t *)&result->error);
    return error == -EAGAIN || error == -EPIPE ? -EIO : error;
}

void copier_put_result(struct copier_result *result, uint32_t sequence, int error, const char *why)
{
    result->error = error;
    snprintf(result->why, COPIER_WHY_BYTES, "%s", why ? why : "");
    atomic_store_explicit(&result->done, sequence, memory_order_release);
}
