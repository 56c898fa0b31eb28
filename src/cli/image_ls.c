/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs image ls - lists the contents of an image, also of an unfinished one */
#include "cli/image_commands.h"

#include "base/failure.h"
#include "base/scope.h"
#include "base/size.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES      24
#define PIECES_TEXT_BYTES 48

struct ls {
    const struct image_request *request;
    struct image image;
    size_t begin, end; /* rows to show */
    size_t done_pieces;
    uint64_t done_bytes;
    int status; /* CLI_FAILURE: unfinished, or damaged */
};

/* ---- parts of rows ------------------------------------------------------------------------- */

static const char *ls_number(uint64_t number, char text[NUMBER_BYTES])
{
    snprintf(text, NUMBER_BYTES, "%" PRIu64, number);
    return text;
}

static size_t ls_count_done(const struct ls *ls, const struct image_allocation *allocation)
{
    size_t done = 0;

    for (size_t i = 0; i < allocation->piece_count; i++)
        done += ls->image.manifest.pieces[allocation->first_piece + i].done;
    return done;
}

/* The sum of an allocation that is one piece is that of the whole. */
static bool ls_sum(const struct ls *ls, const struct image_allocation *allocation,
                   char text[DIGEST_TEXT_BYTES])
{
    const struct image_piece *piece = &ls->image.manifest.pieces[allocation->first_piece];

    if (allocation->piece_count != 1 || !piece->done ||
        allocation->stored_bytes != allocation->size_bytes)
        return false;
    digest_text(piece->sum, text);
    return true;
}

/* False: its sums do not give an id. */
static bool ls_id(const struct ls *ls, char text[DIGEST_TEXT_BYTES])
{
    uint8_t id[DIGEST_BYTES];
    bool has_id = image_get_contents_id(&ls->image, id) == 0;

    if (has_id)
        digest_text(id, text);
    return has_id;
}

static char *ls_tag(const struct ls *ls, size_t rank)
{
    struct image_layout_allocation allocation;

    image_layout_get(&ls->image.layout, rank, &allocation);
    return cli_need(strndup(allocation.tag, allocation.tag_bytes));
}

/* ---- text ---------------------------------------------------------------------------------- */

static void ls_row(const struct ls *ls, size_t rank, struct ui_table *table)
{
    const struct image_allocation *allocation = &ls->image.manifest.allocations[rank];
    char number[NUMBER_BYTES], bytes[NUMBER_BYTES], pieces[PIECES_TEXT_BYTES];
    char sum[DIGEST_TEXT_BYTES] = "-", *tag = ls_tag(ls, rank);

    ls_sum(ls, allocation, sum);
    snprintf(pieces, sizeof(pieces), "%zu/%zu", ls_count_done(ls, allocation),
             allocation->piece_count);
    ui_table_add(table,
                 (const char *[]){ls_number(rank, number), ls_number(allocation->size_bytes, bytes),
                                  pieces, sum, allocation->name, *tag ? tag : "-"});
    free(tag);
}

static void ls_entry_row(const struct ls *ls, size_t index, struct ui_table *table)
{
    char number[NUMBER_BYTES], bytes[NUMBER_BYTES], rank[NUMBER_BYTES] = "-", offset[NUMBER_BYTES];
    struct image_layout_entry entry;
    SCOPED_FREE char *key = NULL;

    image_layout_entry(&ls->image.layout, index, &entry);
    key = cli_need(malloc(entry.key_bytes + 1));
    for (size_t i = 0; i < entry.key_bytes; i++)
        key[i] = entry.key[i] ? entry.key[i] : '?';
    key[entry.key_bytes] = '\0';
    if (entry.rank != UINT64_MAX)
        ls_number(entry.rank, rank);
    ui_table_add(table, (const char *[]){ls_number(index, number), key, rank,
                                         ls_number(entry.offset_bytes, offset),
                                         ls_number(entry.value_bytes, bytes)});
}

static void ls_print_rows(const struct ls *ls)
{
    void (*const row)(const struct ls *, size_t, struct ui_table *) =
        ls->request->entries ? ls_entry_row : ls_row;
    struct ui_table table;

    ui_table_begin(&table, ls->request->entries ? "rlrrr" : "rrrlll");
    if (ls->request->entries)
        ui_table_add(&table, (const char *[]){"ENTRY", "KEY", "RANK", "OFFSET", "BYTES"});
    else
        ui_table_add(&table,
                     (const char *[]){"RANK", "BYTES", "PIECES", "XXH3-128", "NAME", "TAG"});
    for (size_t i = ls->begin; i < ls->end; i++)
        row(ls, i, &table);
    ui_table_end(&table, stdout, 0);
}

static void ls_print_text(const struct ls *ls)
{
    const struct image_manifest *manifest = &ls->image.manifest;
    char hash[DIGEST_TEXT_BYTES], size[SIZE_TEXT_BYTES], text[CLOCK_TEXT_BYTES];

    if (ls->image.unfinished)
        printf("unfinished: %zu of %zu pieces, %" PRIu64 " of %" PRIu64 " bytes are there\n",
               ls->done_pieces, manifest->piece_count, ls->done_bytes, manifest->stored_bytes);
    ui_line(stdout, "store       %s, generation %" PRIu64 ", granularity %s", manifest->store,
            manifest->generation, size_format(manifest->granularity_bytes, size));
    /* Local time would make two listings of one image differ. */
    printf("saved       %s\n", clock_format_utc(manifest->saved_s, text));
    printf("layout_hash %s\n", digest_text(manifest->layout_hash, hash));
    if (ls_id(ls, hash))
        printf("contents_id %s\n", hash);
    if (!digest_is_zero(manifest->group))
        printf("group       %s\n", digest_text(manifest->group, hash));
    printf("content     %zu allocations, %zu entries, %" PRIu64 " bytes (%s) in %zu files\n\n",
           manifest->allocation_count, ls->image.layout.entry_count, manifest->stored_bytes,
           size_format(manifest->stored_bytes, size), manifest->file_count);
    ls_print_rows(ls);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *ls_json_allocation(const struct ls *ls, size_t rank)
{
    const struct image_allocation *allocation = &ls->image.manifest.allocations[rank];
    SCOPED_FREE char *tag = ls_tag(ls, rank);
    char sum[DIGEST_TEXT_BYTES];
    bool has_sum = ls_sum(ls, allocation, sum);

    return json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o}", "rank", (json_int_t)rank, "size_bytes",
        (json_int_t)allocation->size_bytes, "stored_bytes", (json_int_t)allocation->stored_bytes,
        "pieces", (json_int_t)allocation->piece_count, "pieces_there",
        (json_int_t)ls_count_done(ls, allocation), "hash", has_sum ? json_string(sum) : json_null(),
        "name", ui_json_text(allocation->name), "tag", ui_json_text(tag));
}

static json_t *ls_json_entry(const struct ls *ls, size_t index)
{
    struct image_layout_entry entry;

    image_layout_entry(&ls->image.layout, index, &entry);
    return json_pack("{s:o,s:o,s:I,s:I}", "key", json_stringn(entry.key, entry.key_bytes), "rank",
                     entry.rank == UINT64_MAX ? json_null() : json_integer((json_int_t)entry.rank),
                     "offset",
                     (json_int_t)(entry.offset_bytes > INT64_MAX ? INT64_MAX : entry.offset_bytes),
                     "bytes", (json_int_t)entry.value_bytes);
}

static json_t *ls_json_rows(const struct ls *ls)
{
    json_t *rows = json_array();

    for (size_t i = ls->begin; i < ls->end; i++)
        ui_json_append(rows,
                       ls->request->entries ? ls_json_entry(ls, i) : ls_json_allocation(ls, i));
    return rows;
}

static void ls_print_json(const struct ls *ls)
{
    const struct image_manifest *manifest = &ls->image.manifest;
    char hash[DIGEST_TEXT_BYTES], group[DIGEST_TEXT_BYTES], id[DIGEST_TEXT_BYTES];
    bool has_id = ls_id(ls, id);
    json_t *rows = ls_json_rows(ls);

    ui_json_print(json_pack(
        "{s:o,s:b,s:o,s:I,s:I,s:s,s:s?,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "image",
        ui_json_text(ls->request->path), "finished", !ls->image.unfinished, "store",
        ui_json_text(manifest->store), "saved", (json_int_t)manifest->saved_s, "generation",
        (json_int_t)manifest->generation, "layout_hash", digest_text(manifest->layout_hash, hash),
        "contents_id", has_id ? id : NULL, "group",
        !digest_is_zero(manifest->group) ? digest_text(manifest->group, group) : "",
        "granularity_bytes", (json_int_t)manifest->granularity_bytes, "allocation_count",
        (json_int_t)manifest->allocation_count, "entry_count",
        (json_int_t)ls->image.layout.entry_count, "files", (json_int_t)manifest->file_count,
        "bytes", (json_int_t)manifest->stored_bytes, "bytes_there", (json_int_t)ls->done_bytes,
        "pieces", (json_int_t)manifest->piece_count, "pieces_there", (json_int_t)ls->done_pieces,
        ls->request->entries ? "entries" : "allocations", rows));
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void ls_choose_rows(struct ls *ls)
{
    size_t count =
        ls->request->entries ? ls->image.layout.entry_count : ls->image.manifest.allocation_count;

    ls->begin = ls->request->first < count ? (size_t)ls->request->first : count;
    ls->end = ls->request->most < count - ls->begin ? ls->begin + (size_t)ls->request->most : count;
    ls->done_pieces = image_manifest_count_done(&ls->image.manifest, &ls->done_bytes);
}

static int ls_check(const struct ls *ls)
{
    struct image_check check = {
        .image = &ls->image, .direct = ls->request->direct, .threads = ls->request->threads};
    uint64_t passed_ms;
    int status = image_check_shown(&check, "checking", ls->request->quiet, &passed_ms);

    if (status == CLI_OK && !ls->request->quiet)
        fprintf(stderr, "all %" PRIu64 " bytes are as they were saved\n", ls->done_bytes);
    return status;
}

static int ls_open(struct ls *ls)
{
    struct failure failure;
    int damage;

    if (image_open_any(&ls->image, ls->request->path, &damage, &failure) != 0)
        return cli_failure(&failure);
    if (damage)
        ls->status = cli_failure(&failure);
    return CLI_OK;
}

int image_ls(const struct image_request *request)
{
    struct ls ls = {.request = request};
    int status = ls_open(&ls);

    if (status == CLI_OK) {
        ls_choose_rows(&ls);
        if (request->as_json)
            ls_print_json(&ls);
        else
            ls_print_text(&ls);
    }
    if (status == CLI_OK && ls.status == CLI_OK && request->check)
        ls.status = ls_check(&ls);
    if (status == CLI_OK && ls.status == CLI_OK && ls.image.unfinished)
        ls.status = CLI_FAILURE;
    image_close(&ls.image);
    return status == CLI_OK ? ls.status : status;
}
