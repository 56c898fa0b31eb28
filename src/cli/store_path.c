/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_path.h"

#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX_BYTES (16u << 20)
#define TEXT_STEP      4096u

int store_explain(const char *path, const char *doing, int error)
{
    switch (error) {
    case -ENOTCONN:
    case -ECONNABORTED:
        cli_error("cannot %s: %s: the mount is dead, for its daemon has ended; clear it away with "
                  "'gmsfs umount -l' and mount anew",
                  doing, path);
        break;
    case -EACCES:
        cli_error("cannot %s: %s: permission denied; the store's owner can allow it with chmod or "
                  "chown",
                  doing, path);
        break;
    case -ENOLCK:
        cli_error("cannot %s: %s: not in a writer's session; run it as 'gmsfs run -w %s -- "
                  "COMMAND'",
                  doing, path, path);
        break;
    case -ESTALE:
        cli_error("cannot %s: %s: the session is over: it was revoked, or the store was removed "
                  "('events' in the mount says which)",
                  doing, path);
        break;
    case -EIO:
        cli_error("cannot %s: %s: what it holds may be damaged after an error of the GPU ('device' "
                  "in the mount says which); load it anew, or 'gmsfs clear-suspect %s' if it is "
                  "known to be sound",
                  doing, path, path);
        break;
    case -ENODEV:
        cli_error(
            "cannot %s: %s: the mount is drained ('gmsfs drain --undo' lets it serve again), or "
            "its device is lost (mount anew when it is back); its file 'device' tells",
            doing, path);
        break;
    case -ECANCELED:
        cli_error("cannot %s: %s: the wait was ended by root or the store's owner", doing, path);
        break;
    case -EDEADLK:
        cli_error("cannot %s: %s: this process or one that started it holds the lock for reading; "
                  "that has to end first",
                  doing, path);
        break;
    default:
        cli_error("cannot %s: %s: %s", doing, path, strerror(-error));
    }
    return error;
}

/* inside: in one, also where it is not there. */
static bool store_is_mount(const char *path, bool inside)
{
    struct mounts mounts;
    bool found;

    if (mounts_read(&mounts) != 0)
        return inside; /* as if there were one: the common case */
    found = mounts_find(&mounts, path, inside) != NULL;
    mounts_free(&mounts);
    return found;
}

static int store_explain_open(const char *path, int error)
{
    switch (error) {
    case -ENOENT:
        if (store_is_mount(path, true))
            cli_error("%s: no such store; 'gmsfs status' lists those there are, mkdir makes one",
                      path);
        else
            cli_error("%s: there is no gmsfs mount; 'gmsfs status' lists those there are, 'gmsfs "
                      "mount' makes one (also anew, where its daemon died)",
                      path);
        break;
    case -ENOTTY:
    case -ENOTDIR:
        if (store_is_mount(path, false))
            cli_error("not a gmsfs store: %s; it is a mount: name a store in it, such as "
                      "%s/weights",
                      path, path);
        else
            cli_error("not a gmsfs store: %s; a store is a directory at the top of a gmsfs mount, "
                      "which 'gmsfs status' shows",
                      path);
        break;
    default:
        store_explain(path, "open the store", error);
    }
    return error;
}

int store_open(const char *path, gmsfs_t **handle)
{
    int r = gmsfs_open(path, handle);

    return r ? store_explain_open(path, r) : 0;
}

char *store_file_path(const char *path, const char *file)
{
    char *joined;

    return asprintf(&joined, "%s/%s", path, file) < 0 ? NULL : joined;
}

static int store_read_fd(int fd, size_t most_bytes, char **text, size_t *text_bytes)
{
    size_t used = 0, room = 0;
    char *bytes = NULL;
    ssize_t got = 1;

    while (got > 0) {
        if (room - used < TEXT_STEP) {
            char *grown = room < most_bytes ? realloc(bytes, room * 2 + 2 * TEXT_STEP) : NULL;
            if (!grown) {
                free(bytes);
                return -ENOMEM;
            }
            bytes = grown;
            room = room * 2 + 2 * TEXT_STEP;
        }
        got = read(fd, bytes + used, room - used - 1);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            used += (size_t)got;
    }
    if (got < 0) {
        int error = -errno;
        free(bytes);
        return error;
    }
    bytes[used] = '\0';
    *text = bytes;
    *text_bytes = used;
    return 0;
}

int store_read_bytes(const char *path, size_t most_bytes, uint8_t **bytes, size_t *size_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    int r;

    if (fd < 0)
        return -errno;
    r = store_read_fd(fd, most_bytes, &text, size_bytes);
    close(fd);
    if (!r)
        *bytes = (uint8_t *)text;
    return r;
}

int store_read_text(const char *path, char **text)
{
    uint8_t *bytes = NULL;
    size_t text_bytes;
    int r = store_read_bytes(path, TEXT_MAX_BYTES, &bytes, &text_bytes);

    if (!r)
        *text = (char *)bytes;
    return r;
}

static json_t *store_read_json(const char *path, const char *file)
{
    char *name = store_file_path(path, file), *text = NULL;
    json_t *json = NULL;

    if (name && store_read_text(name, &text) == 0)
        json = json_loads(text, 0, NULL);
    if (json && !json_is_object(json)) {
        json_decref(json);
        json = NULL;
    }
    free(text);
    free(name);
    return json;
}

json_t *store_device_json(const char *path)
{
    return store_read_json(path, "../device");
}

json_t *store_info_json(const char *path)
{
    return store_read_json(path, "info");
}

uint64_t store_json_number(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

const char *store_json_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

void store_last_error(const char *path, char *text, size_t room)
{
    json_t *info = store_info_json(path);

    snprintf(text, room, "%s", info ? store_json_text(info, "last_error") : "");
    json_decref(info);
}

static const char *const state_names[] = {
    [GMSFS_STATE_EMPTY] = "EMPTY",
    [GMSFS_STATE_RW] = "RW",
    [GMSFS_STATE_COMMITTED] = "COMMITTED",
    [GMSFS_STATE_RO] = "RO",
    [GMSFS_STATE_LAYOUT_COMMITTED] = "LAYOUT_COMMITTED",
};

#define STATES (sizeof(state_names) / sizeof(state_names[0]))

const char *store_state_name(enum gmsfs_state state)
{
    return (size_t)state < STATES ? state_names[state] : "UNKNOWN";
}

int store_state_parse(const char *text, enum gmsfs_state *state)
{
    for (size_t i = 0; i < STATES; i++) {
        if (strcasecmp(text, state_names[i]) == 0) {
            *state = (enum gmsfs_state)i;
            return 0;
        }
    }
    return -EINVAL;
}

int store_encode_key(const char *key, char name[STORE_ENCODED_BYTES])
{
    static const char digits[] = "0123456789ABCDEF";
    const unsigned char *from = (const unsigned char *)key;
    size_t used = 0;

    for (; *from; from++) {
        bool escape = *from == '%' || *from == '/' || (*from == '.' && used == 0);
        if (used + (escape ? 3 : 1) > GMSFS_NAME_MAX)
            return -EINVAL;
        if (escape) {
            name[used++] = '%';
            name[used++] = digits[*from >> 4];
            name[used++] = digits[*from & 15];
        } else {
            name[used++] = (char)*from;
        }
    }
    name[used] = '\0';
    return used ? 0 : -EINVAL;
}

int store_join(gmsfs_t *handle)
{
    const char *text = getenv("GMSFS_SESSION");
    uint8_t token[GMSFS_TOKEN_BYTES];
    int r;

    if (!text || gmsfs_token_parse(text, token) != 0)
        return -ENOENT;
    r = gmsfs_join(handle, token);
    return r == -ESTALE || r == -EBADF || r == -EACCES ? -ENOENT : r;
}

bool store_is_own(gmsfs_t *handle, enum gmsfs_mode mode)
{
    bool own = false;

    if (store_join(handle) == 0) {
        own = mode != GMSFS_MODE_RO || gmsfs_granted_lock(handle) == GMSFS_MODE_RW;
        gmsfs_disconnect(handle);
    }
    return own;
}

/* Nobody has the lock or waits for it before us: what we wait for is our turn to get memory. */
static bool is_lock_free(gmsfs_t *handle)
{
    struct gmsfs_info info;

    return gmsfs_get_info(handle, &info) == 0 && info.writers_waiting == 0 &&
           info.state != GMSFS_STATE_RW && info.state != GMSFS_STATE_RO;
}

/* What the wait is for, as far as the store tells. */
static void store_say_waiting(const char *path, enum gmsfs_mode mode, gmsfs_t *handle)
{
    struct gmsfs_info info;
    const char *why = "";

    if (gmsfs_get_info(handle, &info) != 0)
        return;
    if (mode == GMSFS_MODE_RO && !info.committed && info.state != GMSFS_STATE_RW)
        why = "; nothing is committed in it yet";
    else if (mode == GMSFS_MODE_RO && info.writers_waiting && info.state != GMSFS_STATE_RW)
        why = "; a writer waits before us";
    fprintf(stderr, "waiting for the %s lock of %s, which is %s%s ('sessions' in it shows who)\n",
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
        store_say_full(path, &space, reserve_bytes);
        return is_late || error == -ENOMEM ? CLI_TIMEOUT : CLI_FAILURE;
    }
    if (!is_late) {
        store_explain(path, doing, error);
        return CLI_FAILURE;
    }
    if (reserve_bytes && is_lock_free(handle))
        cli_error("cannot %s: %s: others asked for memory of the device before, and wait for it%s; "
                  "remove another store's layout, or mount with a larger size=",
                  doing, path, timeout_ms ? " all the time given" : "");
    else
        cli_error("cannot %s: %s: not free%s; its file 'sessions' shows who holds it", doing, path,
                  timeout_ms ? " in the time given" : "");
    return CLI_TIMEOUT;
}

static int store_connect_as(gmsfs_t *handle, const char *path, enum gmsfs_mode mode,
                            uint64_t timeout_ms, bool quiet, uint64_t reserve_bytes)
{
    int r = gmsfs_connect_reserve(handle, mode, 0, reserve_bytes);

    if (r == -EAGAIN && store_is_own(handle, mode)) {
        cli_error("cannot take the %s lock: %s: the 'gmsfs run' around this command holds it; this "
                  "command takes the lock by itself, so call it without 'gmsfs run'",
                  mode == GMSFS_MODE_RO ? "RO" : "RW", path);
        return CLI_FAILURE;
    }
    if ((r == -EAGAIN || (r == -ENOMEM && reserve_bytes)) && timeout_ms > 0) {
        if (!quiet && (r == -ENOMEM || (reserve_bytes && is_lock_free(handle))))
            store_say_memory(path, handle, reserve_bytes);
        else if (!quiet)
            store_say_waiting(path, mode, handle);
        r = gmsfs_connect_reserve(handle, mode, timeout_ms, reserve_bytes);
    }
    return r ? store_explain_connect(handle, path, mode, timeout_ms, reserve_bytes, r) : CLI_OK;
}

int store_connect(gmsfs_t *handle, const char *path, enum gmsfs_mode mode, uint64_t timeout_ms,
                  bool quiet)
{
    return store_connect_as(handle, path, mode, timeout_ms, quiet, 0);
}

int store_connect_reserve(gmsfs_t *handle, const char *path, uint64_t timeout_ms, bool quiet,
                          uint64_t reserve_bytes)
{
    return store_connect_as(handle, path, GMSFS_MODE_RW, timeout_ms, quiet, reserve_bytes);
}
