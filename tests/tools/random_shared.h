/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_shared - memory that the driver of random_ops and its clients share
 *
 * A page that all of them map. Each client has a place in it for its present operation; the driver
 * looks there for one that makes no progress. Included by random_ops.c and its parts.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_SHARED_H
#define GMSFS_TESTS_TOOLS_RANDOM_SHARED_H

#include "tool.h"

#include <stdatomic.h>

#define MAX_CLIENTS 64

struct place {
    atomic_ullong since_ms; /* 0 between two operations */
    atomic_int operation, target;
};

struct shared {
    atomic_int stop;
    atomic_ulong operations, losses;
    atomic_ulong moves, wakes; /* begun; at another place than before */
    struct place places[MAX_CLIENTS];
};

static struct shared *shared;

/* How many times as long clients live and wait for a store: longer in each further round, when the
 * machine is so busy that too little has happened in the others. */
static uint64_t life_factor = 1;

/* Committed content is damaged: counts it and ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void lost(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    atomic_fetch_add(&shared->losses, 1);
    tool_die("lost: %s", text);
}

#endif
