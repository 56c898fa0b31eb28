/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/protocol.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_ERRNO 4095

/* The other side may change it while it is read. */
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

int copier_check_request(const void *message, size_t bytes, bool has_descriptor,
                         struct copier_request *request)
{
    bool moves;

    if (bytes != sizeof(*request))
        return -EINVAL;
    memcpy(request, message, sizeof(*request));
    moves = request->act == COPIER_GET || request->act == COPIER_PUT;
    if (request->act < COPIER_MAP || request->act > COPIER_PUT ||
        request->sequence < COPIER_FIRST_SEQUENCE || request->window >= COPIER_WINDOWS ||
        has_descriptor != (request->act == COPIER_MAP))
        return -EINVAL;
    if (request->entry >= (moves ? COPIER_BLOCKS : COPIER_ENTRIES))
        return -EINVAL;
    if (request->act == COPIER_UNMAP)
        return 0;
    if (request->bytes == 0 || (moves && request->bytes > COPIER_BLOCK_BYTES) ||
        request->offset > UINT64_MAX - request->bytes)
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
    /* These two say what the worker finds out by itself. */
    int error = check_errno(*(const volatile int32_t *)&result->error);
    return error == -EAGAIN || error == -EPIPE ? -EIO : error;
}

void copier_put_result(struct copier_result *result, uint32_t sequence, int error, const char *why)
{
    result->error = error;
    snprintf(result->why, COPIER_WHY_BYTES, "%s", why ? why : "");
    atomic_store_explicit(&result->done, sequence, memory_order_release);
}
