/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs load --group: loads the ranks of one model into their stores, all or none. */
#include "cli/load.h"

#include "base/timeline.h"
#include "cli/operands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_group.h"
#include "cli/store_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct load_group {
    struct load *ranks;
    size_t count;
    const char **files; /* of all ranks, grouped by rank */
    struct store_group stores;
    bool quiet;
};

/* ---- operands ------------------------------------------------------------------------------ */

/* A rank for each store, in the order in which they are named first. */
static int group_make_ranks(struct load_group *group, const struct load *as_asked, char **operands,
                            size_t count)
{
    size_t used = 0;

    group->ranks = cli_need(calloc(count, sizeof(*group->ranks)));
    group->files = cli_need(calloc(count, sizeof(*group->files)));
    store_group_begin(&group->stores, count);
    for (size_t i = 0; i < count; i++) {
        struct load *rank = &group->ranks[group->count];
        if (operands_have_store(operands, i, operands[i]))
            continue;
        *rank = *as_asked;
        rank->store = cli_need(strndup(operands[i], strcspn(operands[i], "=")));
        rank->files = group->files + used;
        group->count++;
        for (size_t j = i; j < count; j++)
            if (operands_are_of_one_store(operands[i], operands[j]))
                group->files[used++] = strchr(operands[j], '=') + 1;
        rank->file_count = (size_t)(group->files + used - (const char **)rank->files);
    }
    return CLI_OK;
}

static void group_free(struct load_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        load_free(&group->ranks[i]);
        free((char *)group->ranks[i].store);
    }
    free(group->ranks);
    free(group->files);
    store_group_end(&group->stores);
}

/* ---- locks --------------------------------------------------------------------------------- */

static int group_open(struct load_group *group)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < group->count; i++) {
        struct load *rank = &group->ranks[i];
        if (store_open_or_make(rank->store, &rank->handle) != 0)
            return CLI_FAILURE;
        for (size_t j = 0; status == CLI_OK && j < group->count; j++)
            status = load_check_sources(rank, group->ranks[j].model);
        if (status == CLI_OK)
            status = load_check_space(rank);
        if (status == CLI_OK)
            status = store_group_add(&group->stores, rank->store, rank->handle, rank->needed_bytes);
    }
    return status;
}

/* ---- loading ------------------------------------------------------------------------------- */

static int group_commit(struct load_group *group, uint8_t id[16])
{
    int error;

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    uint64_t span_us = timeline_begin();
    error = gmsfs_commit_group(group->stores.handles, group->count, load_commit_flags(group->ranks),
                               id);
    timeline_end("load", "commit", span_us, NULL);
    if (error) {
        load_explain_commit(&group->ranks[store_group_find_fault(&group->stores, id, error)],
                            error);
        store_group_say_partial(&group->stores, id);
    } else {
        store_make_keep();
        output_set_done();
    }
    for (size_t i = 0; i < group->count; i++)
        group->ranks[i].generation = gmsfs_generation(group->stores.handles[i]);
    return error ? CLI_FAILURE : CLI_OK;
}

static int group_fill(struct load_group *group, uint8_t id[16])
{
    const struct load *first = group->ranks;
    int status = CLI_OK;

    staging_expect(first->staging, first->threads, first->model->tensor_bytes);

    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = load_clear(&group->ranks[i]);
    if (status == CLI_OK)
        status = load_copy(group->ranks, group->count);
    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = load_put_metadata(&group->ranks[i]);
    group->ranks->filled_ms = clock_now_ms();
    if (status == CLI_OK)
        status = group_commit(group, id);
    return status;
}

static void group_print_result(const struct load_group *group, const uint8_t id[16])
{
    char text[GMSFS_TOKEN_TEXT_BYTES];
    uint64_t bytes = 0;

    if (group->quiet)
        return;
    for (size_t i = 0; i < group->count; i++) {
        load_print_store(&group->ranks[i]);
        bytes += group->ranks[i].model->tensor_bytes;
    }
    gmsfs_token_format(id, text);
    printf("group %s of %zu stores\n", text, group->count);
    load_print_bytes(group->ranks, bytes);
}

/* RO was granted: another process has loaded all of them, perhaps during the wait. */
static int group_leave_as_is(const struct load_group *group)
{
    output_set_done();
    if (!group->quiet)
        printf("left as it is: one load is committed in %s; --force loads anew\n",
               group->count == 1 ? "the store" : "all of the stores, as one group");
    return CLI_OK;
}

static int group_into_stores(struct load_group *group)
{
    uint8_t id[16] = {0};
    int status = group_open(group);

    group->ranks->planned_ms = clock_now_ms();
    if (status == CLI_OK)
        status = store_group_connect(&group->stores);
    if (status != CLI_OK)
        return status;
    if (gmsfs_granted_lock(group->stores.handles[0]) == GMSFS_MODE_RO)
        return group_leave_as_is(group);
    group->ranks->granted_ms = clock_now_ms();
    status = group_fill(group, id);
    if (status == CLI_OK)
        group_print_result(group, id);
    else
        store_group_abort(&group->stores, id, status);
    return status;
}

int load_group(const struct load *as_asked, char **operands, size_t count, bool force)
{
    struct load_group group = {.stores = {.mode = force ? GMSFS_MODE_RW : GMSFS_MODE_RW_OR_RO,
                                          .timeout_ms = as_asked->timeout_ms,
                                          .quiet = as_asked->quiet},
                               .quiet = as_asked->quiet};
    struct load asked = *as_asked;

    asked.begun_ms = clock_now_ms();
    asked.staging = cli_need(staging_new());
    asked.source = cli_need(source_open());
    signals_install("\ngmsfs load: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    int status = group_make_ranks(&group, &asked, operands, count);
    if (status == CLI_OK) /* the ranks are one model: its parts may be spread over them */
        status = load_check_parts(group.files, count);
    for (size_t i = 0; status == CLI_OK && i < group.count; i++)
        status = load_plan(&group.ranks[i]);
    if (status == CLI_OK)
        status = group_into_stores(&group);
    staging_free(asked.staging);
    group_free(&group);
    source_close(asked.source);
    store_make_undo();
    return status;
}
