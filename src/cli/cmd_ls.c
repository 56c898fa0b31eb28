/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs ls - lists the committed layout of a store, tensor by tensor; takes no lock */
#include "base/digest.h"
#include "base/file_entry.h"
#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_open.h"
#include "cli/store_state.h"
#include "cli/ui.h"
#include "model/tensor_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_TEXT_BYTES  80
#define NUMBER_TEXT_BYTES 24

static const char usage[] =
    "Usage: gmsfs ls [--json] STORE\n"
    "\n"
    "Lists the metadata entries of a store's committed layout: tensor, dtype, shape, bytes,\n"
    "allocation and offset. Takes no lock and never waits.\n";

static const char ending[] =
    "Exit status: 0, also for an empty store; 1 failure, or a writer has the store; 2 usage.\n";

struct ls {
    const char *path;
    gmsfs_t *handle;
    struct gmsfs_info info;
    struct gmsfs_layout *layout;    /* NULL: nothing is committed */
    struct gmsfs_handle_info *list; /* allocations with their names */
    size_t count;
    int is_fenced, is_immutable;
};

/* The allocation's file name, or its rank where the directory has another layout by now. */
static const char *ls_allocation(const struct ls *ls, uint64_t rank, char *number)
{
    /* Ranks are positions in the order of slots, which is that of the list. */
    if (rank < ls->count && ls->list[rank].rank == rank &&
        ls->list[rank].aligned_bytes == ls->layout->allocations[rank].aligned_bytes)
        return ls->list[rank].name;
    snprintf(number, NUMBER_TEXT_BYTES, "%" PRIu64, rank);
    return number;
}

/* True for the entry of a file that the store keeps. */
static bool ls_is_file(const struct gmsfs_layout_entry *entry, struct file_entry *file)
{
    return strncmp(entry->key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES) == 0 &&
           file_entry_parse(entry->value, entry->value_bytes, file) == 0;
}

static void ls_row(const struct ls *ls, const struct gmsfs_layout_entry *entry,
                   struct ui_table *table)
{
    char shape[SHAPE_TEXT_BYTES] = "-", bytes[NUMBER_TEXT_BYTES] = "-";
    char number[NUMBER_TEXT_BYTES], offset[NUMBER_TEXT_BYTES] = "-";
    struct tensor_value value;
    struct file_entry file;
    bool bound = entry->rank != GMSFS_SLOT_NONE, is_file = ls_is_file(entry, &file);
    const char *kind = is_file ? "file" : "-";

    if (tensor_value_parse(entry->value, entry->value_bytes, &value) != 0)
        cli_out_of_memory();
    if (is_file)
        snprintf(bytes, sizeof(bytes), "%" PRIu64, file.size_bytes);
    if (value.is_tensor)
        tensor_value_format_shape(value.shape, shape, sizeof(shape));
    if (value.has_size)
        snprintf(bytes, sizeof(bytes), "%" PRIu64, value.size_bytes);
    if (bound)
        snprintf(offset, sizeof(offset), "%" PRIu64, entry->offset);
    ui_table_add(table,
                 (const char *[]){entry->key, value.dtype ? value.dtype : kind, shape, bytes,
                                  bound ? ls_allocation(ls, entry->rank, number) : "-", offset});
    tensor_value_free(&value);
}

static void ls_print_table(const struct ls *ls)
{
    struct ui_table table;

    ui_table_begin(&table, "lllrlr");
    ui_table_add(&table,
                 (const char *[]){"TENSOR", "DTYPE", "SHAPE", "BYTES", "ALLOCATION", "OFFSET"});
    for (size_t i = 0; ls->layout && i < ls->layout->entry_count; i++)
        ls_row(ls, &ls->layout->entries[i], &table);
    ui_table_end(&table, stdout, 0);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* A number of any size: JSON's integers here end at 2^63 - 1. */
static json_t *ls_number(uint64_t number)
{
    return json_integer((json_int_t)(number > INT64_MAX ? INT64_MAX : number));
}

static json_t *ls_json_allocations(const struct ls *ls)
{
    json_t *array = json_array();
    char number[NUMBER_TEXT_BYTES];

    for (size_t i = 0; ls->layout && i < ls->layout->allocation_count; i++) {
        const struct gmsfs_layout_allocation *allocation = &ls->layout->allocations[i];
        json_array_append_new(array,
                              json_pack("{s:o,s:o,s:o,s:o,s:o}", "rank", ls_number(i), "name",
                                        ui_json_text(ls_allocation(ls, i, number)), "size_bytes",
                                        ls_number(allocation->size_bytes), "aligned_bytes",
                                        ls_number(allocation->aligned_bytes), "tag",
                                        ui_json_text(allocation->tag)));
    }
    return array;
}

/* The value as JSON where it is, else as text where it is UTF-8, else null. */
static json_t *ls_json_value(const struct gmsfs_layout_entry *entry)
{
    json_t *value = json_loadb(entry->value, entry->value_bytes,
                               JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);

    if (!value)
        value = json_stringn(entry->value, entry->value_bytes);
    return value ? value : json_null();
}

static json_t *ls_json_entry(const struct ls *ls, const struct gmsfs_layout_entry *entry)
{
    struct tensor_value value;
    char number[NUMBER_TEXT_BYTES];
    bool bound = entry->rank != GMSFS_SLOT_NONE;

    if (tensor_value_parse(entry->value, entry->value_bytes, &value) != 0)
        return NULL;
    json_t *json = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "tensor", json_stringn(entry->key, entry->key_bytes),
        "dtype", value.dtype ? ui_json_text(value.dtype) : json_null(), "shape",
        value.shape ? json_incref(value.shape) : json_null(), "bytes",
        value.has_size ? ls_number(value.size_bytes) : json_null(), "allocation",
        bound ? ui_json_text(ls_allocation(ls, entry->rank, number)) : json_null(), "offset",
        bound ? ls_number(entry->offset) : json_null(), "value", ls_json_value(entry));
    tensor_value_free(&value);
    return json;
}

static json_t *ls_json_group(const struct ls *ls)
{
    char text[GMSFS_TOKEN_TEXT_BYTES];

    if (digest_is_zero(ls->info.group))
        return json_null();
    gmsfs_token_format(ls->info.group, text);
    return json_string(text);
}

static void ls_print_json(const struct ls *ls)
{
    json_t *entries = json_array();

    for (size_t i = 0; ls->layout && i < ls->layout->entry_count; i++)
        ui_json_append(entries, ls_json_entry(ls, &ls->layout->entries[i]));
    ui_json_print(json_pack("{s:o,s:s,s:b,s:b,s:o,s:o,s:s,s:o,s:o}", "store",
                            ui_json_text(ls->path), "state", store_state_name(ls->info.state),
                            "fenced", ls->is_fenced, "immutable", ls->is_immutable, "generation",
                            ls_number(ls->info.generation), "group", ls_json_group(ls),
                            "layout_hash", ls->layout ? ls->layout->hash : "", "allocations",
                            ls_json_allocations(ls), "tensors", entries));
}

/* ---- reading ------------------------------------------------------------------------------- */

static int ls_read(struct ls *ls)
{
    int error = gmsfs_read_layout(ls->handle, &ls->layout);
    int looked = gmsfs_get_info(ls->handle, &ls->info);

    if (looked)
        return store_explain(ls->path, "look at the store", looked);
    if (error == -ENODATA && (ls->info.state == GMSFS_STATE_RW || ls->info.committed)) {
        cli_error("%s: a writer is at work, and its layout shows when it commits; "
                  "'gmsfs wait %s COMMITTED,RO' waits for that",
                  ls->path, ls->path);
        return error;
    }
    if (error && error != -ENODATA)
        return store_explain(ls->path, "read the layout", error);
    error = gmsfs_list_handles(ls->handle, NULL, &ls->list, &ls->count);
    return error ? store_explain(ls->path, "list the allocations", error) : 0;
}

static int ls_store(const char *path, bool as_json)
{
    struct ls ls = {.path = path};
    int error = store_open(path, &ls.handle);

    if (error)
        return CLI_FAILURE;
    error = ls_read(&ls);
    if (!error) {
        ls.is_fenced = store_is_fenced(path);
        ls.is_immutable = store_is_immutable(path);
        if (as_json)
            ls_print_json(&ls);
        else
            ls_print_table(&ls);
        if (!ls.layout && !as_json)
            ui_line(stderr, "%s is EMPTY: nothing is committed in it", path);
        if (ls.is_fenced && !as_json)
            ui_line(stderr, "%s is fenced for a checkpoint: it grants no sessions", path);
        if (ls.is_immutable && !as_json)
            ui_line(stderr, "%s is immutable: this layout never changes", path);
    }
    gmsfs_free_layout(ls.layout);
    free(ls.list);
    gmsfs_close(ls.handle);
    return error ? CLI_FAILURE : CLI_OK;
}

static const struct cli_option options[] = {
    {"--json", 0, NULL, cli_take_flag, 0, "the same as JSON, with allocations and values"},
    {0},
};

static int ls_run(int argc, char **argv)
{
    bool as_json = false;

    cli_parse(argc, argv, &as_json);
    return ls_store(argv[optind], as_json);
}

const struct cli_command cmd_ls = {
    .name = "ls",
    .summary = "list the tensors of a store",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .most = 1,
    .needs = "one STORE is needed",
    .run = ls_run,
};
