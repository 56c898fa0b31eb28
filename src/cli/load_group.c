/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs load --group: loads the ranks of one model into their stores, all or none. */
#include "cli/load.h"

#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_make.h"
#include "cli/store_space.h"
#include "cli/store_state.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct load_group {
    struct load *ranks;
    size_t count;
    gmsfs_t **handles;  /* of each rank; they belong to the ranks */
    uint64_t *bytes;    /* of memory that each rank needs */
    const char **files; /* of all ranks, grouped by rank */
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    bool quiet;
};

/* ---- operands ------------------------------------------------------------------------------ */

static bool group_is_same_store(const char *left, const char *right)
{
    size_t bytes = strcspn(left, "=");

    return bytes == strcspn(right, "=") && memcmp(left, right, bytes) == 0;
}

static bool group_has_store(char **operands, size_t count, const char *operand)
{
    for (size_t i = 0; i < count; i++)
        if (group_is_same_store(operands[i], operand))
            return true;
    return false;
}

static int group_check_operands(char **operands, size_t count)
{
    size_t stores = 0;

    if (count == 0)
        return cli_usage_error("a STORE=FILE for each rank is needed");
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strcspn(operands[i], "=");
        if (bytes == 0 || strlen(operands[i]) < bytes + 2)
            return cli_usage_error("'%s': with --group, STORE=FILE is needed", operands[i]);
        stores += !group_has_store(operands, i, operands[i]);
    }
    if (stores > GMSFS_GROUP_MAX)
        return cli_usage_error("%zu stores are given; a group has at most %u", stores,
                               GMSFS_GROUP_MAX);
    return CLI_OK;
}

/* A rank for each store, in the order in which they are named first. */
static int group_make_ranks(struct load_group *group, const struct load *as_asked, char **operands,
                            size_t count)
{
    size_t used = 0;

    group->ranks = calloc(count, sizeof(*group->ranks));
    group->files = calloc(count, sizeof(*group->files));
    group->handles = calloc(count, sizeof(*group->handles));
    group->bytes = calloc(count, sizeof(*group->bytes));
    if (!group->ranks || !group->files || !group->handles || !group->bytes)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++) {
        struct load *rank = &group->ranks[group->count];
        if (group_has_store(operands, i, operands[i]))
            continue;
        *rank = *as_asked;
        rank->store = strndup(operands[i], strcspn(operands[i], "="));
        rank->files = group->files + used;
        group->count++;
        if (!rank->store)
            return cli_out_of_memory();
        for (size_t j = i; j < count; j++)
            if (group_is_same_store(operands[i], operands[j]))
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
    free(group->handles);
    free(group->bytes);
}

/* ---- locks --------------------------------------------------------------------------------- */

/* Refuses a user without write permission: it would wait as a reader for another load. */
static int group_check_permission(const struct load *rank)
{
    char *ctl = store_file_path(rank->store, "ctl");
    int error = ctl ? 0 : -ENOMEM;

    if (!error && euidaccess(ctl, W_OK) != 0 && (errno == EACCES || errno == EROFS))
        error = -EACCES;
    free(ctl);
    if (error)
        store_explain(rank->store, "take the RW lock", error);
    return error ? CLI_FAILURE : CLI_OK;
}

static dev_t group_mount_of(const struct load *rank)
{
    struct stat known;

    return stat(rank->store, &known) == 0 ? known.st_dev : 0;
}

/* Checks that the ranks on one mount fit there together: else the last one would wait for memory
 * that can never be free. */
static int group_check_space(const struct load_group *group, size_t rank)
{
    const struct load *one = &group->ranks[rank];
    dev_t mount = group_mount_of(one);
    struct store_space space;
    uint64_t bytes = 0;

    for (size_t i = 0; i <= rank; i++)
        if (group_mount_of(&group->ranks[i]) == mount &&
            __builtin_add_overflow(bytes, group->ranks[i].needed_bytes, &bytes))
            bytes = UINT64_MAX;
    store_get_space(one->store, one->handle, &space);
    if (space.is_known && bytes > space.total_bytes)
        return store_say_full(one->store, &space, bytes);
    return CLI_OK;
}

static int group_open(struct load_group *group)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < group->count; i++) {
        struct load *rank = &group->ranks[i];
        if (store_open_or_make(rank->store, &rank->handle) != 0)
            return CLI_FAILURE;
        group->handles[i] = rank->handle;
        status = group_check_permission(rank);
        for (size_t j = 0; status == CLI_OK && j < group->count; j++)
            status = load_check_sources(rank, group->ranks[j].model);
        if (status == CLI_OK)
            status = load_check_space(rank);
        if (status == CLI_OK)
            status = group_check_space(group, i);
        group->bytes[i] = rank->needed_bytes;
    }
    return status;
}

/* Finds the first store that is not free, with its state. */
static const struct load *group_find_busy(const struct load_group *group, enum gmsfs_state *state)
{
    const struct load *busy = group->ranks;
    struct gmsfs_info info;

    *state = GMSFS_STATE_EMPTY;
    for (size_t i = 0; i < group->count && *state != GMSFS_STATE_RW; i++) {
        if (gmsfs_get_info(group->handles[i], &info) != 0 ||
            (info.state != GMSFS_STATE_RW && info.state != GMSFS_STATE_RO))
            continue;
        busy = &group->ranks[i];
        *state = info.state;
    }
    return busy;
}

/* Finds the first rank that does not fit its device now; NULL: none. */
static const struct load *group_find_short(const struct load_group *group,
                                           struct store_space *space)
{
    for (size_t i = 0; i < group->count; i++) {
        store_get_space(group->ranks[i].store, group->handles[i], space);
        if (space->is_known && group->bytes[i] > space->free_bytes)
            return &group->ranks[i];
    }
    return NULL;
}

static void group_say_waiting(const struct load_group *group, int error)
{
    enum gmsfs_state state;
    struct store_space space;
    const struct load *busy = group_find_busy(group, &state);
    const struct load *lacking = error == -ENOMEM ? group_find_short(group, &space) : NULL;

    if (lacking)
        store_say_memory(lacking->store, lacking->handle, lacking->needed_bytes);
    else if (error == -ENOMEM)
        fprintf(stderr, "waiting for memory for %zu stores\n", group->count);
    else if (state != GMSFS_STATE_EMPTY)
        ui_line(stderr,
                "waiting for the locks of %zu stores; %s is %s ('sessions' in it names the holder)",
                group->count, busy->store, store_state_name(state));
    else
        fprintf(stderr, "waiting for the locks of %zu stores\n", group->count);
}

/* Explains that memory did not come in time, or never will: with a timeout, ENOMEM is final. */
static int group_explain_memory(const struct load_group *group, int error)
{
    struct store_space space;
    const struct load *lacking = group_find_short(group, &space);

    if (lacking)
        store_say_full(lacking->store, &space, lacking->needed_bytes);
    else if (error == -ENOMEM)
        cli_error("the stores of one device do not fit on it together; spread them over more "
                  "devices, or mount with a larger size=");
    if (!lacking && error != -ENOMEM)
        return CLI_OK;
    return error == -ENOMEM && group->timeout_ms > 0 ? CLI_FAILURE : CLI_TIMEOUT;
}

/* Explains the failure, and names the store at fault if it is one alone. */
static int group_explain(const struct load_group *group, int error)
{
    bool is_late = error == -EAGAIN || error == -ETIMEDOUT;
    int status = is_late || error == -ENOMEM ? group_explain_memory(group, error) : CLI_OK;
    enum gmsfs_state state;

    if (status != CLI_OK)
        return status;
    if (is_late) {
        cli_error("cannot take the locks of %zu stores: %s: not free%s; its file 'sessions' "
                  "names the holder",
                  group->count, group_find_busy(group, &state)->store,
                  group->timeout_ms ? " in the time given" : "");
        return CLI_TIMEOUT;
    }
    if (error == -EINVAL) {
        cli_error("two of the stores are one and the same; each rank needs its own");
        return CLI_FAILURE;
    }
    for (size_t i = 0; i < group->count; i++) {
        struct gmsfs_info info;
        if (gmsfs_get_info(group->handles[i], &info) == error) {
            store_explain(group->ranks[i].store, "take the RW lock", error);
            return CLI_FAILURE;
        }
    }
    store_explain(group->ranks[0].store, "take the locks of this store and the others", error);
    return CLI_FAILURE;
}

static bool group_is_own(const struct load_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (!store_is_own(group->handles[i], GMSFS_MODE_RW))
            continue;
        cli_error("cannot take the RW lock: %s: the 'gmsfs run' around this command holds it; this "
                  "command takes the lock by itself, so call it without 'gmsfs run'",
                  group->ranks[i].store);
        return true;
    }
    return false;
}

static int group_connect(struct load_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        gmsfs_set_connect_flags(group->handles[i], GMSFS_CONNECT_REPLACE);
    int error =
        gmsfs_connect_group_reserve(group->handles, group->count, group->mode, 0, group->bytes);

    if (error == -EAGAIN && group_is_own(group))
        return CLI_FAILURE;
    if ((error == -EAGAIN || error == -ENOMEM) && group->timeout_ms > 0) {
        if (!group->quiet)
            group_say_waiting(group, error);
        error = gmsfs_connect_group_reserve(group->handles, group->count, group->mode,
                                            group->timeout_ms, group->bytes);
    }
    return error ? group_explain(group, error) : CLI_OK;
}

/* ---- loading ------------------------------------------------------------------------------- */

static bool group_has_committed(const struct load *rank, const uint8_t id[16])
{
    static const uint8_t none[16];
    struct gmsfs_info info;

    return memcmp(id, none, sizeof(none)) != 0 && gmsfs_get_info(rank->handle, &info) == 0 &&
           memcmp(info.group, id, sizeof(info.group)) == 0;
}

/* Explains a failed commit by the store with the ended session, or with a refused layout. */
static void group_explain_commit(const struct load_group *group, const uint8_t id[16], int error)
{
    const struct load *at_fault = group->ranks;
    size_t committed = 0;

    for (size_t i = 0; i < group->count; i++) {
        bool is_writer = gmsfs_granted_lock(group->handles[i]) == GMSFS_MODE_RW;
        bool is_committed = group_has_committed(&group->ranks[i], id);
        char why[2] = "";
        committed += is_committed;
        if (is_writer && error == -EINVAL)
            store_last_error(group->ranks[i].store, why, sizeof(why));
        if (*why || (!is_writer && !is_committed))
            at_fault = &group->ranks[i];
    }
    load_explain_commit(at_fault, error);
    if (committed) {
        store_make_keep();
        cli_error("%zu of the %zu stores are committed, so they are not whole; the next load or "
                  "engine that takes them all loads them anew",
                  committed, group->count);
    }
}

static int group_commit(struct load_group *group, uint8_t id[16])
{
    int error;

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    error = gmsfs_commit_group(group->handles, group->count, load_commit_flags(group->ranks), id);
    if (error) {
        group_explain_commit(group, id, error);
    } else {
        store_make_keep();
        output_set_done();
    }
    for (size_t i = 0; i < group->count; i++)
        group->ranks[i].generation = gmsfs_generation(group->handles[i]);
    return error ? CLI_FAILURE : CLI_OK;
}

static int group_fill(struct load_group *group, uint8_t id[16])
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = load_clear(&group->ranks[i]);
    if (status == CLI_OK)
        status = load_copy(group->ranks, group->count);
    for (size_t i = 0; status == CLI_OK && i < group->count; i++)
        status = load_put_metadata(&group->ranks[i]);
    group->ranks->filled_ms = cli_now_ms();
    if (status == CLI_OK)
        status = group_commit(group, id);
    return status;
}

/* Aborts, and prints the state of each store after the failure. */
static void group_abort(struct load_group *group, const uint8_t id[16], int status)
{
    bool is_partial = false;

    if (status > CLI_SIGNALED)
        cli_error("stopped by a signal (%s)", strsignal(status - CLI_SIGNALED));
    for (size_t i = 0; i < group->count; i++)
        is_partial |= group_has_committed(&group->ranks[i], id);
    if (!is_partial)
        fputs("nothing was committed\n", stderr);
    for (size_t i = 0; i < group->count; i++) {
        struct load *rank = &group->ranks[i];
        const char *left = group_has_committed(rank, id) ? "is committed" : load_abort_store(rank);
        if (left)
            ui_line(stderr, "%s %s", rank->store, left);
    }
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

    group->ranks->planned_ms = cli_now_ms();
    if (status == CLI_OK)
        status = group_connect(group);
    if (status != CLI_OK)
        return status;
    if (gmsfs_granted_lock(group->handles[0]) == GMSFS_MODE_RO)
        return group_leave_as_is(group);
    group->ranks->granted_ms = cli_now_ms();
    status = group_fill(group, id);
    if (status == CLI_OK)
        group_print_result(group, id);
    else
        group_abort(group, id, status);
    return status;
}

int load_group(const struct load *as_asked, char **operands, size_t count, bool force)
{
    struct load_group group = {.mode = force ? GMSFS_MODE_RW : GMSFS_MODE_RW_OR_RO,
                               .timeout_ms = as_asked->timeout_ms,
                               .quiet = as_asked->quiet};
    struct load asked = *as_asked;
    int status = group_check_operands(operands, count);

    asked.begun_ms = cli_now_ms();
    if (status != CLI_OK)
        return status;
    asked.staging = staging_new();
    asked.source = source_open();
    if (!asked.staging || !asked.source)
        return cli_out_of_memory();
    signals_install("\ngmsfs load: ", "; nothing was committed\n");
    signals_set_undo(store_make_undo_all);
    status = group_make_ranks(&group, &asked, operands, count);
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
