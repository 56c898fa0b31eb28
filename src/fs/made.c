/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made - reads the file of a store's tensors (tensor/made_file.h)
 *
 * An open file has a plan from its first read on (tensor/file_plan.h). A read is answered as a
 * whole, because the kernel fills pages up with zeros: its bytes are gathered from the plan and
 * from as few spans of allocations as can be. A read of one tensor's bytes is answered from its
 * memory.
 */
#include "fs/fs_internal.h"

#include "base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* After so many of one of them, other requests have their turn. */
#define SPANS_AT_ONCE   64u
#define EXTENTS_AT_ONCE 4096u

struct reading {
    struct service_request service; /* first */
    struct fs_request *request;
    uint64_t at, end;              /* in the file: the next byte, and the end of the read */
    uint64_t span_source, span_at; /* the span that is being read: its allocation, offset in it */
    uint8_t *bytes;                /* NULL: none were gathered yet */
    size_t size;
    uint64_t counted_bytes; /* for this user */
    uint32_t uid;
    size_t spans, walked; /* in this turn: spans, and the extents that were looked at */
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

static const struct file_plan *get_plan(const struct reading *reading)
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
static void take_plan(struct reading *reading, struct file_plan *made)
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

    if (reading->bytes)
        return 0;
    int error = service_take(reading->request->fs->service, SERVICE_BOUND_TEXTS, handle->store,
                             handle->uid, bytes);
    if (error)
        return error;
    reading->counted_bytes = bytes;
    reading->uid = handle->uid;
    reading->bytes = malloc(bytes);
    return reading->bytes ? 0 : -ENOMEM;
}

/* Gathers bytes of an extent that are not in memory, as far as the read goes. There is room. */
static void put_own(struct reading *reading, const struct file_plan *made, size_t index)
{
    const struct file_extent *extent = &made->extents[index];
    uint64_t end = number_smaller(file_plan_end(made, index), reading->end);
    size_t count = (size_t)(end - reading->at);
    uint8_t *to = reading->bytes + reading->size;

    if (extent->source == FILE_PLAN_ZEROS)
        memset(to, 0, count);
    else
        memcpy(to, made->text + extent->offset + (reading->at - extent->at), count);
    reading->size += count;
    reading->at = end;
}

static int gather_own(struct reading *reading, const struct file_plan *made, size_t index)
{
    int error = make_room(reading, reading->end - reading->at);

    if (!error)
        put_own(reading, made, index);
    return error;
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
static bool reply_span(struct reading *reading, const struct file_plan *made,
                       const struct service_answer *answer)
{
    if (reading->bytes || reading->end > file_plan_end(made, file_plan_find(made, reading->at)) ||
        answer->bytes + answer->rest_bytes < reading->end - reading->at)
        return false;
    fs_request_finish(reading->request, 0, answer);
    reading->is_over = true;
    return true;
}

/* Copies the span's bytes of this extent, as far as read and answer go. False: the span has no more
 * for the read. */
static bool put_span(struct reading *reading, const struct file_plan *made, size_t index,
                     const struct service_answer *answer)
{
    const struct file_extent *extent = &made->extents[index];
    uint64_t end = number_smaller(file_plan_end(made, index), reading->end);
    uint64_t from = extent->offset + reading->at - extent->at;
    size_t wanted = (size_t)(end - reading->at), copied;

    if (extent->source != reading->span_source || from < reading->span_at)
        return false; /* it may begin before the span, as it shares bytes with the one before */
    copied = copy_answer(answer, from - reading->span_at, wanted, reading->bytes + reading->size);
    reading->at += copied;
    reading->size += copied;
    return copied == wanted;
}

/* Takes the tensors of the span, and what is between them, as far as it goes. */
static void take_span(struct reading *reading, const struct service_answer *answer)
{
    const struct file_plan *made = get_plan(reading);
    uint64_t before = reading->at;
    bool goes_on = true;

    if (!made) {
        reading->error = -ESTALE;
        return;
    }
    if (reply_span(reading, made, answer))
        return;
    reading->error = make_room(reading, reading->end - reading->at);
    if (reading->error)
        return;
    for (size_t index = file_plan_find(made, reading->at); goes_on && reading->at < reading->end;
         index++) {
        if (file_extent_is_memory(&made->extents[index]))
            goes_on = put_span(reading, made, index, answer);
        else
            put_own(reading, made, index);
    }
    if (reading->at == before)
        reading->error = -EIO;
}

/* Reads the memory of as many of the next tensors as lie together. */
static int ask_span(struct reading *reading, const struct file_plan *made, size_t index)
{
    struct file_span span = file_plan_span(made, index, reading->at, reading->end);
    struct service_part part = {
        .serial = span.source, .offset = span.offset, .bytes = (size_t)span.bytes};

    reading->spans++;
    reading->walked += span.walked;
    part.later = reading->spans >= SPANS_AT_ONCE || reading->walked >= EXTENTS_AT_ONCE;
    if (part.later)
        reading->spans = reading->walked = 0;
    reading->span_at = span.offset;
    reading->span_source = span.source;
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

/* Returns false once the file's session has ended. The service checks this for reads of memory;
 * texts and zeros are checked here. */
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
    size_t index = file_plan_find(handle->made, reading->at);
    if (!file_extent_is_memory(&handle->made->extents[index]))
        return has_session(reading) ? gather_own(reading, handle->made, index) : -ESTALE;
    reading->answered = false;
    return ask_span(reading, handle->made, index);
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
