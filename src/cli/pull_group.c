/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs pull --group: stores of other nodes into stores of this one, all or none.
 *
 * The bytes of a model's ranks come one rank after the other, each over all connections.
 */
#include "cli/pull.h"

#include "cli/operands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_contents.h"
#include "cli/store_make.h"
#include "cli/target_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One store, and the contents that it gets. */
struct rank {
    struct pull pull;
    struct image_load load;
    struct source_peers *peers;
    uint64_t seen; /* generation of the store that was looked at last */
};

struct pull_group {
    const struct pull *asked;
    struct rank *ranks;
    size_t count;
    struct target **targets; /* of each rank */
    struct store_group stores;
    struct staging *staging;
    uint64_t copied_ms;
};

/* ---- operands ------------------------------------------------------------------------------ */

/* A rank for each store, in the order in which they are named first. */
static int make_ranks(struct pull_group *group, char **operands, size_t count)
{
    int status = CLI_OK;

    group->ranks = cli_need(calloc(count, sizeof(*group->ranks)));
    group->targets = cli_need(calloc(count, sizeof(struct target *)));
    for (size_t i = 0; status == CLI_OK && i < count; i++) {
        struct rank *rank = &group->ranks[group->count];

        if (operands_have_store(operands, i, operands[i]))
            continue;
        rank->pull = *group->asked;
        rank->pull.request.store = cli_need(strndup(operands[i], strcspn(operands[i], "=")));
        rank->load = (struct image_load){.request = &rank->pull.request,
                                         .contents = rank->pull.id,
                                         .image.dir.fd = -1,
                                         .target.ctl_fd = -1};
        group->targets[group->count++] = &rank->load.target;
        for (size_t j = i; status == CLI_OK && j < count; j++)
            if (operands_are_of_one_store(operands[i], operands[j]))
                status = pull_add_operand(&rank->pull, strchr(operands[j], '=') + 1);
    }
    return status;
}

static void free_ranks(struct pull_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct rank *rank = &group->ranks[i];

        target_close(&rank->load.target);
        image_close(&rank->load.image);
        pull_free_urls(&rank->pull);
        free((char *)rank->pull.request.store);
    }
    free(group->ranks);
    free(group->targets);
}

/* ---- before the locks ---------------------------------------------------------------------- */

static int open_rank(struct pull_group *group, struct rank *rank)
{
    struct image_load *load = &rank->load;
    int status = pull_open(&rank->pull, &load->image, &rank->peers);

    if (status != CLI_OK)
        return status;
    pull_print_contents(&rank->pull, &load->image);
    image_load_set_target(load, group->staging);
    status = target_open(&load->target);
    if (status == CLI_OK)
        status = store_group_add(&group->stores, load->target.store, load->target.handle,
                                 load->target.needed_bytes);
    return status;
}

/* ---- the locks ----------------------------------------------------------------------------- */

/* Returns true if the store has its contents, and a group that its commit was of. */
static bool has_contents(struct rank *rank, uint8_t group[DIGEST_BYTES])
{
    const struct target *target = &rank->load.target;
    struct gmsfs_info before, after;
    char hash[DIGEST_TEXT_BYTES];

    rank->seen = UINT64_MAX;
    if (gmsfs_get_info(target->handle, &before) != 0 ||
        !store_has_contents(target->store, target->handle, rank->pull.id,
                            digest_text(target->hash, hash), &rank->seen) ||
        gmsfs_get_info(target->handle, &after) != 0 || after.generation != before.generation)
        return false;
    rank->seen = after.generation;
    memcpy(group, after.group, DIGEST_BYTES);
    return !digest_is_zero(group);
}

/* Returns true if every store has its contents, and one commit put them into all. Looks at each,
 * for `seen`. */
static bool have_contents(struct pull_group *group)
{
    uint8_t first[DIGEST_BYTES] = {0}, id[DIGEST_BYTES] = {0};
    bool have_all = true;

    for (size_t i = 0; i < group->count; i++) {
        have_all &= has_contents(&group->ranks[i], i == 0 ? first : id);
        have_all &= i == 0 || memcmp(id, first, sizeof(id)) == 0;
    }
    return have_all;
}

static bool are_as_seen(const struct pull_group *group)
{
    struct gmsfs_info info;

    for (size_t i = 0; i < group->count; i++)
        if (gmsfs_get_info(group->stores.handles[i], &info) == 0 &&
            info.generation != group->ranks[i].seen)
            return false;
    return true;
}

static uint64_t count_bytes(const struct pull_group *group)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < group->count; i++)
        bytes += group->targets[i]->manifest->stored_bytes;
    return bytes;
}

/* Takes the locks and the memory, unless the stores have it all already. Another pull may have
 * committed it during the wait: the locks are given back for a look then. */
static int connect_if_other(struct pull_group *group, bool *have)
{
    int status;

    *have = have_contents(group);
    if (!*have)
        source_peers_take_turn(group->ranks[0].peers, count_bytes(group));
    while (!*have) {
        status = store_group_connect_safely(&group->stores);
        signals_defer(true);
        if (status != CLI_OK || are_as_seen(group))
            return status;
        for (size_t i = 0; i < group->count; i++)
            gmsfs_abort(group->stores.handles[i], NULL);
        signals_defer(false);
        *have = have_contents(group);
    }
    return CLI_OK;
}

static int leave_as_is(const struct pull_group *group)
{
    int status = CLI_OK;

    output_set_done();
    for (size_t i = 0; status == CLI_OK && i < group->count; i++) {
        const struct pull *pull = &group->ranks[i].pull;

        status = store_say_has_contents(pull->request.store, pull->id, pull->request.immutable,
                                        pull->request.quiet);
    }
    return status;
}

/* ---- the contents -------------------------------------------------------------------------- */

static int fill(struct pull_group *group)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = target_clear(group->targets[i]);
    for (size_t i = 0; status == CLI_OK && i < group->count; i++) {
        struct rank *rank = &group->ranks[i];

        status = image_load_bytes(&rank->load);
        group->copied_ms += rank->load.copied_ms;
        source_peers_tell_barred(rank->peers);
    }
    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = target_put_entries(group->targets[i]);
    return status;
}

static int commit(struct pull_group *group, uint8_t id[DIGEST_BYTES], bool *is_committed)
{
    bool immutable = group->asked->request.immutable;
    unsigned flags = GMSFS_COMMIT_STAY | (immutable ? GMSFS_COMMIT_IMMUTABLE : 0);

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    int error = gmsfs_commit_group(group->stores.handles, group->count, flags, id);
    *is_committed = error == 0;
    return target_group_end_commit(group->targets, &group->stores, id, immutable, error);
}

static void print_result(const struct pull_group *group, const uint8_t id[DIGEST_BYTES],
                         uint64_t start_ms)
{
    char text[DIGEST_TEXT_BYTES], total[PROGRESS_TOTAL_BYTES];

    for (size_t i = 0; i < group->count; i++)
        target_print_committed(group->targets[i], "");
    printf("group %s of %zu stores\n", digest_text(id, text), group->count);
    puts(progress_format_total(total, count_bytes(group), start_ms, group->copied_ms));
}

static int pull_into_stores(struct pull_group *group)
{
    uint8_t id[DIGEST_BYTES] = {0};
    bool have, is_committed = false;
    int status = connect_if_other(group, &have);
    uint64_t start_ms = clock_now_ms();

    if (have)
        return leave_as_is(group);
    if (status != CLI_OK)
        return status;
    status = fill(group);
    if (status == CLI_OK)
        status = commit(group, id, &is_committed);
    if (!is_committed)
        store_group_abort(&group->stores, id, status);
    else if (status == CLI_OK && !group->asked->request.quiet)
        print_result(group, id, start_ms);
    return status;
}

int pull_group(const struct pull *asked, char **operands, size_t count)
{
    struct pull_group group = {.asked = asked,
                               .stores = {.mode = GMSFS_MODE_RW,
                                          .timeout_ms = asked->request.timeout_ms,
                                          .quiet = asked->request.quiet}};

    operands_check(operands, count, "URL");
    signals_install("\ngmsfs pull: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    group.staging = cli_need(staging_new());
    store_group_begin(&group.stores, count);
    int status = make_ranks(&group, operands, count);
    for (size_t i = 0; status == CLI_OK && i < group.count; i++)
        status = open_rank(&group, &group.ranks[i]);
    if (status == CLI_OK)
        status = pull_into_stores(&group);
    staging_free(group.staging);
    free_ranks(&group);
    store_group_end(&group.stores);
    store_make_undo();
    return status;
}
