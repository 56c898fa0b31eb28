/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs save - the tensors of a store into safetensors files */
#include "cli/output.h"
#include "cli/save.h"
#include "cli/signals.h"
#include "cli/store_source.h"
#include "cli/ui.h"
#include "model/safetensors_write.h"
#include "mover/work.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define GGUF_SUFFIX ".gguf"

static const char usage[] =
    "Usage: gmsfs save [OPTION...] STORE FILE.safetensors | FILE.gguf\n"
    "\n"
    "Holds the reader's lock and writes the tensors of a store, byte for byte, into a file that\n"
    "'gmsfs load' and others read. The file appears, or replaces an older one, when all is on\n"
    "disk; on any error, or Ctrl-C, nothing is left of it. A store that was loaded from a GGUF\n"
    "file can be written as one again.\n";

static const char ending[] =
    "Exit status: 0 saved; 1 failure; 2 usage; 3 the lock was not free in time; 4 saved, but\n"
    "that could not be reported; 128 + N stopped by signal N.\n";

static void save_print_result(const struct save *save, uint64_t start_ms)
{
    const struct save_file *last = &save->files[save->file_count - 1];
    size_t files = save->file_count - save->has_index;
    char total[PROGRESS_TOTAL_BYTES];

    if (save->quiet)
        return;
    if (save->tensors.files)
        fprintf(stderr, "the store keeps %zu %s besides: 'cp -a %s/files DIRECTORY' copies %s\n",
                save->tensors.files, save->tensors.files == 1 ? "file" : "files", save->store,
                save->tensors.files == 1 ? "it" : "them");
    if (save->tensors.others == 1)
        fputs("1 entry that describes no tensor in memory was not saved\n", stderr);
    else if (save->tensors.others)
        fprintf(stderr, "%zu entries that describe no tensor in memory were not saved\n",
                save->tensors.others);
    ui_line(stdout, "saved %s: %zu tensors in %zu %s, %s", save->store, save->tensors.count, files,
            files == 1 ? "file" : "files", last->path);
    puts(progress_format_total(total, save->tensors.size_bytes, start_ms, save->copied_ms));
}

static int save_tensors(struct save *save)
{
    uint64_t start_ms = clock_now_ms();
    int status = reader_get_tensors(&save->reader, "no file can hold it, so nothing was saved",
                                    &save->tensors);

    if (status != CLI_OK)
        return status;
    if (save->tensors.count == 0 && !save->as_gguf &&
        !reader_find(&save->reader, SAFETENSORS_METADATA_KEY))
        return cli_error("%s: it has no tensors ('gmsfs ls' lists its entries)", save->store);
    status = save_plan(save);
    if (status == CLI_OK)
        status = save_write(save);
    if (status == CLI_OK) {
        output_set_done();
        save_print_result(save, start_ms);
    }
    if (status > CLI_SIGNALED)
        cli_error("stopped by a signal (%s); nothing was saved", strsignal(status - CLI_SIGNALED));
    return status;
}

static int save_do(struct save *save)
{
    signals_install("\ngmsfs save: ", "; nothing was saved\n");
    int status = reader_open(&save->reader, save->store, save->timeout_ms, save->quiet);
    if (status == CLI_OK)
        status = save_tensors(save);
    save_plan_free(save);
    reader_tensors_free(&save->tensors);
    reader_close(&save->reader);
    return status;
}

static bool save_ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_bytes = strlen(suffix);

    return length > suffix_bytes && strcmp(name + length - suffix_bytes, suffix) == 0;
}

static void save_check_path(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    if (!save_ends_with(name, SAFETENSORS_SUFFIX) && !save_ends_with(name, GGUF_SUFFIX))
        cli_usage_error("'%s': a file name that ends in " SAFETENSORS_SUFFIX " or " GGUF_SUFFIX
                        " is needed",
                        path);
}

/* An allocation is written by a writer, and there is no other file to be made. */
static int save_check_directory(const char *path)
{
    char directory[PATH_MAX];

    snprintf(directory, sizeof(directory), "%s", path);
    if (!store_source_is_mounted(dirname(directory)))
        return CLI_OK;
    return cli_error("%s: lies in a gmsfs mount, which has stores and no files of models; choose a "
                     "directory on a disk",
                     path);
}

static const struct cli_option options[] = {
    {"--shard-size", 0, "SIZE", cli_take_size, offsetof(struct save, shard_bytes),
     "files of at most this size of tensors, FILE-00001-of-N.safetensors\n"
     "and so on, and FILE.safetensors.index.json that names them"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct save, way.threads),
     "threads that write, 1 to 256 (default: one for each CPU, at most\n"
     "16; of a GPU at most 12)"},
    {"--direct", 0, "WHEN", cli_take_direct, offsetof(struct save, way.direct),
     "write past the page cache (O_DIRECT): always, never, or auto, where\n"
     "the file system can (default: auto)"},
    CLI_LOCK_TIMEOUT(struct save, timeout_ms),
    CLI_QUIET(struct save, quiet),
    {0},
};

static int save_run(int argc, char **argv)
{
    struct save save = {.timeout_ms = CLI_FOREVER};

    cli_parse(argc, argv, &save);
    save.store = argv[optind];
    save.path = argv[optind + 1];
    save_check_path(save.path);
    save.as_gguf = save_ends_with(save.path, GGUF_SUFFIX);
    if (save.as_gguf && save.shard_bytes)
        cli_usage_error("--shard-size is for safetensors files: a GGUF file is one");
    if (save_check_directory(save.path) != CLI_OK)
        return CLI_FAILURE;
    return save_do(&save);
}

const struct cli_command cmd_save = {
    .name = "save",
    .summary = "write the tensors of a store into files",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 2,
    .most = 2,
    .needs = "a STORE and a FILE are needed",
    .run = save_run,
};
