/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mover - moves bytes between files and the memory of stores, as fast as the machine can
 *
 * src/image and the commands include the headers named here, and no others of this folder. A reader
 * of many bytes gets threads from `work`, a lane of `staging` for each, and writes files by `sink`;
 * src/source reads them.
 *
 *   work          cuts much data into pieces, which threads take; chooses how many threads
 *   staging       the bytes of store memory, on the host or a GPU, for a thread to read or fill
 *   sink          a file that several threads fill
 *   fill          fills the memory of stores from files, by one engine
 *   supply        memory that one thread asks for while others fill it
 *   spread        copies the memory of one store to that of others
 *
 * A kind of memory is a row of the table in staging.c and a file of its own: staging_host.c,
 * staging_cuda.c. Knows no store's lock or layout, no signal and no command, and prints nothing:
 * functions return 0 or a negative errno, and errors of a device come in a `struct failure`.
 */
#ifndef GMSFS_MOVER_MOVER_H
#define GMSFS_MOVER_MOVER_H

#include "mover/fill.h"
#include "mover/sink.h"
#include "mover/spread.h"
#include "mover/staging.h"
#include "mover/supply.h"
#include "mover/work.h"

#endif
