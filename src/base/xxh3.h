/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xxh3 - includes xxhash.h so that XXH3 uses the widest instructions of the processor
 *
 * Otherwise the library uses the instructions that every processor of the architecture has, at half
 * the speed.
 */
#ifndef GMSFS_BASE_XXH3_H
#define GMSFS_BASE_XXH3_H

#include <xxhash.h>

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<xxh_x86dispatch.h>) /* exists if the library was built with it */
#include <xxh_x86dispatch.h>
#endif
#endif

#endif
