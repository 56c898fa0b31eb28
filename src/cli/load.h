/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - the parts of `gmsfs load`
 *
 * For cmd_load.c and load_*.c. One load goes: plan (no lock yet) - connect - clear and allocate -
 * copy - describe (metadata) - commit. Each step prints its error and returns an exit status;
 * whatever fails before the commit, nothing of it is kept. A group is several loads, the ranks of
 * one model, whose steps are taken together.
 */
#ifndef GMSFS_CLI_LOAD_H
#define GMSFS_CLI_LOAD_H

#include "cli/cli.h"
#include "gmsfs.h"
#include "model/pack.h"
#include "model/safetensors.h"
#include "mover/direct.h"
#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_TAG "weights"

struct load {
    /* As asked for. */
    const char *store;
    const char *const *files;
    size_t file_count;
    uint64_t chunk_bytes;
    uint64_t timeout_ms;
    uint64_t threads; /* 0: as many as are best */
    enum direct_use direct;
    bool quiet;
    struct staging *staging; /* of all stores */

    /* Planned. */
    struct model *model;
    struct pack_plan plan;
    size_t *order;         /* tensors as they lie in the files */
    char **values;         /* metadata value of each tensor */
    char *metadata;        /* JSON of __metadata__, or NULL */
    uint64_t copied_us;    /* from the first byte read to the last in the store */
    uint64_t needed_bytes; /* of memory, aligned */

    /* In the store. */
    gmsfs_t *handle;
    struct staging_memory memory;
    uint64_t *slots;                /* of each allocation of the plan */
    struct gmsfs_mapping *mappings; /* of each, where it is a GPU's: for `staging` alone */
    struct direct_file *inputs;     /* the model's files, as they are read */
    uint64_t generation;            /* after the commit */

    /* When a part of it was over and the next began; of a group, in its first load. */
    uint64_t begun_ms, planned_ms, granted_ms, filled_ms;
};

/* load_plan.c: checks that no part of a model is named without the others. */
int load_check_parts(const char *const *files, size_t count);
/* Reads and validates the files, and what the store would refuse. */
int load_plan(struct load *load);
/* Then, with the kind of the store's memory: places the tensors in allocations. Few large ones
 * where their number decides what attaching costs, on a GPU; else so many that each thread has one
 * to fill. */
int load_pack(struct load *load, enum gmsfs_memory memory);
void load_plan_free(struct load *load);

/* load_inputs.c: decides how the files are read, for all loads together, and opens them so.
 * -ENOMEM. Closed by load_close_inputs. */
int load_open_inputs(struct load *loads, size_t count);
void load_close_inputs(struct load *load);
/* As many threads as were asked for; or as many as are best, which are more where reads go to the
 * disk. */
uint64_t load_threads(const struct load *loads, size_t count);

/* load_copy.c: gets the memory of `count` loads and moves their bytes, by the threads of the first,
 * which also learns what it took. Signals are deferred from when all memory is there. CLI_OK,
 * CLI_FAILURE, or 128 + the signal that stopped it. */
int load_copy(struct load *loads, size_t count);
/* Its two steps when the inputs are open: the memory of GPUs, mapped, while what copying needs is
 * pinned; and the bytes, for which that of the host is asked for. */
int load_map_memory(struct load *loads, size_t count);
int load_fill_memory(struct load *loads, size_t count);

/* load_store.c: the steps in one store. */
int load_check_sources(const struct load *load, const struct model *model); /* none is in it */
int load_check_space(struct load *load); /* also fills needed_bytes */
int load_clear(struct load *load);
int load_explain_allocation(const struct load *load, int error); /* CLI_FAILURE */
int load_put_metadata(struct load *load);
void load_explain_commit(const struct load *load, int error);
/* Aborts what the store's writer has done; what the store is now, in words. NULL: it
 * is one that store_make_undo() removes. */
const char *load_abort_store(struct load *load);
void load_print_store(const struct load *load);
/* The end of a load, or of a group whose first load this is: how much it was, and what took how
 * long. */
void load_print_bytes(const struct load *load, uint64_t bytes);
void load_free(struct load *load);

/*
 * load_group.c: operands STORE=FILE, several of one STORE naming several files. `as_asked` has what
 * the options say; force: also where the group is whole already. An exit status.
 */
int load_group(const struct load *as_asked, char **operands, size_t count, bool force);

#endif
