/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_place.h"

#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES    128
#define LOOK_EVERY_MS 10
#define TURN_EVERY_MS 50

/* What `residency` said. */
struct place {
    char at[16]; /* "": nothing is committed */
    char to[16]; /* that it moves to; "": it is at rest */
};

static int place_open(int dir, const char *path, int flags)
{
    char *file = store_file_path(dir == AT_FDCWD ? path : ".", "residency");
    int fd, error;

    if (!file)
        return -ENOMEM;
    fd = openat(dir, file, flags | O_CLOEXEC);
    error = fd < 0 ? -errno : 0;
    free(file);
    return error ? error : fd;
}

/* Reading at 0 makes the text anew, and poll(2) quiet. */
static int place_read(int fd, struct place *place)
{
    char text[TEXT_BYTES], *second;
    ssize_t got;

    memset(place, 0, sizeof(*place));
    do
        got = pread(fd, text, sizeof(text) - 1, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    text[got] = '\0';
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

static int place_explain(const char *path, const char *doing, int error)
{
    /* ESTALE comes as ENOENT where the kernel sends an open again. */
    if (error == -ESTALE || error == -ENOENT)
        cli_error("%s: there is no such store, or it was removed", path);
    else
        store_explain(path, doing, error);
    return CLI_FAILURE;
}

static int place_explain_order(const char *path, const char *place, int error)
{
    switch (error) {
    case -EBUSY:
        cli_error("cannot move: %s: somebody holds its lock, whom its file 'sessions' shows; "
                  "it can move when they have let it go",
                  path);
        break;
    case -ENODATA:
        cli_error("cannot move: %s: there are no bytes of it: nothing is committed, or they were "
                  "given up; 'gmsfs load' brings them",
                  path);
        break;
    case -ENOMEM:
        cli_error("cannot move: %s: %s has no room for it, or the mount has no such place; "
                  "'device' in the mount tells, and gmsfs-mount(8) how to give it more",
                  path, place);
        break;
    case -EPERM:
        cli_error("cannot move: %s: only root and the store's owner can", path);
        break;
    case -EAGAIN:
        cli_error("cannot move: %s: others wait for memory of the device, and come first", path);
        break;
    default:
        return place_explain(path, "move it", error);
    }
    return CLI_FAILURE;
}

/* CLI_OK when something has changed. */
static int place_poll(const char *path, int fd, uint64_t left_ms)
{
    struct pollfd change = {.fd = fd, .events = POLLPRI};
    int ready = poll(&change, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);

    if (ready >= 0 || errno == EINTR)
        return CLI_OK;
    return place_explain(path, "wait for its place", -errno);
}

/* What is under way makes a spare, and the store stays where it is. */
static bool place_makes_spare(int dir, const char *path)
{
    char itself[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    json_t *info;
    bool spare;

    snprintf(itself, sizeof(itself), "/proc/self/fd/%d", dir);
    info = store_info_json(dir == AT_FDCWD ? path : itself);
    spare = json_is_true(json_object_get(json_object_get(info, "moving"), "spare"));
    json_decref(info);
    return spare;
}

/* Until nothing moves, or the store moves to `place`. */
static int place_wait_rest(int dir, const char *path, const char *place, uint64_t *timeout_ms)
{
    uint64_t start_ms = cli_now_ms(), left_ms = *timeout_ms;
    int fd = place_open(dir, path, O_RDONLY), status = CLI_OK, error;
    struct place now;

    if (fd < 0)
        return place_explain(path, "read where it is", fd);
    while (status == CLI_OK) {
        error = place_read(fd, &now);
        if (error)
            status = place_explain(path, "read where it is", error);
        if (error || !*now.to || (strcmp(now.to, place) == 0 && !place_makes_spare(dir, path)))
            break;
        left_ms = cli_left_ms(start_ms, *timeout_ms);
        if (left_ms == 0) {
            cli_error("%s: still moving to %s", path, now.to);
            status = CLI_TIMEOUT;
        } else {
            status = place_poll(path, fd, left_ms);
        }
    }
    close(fd);
    *timeout_ms = left_ms;
    return status;
}

/* 0, or why not. -EBUSY and *now: what is under way instead, if that is why. */
static int place_write(int dir, const char *path, const char *place, struct place *now)
{
    int fd = place_open(dir, path, O_RDWR), error = 0;

    memset(now, 0, sizeof(*now));
    if (fd < 0)
        return fd;
    if (write(fd, place, strlen(place)) < 0)
        error = -errno;
    if (error == -EBUSY && place_read(fd, now) != 0)
        memset(now, 0, sizeof(*now));
    close(fd);
    return error;
}

/* Does the mount give memory back just now? */
static bool place_is_freeing(const char *path)
{
    json_t *device = store_device_json(path);
    bool is = store_json_number(device, "freeing_bytes") > 0;

    json_decref(device);
    return is;
}

/* What has just left the device is given back a moment later: true, try again, also when all of it
 * has been (is_last). */
static bool place_wait_memory(const char *path, bool *is_last, uint64_t *timeout_ms)
{
    const struct timespec pause = {.tv_nsec = LOOK_EVERY_MS * 1000000L};
    uint64_t start_ms = cli_now_ms();

    if (*is_last || *timeout_ms == 0)
        return false;
    *is_last = !place_is_freeing(path);
    if (!*is_last)
        nanosleep(&pause, NULL);
    *timeout_ms = cli_left_ms(start_ms, *timeout_ms);
    return true;
}

/* Others come first, or room is being made. */
static bool place_wait_turn(uint64_t *timeout_ms)
{
    const struct timespec pause = {.tv_nsec = TURN_EVERY_MS * 1000000L};
    uint64_t start_ms = cli_now_ms();

    if (*timeout_ms == 0)
        return false;
    nanosleep(&pause, NULL);
    *timeout_ms = cli_left_ms(start_ms, *timeout_ms);
    return true;
}

int store_place_order(int dir, const char *path, const char *place, uint64_t *timeout_ms)
{
    bool to_device = strcmp(place, "device") == 0, is_last = false;
    struct place now;
    int status, error;

    do {
        status = place_wait_rest(dir, path, place, timeout_ms);
        if (status != CLI_OK)
            return status;
        error = place_write(dir, path, place, &now);
        /* Somebody else's order to the same place is as good. */
        if (error == -EBUSY && strcmp(now.to, place) == 0 && !place_makes_spare(dir, path))
            error = 0;
    } while ((error == -EBUSY && *now.to) || (error == -EAGAIN && place_wait_turn(timeout_ms)) ||
             (error == -ENOMEM && to_device && place_wait_memory(path, &is_last, timeout_ms)));
    return error ? place_explain_order(path, place, error) : CLI_OK;
}

static int place_end(const char *path, const struct place *now)
{
    cli_error("%s: it stays at %s: somebody took it meanwhile, or the move failed ('events' in the "
              "mount says which)",
              path, *now->at ? now->at : "its device");
    return CLI_FAILURE;
}

int store_place_wait(int dir, const char *path, const char *place, bool ordered,
                     uint64_t timeout_ms)
{
    uint64_t start_ms = cli_now_ms(), left_ms;
    int fd = place_open(dir, path, O_RDONLY), status = CLI_OK, error;
    struct place now;

    if (fd < 0)
        return place_explain(path, "read where it is", fd);
    while (status == CLI_OK) {
        error = place_read(fd, &now);
        if (error)
            status = place_explain(path, "read where it is", error);
        if (error || strcmp(now.at, place) == 0)
            break;
        left_ms = cli_left_ms(start_ms, timeout_ms);
        if (ordered && strcmp(now.to, place) != 0) {
            status = place_end(path, &now);
        } else if (left_ms == 0) {
            cli_error("%s: still at %s", path, *now.at ? now.at : "nothing: it is not committed");
            status = CLI_TIMEOUT;
        } else {
            status = place_poll(path, fd, left_ms);
        }
    }
    close(fd);
    return status;
}
