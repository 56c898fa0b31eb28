/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs sum - a checksum of every tensor or allocation, as xxhsum -H2 gives it for a file */
#include "base/clean.h"
#include "base/failure.h"
#include "base/xxh3.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/reader.h"
#include "cli/store_contents.h"
#include "cli/store_explain.h"
#include "cli/store_memory.h"
#include "cli/ui.h"
#include "mover/work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUM_TEXT_BYTES   33
#define SUM_ESCAPED      "\\\n\r" /* in names */
#define SUM_UPDATE_BYTES STAGING_BUFFER_MAX_BYTES

static const char usage[] =
    "Usage: gmsfs sum [OPTION...] STORE\n"
    "       gmsfs sum --id [--timeout S] [-q] STORE\n"
    "\n"
    "Holds the reader's lock and prints the XXH3-128 of every tensor in a store, or of every\n"
    "allocation where the store has no tensors: HASH, two spaces and the name, as xxhsum -H2\n"
    "prints for a file of the same bytes. --id prints the id of the contents: the same for the\n"
    "same bytes in the same structure, on any machine and under any names.\n";

static const char ending[] =
    "Exit status: 0 done; 1 failure; 2 usage; 3 the lock was not free in time.\n";

struct sum_item {
    const char *name;
    const uint8_t *bytes; /* in the store's memory */
    XXH128_hash_t hash;
};

struct sum {
    const char *store;
    uint64_t timeout_ms;
    uint64_t threads; /* 0: as many as are best */
    bool of_allocations;
    bool of_contents;
    bool as_json;
    bool quiet;

    struct reader reader;
    struct reader_tensors tensors;
    struct gmsfs_handle_info *allocations;
    struct sum_item *items;
    uint64_t *sizes; /* bytes of each item */
    size_t *order;   /* the largest first, so that the threads end together */
    size_t count;
    uint64_t whole_bytes;
    atomic_ullong done_bytes;
    struct progress progress;
};

/* ---- choosing ------------------------------------------------------------------------------ */

static void sum_make_room(struct sum *sum, size_t count)
{
    size_t room = count ? count : 1;

    sum->count = count;
    sum->items = cli_need(calloc(room, sizeof(*sum->items)));
    sum->sizes = cli_need(calloc(room, sizeof(*sum->sizes)));
    sum->order = cli_need(calloc(room, sizeof(*sum->order)));
}

static void sum_set(struct sum *sum, size_t index, const char *name, const void *bytes,
                    uint64_t size_bytes)
{
    sum->items[index] =
        (struct sum_item){.name = name, .bytes = bytes, .hash = XXH3_128bits("", 0)};
    sum->sizes[index] = size_bytes;
    sum->order[index] = index;
    sum->whole_bytes += size_bytes;
}

static int sum_take_tensors(struct sum *sum)
{
    sum_make_room(sum, sum->tensors.count);
    for (size_t i = 0; i < sum->count; i++) {
        const struct reader_tensor *taken = &sum->tensors.list[i];
        sum_set(sum, i, taken->tensor.name, taken->bytes, taken->tensor.size_bytes);
    }
    return CLI_OK;
}

static int sum_take_allocations(struct sum *sum)
{
    size_t count;
    int error = gmsfs_list_handles(sum->reader.handle, NULL, &sum->allocations, &count);

    if (!error && count != sum->reader.mapping_count)
        error = -ESTALE;
    if (error)
        return store_explain(sum->store, "list the allocations", error);
    sum_make_room(sum, count);
    for (size_t i = 0; i < count; i++) {
        const struct gmsfs_handle_info *allocation = &sum->allocations[i];
        sum_set(sum, i, allocation->name, sum->reader.mappings[i].ptr, allocation->size_bytes);
    }
    return CLI_OK;
}

static int sum_take(struct sum *sum)
{
    int status = CLI_OK;

    if (!sum->of_allocations)
        status = reader_get_tensors(&sum->reader, "'gmsfs sum --allocations' sums all bytes",
                                    &sum->tensors);
    if (status != CLI_OK)
        return status;
    sum->of_allocations = sum->tensors.count == 0;
    return sum->of_allocations ? sum_take_allocations(sum) : sum_take_tensors(sum);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static int sum_bytes_of(struct sum *sum, struct sum_item *item, uint64_t size_bytes,
                        struct staging_lane *lane, XXH3_state_t *state)
{
    const uint8_t *part;
    size_t step = 1;
    int error = staging_fetch(lane, &sum->reader.memory, item->bytes, size_bytes, SUM_UPDATE_BYTES);

    while (!error && step > 0) {
        error = staging_next(lane, &part, &step);
        if (!error && step > 0)
            XXH3_128bits_update(state, part, step);
        atomic_fetch_add(&sum->done_bytes, step);
    }
    if (!error)
        item->hash = XXH3_128bits_digest(state);
    return error;
}

static int sum_piece(void *context, const struct work_piece *piece, void *own)
{
    struct sum *sum = context;
    XXH3_state_t *state = XXH3_createState();

    if (!state)
        return -ENOMEM;
    XXH3_128bits_reset(state);
    int error = sum_bytes_of(sum, &sum->items[piece->item], piece->size_bytes, own, state);
    XXH3_freeState(state);
    return error;
}

static int sum_tick(void *context, uint64_t done_bytes)
{
    struct sum *sum = context;

    (void)done_bytes; /* counts whole items only */
    progress_show(&sum->progress, atomic_load(&sum->done_bytes));
    return 0;
}

static int sum_compare(const void *left, const void *right, void *context)
{
    const uint64_t *sizes = context;
    size_t a = *(const size_t *)left, b = *(const size_t *)right;

    if (sizes[a] != sizes[b])
        return sizes[a] > sizes[b] ? -1 : 1;
    return (a > b) - (a < b);
}

static int sum_bytes(struct sum *sum)
{
    struct work work = {.item_bytes = sum->sizes,
                        .order = sum->order,
                        .item_count = sum->count,
                        .whole = true,
                        .context = sum,
                        .piece = sum_piece,
                        .tick = sum_tick};

    qsort_r(sum->order, sum->count, sizeof(*sum->order), sum_compare, sum->sizes);
    staging_equip(sum->reader.staging, &work, &sum->reader.memory, sum->threads);
    progress_begin(&sum->progress, "summing", sum->whole_bytes, sum->quiet);
    int error = work_run(&work);
    progress_end(&sum->progress);
    if (error && !store_explain_staging(sum->reader.staging))
        cli_error("%s: cannot sum: %s", sum->store, failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

/* ---- output -------------------------------------------------------------------------------- */

static void sum_format(XXH128_hash_t hash, char text[SUM_TEXT_BYTES])
{
    snprintf(text, SUM_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
             (uint64_t)hash.low64);
}

/* As xxhsum and sha256sum do: a line with such a name begins with a backslash, and all else of it
 * is as it is, so that different names are different lines. A terminal gets it harmless. */
static void sum_print_line(const struct sum_item *item)
{
    char hash[SUM_TEXT_BYTES];
    char *line = cli_need(malloc(sizeof(hash) + 3 + 2 * strlen(item->name))), *at = line;

    sum_format(item->hash, hash);
    at += sprintf(at, "%s%s  ", strpbrk(item->name, SUM_ESCAPED) ? "\\" : "", hash);
    for (const char *name = item->name; *name; name++) {
        bool is_escaped = strchr(SUM_ESCAPED, *name) != NULL;
        if (is_escaped)
            *at++ = '\\';
        *at++ = !is_escaped ? *name : *name == '\n' ? 'n' : *name == '\r' ? 'r' : '\\';
    }
    *at = '\0';
    if (isatty(STDOUT_FILENO))
        clean_text(line);
    puts(line);
    free(line);
}

static void sum_print_json(const struct sum *sum)
{
    json_t *array = json_array();
    char hash[SUM_TEXT_BYTES];

    for (size_t i = 0; i < sum->count; i++) {
        sum_format(sum->items[i].hash, hash);
        ui_json_append(array, json_pack("{s:o,s:I,s:s}", "name", ui_json_text(sum->items[i].name),
                                        "bytes", (json_int_t)sum->sizes[i], "hash", hash));
    }
    ui_json_print(json_pack("{s:o,s:s,s:s,s:I,s:o}", "store", ui_json_text(sum->store), "algorithm",
                            "XXH3-128", "layout_hash", sum->reader.layout->hash, "generation",
                            (json_int_t)gmsfs_generation(sum->reader.handle),
                            sum->of_allocations ? "allocations" : "tensors", array));
}

static void sum_print(const struct sum *sum)
{
    if (sum->as_json)
        sum_print_json(sum);
    for (size_t i = 0; !sum->as_json && i < sum->count; i++)
        sum_print_line(&sum->items[i]);
}

static void sum_print_total(const struct sum *sum, uint64_t start_ms)
{
    char total[PROGRESS_TOTAL_BYTES];

    if (sum->quiet || !isatty(STDERR_FILENO))
        return;
    fflush(stdout);
    fprintf(stderr, "%zu %s, %s\n", sum->count, sum->of_allocations ? "allocations" : "tensors",
            progress_format_total(total, sum->whole_bytes, start_ms, clock_now_ms() - start_ms));
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int sum_do(struct sum *sum)
{
    int status = reader_open(&sum->reader, sum->store, sum->timeout_ms, sum->quiet);
    uint64_t start_ms = clock_now_ms();

    if (status == CLI_OK)
        status = sum_take(sum);
    if (status == CLI_OK)
        status = sum_bytes(sum);
    if (status == CLI_OK) {
        sum_print(sum);
        sum_print_total(sum, start_ms);
    }
    free(sum->items);
    free(sum->sizes);
    free(sum->order);
    free(sum->allocations);
    reader_tensors_free(&sum->tensors);
    reader_close(&sum->reader);
    return status;
}

static int sum_do_contents(const struct sum *sum)
{
    char id[DIGEST_TEXT_BYTES];

    if (sum->of_allocations || sum->as_json || sum->threads)
        cli_usage_error("--id goes with --timeout and --quiet alone");
    int status = store_get_contents_id(sum->store, sum->timeout_ms, sum->quiet, id);
    if (status == CLI_OK)
        puts(id);
    return status;
}

static const struct cli_option options[] = {
    {"--allocations", 0, NULL, cli_take_flag, offsetof(struct sum, of_allocations),
     "of every allocation"},
    {"--id", 0, NULL, cli_take_flag, offsetof(struct sum, of_contents),
     "the id of the contents alone; the daemon sums the bytes that it has\n"
     "not summed before"},
    {"--json", 0, NULL, cli_take_flag, offsetof(struct sum, as_json),
     "the same as JSON, with bytes, layout hash and generation"},
    {"--threads", 0, "N", cli_take_threads, offsetof(struct sum, threads),
     "threads that read, 1 to 256 (default: one for each CPU, at most 16;\n"
     "of a GPU at most 12)"},
    CLI_LOCK_TIMEOUT(struct sum, timeout_ms),
    {"--quiet", 'q', NULL, cli_take_flag, offsetof(struct sum, quiet),
     "no progress and no total on a terminal"},
    {0},
};

static int sum_run(int argc, char **argv)
{
    struct sum sum = {.timeout_ms = CLI_FOREVER};

    cli_parse(argc, argv, &sum);
    sum.store = argv[optind];
    return sum.of_contents ? sum_do_contents(&sum) : sum_do(&sum);
}

const struct cli_command cmd_sum = {
    .name = "sum",
    .summary = "print a checksum of every tensor in a store",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .most = 1,
    .needs = "one STORE is needed",
    .run = sum_run,
};
