/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xxh3 - xxhash.h, whose XXH3 goes by the widest instructions that the processor has
 *
 * Without this the library goes by those that every processor of the architecture has: half the
 * speed.
 */
#ifndef GMSFS_BASE_XXH3_H
#define GMSFS_BASE_XXH3_H

#include <xxhash.h>

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<xxh_x86dispatch.h>) /* it is there where the library was built so */
#include <xxh_x86dispatch.h>
#endif
#endif

#endif
