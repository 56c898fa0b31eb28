/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - the parts of `gmsfs load`
 *
 * For cmd_load.c and load_*.c. The steps of a load: plan (no lock yet) - connect - clear and
 * allocate - copy - describe (metadata) - commit. Each step prints its error and returns an exit
 * status; a failure before the commit leaves no part of it. A group is several loads, the ranks of
 * one model, that take each step together.
 */
#ifndef GMSFS_CLI_LOAD_H
#define GMSFS_CLI_LOAD_H

#include "cli/cli.h"
#include "gmsfs.h"
#include "model/pack.h"
#include "model/safetensors.h"
#include "mover/staging.h"
#include "source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_TAG           "weights"
#define LOAD_NO_ALLOCATION UINT32_MAX /* of a file without bytes */

struct load {
    /* Options of the command line. */
    const char *store;
    const char *const *files;
    size_t file_count;
    uint64_t chunk_bytes;
    uint64_t timeout_ms;
    uint64_t threads; /* 0: choose the best number */
    enum direct_use direct;
    bool quiet;
    bool immutable;          /* commits a layout that never changes again */
    bool keeps_files;        /* --files: the files are kept whole */
    struct staging *staging; /* shared by all loads of a group */
    struct source *source;   /* the same */

    /* Planned. */
    struct model *model; /* its tensors are copied; of keeps_files, the files (model/files.h) */
    struct pack_plan plan;
    size_t *order;  /* tensors in the order of the files */
    char **values;  /* metadata value of each tensor */
    char *metadata; /* JSON of __metadata__, or NULL */
    /* With keeps_files, the tensors in these files: entries more, without bytes of their own. */
    struct model *bound;   /* NULL: there are none */
    char **bound_values;   /* of each */
    size_t *bound_files;   /* of each file of `bound`: its tensor in `model` */
    uint64_t copied_us;    /* from the first byte read to the last in the store */
    uint64_t needed_bytes; /* of memory, aligned */

    /* The load of the group whose memory has all bytes that this one needs, at the same places;
     * NULL: this one reads its files. */
    struct load *twin;
    uint32_t passed; /* of a load with twins: its first allocations that they have already */

    /* In the store. */
    gmsfs_t *handle;
    struct staging_memory memory;
    uint64_t *slots;                /* of each allocation of the plan */
    struct gmsfs_mapping *mappings; /* of each, only of GPU memory: for `staging` alone */
    uint64_t generation;            /* after the commit */

    /* Times between two parts; of a group, in its first load. */
    uint64_t begun_ms, planned_ms, granted_ms, filled_ms;
};

/* load_plan.c: checks that all parts of a model are named. */
int load_check_parts(const char *const *files, size_t count);
/* Reads and validates the files; also finds names and values that the store would refuse. */
int load_plan(struct load *load);
/* load_files.c: opens files that are kept, and the model in them. */
int load_open_files(struct load *load);
/* Places files that are kept: the bytes of one that engines may map, a large one or one with
 * tensors, are an allocation; all others are in one together. */
int load_pack_files(struct load *load);
/* Makes the entries of the tensors in the files. */
size_t load_bind_tensors(const struct load *load, struct gmsfs_metadata *entries);
void load_free_files(struct load *load);
/* Places the tensors in allocations, by the kind of the store's memory: on a GPU few large ones, as
 * their number decides the cost of attaching; else so many that each thread has one to fill. */
int load_pack(struct load *load, enum gmsfs_memory memory);
void load_plan_free(struct load *load);

/* load_copy.c: allocates the memory of `count` loads and moves their bytes, by the threads of the
 * first load, which also gets the times. Defers signals once all memory is allocated. CLI_OK,
 * CLI_FAILURE, or 128 + the signal that stopped it. */
int load_copy(struct load *loads, size_t count);
/* Decides how to read the files, for all loads together. */
void load_prepare_source(const struct load *loads, size_t count);
/* Its two steps, after load_prepare_source(): allocates and maps the memory of GPUs, while another
 * thread pins the copy buffers; then copies the bytes, and allocates host memory as it goes. */
int load_map_memory(struct load *loads, size_t count);
int load_fill_memory(struct load *loads, size_t count);
/* load_twins.c: finds loads of the same files that need not be read twice; and fills them. Devices
 * that copy engines alone fill leave the processors to the others. */
void load_find_twins(struct load *loads, size_t count);
/* Returns true if copy engines fill the load from its twin's memory. */
bool load_is_passed_on(const struct load *load);
int load_copy_twins(struct load *loads, size_t count);

struct load_ahead;
/* Returns true if a load has twins that copy engines reach, and more than one allocation: all but
 * the last can be passed on while the last one is filled. */
bool load_passes_ahead(const struct load *loads, size_t count);
/* Starts a thread that prepares to pass them on, once the buffers of staging_warm() are there.
 * NULL: there is no thread; load_copy_twins() passes on all. */
struct load_ahead *load_ahead_begin(struct load *loads, size_t count);
/* Tells the thread that all but the last allocations are filled. NULL is fine. */
void load_ahead_go(struct load_ahead *ahead);
/* Returns true if passing on has failed. */
bool load_ahead_has_failed(const struct load_ahead *ahead);
/* Waits for the thread, which stops early if an allocation could not be filled. CLI_OK, or
 * an exit status after the error. NULL is fine. */
int load_ahead_end(struct load_ahead *ahead, bool stops);

/* load_store.c: the steps in one store. */
/* Checks that no file of the model lies in the store. */
int load_check_sources(const struct load *load, const struct model *model);
int load_check_space(struct load *load); /* also fills needed_bytes */
int load_clear(struct load *load);
int load_explain_allocation(const struct load *load, int error); /* CLI_FAILURE */
int load_put_metadata(struct load *load);
unsigned load_commit_flags(const struct load *load); /* GMSFS_COMMIT_* */
unsigned load_alloc_flags(const struct load *load);  /* GMSFS_ALLOC_* */
void load_explain_commit(const struct load *load, int error);
void load_print_store(const struct load *load);
/* Prints the size and the times of a load, or of the group that begins with this load. */
void load_print_bytes(const struct load *load, uint64_t bytes);
void load_free(struct load *load);

/*
 * load_group.c: loads operands STORE=FILE; a STORE with several files has several operands.
 * `as_asked`: the options; force: also load a group that is whole already. Returns an exit status.
 */
int load_group(const struct load *as_asked, char **operands, size_t count, bool force);

#endif
