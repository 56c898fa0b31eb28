/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, streams, events, and captures. Work is done at once, so a stream is always idle (except
 * with `lazy`: then a wait does it); the rules for calls while a stream is capturing are the
 * driver's. Tests begin and end a capture (cuStreamBeginCapture_v2, cuStreamEndCapture); it records
 * nothing.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC_CONTEXT 0x63747874
#define MAGIC_STREAM  0x7374726d
#define MAGIC_EVENT   0x65766e74
#define STACK_DEPTH   32
#define PER_THREAD    ((struct drv_stream *)2)

struct drv_stream {
    uint32_t magic;
    unsigned flags;
    struct drv_context *context;
    enum drv_capture_status capture;
    enum drv_capture_mode mode;
    pthread_t thread; /* that began the capture */
    struct drv_stream *next;
};

struct drv_event {
    uint32_t magic;
    bool captured;
    struct drv_stream *stream; /* that it was last recorded in */
    unsigned long upto;        /* the requests before it */
};

static struct drv_context contexts[FAKE_MAX_DEVICES];
static struct drv_stream *streams; /* all; guarded by fake_mutex */
static _Thread_local struct drv_context *stack[STACK_DEPTH];
static _Thread_local unsigned depth;
static _Thread_local enum drv_capture_mode thread_mode = DRV_CAPTURE_MODE_GLOBAL;

/* ---- contexts ------------------------------------------------------------------------------ */

struct drv_context *context_current(void)
{
    struct drv_context *context = depth ? stack[depth - 1] : NULL;

    return context && context->magic == MAGIC_CONTEXT ? context : NULL;
}

static void note(const char *kind, unsigned gpu, bool there)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s.%d.%u", machine_dir(), kind, (int)getpid(), gpu);
    if (there)
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    else
        unlink(path);
}

enum drv_result cuDevicePrimaryCtxRetain(struct drv_context **context, drv_device device)
{
    enum drv_result result;
    unsigned gpu;

    ENTER();
    result = device_find(device, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_mutex);
    if (contexts[device].retained++ == 0) {
        contexts[device].magic = MAGIC_CONTEXT;
        contexts[device].gpu = gpu;
        contexts[device].device = device;
        note("context", gpu, true);
    }
    pthread_mutex_unlock(&fake_mutex);
    *context = &contexts[device];
    return DRV_SUCCESS;
}

enum drv_result cuDevicePrimaryCtxGetState(drv_device device, unsigned *flags, int *active)
{
    enum drv_result result;
    unsigned gpu;

    ENTER();
    result = device_find(device, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    pthread_mutex_lock(&fake_mutex);
    *flags = 0;
    *active = contexts[device].retained > 0;
    pthread_mutex_unlock(&fake_mutex);
    return DRV_SUCCESS;
}

enum drv_result cuDevicePrimaryCtxRelease_v2(drv_device device)
{
    enum drv_result result = DRV_SUCCESS;
    bool has_left = copy_has_pinned();

    ENTER();
    if (device < 0 || device >= FAKE_MAX_DEVICES)
        return DRV_INVALID_DEVICE;
    pthread_mutex_lock(&fake_mutex);
    if (!contexts[device].retained) {
        result = DRV_INVALID_CONTEXT;
    } else if (--contexts[device].retained == 0) {
        contexts[device].magic = 0;
        for (struct drv_stream *s = streams; s; s = s->next)
            has_left |= s->context == &contexts[device];
        if (has_left)
            note("leaked", contexts[device].gpu, true);
        note("context", contexts[device].gpu, false);
    }
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

enum drv_result cuDevicePrimaryCtxReset_v2(drv_device device)
{
    ENTER();
    if (device < 0 || device >= FAKE_MAX_DEVICES)
        return DRV_INVALID_DEVICE;
    copy_drop_all(&contexts[device]);
    pthread_mutex_lock(&fake_mutex);
    if (contexts[device].retained)
        note("context", contexts[device].gpu, false);
    contexts[device].retained = 0;
    contexts[device].magic = 0;
    pthread_mutex_unlock(&fake_mutex);
    return DRV_SUCCESS;
}

/* It becomes current, as in the driver. Its place is not used again, so that a late use of its
 * handle is noticed. */
enum drv_result cuCtxCreate_v2(struct drv_context **context, unsigned flags, drv_device device)
{
    static struct drv_context created[FAKE_MAX_DEVICES];
    static atomic_uint count;
    struct drv_context *made;
    enum drv_result result;
    unsigned gpu;

    ENTER();
    (void)flags;
    result = device_find(device, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    if (depth == STACK_DEPTH || count >= FAKE_MAX_DEVICES)
        return DRV_OUT_OF_MEMORY;
    made = &created[count++];
    *made = (struct drv_context){.magic = MAGIC_CONTEXT, .gpu = gpu, .device = device};
    stack[depth++] = made;
    *context = made;
    return DRV_SUCCESS;
}

enum drv_result cuCtxDestroy_v2(struct drv_context *context)
{
    ENTER();
    if (!context || context->magic != MAGIC_CONTEXT)
        return DRV_INVALID_CONTEXT;
    copy_drop_all(context);
    context->magic = 0;
    depth -= depth && stack[depth - 1] == context;
    return DRV_SUCCESS;
}

enum drv_result cuCtxGetCurrent(struct drv_context **context)
{
    ENTER();
    *context = depth ? stack[depth - 1] : NULL;
    return DRV_SUCCESS;
}

enum drv_result cuCtxSetCurrent(struct drv_context *context)
{
    ENTER();
    if (context && context->magic != MAGIC_CONTEXT)
        return DRV_INVALID_CONTEXT;
    if (!context) {
        depth -= depth > 0;
        return DRV_SUCCESS;
    }
    if (!depth)
        depth = 1;
    stack[depth - 1] = context;
    return DRV_SUCCESS;
}

enum drv_result cuCtxPushCurrent_v2(struct drv_context *context)
{
    ENTER();
    if (!context || context->magic != MAGIC_CONTEXT || depth == STACK_DEPTH)
        return DRV_INVALID_CONTEXT;
    stack[depth++] = context;
    return DRV_SUCCESS;
}

enum drv_result cuCtxPopCurrent_v2(struct drv_context **context)
{
    ENTER();
    if (!depth)
        return DRV_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return DRV_SUCCESS;
}

enum drv_result cuCtxEnablePeerAccess(struct drv_context *peer, unsigned flags)
{
    ENTER();
    if (flags != 0)
        return DRV_INVALID_VALUE;
    if (!context_current() || !peer || peer->magic != MAGIC_CONTEXT)
        return DRV_INVALID_CONTEXT;
    return peer->gpu == context_current()->gpu ? DRV_INVALID_DEVICE : DRV_SUCCESS;
}

enum drv_result cuCtxGetDevice(drv_device *device)
{
    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    *device = context_current()->device;
    return DRV_SUCCESS;
}

/* ---- captures ------------------------------------------------------------------------------ */

static bool is_special(const struct drv_stream *stream)
{
    return !stream || stream == FAKE_LEGACY || stream == PER_THREAD;
}

bool stream_is_blocking(const struct drv_stream *stream)
{
    return is_special(stream) || !(stream->flags & DRV_STREAM_NON_BLOCKING);
}

static bool is_open(const struct drv_stream *stream)
{
    return stream->capture == DRV_CAPTURE_ACTIVE;
}

enum drv_result capture_check_unsafe(void)
{
    enum drv_result result = DRV_SUCCESS;

    if (thread_mode == DRV_CAPTURE_MODE_RELAXED)
        return DRV_SUCCESS;
    pthread_mutex_lock(&fake_mutex);
    for (struct drv_stream *s = streams; s; s = s->next) {
        bool own = is_open(s) && pthread_equal(s->thread, pthread_self()) &&
                   s->mode != DRV_CAPTURE_MODE_RELAXED;
        bool global = is_open(s) && s->mode == DRV_CAPTURE_MODE_GLOBAL &&
                      thread_mode == DRV_CAPTURE_MODE_GLOBAL;

        if (!own && !global)
            continue;
        s->capture = DRV_CAPTURE_INVALIDATED;
        result = DRV_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

/* Breaks the captures of this context's streams that the legacy stream would wait for. */
static enum drv_result disturb(bool blocking_only, enum drv_result answer)
{
    enum drv_result result = DRV_SUCCESS;

    pthread_mutex_lock(&fake_mutex);
    for (struct drv_stream *s = streams; s; s = s->next) {
        if (!is_open(s) || s->context != context_current() ||
            (blocking_only && s->flags & DRV_STREAM_NON_BLOCKING))
            continue;
        s->capture = DRV_CAPTURE_INVALIDATED;
        result = answer;
    }
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

enum drv_result capture_check_legacy(void)
{
    return disturb(true, DRV_STREAM_CAPTURE_IMPLICIT);
}

enum drv_result capture_check_stream(struct drv_stream *stream, bool *capturing)
{
    *capturing = false;
    if (stream == PER_THREAD)
        return DRV_SUCCESS;
    if (is_special(stream))
        return capture_check_legacy();
    if (stream->magic != MAGIC_STREAM)
        return DRV_INVALID_HANDLE;
    if (stream->capture == DRV_CAPTURE_INVALIDATED)
        return DRV_STREAM_CAPTURE_INVALIDATED;
    *capturing = is_open(stream);
    return DRV_SUCCESS;
}

enum drv_result cuThreadExchangeStreamCaptureMode(enum drv_capture_mode *mode)
{
    enum drv_capture_mode old = thread_mode;

    ENTER();
    if (*mode > DRV_CAPTURE_MODE_RELAXED)
        return DRV_INVALID_VALUE;
    thread_mode = *mode;
    *mode = old;
    return DRV_SUCCESS;
}

/* Asking the legacy stream is an error, but breaks nothing, while a blocking stream captures. */
enum drv_result cuStreamIsCapturing(struct drv_stream *stream, enum drv_capture_status *status)
{
    enum drv_result result = DRV_SUCCESS;

    ENTER();
    *status = DRV_CAPTURE_NONE;
    if (stream == PER_THREAD)
        return DRV_SUCCESS;
    pthread_mutex_lock(&fake_mutex);
    if (is_special(stream)) {
        for (struct drv_stream *s = streams; s; s = s->next)
            if (is_open(s) && s->context == context_current() &&
                !(s->flags & DRV_STREAM_NON_BLOCKING))
                result = DRV_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->magic != MAGIC_STREAM) {
        result = DRV_INVALID_HANDLE;
    } else {
        *status = stream->capture;
    }
    pthread_mutex_unlock(&fake_mutex);
    return result;
}

enum drv_result cuStreamBeginCapture_v2(struct drv_stream *stream, enum drv_capture_mode mode)
{
    ENTER();
    if (is_special(stream))
        return DRV_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&fake_mutex);
    stream->capture = DRV_CAPTURE_ACTIVE;
    stream->mode = mode;
    stream->thread = pthread_self();
    pthread_mutex_unlock(&fake_mutex);
    return DRV_SUCCESS;
}

enum drv_result cuStreamEndCapture(struct drv_stream *stream, void **graph)
{
    enum drv_capture_status was;

    ENTER();
    if (is_special(stream) || stream->magic != MAGIC_STREAM)
        return DRV_INVALID_HANDLE;
    pthread_mutex_lock(&fake_mutex);
    was = stream->capture;
    stream->capture = DRV_CAPTURE_NONE;
    pthread_mutex_unlock(&fake_mutex);
    *graph = NULL;
    return was == DRV_CAPTURE_ACTIVE        ? DRV_SUCCESS
           : was == DRV_CAPTURE_INVALIDATED ? DRV_STREAM_CAPTURE_INVALIDATED
                                            : DRV_ILLEGAL_STATE;
}

/* ---- streams ------------------------------------------------------------------------------- */

enum drv_result cuStreamCreate(struct drv_stream **stream, unsigned flags)
{
    struct drv_stream *made;

    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    if (flags & ~(unsigned)DRV_STREAM_NON_BLOCKING)
        return DRV_INVALID_VALUE;
    made = calloc(1, sizeof(*made));
    if (!made)
        return DRV_OPERATING_SYSTEM;
    *made =
        (struct drv_stream){.magic = MAGIC_STREAM, .flags = flags, .context = context_current()};
    pthread_mutex_lock(&fake_mutex);
    made->next = streams;
    streams = made;
    pthread_mutex_unlock(&fake_mutex);
    *stream = made;
    return DRV_SUCCESS;
}

enum drv_result cuStreamDestroy_v2(struct drv_stream *stream)
{
    struct drv_stream **link;

    ENTER();
    if (is_special(stream) || stream->magic != MAGIC_STREAM)
        return DRV_INVALID_HANDLE;
    pthread_mutex_lock(&fake_mutex);
    for (link = &streams; *link != stream; link = &(*link)->next)
        ;
    *link = stream->next;
    pthread_mutex_unlock(&fake_mutex);
    queue_run(stream, queue_mark());
    stream->magic = 0;
    free(stream);
    return DRV_SUCCESS;
}

static enum drv_result wait_for(struct drv_stream *stream)
{
    bool capturing;
    enum drv_result result = capture_check_stream(stream, &capturing);

    if (!context_current())
        return DRV_INVALID_CONTEXT;
    if (!capturing) {
        if (result == DRV_SUCCESS)
            queue_run(is_special(stream) ? FAKE_LEGACY : stream, queue_mark());
        return result;
    }
    pthread_mutex_lock(&fake_mutex);
    stream->capture = DRV_CAPTURE_INVALIDATED;
    pthread_mutex_unlock(&fake_mutex);
    return DRV_STREAM_CAPTURE_UNSUPPORTED;
}

enum drv_result cuStreamSynchronize(struct drv_stream *stream)
{
    ENTER();
    return wait_for(stream);
}

enum drv_result cuStreamQuery(struct drv_stream *stream)
{
    ENTER();
    return wait_for(stream);
}

enum drv_result cuCtxSynchronize(void)
{
    ENTER();
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    queue_run(NULL, queue_mark());
    return disturb(false, DRV_STREAM_CAPTURE_UNSUPPORTED);
}

/* ---- events -------------------------------------------------------------------------------- */

enum drv_result cuEventCreate(struct drv_event **event, unsigned flags)
{
    ENTER();
    (void)flags;
    if (!context_current())
        return DRV_INVALID_CONTEXT;
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return DRV_OPERATING_SYSTEM;
    (*event)->magic = MAGIC_EVENT;
    return DRV_SUCCESS;
}

enum drv_result cuEventDestroy_v2(struct drv_event *event)
{
    ENTER();
    if (!event || event->magic != MAGIC_EVENT)
        return DRV_INVALID_HANDLE;
    event->magic = 0;
    free(event);
    return DRV_SUCCESS;
}

enum drv_result cuEventRecord(struct drv_event *event, struct drv_stream *stream)
{
    ENTER();
    if (!event || event->magic != MAGIC_EVENT)
        return DRV_INVALID_HANDLE;
    event->stream = is_special(stream) ? NULL : stream;
    event->upto = queue_mark();
    return capture_check_stream(stream, &event->captured);
}

/* Work is done in the order of the requests, on all streams; but an event that waits for lazy work
 * has that done first. */
enum drv_result cuStreamWaitEvent(struct drv_stream *stream, struct drv_event *event,
                                  unsigned flags)
{
    bool capturing = false;
    enum drv_result result;

    ENTER();
    if (!event || event->magic != MAGIC_EVENT || flags)
        return DRV_INVALID_HANDLE;
    result = capture_check_stream(stream, &capturing);
    if (result == DRV_SUCCESS && capturing != event->captured)
        return DRV_STREAM_CAPTURE_ISOLATION;
    queue_run(event->stream, event->upto);
    return result;
}

enum drv_result cuEventQuery(struct drv_event *event)
{
    ENTER();
    if (!event || event->magic != MAGIC_EVENT)
        return DRV_INVALID_HANDLE;
    if (event->captured)
        return DRV_INVALID_VALUE;
    return queue_has(event->stream, event->upto) ? DRV_NOT_READY : DRV_SUCCESS;
}

enum drv_result cuEventSynchronize(struct drv_event *event)
{
    ENTER();
    if (!event || event->magic != MAGIC_EVENT)
        return DRV_INVALID_HANDLE;
    queue_run(event->stream, event->upto);
    return event->captured ? DRV_INVALID_VALUE : DRV_SUCCESS;
}
