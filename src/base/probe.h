/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe - static tracepoints (USDT) of the daemon, for bpftrace, perf and gdb
 *
 * gmsfs-mount(8), TRACEPOINTS, tells users. A tracepoint is one instruction that does nothing until
 * a tool patches it. Where <sys/sdt.h> is not installed (Debian: systemtap-sdt-dev) there are none.
 * `number` is the kernel's of a request, what the worker is at (fs.h) of one on `.fds`, and the
 * connection's of a GMS client; `source` says which.
 */
#ifndef GMSFS_BASE_PROBE_H
#define GMSFS_BASE_PROBE_H

#include <stdint.h>

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#else
#define DTRACE_PROBE3(provider, name, a, b, c)    ((void)(a), (void)(b), (void)(c))
#define DTRACE_PROBE4(provider, name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

enum probe_source {
    PROBE_FUSE,
    PROBE_FDS,
    PROBE_GMS,
};

/* A request has arrived. operation: FUSE's opcode, an operation of `.fds`, or a message type. */
#define PROBE_REQUEST(number, source, operation, uid) \
    DTRACE_PROBE4(gmsfs, request, (uint64_t)(number), source, operation, uid)
/* An answer leaves. error: 0 or a negative errno. */
#define PROBE_ANSWER(number, source, error) \
    DTRACE_PROBE3(gmsfs, answer, (uint64_t)(number), source, error)
/* A record was applied, or refused. type: enum record_type. */
#define PROBE_RECORD(type, store, session, error) \
    DTRACE_PROBE4(gmsfs, record, type, store, session, error)
/* A session has begun. waiter: that was granted it; 0: nothing had to be waited for. */
#define PROBE_GRANT(store, session, waiter) DTRACE_PROBE3(gmsfs, grant, store, session, waiter)
/* A helper thread begins and ends a job. pool: enum service_pool. */
#define PROBE_JOB_BEGIN(number, pool, job) DTRACE_PROBE3(gmsfs, job_begin, number, pool, job)
#define PROBE_JOB_END(number, pool, job)   DTRACE_PROBE3(gmsfs, job_end, number, pool, job)

#endif
