/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope - variables with memory that is freed on every way out of their block
 *
 * Pure and header-only, so that the library can use it. Descriptors and streams: file_io.h. JSON:
 * jansson's json_auto_t. For variables that are the only owner of their memory; every variable of
 * the declaration has to be initialised in it. The memory is freed after the value of `return` is
 * computed.
 */
#ifndef GMSFS_BASE_SCOPE_H
#define GMSFS_BASE_SCOPE_H

#include <stdlib.h>
#include <string.h>

/* cppcheck does not know the attribute, and a static variable leaks nothing either. */
#ifdef __CPPCHECK__
#define SCOPED(end) static
#else
#define SCOPED(end) __attribute__((cleanup(end), unused))
#endif

#define SCOPED_FREE SCOPED(scope_free)

/* Frees the pointer at this address. */
static inline void scope_free(void *at)
{
    void *memory;

    memcpy(&memory, at, sizeof(memory));
    free(memory);
}

#endif
