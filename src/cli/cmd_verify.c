/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs verify - the bytes in a store against the files that they came from */
#include "base/failure.h"
#include "base/file_entry.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/reader.h"
#include "cli/store_contents.h"
#include "cli/store_file.h"
#include "cli/store_memory.h"
#include "cli/store_source.h"
#include "cli/ui.h"
#include "model/files.h"
#include "model/open.h"
#include "model/safetensors.h"
#include "mover/work.h"
#include "source/source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERIFY_ROOM_BYTES (WORK_PIECE_BYTES + DIRECT_ALIGN_BYTES)

static const char usage[] =
    "Usage: gmsfs verify [OPTION...] STORE FILE... | INDEX.json | DIRECTORY\n"
    "       gmsfs verify --id ID [--timeout S] [-q] STORE\n"
    "\n"
    "Holds the reader's lock and compares every tensor of the files with the store: its\n"
    "description and all its bytes. Names each difference; tensors of the store that are in none\n"
    "of the files are counted and allowed. Where the store keeps files (load --files), these are\n"
    "compared, byte for byte. --id compares the id of the contents (gmsfs sum --id) instead.\n";

static const char ending[] =
    "Exit status: 0 all is equal; 1 something differs, or failure; 2 usage; 3 the lock was not\n"
    "free in time.\n";

#define VERIFY_SAME UINT64_MAX

struct verify_tensor {
    const uint8_t *bytes; /* in the store's memory; NULL: not to be compared, for it was said why */
    atomic_ullong first_bad; /* offset of the first byte that differs, or VERIFY_SAME */
};

struct verify {
    const char *store;
    const char *id; /* of the contents to compare with; NULL: compares files */
    const char *const *files;
    size_t file_count;
    uint64_t timeout_ms;
    uint64_t threads; /* 0: as many as are best */
    enum direct_use direct;
    bool quiet;
    bool has_files; /* the store keeps files, and the model is the files to compare with */

    struct source *source;
    struct model *model;
    struct reader reader;
    struct verify_tensor *tensors; /* as those of the model */
    struct progress progress;
    size_t bad; /* tensors that differ */

    /* The first error of the source. */
    atomic_flag has_failed;
    const struct model_tensor *failed; /* NULL: none */
    int failed_error;
    struct failure failed_why;
};

/* One thread at one piece of a tensor: receives the file's bytes, and compares them. */
struct verify_piece {
    struct source_receiver receiver; /* first: its functions get their piece by it */
    struct verify *verify;
    size_t index;
    struct staging_lane *lane;
    const uint8_t *memory; /* of the store, from `at_bytes` of the tensor on */
    size_t memory_bytes;
    int error; /* of this machine's memory or of a device; 0: none */
};

/* ---- the layout ---------------------------------------------------------------------------- */

static void verify_say(struct verify *verify, const struct model_tensor *tensor,
                       const char *problem)
{
    const char *sort = tensor->is_file ? "file " : tensor->long_format ? "" : "tensor ";

    cli_error("%s: %s'%s' of %s: %s", verify->store, sort,
              tensor->is_file ? files_path(tensor) : tensor->name,
              verify->model->files[tensor->file].path, problem);
    verify->bad++;
}

/* Returns true if the store has this value; of a file, whose time is no part of its bytes, the
 * size. */
static bool verify_value(const struct model_tensor *tensor, const char *value,
                         const struct gmsfs_layout_entry *entry)
{
    struct file_entry file;

    if (tensor->is_file)
        return file_entry_parse(entry->value, entry->value_bytes, &file) == 0 &&
               file.size_bytes == tensor->size_bytes;
    return entry->value_bytes == strlen(value) &&
           memcmp(entry->value, value, entry->value_bytes) == 0;
}

static const char *verify_name_difference(const struct model_tensor *tensor)
{
    if (tensor->is_file)
        return "the store has it with another size";
    return tensor->long_format ? "the store has another value"
                               : "the store has another dtype or shape ('gmsfs ls' shows it)";
}

/* Prepares the comparison of the tensor, or reports it as bad. */
static void verify_prepare_tensor(struct verify *verify, size_t index)
{
    const struct model_tensor *tensor = &verify->model->tensors[index];
    const struct gmsfs_layout_entry *entry = reader_find(&verify->reader, tensor->name);
    SCOPED_FREE char *value = cli_need(safetensors_value_json(tensor));
    const struct gmsfs_mapping *mapping;

    atomic_store(&verify->tensors[index].first_bad, VERIFY_SAME);
    if (!entry)
        verify_say(verify, tensor, "not in the store");
    else if (!verify_value(tensor, value, entry))
        verify_say(verify, tensor, verify_name_difference(tensor));
    else if (tensor->is_file && tensor->size_bytes == 0)
        return;
    else if (entry->rank >= verify->reader.mapping_count)
        verify_say(verify, tensor, "bound to no allocation");
    else {
        mapping = &verify->reader.mappings[entry->rank];
        if (entry->offset > mapping->aligned_bytes ||
            tensor->size_bytes > mapping->aligned_bytes - entry->offset)
            verify_say(verify, tensor, "reaches beyond its allocation");
        else
            verify->tensors[index].bytes = (const uint8_t *)mapping->ptr + entry->offset;
    }
}

static void verify_metadata(struct verify *verify)
{
    const struct gmsfs_layout_entry *entry = reader_find(&verify->reader, SAFETENSORS_METADATA_KEY);
    char *json;

    if (safetensors_metadata_json(verify->model, &json) != 0 || !json)
        return;
    if (!entry || entry->value_bytes != strlen(json) ||
        memcmp(entry->value, json, entry->value_bytes) != 0) {
        cli_error("%s: %s of the files: %s", verify->store, SAFETENSORS_METADATA_KEY,
                  entry ? "the store has another one" : "not in the store");
        verify->bad++;
    }
    free(json);
}

/* Key-values of a GGUF file. */
static void verify_entries(struct verify *verify)
{
    for (size_t i = 0; i < verify->model->entry_count; i++) {
        const struct model_entry *from = &verify->model->entries[i];
        const struct gmsfs_layout_entry *entry = reader_find(&verify->reader, from->key);
        if (entry && entry->value_bytes == from->size_bytes &&
            memcmp(entry->value, from->bytes, from->size_bytes) == 0)
            continue;
        cli_error("%s: '%s' of the file: %s", verify->store, from->key,
                  entry ? "the store has another value" : "not in the store");
        verify->bad++;
    }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static void verify_lower(atomic_ullong *first_bad, unsigned long long offset)
{
    unsigned long long known = atomic_load(first_bad);

    while (offset < known && !atomic_compare_exchange_weak(first_bad, &known, offset))
        ;
}

/* Of the first byte that differs, or size_bytes: a writer is trusted with the memory, also after it
 * has committed, so a byte that differed a moment ago may do so no longer. */
static size_t verify_first(const uint8_t *memory, const uint8_t *file, size_t size_bytes)
{
    size_t at = 0;

    while (at < size_bytes && memory[at] == file[at])
        at++;
    return at;
}

static int piece_room(struct source_receiver *receiver, size_t most_bytes, bool in_blocks,
                      uint8_t **room, size_t *room_bytes)
{
    struct verify_piece *piece = (struct verify_piece *)receiver;

    (void)most_bytes;
    (void)in_blocks;
    *room_bytes = VERIFY_ROOM_BYTES;
    *room = staging_scratch(piece->lane, VERIFY_ROOM_BYTES);
    return piece->error = *room ? 0 : -ENOMEM;
}

static void piece_compare(const struct verify_piece *piece, const uint8_t *file, size_t size_bytes)
{
    if (memcmp(piece->memory, file, size_bytes) == 0)
        return;
    size_t first = verify_first(piece->memory, file, size_bytes);
    if (first < size_bytes)
        verify_lower(&piece->verify->tensors[piece->index].first_bad,
                     piece->receiver.at_bytes + first);
}

static int piece_put(struct source_receiver *receiver, const uint8_t *bytes, size_t size_bytes)
{
    struct verify_piece *piece = (struct verify_piece *)receiver;
    size_t step;

    for (; size_bytes > 0; bytes += step, size_bytes -= step) {
        if (piece->memory_bytes == 0)
            piece->error = staging_next(piece->lane, &piece->memory, &piece->memory_bytes);
        if (piece->error)
            return piece->error;
        step = piece->memory_bytes < size_bytes ? piece->memory_bytes : size_bytes;
        if (step == 0)
            return -EOVERFLOW; /* more than was asked for */
        piece_compare(piece, bytes, step);
        piece->memory += step;
        piece->memory_bytes -= step;
        receiver->at_bytes += step;
        receiver->left_bytes -= step;
    }
    return 0;
}

static int verify_run_piece(void *context, const struct work_piece *cut, void *own)
{
    struct verify *verify = context;
    const struct model_tensor *tensor = &verify->model->tensors[cut->item];
    uint64_t at = cut->offset_bytes, end = at + cut->size_bytes;
    struct verify_piece piece = {.receiver = {.room = piece_room,
                                              .put = piece_put,
                                              .step_bytes = WORK_PIECE_BYTES,
                                              .fd = -1},
                                 .verify = verify,
                                 .index = cut->item,
                                 .lane = own};
    struct failure why;

    direct_align(tensor->offset_bytes, tensor->size_bytes, &at, &end);
    piece.receiver.at_bytes = at;
    piece.receiver.left_bytes = end - at;
    int error = staging_fetch(own, &verify->reader.memory, verify->tensors[cut->item].bytes + at,
                              end - at, WORK_PIECE_BYTES);
    if (error) {
        source_cancel(verify->source);
        return error;
    }
    error = source_copy(verify->source, verify->model->files[tensor->file].number,
                        tensor->offset_bytes + at, end - at, &piece.receiver, &why);
    if (error && error != -ECANCELED && !piece.error &&
        !atomic_flag_test_and_set(&verify->has_failed)) {
        verify->failed = tensor;
        verify->failed_error = error;
        verify->failed_why = why;
    }
    if (error)
        source_cancel(verify->source);
    return error;
}

static int verify_tick(void *context, uint64_t done_bytes)
{
    struct verify *verify = context;

    progress_show(&verify->progress, done_bytes);
    return 0;
}

static int verify_explain_work(const struct verify *verify, int error)
{
    const struct model_tensor *failed = verify->failed;

    if (store_explain_staging(verify->reader.staging))
        return CLI_FAILURE;
    if (failed)
        return store_source_explain(verify->model->files[failed->file].path,
                                    failed->is_file ? NULL : failed->name, verify->failed_error,
                                    verify->failed_why.text);
    return cli_error("cannot compare: %s", failure_thread_reason(error));
}

static void verify_say_bytes(struct verify *verify)
{
    char text[96];

    for (size_t i = 0; i < verify->model->tensor_count; i++) {
        unsigned long long first_bad = atomic_load(&verify->tensors[i].first_bad);
        if (first_bad == VERIFY_SAME)
            continue;
        snprintf(text, sizeof(text), "byte %llu of %" PRIu64 " is the first that differs",
                 first_bad, verify->model->tensors[i].size_bytes);
        verify_say(verify, &verify->model->tensors[i], text);
    }
}

static int verify_bytes(struct verify *verify, uint64_t *sizes)
{
    uint64_t whole_bytes = 0;
    struct failure failure;
    struct work work = {.item_bytes = sizes,
                        .item_count = verify->model->tensor_count,
                        .context = verify,
                        .piece = verify_run_piece,
                        .tick = verify_tick};

    for (size_t i = 0; i < work.item_count; i++) {
        sizes[i] = verify->tensors[i].bytes ? verify->model->tensors[i].size_bytes : 0;
        whole_bytes += sizes[i];
    }
    source_prepare(verify->source, verify->direct, verify->model->tensor_bytes, 0);
    staging_equip(verify->reader.staging, &work, &verify->reader.memory,
                  source_threads(verify->source, verify->threads));
    progress_begin(&verify->progress, "comparing", whole_bytes, verify->quiet);
    int error = work_run(&work);
    progress_end(&verify->progress);
    if (error)
        return verify_explain_work(verify, error);
    verify_say_bytes(verify);
    return source_check(verify->source, &failure) ? cli_failure(&failure) : CLI_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static size_t verify_count_more(const struct verify *verify)
{
    size_t more = 0;

    for (size_t i = 0; i < verify->reader.layout->entry_count; i++) {
        const struct gmsfs_layout_entry *entry = &verify->reader.layout->entries[i];
        bool counts = verify->has_files
                          ? strncmp(entry->key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES) == 0
                          : entry->rank != GMSFS_SLOT_NONE;

        more += counts && !safetensors_find(verify->model, entry->key);
    }
    return more;
}

static int verify_print_result(const struct verify *verify, uint64_t start_ms)
{
    char total[PROGRESS_TOTAL_BYTES];
    size_t more = verify_count_more(verify);
    const char *sort = verify->has_files ? "files" : "tensors";

    if (verify->bad)
        return cli_error("%s: %zu differences from the files", verify->store, verify->bad);
    if (verify->quiet)
        return CLI_OK;
    progress_format_total(total, verify->model->tensor_bytes, start_ms, clock_now_ms() - start_ms);
    ui_line(stdout, "verified %s: %zu %s, %s", verify->store,
            verify->model->tensor_count - verify->model->value_count, sort, total);
    if (more)
        printf("%zu more %s of the store are %s\n", more, sort,
               verify->has_files ? "not among these" : "in none of the files");
    return CLI_OK;
}

static int verify_compare(struct verify *verify)
{
    size_t count = verify->model->tensor_count, room = count ? count : 1;
    SCOPED_FREE uint64_t *sizes = cli_need(calloc(room, sizeof(*sizes)));
    uint64_t start_ms = clock_now_ms();

    verify->tensors = cli_need(calloc(room, sizeof(*verify->tensors)));
    for (size_t i = 0; i < count; i++)
        verify_prepare_tensor(verify, i);
    verify_metadata(verify);
    verify_entries(verify);
    int status = verify_bytes(verify, sizes);
    return status == CLI_OK ? verify_print_result(verify, start_ms) : status;
}

/* Returns true if the store keeps files: `files` shows no file that is made of its tensors. */
static bool verify_keeps_files(const char *store, const char *files)
{
    json_auto_t *info = access(files, F_OK) == 0 ? store_info_json(store) : NULL;

    return info && !json_is_string(json_object_get(info, "made_file"));
}

/* Opens what the store is compared with, before the lock is taken. */
static int verify_open(struct verify *verify)
{
    SCOPED_FREE char *kept = store_file_path(verify->store, "files");
    struct failure failure;

    verify->source = cli_need(source_open());
    verify->has_files = verify_keeps_files(verify->store, kept);
    int error = verify->has_files ? files_open(verify->source, verify->files, verify->file_count,
                                               &verify->model, &failure)
                                  : model_open(verify->source, verify->files, verify->file_count,
                                               &verify->model, &failure);
    if (error)
        return cli_failure(&failure);
    for (size_t i = 0; i < verify->file_count; i++)
        store_source_tell_unfinished(verify->source, verify->files[i]);
    return CLI_OK;
}

static int verify_do(struct verify *verify)
{
    int status = verify_open(verify);

    if (status == CLI_OK)
        status = reader_open(&verify->reader, verify->store, verify->timeout_ms, verify->quiet);
    if (status == CLI_OK)
        status = verify_compare(verify);
    free(verify->tensors);
    reader_close(&verify->reader);
    safetensors_close(verify->model);
    source_close(verify->source);
    return status;
}

static int verify_contents(const struct verify *verify)
{
    char id[DIGEST_TEXT_BYTES];

    if (verify->file_count > 0)
        cli_usage_error("--id compares a STORE with an ID, without files");
    int status = store_get_contents_id(verify->store, verify->timeout_ms, verify->quiet, id);
    return status == CLI_OK ? store_check_contents_id(verify->store, id, verify->id) : status;
}

static const struct cli_option options[] = {
    {"--id", 0, "ID", store_take_id, offsetof(struct verify, id),
     "compare the id of the contents, not files"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct verify, threads),
     "threads that compare, 1 to 256 (default: one for each CPU, at most\n"
     "16; of a GPU at most 12)"},
    CLI_DIRECT_READ(struct verify, direct),
    CLI_LOCK_TIMEOUT(struct verify, timeout_ms),
    {"--quiet", 'q', NULL, cli_take_flag, offsetof(struct verify, quiet),
     "print differences and errors only"},
    {0},
};

static int verify_run(int argc, char **argv)
{
    struct verify verify = {.timeout_ms = CLI_FOREVER, .has_failed = ATOMIC_FLAG_INIT};

    cli_parse(argc, argv, &verify);
    verify.store = argv[optind];
    verify.files = (const char *const *)(argv + optind + 1);
    verify.file_count = (size_t)(argc - optind - 1);
    if (verify.id)
        return verify_contents(&verify);
    if (verify.file_count == 0)
        cli_usage_error("%s", cmd_verify.needs);
    return verify_do(&verify);
}

const struct cli_command cmd_verify = {
    .name = "verify",
    .summary = "compare a store with the files it was loaded from",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "a STORE and the files of one model are needed",
    .run = verify_run,
};
