/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_group.h"

#include "base/digest.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_make.h"
#include "cli/store_space.h"
#include "cli/store_state.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_LOCKS_BYTES 48

void store_group_begin(struct store_group *group, size_t most)
{
    group->count = 0;
    group->stores = cli_need(calloc(most, sizeof(*group->stores)));
    group->handles = cli_need(calloc(most, sizeof(*group->handles)));
    group->bytes = cli_need(calloc(most, sizeof(*group->bytes)));
}

void store_group_end(struct store_group *group)
{
    free(group->stores);
    free(group->handles);
    free(group->bytes);
}

/* ---- before the lock ----------------------------------------------------------------------- */

/* Refuses a user without write permission: it would wait as a reader for another load. */
static int group_check_permission(const char *store)
{
    SCOPED_FREE char *ctl = store_file_path(store, "ctl");

    return euidaccess(ctl, W_OK) != 0 && (errno == EACCES || errno == EROFS)
               ? store_explain(store, "take the RW lock", -EACCES)
               : CLI_OK;
}

static dev_t group_mount_of(const char *store)
{
    struct stat known;

    return stat(store, &known) == 0 ? known.st_dev : 0;
}

/* Checks that the stores on one mount fit there together: else the last one would wait for memory
 * that can never be free. */
static int group_check_space(const struct store_group *group, size_t last)
{
    const char *store = group->stores[last];
    dev_t mount = group_mount_of(store);
    uint64_t bytes = 0;

    for (size_t i = 0; i <= last; i++)
        if (group_mount_of(group->stores[i]) == mount &&
            __builtin_add_overflow(bytes, group->bytes[i], &bytes))
            bytes = UINT64_MAX;
    return store_check_space(store, group->handles[last], bytes, NULL);
}

int store_group_add(struct store_group *group, const char *store, gmsfs_t *handle, uint64_t bytes)
{
    int status = group_check_permission(store);

    group->stores[group->count] = store;
    group->handles[group->count] = handle;
    group->bytes[group->count++] = bytes;
    return status == CLI_OK ? group_check_space(group, group->count - 1) : status;
}

/* ---- the locks ----------------------------------------------------------------------------- */

/* Finds the first store that is not free, with its state. */
static size_t group_find_busy(const struct store_group *group, enum gmsfs_state *state)
{
    struct gmsfs_info info;
    size_t busy = 0;

    *state = GMSFS_STATE_EMPTY;
    for (size_t i = 0; i < group->count && *state != GMSFS_STATE_RW; i++) {
        if (gmsfs_get_info(group->handles[i], &info) != 0 ||
            (info.state != GMSFS_STATE_RW && info.state != GMSFS_STATE_RO))
            continue;
        busy = i;
        *state = info.state;
    }
    return busy;
}

/* Finds the first store that does not fit its device now; SIZE_MAX: none. */
static size_t group_find_short(const struct store_group *group, struct store_space *space)
{
    for (size_t i = 0; i < group->count; i++) {
        store_get_space(group->stores[i], group->handles[i], space);
        if (space->is_known && group->bytes[i] > space->free_bytes)
            return i;
    }
    return SIZE_MAX;
}

/* Returns "the locks of 4 stores". */
static const char *group_locks(const struct store_group *group, char text[GROUP_LOCKS_BYTES])
{
    snprintf(text, GROUP_LOCKS_BYTES, "the lock%s of %zu store%s", group->count == 1 ? "" : "s",
             group->count, group->count == 1 ? "" : "s");
    return text;
}

static void group_say_waiting(const struct store_group *group, int error)
{
    char text[GROUP_LOCKS_BYTES];
    enum gmsfs_state state;
    struct store_space space;
    size_t busy = group_find_busy(group, &state);
    size_t lacking = error == -ENOMEM ? group_find_short(group, &space) : SIZE_MAX;

    if (lacking != SIZE_MAX)
        store_say_memory(group->stores[lacking], group->handles[lacking], group->bytes[lacking]);
    else if (error == -ENOMEM)
        fprintf(stderr, "waiting for memory for %zu stores\n", group->count);
    else if (state != GMSFS_STATE_EMPTY)
        ui_line(stderr, "waiting for %s; %s is %s ('sessions' in it names the holder)",
                group_locks(group, text), group->stores[busy], store_state_name(state));
    else
        fprintf(stderr, "waiting for %s\n", group_locks(group, text));
}

/* Explains that memory did not come in time, or never will: with a timeout, ENOMEM is final. */
static int group_explain_memory(const struct store_group *group, int error)
{
    struct store_space space;
    size_t lacking = group_find_short(group, &space);

    if (lacking != SIZE_MAX)
        store_say_full(group->stores[lacking], &space, group->bytes[lacking],
                       error == -ENOMEM ? NULL : store_late_way_out(group->timeout_ms));
    else if (error == -ENOMEM)
        cli_error("the stores of one device do not fit on it together; spread them over more "
                  "devices, or mount with a larger size=");
    if (lacking == SIZE_MAX && error != -ENOMEM)
        return CLI_OK;
    return error == -ENOMEM && group->timeout_ms > 0 ? CLI_FAILURE : CLI_TIMEOUT;
}

/* Explains the failure, and names the store at fault if it is one alone. */
static int group_explain(const struct store_group *group, int error)
{
    char text[GROUP_LOCKS_BYTES];
    bool is_late = error == -EAGAIN || error == -ETIMEDOUT;
    int status = is_late || error == -ENOMEM ? group_explain_memory(group, error) : CLI_OK;
    enum gmsfs_state state;

    if (status != CLI_OK)
        return status;
    if (is_late) {
        cli_error("cannot take %s: %s: not free%s; its file 'sessions' names the holder",
                  group_locks(group, text), group->stores[group_find_busy(group, &state)],
                  group->timeout_ms ? " in the time given" : "");
        return CLI_TIMEOUT;
    }
    if (error == -EINVAL)
        return cli_error("two of the stores are one and the same; name each once");
    for (size_t i = 0; i < group->count; i++) {
        struct gmsfs_info info;
        if (gmsfs_get_info(group->handles[i], &info) == error)
            return store_explain(group->stores[i], "take the RW lock", error);
    }
    return store_explain(group->stores[0], "take the locks of this store and the others", error);
}

static bool group_is_own(const struct store_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (!store_is_own(group->handles[i], GMSFS_MODE_RW))
            continue;
        cli_error("cannot take the RW lock: %s: the 'gmsfs run' around this command holds it; this "
                  "command takes the lock by itself, so call it without 'gmsfs run'",
                  group->stores[i]);
        return true;
    }
    return false;
}

int store_group_connect(struct store_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        gmsfs_set_connect_flags(group->handles[i], GMSFS_CONNECT_REPLACE);
    int error =
        gmsfs_connect_group_reserve(group->handles, group->count, group->mode, 0, group->bytes);

    if (error == -EAGAIN && group_is_own(group))
        return CLI_FAILURE;
    if ((error == -EAGAIN || error == -ENOMEM) && group->timeout_ms > 0) {
        if (!group->quiet && !group->has_told)
            group_say_waiting(group, error);
        group->has_told = true;
        error = gmsfs_connect_group_reserve(group->handles, group->count, group->mode,
                                            group->timeout_ms, group->bytes);
    }
    return error ? group_explain(group, error) : CLI_OK;
}

/* Takes locks, and memory beside the committed layouts. Returns false if locks, or memory for both
 * layouts, are not free now. */
static bool connect_beside(const struct store_group *group)
{
    uint64_t bytes[GMSFS_GROUP_MAX];
    struct gmsfs_info info;

    for (size_t i = 0; i < group->count; i++) {
        if (gmsfs_get_info(group->handles[i], &info) != 0 ||
            __builtin_add_overflow(group->bytes[i], info.committed ? info.total_bytes : 0,
                                   &bytes[i]))
            return false;
        gmsfs_set_connect_flags(group->handles[i], GMSFS_CONNECT_REPLACE);
    }
    return gmsfs_connect_group_reserve(group->handles, group->count, GMSFS_MODE_RW, 0, bytes) == 0;
}

int store_group_connect_safely(struct store_group *group)
{
    return connect_beside(group) ? CLI_OK : store_group_connect(group);
}

/* ---- the commit ---------------------------------------------------------------------------- */

/* True if the store was committed with this group id; zeros: false. */
static bool has_committed(const struct store_group *group, size_t index, const uint8_t id[16])
{
    struct gmsfs_info info;

    return !digest_is_zero(id) && gmsfs_get_info(group->handles[index], &info) == 0 &&
           memcmp(info.group, id, sizeof(info.group)) == 0;
}

size_t store_group_find_fault(const struct store_group *group, const uint8_t id[16], int error)
{
    size_t at_fault = 0;

    for (size_t i = 0; i < group->count; i++) {
        bool is_writer = gmsfs_granted_lock(group->handles[i]) == GMSFS_MODE_RW;
        char why[2] = "";
        if (is_writer && error == -EINVAL)
            store_last_error(group->stores[i], why, sizeof(why));
        if (*why || (!is_writer && !has_committed(group, i, id)))
            at_fault = i;
    }
    return at_fault;
}

void store_group_say_partial(const struct store_group *group, const uint8_t id[16])
{
    size_t committed = 0;

    for (size_t i = 0; i < group->count; i++)
        committed += has_committed(group, i, id);
    if (!committed)
        return;
    store_make_keep();
    cli_error("%zu of the %zu stores are committed, so they are not whole; the next load or "
              "engine that takes them all loads them anew",
              committed, group->count);
}

/* ---- after a failure ------------------------------------------------------------------------ */

static void say_signal(int status)
{
    if (status > CLI_SIGNALED)
        cli_error("stopped by a signal (%s)", strsignal(status - CLI_SIGNALED));
}

/* Returns the state of the store in words. NULL: store_make_undo() will remove it. */
static const char *abort_one(gmsfs_t *handle, const char *store)
{
    int rolled_back = 0;

    if (gmsfs_abort(handle, &rolled_back) != 0)
        return "is as the daemon left it";
    if (store_make_is_ours(store))
        return NULL;
    return rolled_back ? "has its earlier layout again" : "is empty";
}

void store_group_abort(const struct store_group *group, const uint8_t id[16], int status)
{
    bool is_partial = false;

    say_signal(status);
    for (size_t i = 0; i < group->count; i++)
        is_partial |= has_committed(group, i, id);
    if (!is_partial)
        fputs("nothing was committed\n", stderr);
    for (size_t i = 0; i < group->count; i++) {
        const char *left = has_committed(group, i, id)
                               ? "is committed"
                               : abort_one(group->handles[i], group->stores[i]);
        if (left)
            ui_line(stderr, "%s %s", group->stores[i], left);
    }
}

void store_abort(gmsfs_t *handle, const char *store, int status)
{
    const char *left = abort_one(handle, store);

    say_signal(status);
    if (left)
        ui_line(stderr, "nothing was committed; %s %s", store, left);
    else
        fputs("nothing was committed\n", stderr);
}
