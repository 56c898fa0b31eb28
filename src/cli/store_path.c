/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_path.h"

#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_fenced.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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
        if (store_explain_fence(path, doing))
            break;
        cli_error(
            "cannot %s: %s: the mount is drained ('gmsfs drain --undo' lets it serve again), or "
            "its device is lost (mount anew when it is back); its file 'device' tells",
            doing, path);
        break;
    case -EHOSTUNREACH:
        cli_error("cannot %s: %s: the mount's socket '.fds' is not above it: the store alone was "
                  "bind-mounted; bind the whole mount",
                  doing, path);
        break;
    case -ENAMETOOLONG:
        cli_error("cannot %s: %s: %s%s", doing, path, strerror(-error),
                  access("/proc/self/fd", F_OK) == 0
                      ? ""
                      : " for the address of the mount's socket, and there is no /proc, by which "
                        "longer ones are reached; mount it, or use a shorter path");
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
            cli_error("%s: no such store; 'gmsfs status' lists those there are, 'mkdir %s' makes "
                      "this one",
                      path, path);
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
    int error = gmsfs_open(path, handle);

    return error ? store_explain_open(path, error) : 0;
}

#define STATE_NAME(word, number) [number] = #word,
static const char *const state_names[] = {GMSFS_STATE_LIST(STATE_NAME)};

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
