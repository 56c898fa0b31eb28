/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover - bytes between files and the memory of stores, as fast as the machine moves them
 *
 * What this folder offers, to src/image and the commands; the headers that are named here and no
 * others. A reader of many bytes gets threads from `work`, a lane of `staging` for each, and takes
 * files by `direct` or fills them by `sink`.
 *
 *   work          much data in pieces, which threads take; and how many threads are best
 *   staging       the bytes of store memory, on the host or a GPU, for a thread to read or fill
 *   direct        files read past the page cache, or through it
 *   sink          a file that several threads fill
 *   fill          the memory of stores filled from files, by one engine
 *   supply        memory that one thread asks for while others fill what is there
 *
 * A kind of memory is a row of the table in staging.c and a file of its own: staging_host.c,
 * staging_cuda.c. Knows no store's lock or layout, no signal and no command, and prints nothing:
 * functions return 0 or a negative errno, and what a device said comes in a `struct failure`.
 */
#ifndef GMSFS_MOVER_MOVER_H
#define GMSFS_MOVER_MOVER_H

#include "mover/direct.h"
#include "mover/fill.h"
#include "mover/sink.h"
#include "mover/staging.h"
#include "mover/supply.h"
#include "mover/work.h"

#endif
