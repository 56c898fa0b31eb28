/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - which calls a part of a benchmark makes and how long they take, for a line on stderr
 *
 * Takes the place of ioctl(2), poll(2), pread(2), recvmsg(2) and close(2) in the program, and,
 * between trace_begin and trace_end, of the driver's calls in its table. For a round that is not
 * measured: looking costs.
 */
#ifndef GMSFS_BENCH_TRACE_H
#define GMSFS_BENCH_TRACE_H

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "bench.h"
#include "cuda/driver.h"

/* TRACE(function, parameters, arguments) */
#define TRACE_DRIVER(TRACE)                                                                        \
    TRACE(cuMemAlloc_v2, (drv_pointer * address, size_t bytes), (address, bytes))                  \
    TRACE(cuMemFree_v2, (drv_pointer address), (address))                                          \
    TRACE(cuThreadExchangeStreamCaptureMode, (enum drv_capture_mode * mode), (mode))               \
    TRACE(cuPointerGetAttribute,                                                                   \
          (void *value, enum drv_pointer_attribute attribute, drv_pointer address),                \
          (value, attribute, address))                                                             \
    TRACE(cuCtxGetCurrent, (struct drv_context * *context), (context))                             \
    TRACE(cuCtxGetDevice, (drv_device * device), (device))                                         \
    TRACE(cuStreamIsCapturing, (struct drv_stream * stream, enum drv_capture_status * status),     \
          (stream, status))                                                                        \
    TRACE(cuMemAddressFree, (drv_pointer address, size_t bytes), (address, bytes))                 \
    TRACE(cuMemAddressReserve,                                                                     \
          (drv_pointer * address, size_t bytes, size_t alignment, drv_pointer hint,                \
           unsigned long long flags),                                                              \
          (address, bytes, alignment, hint, flags))                                                \
    TRACE(cuMemImportFromShareableHandle,                                                          \
          (drv_memory * memory, void *shareable, enum drv_handle_type type),                       \
          (memory, shareable, type))                                                               \
    TRACE(cuMemMap,                                                                                \
          (drv_pointer address, size_t bytes, size_t offset, drv_memory memory,                    \
           unsigned long long flags),                                                              \
          (address, bytes, offset, memory, flags))                                                 \
    TRACE(cuMemUnmap, (drv_pointer address, size_t bytes), (address, bytes))                       \
    TRACE(cuMemSetAccess,                                                                          \
          (drv_pointer address, size_t bytes, const struct drv_access_desc *access, size_t count), \
          (address, bytes, access, count))                                                         \
    TRACE(cuMemRelease, (drv_memory memory), (memory))                                             \
    TRACE(cuCtxSynchronize, (void), ())                                                            \
    TRACE(cuStreamSynchronize, (struct drv_stream * stream), (stream))                             \
    TRACE(cuDevicePrimaryCtxRetain, (struct drv_context * *context, drv_device device),            \
          (context, device))                                                                       \
    TRACE(cuDevicePrimaryCtxRelease_v2, (drv_device device), (device))                             \
    TRACE(cuDeviceGetUuid_v2, (struct drv_uuid * uuid, drv_device device), (uuid, device))         \
    TRACE(cuStreamCreate, (struct drv_stream * *stream, unsigned flags), (stream, flags))          \
    TRACE(cuEventCreate, (struct drv_event * *event, unsigned flags), (event, flags))              \
    TRACE(cuEventSynchronize, (struct drv_event * event), (event))                                 \
    TRACE(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags),                     \
          (address, bytes, flags))                                                                 \
    TRACE(cuMemcpyHtoDAsync_v2,                                                                    \
          (drv_pointer to, const void *from, size_t bytes, struct drv_stream *stream),             \
          (to, from, bytes, stream))

enum trace_call {
#define TRACE(function, parameters, arguments) TRACE_##function,
    TRACE_DRIVER(TRACE)
#undef TRACE
    TRACE_IOCTL,
    TRACE_POLL,
    TRACE_PREAD,
    TRACE_RECVMSG,
    TRACE_CLOSE,
    TRACE_CALLS
};

static const char *const trace_names[TRACE_CALLS] = {
#define TRACE(function, parameters, arguments) #function,
    TRACE_DRIVER(TRACE)
#undef TRACE
        "ioctl",
    "poll", "pread", "recvmsg", "close"};

struct trace_of {
    atomic_ullong count, ns, longest_ns, last_ns; /* last: since trace_begin, when it returned */
};

static struct {
    atomic_int is_on;
    double begun_us;
    struct trace_of of[TRACE_CALLS];
    struct drv *table, was;
} trace;

static void trace_add(enum trace_call call, double start_us)
{
    double now_us = bench_now_us();
    struct trace_of *of = &trace.of[call];
    unsigned long long ns = (unsigned long long)((now_us - start_us) * 1e3);

    if (!atomic_load(&trace.is_on))
        return;
    atomic_fetch_add(&of->count, 1);
    atomic_fetch_add(&of->ns, ns);
    if (ns > atomic_load(&of->longest_ns))
        atomic_store(&of->longest_ns, ns);
    atomic_store(&of->last_ns, (unsigned long long)((now_us - trace.begun_us) * 1e3));
}

#define TRACE(function, parameters, arguments)                 \
    static enum drv_result trace_##function parameters         \
    {                                                          \
        double start_us = bench_now_us();                      \
        enum drv_result result = trace.was.function arguments; \
                                                               \
        trace_add(TRACE_##function, start_us);                 \
        return result;                                         \
    }
TRACE_DRIVER(TRACE)
#undef TRACE

int ioctl(int fd, unsigned long request, ...)
{
    double start_us = bench_now_us();
    va_list rest;
    void *argument;
    int result;

    va_start(rest, request);
    argument = va_arg(rest, void *);
    va_end(rest);
    result = (int)syscall(SYS_ioctl, fd, request, argument);
    trace_add(TRACE_IOCTL, start_us);
    return result;
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    double start_us = bench_now_us();
    int result = (int)syscall(SYS_poll, fds, count, timeout_ms);

    trace_add(TRACE_POLL, start_us);
    return result;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    double start_us = bench_now_us();
    ssize_t result = syscall(SYS_pread64, fd, to, bytes, at);

    trace_add(TRACE_PREAD, start_us);
    return result;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    double start_us = bench_now_us();
    ssize_t result = syscall(SYS_recvmsg, fd, message, flags);

    trace_add(TRACE_RECVMSG, start_us);
    return result;
}

int close(int fd)
{
    double start_us = bench_now_us();
    int result = (int)syscall(SYS_close, fd);

    trace_add(TRACE_CLOSE, start_us);
    return result;
}

/* drv: as drv_open gave it; its table is not constant, only its users' view of it. */
BENCH_UNUSED static void trace_begin(const struct drv *drv)
{
    memset(&trace, 0, sizeof trace);
    trace.table = (struct drv *)(uintptr_t)drv;
    trace.was = *drv;
#define TRACE(function, parameters, arguments) trace.table->function = trace_##function;
    TRACE_DRIVER(TRACE)
#undef TRACE
    trace.begun_us = bench_now_us();
    atomic_store(&trace.is_on, 1);
}

/* A line of all calls since trace_begin: how often, how long together, the longest, and when the
 * last one was over. */
BENCH_UNUSED static void trace_end(const char *label)
{
    double took_us = bench_now_us() - trace.begun_us;

    atomic_store(&trace.is_on, 0);
    *trace.table = trace.was;
    fprintf(stderr, "bench: %s, looked at: %.0f us;", label, took_us);
    for (int i = 0; i < TRACE_CALLS; i++) {
        const struct trace_of *of = &trace.of[i];
        if (of->count > 0)
            fprintf(stderr, " %s %llu x %.0f us (longest %.0f, last at %.0f)", trace_names[i],
                    of->count, (double)of->ns / 1e3, (double)of->longest_ns / 1e3,
                    (double)of->last_ns / 1e3);
    }
    fputc('\n', stderr);
}

#endif
