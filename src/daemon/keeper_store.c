/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the mount in the service manager's descriptor store (fdstore.h), for a keeper that it
 * starts again: the same parts as a takeover hands over, kept up to date while the mount serves. */
#include "daemon/keeper_internal.h"

#include "base/file_io.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Head of the stored text: the places of the descriptors that it names. */
struct stored_head {
    uint32_t count;
    uint32_t places[KEEPER_PARTS];
};

/* ---- storing ------------------------------------------------------------------------------- */

/* Stores a part and returns its place. A part that was stored already is not stored again, because
 * the manager would take both for one. */
static struct keeper_part store_part(struct keeper *keeper, int fd)
{
    struct stat stat = {0};

    if (fstat(fd, &stat) != 0)
        return (struct keeper_part){.fd = -1};
    for (size_t i = 0; i < KEEPER_PARTS; i++) {
        struct keeper_part *part = &keeper->parts[i];
        if (part->place && part->fd == fd && part->device == stat.st_dev &&
            part->inode == stat.st_ino)
            return *part;
    }
    return (struct keeper_part){.fd = fd,
                                .device = stat.st_dev,
                                .inode = stat.st_ino,
                                .place = fdstore_add(&keeper->store, FDSTORE_PART, fd, 0, 0)};
}

static int store_text(struct keeper *keeper, const struct handover_text *text,
                      struct keeper_part parts[KEEPER_PARTS])
{
    struct stored_head head = {.count = (uint32_t)text->count};

    if (text->count > KEEPER_PARTS)
        return -E2BIG;
    for (size_t i = 0; i < text->count; i++) {
        parts[i] = store_part(keeper, text->fds[i]);
        head.places[i] = parts[i].place;
    }
    SCOPED_CLOSE int fd = keeper_write_text(&head, sizeof head, text);
    if (fd < 0)
        return fd;
    uint32_t former = keeper->text_place;
    keeper->text_place = fdstore_add(&keeper->store, FDSTORE_TEXT, fd, 0, 0);
    fdstore_remove(&keeper->store, former);
    return 0;
}

static void remove_others(struct keeper *keeper, const struct keeper_part parts[KEEPER_PARTS])
{
    for (size_t i = 0; i < KEEPER_PARTS; i++) {
        bool stays = false;
        for (size_t j = 0; j < KEEPER_PARTS; j++)
            stays |= parts[j].place == keeper->parts[i].place;
        if (!stays)
            fdstore_remove(&keeper->store, keeper->parts[i].place);
    }
}

void keeper_store_update(struct keeper *keeper)
{
    struct keeper_part parts[KEEPER_PARTS] = {0};
    struct handover handover;
    struct handover_text text = {0};

    if (keeper->store.notify_fd < 0 || !keeper->is_serving)
        return;
    int error = keeper_describe(keeper, -1, -1, &handover);
    handover.holdings = (struct holdings){0}; /* their places describe them */
    if (!error)
        error = handover_encode(&handover, &text);
    if (!error)
        error = store_text(keeper, &text, parts);
    handover_text_free(&text);
    if (error) {
        log_error("%s: cannot store the mount's parts in the service manager: %s",
                  keeper_path(keeper), strerror(-error));
        return;
    }
    remove_others(keeper, parts);
    memcpy(keeper->parts, parts, sizeof parts);
}

void keeper_store_begin(struct keeper *keeper)
{
    if (keeper->store.notify_fd < 0) {
        fdstore_open(&keeper->store);
        if (keeper->store.notify_fd < 0)
            return;
        holdings_store(&keeper->holdings, &keeper->store);
    }
    keeper_store_update(keeper);
}

/* ---- a restarted keeper --------------------------------------------------------------------- */

struct stored {
    struct fdstore_item *items;
    size_t count;
};

static int compare_serials(const void *a, const void *b)
{
    const struct fdstore_item *left = a, *right = b;

    return left->serial < right->serial ? -1 : left->serial > right->serial;
}

static struct fdstore_item *find_item(const struct stored *stored, uint32_t place)
{
    for (size_t i = 0; i < stored->count; i++)
        if (stored->items[i].place == place && stored->items[i].fd >= 0)
            return &stored->items[i];
    return NULL;
}

/* Finds the parts' descriptors, in the order of the text. */
static int find_parts(struct keeper *keeper, const struct stored *stored,
                      const struct stored_head *head, int fds[KEEPER_PARTS])
{
    for (uint32_t i = 0; i < head->count; i++) {
        struct fdstore_item *item = find_item(stored, head->places[i]);
        struct stat stat;
        if (!item || item->kind != FDSTORE_PART || fstat(item->fd, &stat) != 0)
            return -ENOENT;
        fds[i] = item->fd;
        keeper->parts[i] = (struct keeper_part){
            .fd = item->fd, .device = stat.st_dev, .inode = stat.st_ino, .place = item->place};
    }
    return 0;
}

static int read_text(struct keeper *keeper, const struct stored *stored,
                     struct fdstore_item *text_item, struct handover *handover,
                     struct failure *failure)
{
    struct stored_head head;
    struct stat stat;
    int fds[KEEPER_PARTS];

    if (fstat(text_item->fd, &stat) != 0 || stat.st_size <= (off_t)sizeof head ||
        pread(text_item->fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.count > KEEPER_PARTS)
        return failure_set(failure, -EPROTO, "the stored text is damaged");
    size_t size = (size_t)stat.st_size - sizeof head;
    char *text = malloc(size);
    int error = !text ? -ENOMEM : find_parts(keeper, stored, &head, fds);
    if (!error && pread(text_item->fd, text, size, sizeof head) != (ssize_t)size)
        error = -EPROTO;
    if (error)
        failure_set(failure, error, "a stored part is missing: %s", strerror(-error));
    else {
        error = handover_decode(text, size, fds, head.count, handover, failure);
        for (uint32_t i = 0; i < head.count; i++) /* they belong to the handover, or were closed */
            find_item(stored, head.places[i])->fd = -1;
    }
    free(text);
    keeper->text_place = text_item->place;
    return error;
}

/* Returns the text that was stored last: an earlier one was about to be removed. */
static struct fdstore_item *find_text(const struct stored *stored)
{
    struct fdstore_item *found = NULL;

    for (size_t i = 0; i < stored->count; i++)
        if (stored->items[i].kind == FDSTORE_TEXT)
            found = &stored->items[i];
    return found;
}

/* Takes them in the order in which they were stored: a later one replaces an earlier one with the
 * same number. */
static int take_kept(struct keeper *keeper, struct stored *stored)
{
    keeper->holdings.store = &keeper->store;
    for (size_t i = 0; i < stored->count; i++) {
        struct fdstore_item *item = &stored->items[i];
        if (item->kind != FDSTORE_KEPT)
            continue;
        int error = holdings_add_stored(&keeper->holdings, item);
        item->fd = -1;
        if (error)
            return error;
    }
    return 0;
}

/* Closes the descriptors that belong to nothing any more; the text too, which has been read and
 * stays stored. */
static void close_rest(struct keeper *keeper, struct stored *stored)
{
    for (size_t i = 0; i < stored->count; i++) {
        struct fdstore_item *item = &stored->items[i];
        if (item->fd < 0)
            continue;
        if (item->place != keeper->text_place)
            fdstore_remove(&keeper->store, item->place);
        close(item->fd);
    }
    free(stored->items);
}

static int take(struct keeper *keeper, struct stored *stored, struct failure *failure)
{
    static struct handover handover;
    struct fdstore_item *text = find_text(stored);
    int error = text ? read_text(keeper, stored, text, &handover, failure)
                     : failure_set(failure, -ENOENT, "the mount had not begun to serve");

    if (!error)
        error = keeper_adopt(keeper, &handover, failure);
    if (error)
        return error;
    keeper->mount = handover.mount;
    keeper->is_detached = handover.is_detached || !mountinfo_has(&keeper->mount);
    error = take_kept(keeper, stored);
    return error ? failure_set(failure, error, "%s", strerror(-error)) : 0;
}

/* The mount cannot continue: the manager closes its copies, and the kernel answers waiting
 * requests. */
static void abandon_stored(struct keeper *keeper)
{
    fdstore_clear(&keeper->store);
    file_close_fd(&keeper->fuse_fd);
}

int keeper_resume_stored(struct keeper *keeper)
{
    struct stored stored = {0};
    struct failure failure;
    int error = fdstore_take(&keeper->store, &stored.items, &stored.count);

    if (error) {
        log_error(
            "%s: cannot continue after the keeper's end: the service manager's descriptor store: "
            "%s; all is lost, mount again",
            keeper_path(keeper), strerror(-error));
        return -ECANCELED;
    }
    qsort(stored.items, stored.count, sizeof *stored.items, compare_serials);
    error = take(keeper, &stored, &failure);
    close_rest(keeper, &stored);
    if (error) {
        log_error("%s: cannot continue after the keeper's end: %s; all is lost, mount again",
                  keeper_path(keeper), failure.text);
        abandon_stored(keeper);
        return -ECANCELED;
    }
    log_warning(
        "%s: the keeper has ended; this one continues with the parts that the service manager "
        "has kept",
        keeper_path(keeper));
    keeper_fence(keeper);
    keeper_note_recovery(keeper->ledger, "the keeper ended");
    keeper->is_mounted = true;
    keeper->is_serving = true;
    keeper->is_taken_over = true;
    return 0;
}
