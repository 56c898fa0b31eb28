/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_place.h"

#include "base/fd_path.h"
#include "base/file_io.h"
#include "base/hex.h"
#include "cli/cli.h"
#include "cli/daemon_explain.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES    128
#define TURN_EVERY_MS 50

/* ---- why it does not move ------------------------------------------------------------------- */

/* The daemon notes the cause when it refuses an order or a move fails, as `obstacle` in the store's
 * `info`; these functions make it a sentence, printed once. */

/* Returns the daemon's text on the last order to this place; "" if none. */
static const char *find_obstacle(const json_t *info, const char *place)
{
    const json_t *obstacle = json_object_get(info, "obstacle");

    return strcmp(json_get_text(obstacle, "to"), place) == 0 ? json_get_text(obstacle, "text") : "";
}

/* Returns `info` of the store, or NULL. */
static json_t *place_read_info(int dir, const char *path)
{
    return store_info_json(dir == AT_FDCWD ? path : fd_path(dir).text);
}

/* Explains any other failure (of `doing`, as "read where it is"). Returns CLI_FAILURE. */
static int place_explain(const char *path, const char *doing, int error)
{
    /* ESTALE arrives as ENOENT if the kernel repeats an open. */
    if (error == -ESTALE || error == -ENOENT)
        return cli_error("%s: there is no such store, or it was removed", path);
    return store_explain(path, doing, error);
}

/* Explains why an order was refused. CLI_FAILURE; CLI_TIMEOUT: other waiters were ahead during the
 * whole wait. */
static int place_explain_order(int dir, const char *path, const char *place, int error)
{
    json_auto_t *info = NULL;

    if (error == -EPERM || error == -EACCES)
        return daemon_explain_rights(path, "move it");
    if (error == -ECANCELED)
        return daemon_explain_cancelled(path, "the store is open again and was not moved");
    if (error == -EBUSY && store_explain_fence(path, "move it"))
        return CLI_FAILURE;
    info = place_read_info(dir, path);
    const char *text = find_obstacle(info, place);
    if (*text)
        cli_error("cannot move: %s: %s", path, text);
    else if (error == -EBUSY)
        cli_error("cannot move: %s: its lock was held, or it was moving, a moment ago; try again",
                  path);
    else
        place_explain(path, "move it", error);
    return error == -EAGAIN ? CLI_TIMEOUT : CLI_FAILURE;
}

/* Explains why a move ended with the store still where it was. Returns CLI_FAILURE. */
static int place_explain_end(int dir, const char *path, const char *place)
{
    json_auto_t *info = place_read_info(dir, path);
    const char *text = find_obstacle(info, place);
    const char *at = json_string_value(json_array_get(json_object_get(info, "residency"), 0));

    return cli_error("%s: it stays at %s: %s", path, at ? at : "its device",
                     *text ? text
                           : "another order moved it elsewhere ('events' in the mount tells)");
}

/* The contents of `residency`. */
struct place {
    char at[16]; /* "" if nothing is committed */
    char to[16]; /* target of a running move; "" if none */
};

static int place_open(int dir, const char *path, int flags)
{
    SCOPED_FREE char *file = store_file_path(dir == AT_FDCWD ? path : ".", "residency");
    int fd = openat(dir, file, flags | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int place_read(int fd, struct place *place)
{
    char text[TEXT_BYTES], *second;
    int error = store_read_again(fd, text, sizeof(text));

    memset(place, 0, sizeof(*place));
    if (error)
        return error;
    second = strchr(text, '\n');
    if (!second)
        return 0;
    *second++ = '\0';
    if (sscanf(text, "%15s", place->at) != 1)
        return -EPROTO;
    if (*second && sscanf(second, "moving %15s", place->to) != 1)
        return -EPROTO;
    return 0;
}

/* Reads the place from the descriptor of place_open(). CLI_OK, or CLI_FAILURE after the error. */
static int place_look(const char *path, int fd, struct place *now)
{
    int error = fd < 0 ? fd : place_read(fd, now);

    return error ? place_explain(path, "read where it is", error) : CLI_OK;
}

/* Waits for a change, or until the time is over, and reads the place again. */
static int place_poll(const char *path, int fd, uint64_t left_ms, struct place *now)
{
    struct pollfd change = {.fd = fd, .events = POLLPRI};

    if (poll(&change, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms) < 0 && errno != EINTR)
        return place_explain(path, "wait for its place", -errno);
    return place_look(path, fd, now);
}

/* True if the running move only makes a spare: the store stays where it is. */
static bool place_makes_spare(int dir, const char *path)
{
    json_auto_t *info = place_read_info(dir, path);

    return json_is_true(json_object_get(json_object_get(info, "moving"), "spare"));
}

/* Waits until no move is running, or one to `place`. */
static int place_wait_rest(int dir, const char *path, const char *place, uint64_t *timeout_ms)
{
    uint64_t start_ms = clock_now_ms(), whole_ms = *timeout_ms;
    SCOPED_CLOSE int fd = place_open(dir, path, O_RDONLY);
    struct place now;
    int status = place_look(path, fd, &now);

    while (status == CLI_OK && *now.to &&
           (strcmp(now.to, place) != 0 || place_makes_spare(dir, path))) {
        *timeout_ms = cli_left_ms(start_ms, whole_ms);
        if (*timeout_ms == 0) {
            cli_error("%s: still moving to %s; order it again when that has ended, or give it more "
                      "time (--timeout)",
                      path, now.to);
            return CLI_TIMEOUT;
        }
        status = place_poll(path, fd, *timeout_ms, &now);
    }
    return status;
}

static void place_format(char order[TEXT_BYTES], const char *place, const uint8_t *token)
{
    int used = snprintf(order, TEXT_BYTES, token ? "%s drained " : "%s", place);

    if (token)
        hex_format(token, 16, order + used);
}

/* Writes the order. 0 or a negative errno; with -EBUSY *now is the running move, if that is the
 * cause. */
static int place_write(int dir, const char *path, const char *order, struct place *now)
{
    SCOPED_CLOSE int fd = place_open(dir, path, O_RDWR);
    int error = 0;

    memset(now, 0, sizeof(*now));
    if (fd < 0)
        return fd;
    if (write(fd, order, strlen(order)) < 0)
        error = -errno;
    if (error == -EBUSY && place_read(fd, now) != 0)
        memset(now, 0, sizeof(*now));
    return error;
}

/* Pauses while other waiters are ahead, or room is being made; false after the timeout. */
static bool place_wait_turn(uint64_t *timeout_ms)
{
    uint64_t start_ms = clock_now_ms();

    if (*timeout_ms == 0)
        return false;
    clock_pause_ms(TURN_EVERY_MS);
    *timeout_ms = cli_left_ms(start_ms, *timeout_ms);
    return true;
}

int store_place_order(int dir, const char *path, const char *place, const uint8_t *token,
                      uint64_t *timeout_ms)
{
    char order[TEXT_BYTES];
    unsigned moved = 0; /* times that the obstacle had ended before place_write() read it */
    struct place now;
    int status, error;

    place_format(order, place, token);
    do {
        status = place_wait_rest(dir, path, place, timeout_ms);
        if (status != CLI_OK)
            return status;
        error = place_write(dir, path, order, &now);
        /* Another user's order to the same place will do. */
        if (error == -EBUSY && strcmp(now.to, place) == 0 && !place_makes_spare(dir, path))
            error = 0;
    } while ((error == -EBUSY && (*now.to || moved++ == 0)) ||
             (error == -EAGAIN && place_wait_turn(timeout_ms)));
    return error ? place_explain_order(dir, path, place, error) : CLI_OK;
}

static int place_late(const char *path, const struct place *now)
{
    if (*now->to)
        cli_error("%s: still at %s; the move to %s goes on, unless you write 'cancel' to its file "
                  "'residency'",
                  path, now->at, now->to);
    else if (*now->at)
        cli_error("%s: still at %s", path, now->at);
    else
        cli_error("%s: nothing is committed in it yet", path);
    return CLI_TIMEOUT;
}

int store_place_wait(int dir, const char *path, const char *place, bool ordered,
                     uint64_t timeout_ms)
{
    uint64_t start_ms = clock_now_ms(), left_ms;
    SCOPED_CLOSE int fd = place_open(dir, path, O_RDONLY);
    struct place now;
    int status = place_look(path, fd, &now);

    while (status == CLI_OK && strcmp(now.at, place) != 0) {
        left_ms = cli_left_ms(start_ms, timeout_ms);
        if (ordered && strcmp(now.to, place) != 0)
            return place_explain_end(dir, path, place);
        if (left_ms == 0)
            return place_late(path, &now);
        status = place_poll(path, fd, left_ms, &now);
    }
    return status;
}
