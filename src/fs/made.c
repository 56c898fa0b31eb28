/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made - reads the file of a store's tensors (tensor/made_file.h)
 *
 * An open file has a plan from its first read on: the header, and where the tensors lie. A read is
 * answered as a whole, because the kernel fills pages up with zeros: its bytes are gathered from
 * the header and from as few spans of allocations as can be. A read of one tensor's bytes is
 * answered from its memory.
 */
#include "fs/fs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_BYTES    ((uint64_t)1 << 20) /* as much as one read of memory gives */
#define SPANS_AT_ONCE 64u                 /* then other requests have their turn */

struct reading {
    struct service_request service; /* first */
    struct fs_request *request;
    uint64_t at, end; /* in the file: the next byte, and the end of the read */
    uint64_t span_at; /* of the span that is being read: in its allocation */
    uint8_t *bytes;   /* NULL: none were gathered yet */
    size_t size;
    uint64_t counted_bytes; /* for this user */
    uint32_t uid;
    unsigned spans;
    int error;
    bool calls;    /* the service is being called */
    bool answered; /* meanwhile it answered */
    bool is_over;  /* the request was answered */
};

/* ---- the plan ------------------------------------------------------------------------------ */

static struct fs_handle *find_handle(const struct reading *reading)
{
    struct fs *fs = reading->request->fs;

    return fs ? fs_handle_find(fs, reading->request->file) : NULL;
}

static const struct made_file *get_plan(const struct reading *reading)
{
    const struct fs_handle *handle = find_handle(reading);

    return handle ? handle->made : NULL;
}

/* Counts the plan for the user, before it is made. */
static int ask_plan(struct reading *reading, struct fs_handle *handle)
{
    struct fs *fs = reading->request->fs;
    struct node node;
    int error = node_find(fs->core, handle->node, &node) ? -ESTALE : 0;

    if (!error)
        error = service_charge(fs->service, SERVICE_BOUND_TEXTS, handle->uid, &handle->made_bytes,
                               node.store->made.plan_bytes);
    return error ? error : service_make_file(fs->service, handle->id, &reading->service);
}

/* Another read of the same file may have had it made too. */
static void take_plan(struct reading *reading, struct made_file *made)
{
    struct fs_handle *handle = find_handle(reading);

    if (!handle || handle->made)
        made_file_free(made);
    else
        handle->made = made;
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Makes room for the gathered bytes. */
static int make_room(struct reading *reading, uint64_t bytes)
{
    struct fs_handle *handle = find_handle(reading);
    int error;

    if (reading->bytes)
        return 0;
    error = service_take(reading->request->fs->service, SERVICE_BOUND_TEXTS, handle->store,
                         handle->uid, bytes);
    if (error)
        return error;
    reading->counted_bytes = bytes;
    reading->uid = handle->uid;
    reading->bytes = malloc(bytes);
    return reading->bytes ? 0 : -ENOMEM;
}

static int gather_header(struct reading *reading, const struct made_file *made)
{
    uint64_t end = reading->end < made->header_bytes ? reading->end : made->header_bytes;
    int error = make_room(reading, reading->end - reading->at);

    if (error)
        return error;
    memcpy(reading->bytes, made->header + reading->at, end - reading->at);
    reading->size = (size_t)(end - reading->at);
    reading->at = end;
    return 0;
}

/* Copies bytes of an answer, which is in two parts. Returns how many there were. */
static size_t copy_answer(const struct service_answer *answer, uint64_t from, size_t size,
                          uint8_t *to)
{
    size_t done = 0;

    if (from < answer->bytes) {
        done = answer->bytes - from < size ? (size_t)(answer->bytes - from) : size;
        memcpy(to, (const uint8_t *)answer->data + from, done);
    }
    if (done < size && from + done - answer->bytes < answer->rest_bytes) {
        uint64_t at = from + done - answer->bytes;
        size_t more =
            answer->rest_bytes - at < size - done ? (size_t)(answer->rest_bytes - at) : size - done;

        memcpy(to + done, (const uint8_t *)answer->rest + at, more);
        done += more;
    }
    return done;
}

/* Answers the request from the memory of one tensor. False: it is for more than that. */
static bool reply_span(struct reading *reading, const struct made_file *made,
                       const struct service_answer *answer)
{
    if (reading->bytes || reading->end > made_file_end(made, made_file_find(made, reading->at)) ||
        answer->bytes + answer->rest_bytes < reading->end - reading->at)
        return false;
    fs_request_finish(reading->request, 0, answer);
    reading->is_over = true;
    return true;
}

/* Takes the tensors of the span, as far as it goes. */
static void take_span(struct reading *reading, const struct service_answer *answer)
{
    const struct made_file *made = get_plan(reading);
    size_t index, wanted, done = 0;

    if (!made) {
        reading->error = -ESTALE;
        return;
    }
    if (reply_span(reading, made, answer))
        return;
    reading->error = make_room(reading, reading->end - reading->at);
    for (index = made_file_find(made, reading->at); !reading->error; index++) {
        const struct made_file_extent *extent = &made->extents[index];
        uint64_t end = made_file_end(made, index), from = extent->offset + reading->at - extent->at;

        wanted = (size_t)((end < reading->end ? end : reading->end) - reading->at);
        if (from < reading->span_at)
            break; /* it begins before the span, as it shares bytes with the one before */
        size_t copied =
            copy_answer(answer, from - reading->span_at, wanted, reading->bytes + reading->size);

        reading->at += copied;
        reading->size += copied;
        done += copied;
        if (copied < wanted || reading->at == reading->end ||
            made->extents[index + 1].serial != extent->serial)
            break;
    }
    if (!reading->error && done == 0)
        reading->error = -EIO;
}

/* Reads the memory of as many of the next tensors as lie together. */
static int ask_span(struct reading *reading, const struct made_file *made)
{
    size_t index = made_file_find(made, reading->at);
    const struct made_file_extent *first = &made->extents[index], *extent = first;
    struct service_part part = {.serial = first->serial,
                                .offset = first->offset + reading->at - first->at};
    uint64_t most = part.offset + SPAN_BYTES, span_end = part.offset, end = reading->at;

    for (; end < reading->end && index < made->count && extent->serial == first->serial &&
           extent->offset < most;
         extent = &made->extents[++index]) {
        end = made_file_end(made, index) < reading->end ? made_file_end(made, index) : reading->end;
        if (extent->offset + end - extent->at > span_end)
            span_end = extent->offset + end - extent->at;
    }
    part.bytes = (size_t)((span_end < most ? span_end : most) - part.offset);
    part.later = ++reading->spans % SPANS_AT_ONCE == 0;
    reading->span_at = part.offset;
    return service_read_part(reading->request->fs->service, reading->request->file, &part,
                             &reading->service);
}

/* ---- the read ------------------------------------------------------------------------------ */

static void finish(struct reading *reading)
{
    struct service_answer answer = {.data = reading->bytes, .bytes = reading->size};
    struct fs *fs = reading->is_over ? NULL : reading->request->fs;

    if (fs)
        service_give(fs->service, SERVICE_BOUND_TEXTS, reading->uid, reading->counted_bytes);
    if (!reading->is_over)
        fs_request_finish(reading->request, reading->error, &answer);
    free(reading->bytes);
    free(reading);
}

/* Returns false once the file's session has ended. Reads of memory ask the service, the header is
 * here. */
static bool has_session(const struct reading *reading)
{
    const struct core *core = reading->request->fs->core;
    const struct core_file *file = core_find_file(core, reading->request->file);

    return file && core_find_session(core, file->session);
}

/* Begins the next step of the read. */
static int go_step(struct reading *reading)
{
    struct fs_handle *handle = find_handle(reading);

    if (!handle)
        return -ESTALE;
    if (!handle->made)
        return ask_plan(reading, handle);
    reading->answered = true;
    if (reading->end > handle->made->size_bytes)
        reading->end = handle->made->size_bytes;
    if (reading->at >= reading->end)
        return 0;
    if (reading->at < handle->made->header_bytes)
        return has_session(reading) ? gather_header(reading, handle->made) : -ESTALE;
    reading->answered = false;
    return ask_span(reading, handle->made);
}

/* Answers may come while the service is being called: so this is no recursion, however many tensors
 * are read. */
static void go_on(struct reading *reading)
{
    while (!reading->error && !reading->is_over && reading->at < reading->end) {
        reading->calls = true;
        reading->answered = false;
        int error = go_step(reading);

        reading->calls = false;
        if (error)
            reading->error = error;
        else if (!reading->answered)
            return;
    }
    finish(reading);
}

static void on_answer(struct service_request *service, int error,
                      const struct service_answer *answer)
{
    struct reading *reading = (struct reading *)service;

    reading->answered = true;
    if (error)
        reading->error = error;
    else if (answer->made)
        take_plan(reading, answer->made);
    else
        take_span(reading, answer);
    if (!reading->calls)
        go_on(reading);
}

void fs_made_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset)
{
    struct fs *fs = fs_of(req);
    struct fs_request *request = fs_request_new(req, fs_reply_read, 0);
    struct reading *reading = request ? calloc(1, sizeof *reading) : NULL;

    if (!request)
        return;
    if (!reading || !fs_handle_get(fs, fh, node)) {
        free(reading);
        fs_request_finish(request, -ENOMEM, NULL);
        return;
    }
    request->node = node;
    request->file = fh;
    *reading = (struct reading){
        .service.done = on_answer, .request = request, .at = offset, .end = offset + size};
    go_on(reading);
}
