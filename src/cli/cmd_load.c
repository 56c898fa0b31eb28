/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs load - safetensors files into a store, committed whole or not at all */
#include "cli/load.h"

#include "base/timeline.h"
#include "cli/operands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_connect.h"
#include "cli/store_group.h"
#include "cli/store_make.h"
#include "mover/work.h"

#include <string.h>

static const char usage[] =
    "Usage: gmsfs load [OPTION...] STORE FILE... | INDEX.json | DIRECTORY\n"
    "       gmsfs load --files [OPTION...] STORE FILE... | DIRECTORY\n"
    "       gmsfs load --group [--force] [OPTION...] STORE=FILE...\n"
    "\n"
    "Loads a model into a store, which is made where it is not there: safetensors or GGUF files,\n"
    "or a directory that has them, also on a server: https://, s3:// and hf:// places\n"
    "(gmsfs-places(7)). Validates them, takes the writer's lock together with all the memory\n"
    "that the model needs, replaces the contents of the store, and commits. On any error, or\n"
    "Ctrl-C, nothing is committed.\n"
    "With --files all files are kept byte for byte, and the store shows them as files/; the\n"
    "tensors of a model among them are entries in the same bytes.\n"
    "With --group a model of several ranks, each into its store, all of them or none: the stores\n"
    "are locked together, with all their memory, and committed with one group id. A STORE may be\n"
    "named several times, for a rank of several files. Where such a load is in them already, it\n"
    "is left as it is.\n";

static const char ending[] =
    "Exit status: 0 committed; 1 failure; 2 usage; 3 lock or memory were not free in time;\n"
    "4 committed, but that could not be reported; 128 + N stopped by signal N.\n";

struct load_choice {
    struct load load;
    bool is_group, force;
    const char *trace; /* file; NULL: none */
};

static int load_commit(struct load *load)
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    uint64_t span_us = timeline_begin();
    int error = gmsfs_commit(load->handle, load_commit_flags(load), NULL);
    timeline_end("load", "commit", span_us, load->store);
    if (error) {
        load_explain_commit(load, error);
    } else {
        store_make_keep();
        output_set_done();
    }
    load->generation = gmsfs_generation(load->handle);
    return error ? CLI_FAILURE : CLI_OK;
}

static int load_fill(struct load *load)
{
    staging_expect(load->staging, load->threads, load->model->tensor_bytes);
    int status = load_clear(load);
    if (status == CLI_OK)
        status = load_copy(load, 1);
    if (status == CLI_OK)
        status = load_put_metadata(load);
    load->filled_ms = clock_now_ms();
    if (status == CLI_OK)
        status = load_commit(load);
    return status;
}

static void load_print_result(const struct load *load)
{
    if (load->quiet)
        return;
    load_print_store(load);
    load_print_bytes(load, load->model->tensor_bytes);
}

static int load_into_store(struct load *load)
{
    if (store_open_or_make(load->store, &load->handle) != 0)
        return CLI_FAILURE;
    int status = load_check_sources(load, load->model);
    if (status == CLI_OK)
        status = load_check_space(load);
    if (status != CLI_OK)
        return status;
    load->planned_ms = clock_now_ms();
    uint64_t span_us = timeline_begin();
    status = store_connect_reserve(load->handle, load->store, load->timeout_ms, load->quiet,
                                   load->needed_bytes);
    timeline_end("load", "wait for lock and memory", span_us, load->store);
    if (status != CLI_OK)
        return status;
    load->granted_ms = clock_now_ms();
    status = load_fill(load);
    if (status == CLI_OK)
        load_print_result(load);
    else
        store_abort(load->handle, load->store, status);
    return status;
}

static int plan(struct load *load)
{
    uint64_t span_us = timeline_begin();
    int status = load_plan(load);

    timeline_end("load", "plan", span_us, NULL);
    return status;
}

static int load_do(struct load *load)
{
    load->begun_ms = clock_now_ms();
    signals_install("\ngmsfs load: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    load->staging = cli_need(staging_new());
    load->source = cli_need(source_open());
    int status = load->keeps_files ? CLI_OK : load_check_parts(load->files, load->file_count);
    if (status == CLI_OK)
        status = plan(load);
    if (status == CLI_OK)
        status = load_into_store(load);
    staging_free(load->staging);
    load_free(load);
    source_close(load->source);
    store_make_undo();
    return status;
}

static const struct cli_option options[] = {
    {"--group", 0, NULL, cli_take_flag, offsetof(struct load_choice, is_group),
     "each operand is STORE=FILE, STORE=INDEX.json or STORE=DIRECTORY"},
    {"--force", 0, NULL, cli_take_flag, offsetof(struct load_choice, force),
     "with --group: load again even if the group is whole"},
    {"--files", 0, NULL, cli_take_flag, offsetof(struct load_choice, load.keeps_files),
     "keep every file, or all of a directory, as STORE/files/ shows them;\n"
     "implies --immutable"},
    {"--chunk", 0, "SIZE", cli_take_size, offsetof(struct load_choice, load.chunk_bytes),
     "size of the allocations that tensors are packed into (default: 2G on\n"
     "a GPU; else a 64th of the model, rounded up to a power of two, 64M\n"
     "to 2G)"},
    {"--immutable", 0, NULL, cli_take_flag, offsetof(struct load_choice, load.immutable),
     "the layout never changes again: its memory in the host is sealed\n"
     "against writes, and the next writer begins with an empty store"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct load_choice, load.threads),
     "threads that copy, 1 to 256 (default: one for each CPU, at most 16;\n"
     "to a GPU at most 12; for each GPU where there are several)"},
    CLI_DIRECT_READ(struct load_choice, load.direct),
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct load_choice, load.timeout_ms),
     "give up when lock and memory are not free within S seconds; 0: at once\n"
     "(default: wait for them)"},
    {"--trace", 0, "FILE", cli_take_text, offsetof(struct load_choice, trace),
     "write what takes time to FILE, for ui.perfetto.dev: reads, copies, pins,\n"
     "waits, the commit"},
    CLI_QUIET(struct load_choice, load.quiet),
    {0},
};

static int start_trace(const char *path)
{
    struct failure failure;
    struct timeline_options to = {.process = "gmsfs load", .max_bytes = TIMELINE_MAX_BYTES};

    to.fd = timeline_open(path, &failure);
    if (to.fd < 0)
        return cli_error("--trace: %s", failure.text);
    int error = timeline_start(&to);
    if (error)
        cli_error("--trace: cannot start its thread: %s", strerror(-error));
    return error ? CLI_FAILURE : CLI_OK;
}

/* The load has succeeded or failed by itself: a trace with gaps changes no exit status. */
static void stop_trace(const char *path)
{
    int error = timeline_stop();

    if (error)
        cli_error("the trace %s is not complete: %s", path, strerror(-error));
}

static int load_operands(struct load_choice *choice, int argc, char **argv)
{
    struct load *load = &choice->load;

    if (choice->is_group)
        return load_group(load, argv + optind, (size_t)(argc - optind), choice->force);
    load->store = argv[optind];
    load->files = (const char *const *)(argv + optind + 1);
    load->file_count = (size_t)(argc - optind - 1);
    return load_do(load);
}

static int load_run(int argc, char **argv)
{
    struct load_choice choice = {.load.timeout_ms = CLI_FOREVER};
    struct load *load = &choice.load;
    int status = CLI_OK;

    cli_parse(argc, argv, &choice);
    if (load->keeps_files && (choice.is_group || load->chunk_bytes))
        cli_usage_error("--files goes with neither --group nor --chunk");
    load->immutable |= load->keeps_files;
    if (choice.force && !choice.is_group)
        cli_usage_error("--force is for --group: a store alone is always loaded anew");
    if (argc - optind < 2 && !choice.is_group)
        cli_usage_error("a STORE and the files of one model are needed");
    if (choice.is_group)
        operands_check(argv + optind, (size_t)(argc - optind), "FILE");
    if (choice.trace)
        status = start_trace(choice.trace);
    if (status == CLI_OK)
        status = load_operands(&choice, argc, argv);
    if (choice.trace)
        stop_trace(choice.trace);
    return status;
}

const struct cli_command cmd_load = {
    .name = "load",
    .summary = "load a model into a store",
    .usage = usage,
    .options = options,
    .ending = ending,
    .run = load_run,
};
