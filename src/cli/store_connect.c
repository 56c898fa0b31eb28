/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_connect.h"

#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_space.h"
#include "cli/store_state.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int store_join(gmsfs_t *handle)
{
    const char *text = getenv("GMSFS_SESSION");
    uint8_t token[GMSFS_TOKEN_BYTES];

    if (!text || gmsfs_token_parse(text, token) != 0)
        return -ENOENT;
    int error = gmsfs_join(handle, token);
    return error == -ESTALE || error == -EBADF || error == -EACCES ? -ENOENT : error;
}

bool store_is_own(gmsfs_t *handle, enum gmsfs_mode mode)
{
    bool own = false;

    if (store_join(handle) == 0) {
        own = mode != GMSFS_MODE_RO || gmsfs_granted_lock(handle) != GMSFS_MODE_RO;
        gmsfs_disconnect(handle);
    }
    return own;
}

/* True if the lock is free and no writer waits for it: then this process waits for memory. */
static bool is_lock_free(gmsfs_t *handle)
{
    struct gmsfs_info info;

    return gmsfs_get_info(handle, &info) == 0 && info.writers_waiting == 0 &&
           info.state != GMSFS_STATE_RW && info.state != GMSFS_STATE_RO;
}

static void store_say_behind(const char *path, const char *doing, uint64_t timeout_ms)
{
    char ahead[STORE_AHEAD_BYTES];

    store_get_ahead(path, ahead);
    cli_error("cannot %s: %s: %s asked for memory of the device before, and wait%s for it%s; "
              "remove another store's layout, or mount with a larger size=",
              doing, path, ahead[0] ? ahead : "others", ahead[0] ? "s" : "",
              timeout_ms ? " all the time given" : "");
}

/* Prints the reason of the wait, if the store shows it. */
static void store_say_waiting(const char *path, enum gmsfs_mode mode, gmsfs_t *handle)
{
    struct gmsfs_info info;
    const char *why = "";

    if (gmsfs_get_info(handle, &info) != 0)
        return;
    if (mode == GMSFS_MODE_RO && info.sealed)
        why = "; its layout is sealed, and readers wait until one is committed";
    else if (mode == GMSFS_MODE_RO && !info.committed && info.state != GMSFS_STATE_RW)
        why = "; nothing is committed in it yet";
    else if (mode == GMSFS_MODE_RO && info.writers_waiting && info.state != GMSFS_STATE_RW)
        why = "; a writer waits before us";
    ui_line(stderr,
            "waiting for the %s lock of %s, which is %s%s ('sessions' in it names the holder)",
            mode == GMSFS_MODE_RO ? "RO" : "RW", path, store_state_name(info.state), why);
}

/* The lock came not in time, or not at all. With ENOMEM, or where it is memory that lacks, the
 * numbers say more than the errno. */
static int store_explain_connect(gmsfs_t *handle, const char *path, enum gmsfs_mode mode,
                                 uint64_t timeout_ms, uint64_t reserve_bytes, int error)
{
    const char *doing = mode == GMSFS_MODE_RO ? "take the RO lock" : "take the RW lock";
    bool is_late = error == -EAGAIN || error == -ETIMEDOUT;
    struct store_space space = {0};

    if (reserve_bytes && (is_late || error == -ENOMEM))
        store_get_space(path, handle, &space);
    if (space.is_known && reserve_bytes > space.free_bytes) {
        store_say_full(path, &space, reserve_bytes,
                       is_late ? store_late_way_out(timeout_ms) : NULL);
        return is_late || error == -ENOMEM ? CLI_TIMEOUT : CLI_FAILURE;
    }
    if (!is_late)
        return store_explain(path, doing, error);
    if (reserve_bytes && is_lock_free(handle))
        store_say_behind(path, doing, timeout_ms);
    else
        cli_error("cannot %s: %s: not free%s; its file 'sessions' names the holder", doing, path,
                  timeout_ms ? " in the time given" : "");
    return CLI_TIMEOUT;
}

static int store_connect_as(gmsfs_t *handle, const char *path, enum gmsfs_mode mode,
                            uint64_t timeout_ms, bool quiet, uint64_t reserve_bytes)
{
    int error = gmsfs_connect_reserve(handle, mode, 0, reserve_bytes);

    if (error == -EAGAIN && store_is_own(handle, mode))
        return cli_error(
            "cannot take the %s lock: %s: the 'gmsfs run' around this command holds it; this "
            "command takes the lock by itself, so call it without 'gmsfs run'",
            mode == GMSFS_MODE_RO ? "RO" : "RW", path);
    if ((error == -EAGAIN || (error == -ENOMEM && reserve_bytes)) && timeout_ms > 0) {
        if (!quiet && (error == -ENOMEM || (reserve_bytes && is_lock_free(handle))))
            store_say_memory(path, handle, reserve_bytes);
        else if (!quiet)
            store_say_waiting(path, mode, handle);
        error = gmsfs_connect_reserve(handle, mode, timeout_ms, reserve_bytes);
    }
    return error ? store_explain_connect(handle, path, mode, timeout_ms, reserve_bytes, error)
                 : CLI_OK;
}

int store_connect(gmsfs_t *handle, const char *path, enum gmsfs_mode mode, uint64_t timeout_ms,
                  bool quiet)
{
    return store_connect_as(handle, path, mode, timeout_ms, quiet, 0);
}

int store_connect_reserve(gmsfs_t *handle, const char *path, uint64_t timeout_ms, bool quiet,
                          uint64_t reserve_bytes)
{
    /* A caller that reserves memory will load the store again. */
    gmsfs_set_connect_flags(handle, GMSFS_CONNECT_REPLACE);
    return store_connect_as(handle, path, GMSFS_MODE_RW, timeout_ms, quiet, reserve_bytes);
}
