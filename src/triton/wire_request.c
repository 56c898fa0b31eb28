/* SPDX-License-Identifier: Apache-2.0 */
/* Clients' tests compare Triton's texts, so they are repeated here to the letter. */
#include "triton/wire_request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wire_answer_begin(struct wire_answer *answer)
{
    *answer = (struct wire_answer){.text.limit_bytes = WIRE_MAX_TEXT_BYTES};
}

void wire_answer_free(struct wire_answer *answer)
{
    wire_buffer_free(&answer->text);
    free(answer->regions);
    for (unsigned i = 0; i < answer->result_count; i++)
        free(answer->results[i].data);
    wire_answer_begin(answer);
}

int wire_fail(struct wire_answer *answer, enum wire_code code, const char *format, ...)
{
    char text[WIRE_MAX_TEXT_BYTES - 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wire_buffer_free(&answer->text);
    wire_put_text(&answer->text, wire_text_of(text));
    answer->code = code;
    return -EINVAL;
}

static const char *kind_word(const struct wire_request *request)
{
    return request->kind == GMSFS_REGION_CUDA ? "CUDA" : "system";
}

static int check_name(const struct wire_request *request, struct wire_answer *answer)
{
    if (memchr(request->name.at, '\0', request->name.bytes))
        return wire_fail(answer, WIRE_INVALID,
                         "the name of a shared memory region must have no NUL byte");
    if (!wire_text_is_utf8(request->name))
        return wire_fail(answer, WIRE_INVALID, "the name of a shared memory region must be UTF-8");
    if (request->name.bytes > GMSFS_REGION_NAME_MAX)
        return wire_fail(answer, WIRE_INVALID,
                         "the name of a shared memory region has at most %u bytes, this one has "
                         "%zu",
                         GMSFS_REGION_NAME_MAX, request->name.bytes);
    return 0;
}

static int check_key(const struct wire_request *request, struct wire_answer *answer)
{
    struct wire_text key = request->key;

    while (wire_text_cut_front(&key, "/"))
        ;
    if (key.bytes == 0 || memchr(key.at, '\0', key.bytes))
        return wire_explain(request, GMSFS_REGION_BAD_KEY, -EINVAL, answer);
    if (wire_text_cut_front(&key, GMSFS_REGION_RESERVED_PREFIX))
        return wire_explain(request, GMSFS_REGION_RESERVED_KEY, -EINVAL, answer);
    if (request->key.bytes > GMSFS_REGION_KEY_MAX)
        return wire_explain(request, GMSFS_REGION_NO_OBJECT, -ENAMETOOLONG, answer);
    return 0;
}

static int check_register(const struct wire_request *request, struct wire_answer *answer)
{
    if (request->name.bytes == 0)
        return wire_fail(answer, WIRE_INVALID,
                         "'region name' is necessary to register %s shared memory region",
                         kind_word(request));
    return request->kind == GMSFS_REGION_SYSTEM ? check_key(request, answer) : 0;
}

int wire_request_check(const struct wire_request *request, struct wire_answer *answer)
{
    int error = 0;

    if (request->name.bytes > 0)
        error = check_name(request, answer);
    if (!error && request->verb == WIRE_REGISTER)
        error = check_register(request, answer);
    return error;
}

int wire_explain_unknown(struct wire_text name, struct wire_answer *answer)
{
    return wire_fail(answer, WIRE_NOT_FOUND, "Unable to find shared memory region: '%.*s'",
                     WIRE_SHOW(name));
}

int wire_region_check(struct wire_text name, enum gmsfs_region_reason reason, uint64_t offset,
                      uint64_t bytes, struct wire_answer *answer)
{
    switch (reason) {
    case GMSFS_REGION_FINE:
        return 0;
    case GMSFS_REGION_BAD_OFFSET:
        return wire_fail(answer, WIRE_INVALID, "Invalid offset for shared memory region: '%.*s'",
                         WIRE_SHOW(name));
    case GMSFS_REGION_OVERFLOW:
        return wire_fail(answer, WIRE_INVALID,
                         "Integer overflow detected: byte_size (%" PRIu64 ") + offset (%" PRIu64
                         ") exceeds maximum value (%" PRIu64 ") for region '%.*s'",
                         bytes, offset, UINT64_MAX, WIRE_SHOW(name));
    case GMSFS_REGION_SHRUNK:
        return wire_fail(answer, WIRE_INVALID,
                         "the object of shared memory region '%.*s' is smaller than when it was "
                         "registered",
                         WIRE_SHOW(name));
    default:
        return wire_fail(answer, WIRE_INVALID,
                         "Invalid offset + byte size for shared memory region: '%.*s'",
                         WIRE_SHOW(name));
    }
}

/* Explains a failure for which the mount gave no reason but the errno. */
static int explain_errno(const struct wire_request *request, int error, struct wire_answer *answer)
{
    switch (-error) {
    case EDQUOT:
    case ENOSPC:
    case ENFILE:
    case EMFILE:
        return wire_fail(answer, WIRE_EXHAUSTED,
                         "this user can have no more shared memory regions or references: %s; the "
                         "mount's events name the bound",
                         strerror(-error));
    case EPERM:
    case EACCES:
        return wire_fail(answer, WIRE_DENIED, "this user may not do that with '%.*s'",
                         WIRE_SHOW(request->name));
    case ENOMEM:
        return wire_fail(answer, WIRE_UNAVAILABLE, "the server is out of memory");
    case ENOTCONN:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOENT:
    case ESTALE:
    case ENOTTY:
    case ETIMEDOUT:
        return wire_fail(answer, WIRE_UNAVAILABLE,
                         "the gmsfs mount does not answer: %s; is it still mounted?",
                         strerror(-error));
    default:
        return wire_fail(answer, WIRE_INTERNAL, "the gmsfs mount refuses: %s", strerror(-error));
    }
}

/* Explains a reason that concerns the object to be registered. */
static int explain_object(const struct wire_request *request, enum gmsfs_region_reason reason,
                          struct wire_answer *answer)
{
    switch (reason) {
    case GMSFS_REGION_BAD_KEY:
        return wire_fail(answer, WIRE_INVALID,
                         "cannot register shared memory region '%.*s' - invalid shm key '%.*s'",
                         WIRE_SHOW(request->name), WIRE_SHOW(request->key));
    case GMSFS_REGION_RESERVED_KEY:
        return wire_fail(answer, WIRE_INVALID,
                         "cannot register shared memory region '%.*s' with key '%.*s' as the key "
                         "contains the reserved prefix '" GMSFS_REGION_RESERVED_PREFIX "'",
                         WIRE_SHOW(request->name), WIRE_SHOW(request->key));
    case GMSFS_REGION_NO_OBJECT:
    case GMSFS_REGION_BAD_OBJECT:
        return wire_fail(answer, WIRE_INTERNAL, "Unable to open shared memory region: '%.*s'",
                         WIRE_SHOW(request->key));
    case GMSFS_REGION_BAD_HANDLE:
        return wire_fail(answer, WIRE_INVALID,
                         "failed to register shared memory region: invalid args");
    case GMSFS_REGION_UNCOMMITTED:
        return wire_fail(answer, WIRE_UNAVAILABLE,
                         "cannot register shared memory region '%.*s': nothing is committed in the "
                         "store of '%.*s', or a writer is at work there",
                         WIRE_SHOW(request->name), WIRE_SHOW(request->key));
    default: /* BAD_RANGE, NO_SIZE */
        return wire_fail(answer, WIRE_INVALID,
                         "failed to register shared memory region '%.*s': invalid args",
                         WIRE_SHOW(request->name));
    }
}

int wire_explain(const struct wire_request *request, enum gmsfs_region_reason reason, int error,
                 struct wire_answer *answer)
{
    switch (reason) {
    case GMSFS_REGION_FINE:
    case GMSFS_REGION_BOUND:
        return explain_errno(request, error, answer);
    case GMSFS_REGION_EXISTS:
        return wire_fail(answer, WIRE_EXISTS, "shared memory region '%.*s' already in manager",
                         WIRE_SHOW(request->name));
    case GMSFS_REGION_BAD_NAME:
        return wire_fail(answer, WIRE_INVALID,
                         "'%.*s' cannot be the name of a shared memory region: it is too long as "
                         "the name of a file",
                         WIRE_SHOW(request->name));
    case GMSFS_REGION_NOT_OWNER:
        return explain_errno(request, -EPERM, answer);
    case GMSFS_REGION_DRAINED:
        return wire_fail(answer, WIRE_UNAVAILABLE,
                         "the gmsfs mount is being drained and takes no more regions");
    case GMSFS_REGION_UNKNOWN:
        return wire_fail(answer, WIRE_NOT_FOUND, "Unable to find %s shared memory region: '%.*s'",
                         request->kind == GMSFS_REGION_CUDA ? "cuda" : "system",
                         WIRE_SHOW(request->name));
    default:
        return explain_object(request, reason, answer);
    }
}
