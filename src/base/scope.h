/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scope - memory that is freed when the block that declares it is left, on whichever way
 *
 * Pure, and all of it is here, so the library has it too. Descriptors and streams: file_io.h. JSON:
 * jansson's json_auto_t. The attribute is for a variable whose memory goes nowhere else; each
 * variable of the declaration is initialised by it. The memory is freed after the value of `return`
 * is computed.
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

/* Of the pointer at this address. */
static inline void scope_free(void *at)
{
    void *memory;

    memcpy(&memory, at, sizeof(memory));
    free(memory);
}

#endif
