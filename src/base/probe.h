/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe - static tracepoints (USDT) of the daemon, for bpftrace, perf and gdb
 *
 * gmsfs-mount(8), TRACEPOINTS, describes them to users. A tracepoint is one instruction that does
 * nothing until a tool patches the program. Without <sys/sdt.h> (Debian: systemtap-sdt-dev) the
 * program has none. `source` tells the meaning of `number`: the kernel's number of a request
 * (FUSE), process and operation (.fds, as fs_at_asker packs them), or the number of a connection
 * (GMS).
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
/* A session has begun. waiter: its number; 0 if the lock was free. */
#define PROBE_GRANT(store, session, waiter) DTRACE_PROBE3(gmsfs, grant, store, session, waiter)
/* A helper thread begins and ends a job. pool: enum service_pool. */
#define PROBE_JOB_BEGIN(number, pool, job) DTRACE_PROBE3(gmsfs, job_begin, number, pool, job)
#define PROBE_JOB_END(number, pool, job)   DTRACE_PROBE3(gmsfs, job_end, number, pool, job)

#endif
