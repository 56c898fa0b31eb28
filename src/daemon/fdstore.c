/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/fdstore.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/scope.h"
#include "daemon/loop.h"
#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_NAME      "gmsfs-index"
#define FIRST_FD        3 /* SD_LISTEN_FDS_START */
#define SETTLE_MS       1000
#define DEAF_MS         10000u
#define CLEAR_MS        2000u
#define PATIENCE_MS     500u /* with a manager that was not busy before */
#define BATCH           256u /* pending messages at a time */
#define NEXT_MS         5u   /* until the next batch */
#define RETRY_MS        100u /* after the manager took nothing */
#define PENDING_NONE    (-1)
#define PENDING_REMOVAL (-2)
#define MESSAGE_BYTES   64u
#define OWN_PLACES      32u

struct place {
    uint32_t kind; /* enum fdstore_kind; written last */
    uint64_t serial, id, bytes;
};

struct fdstore_index {
    uint32_t version;
    uint64_t serial; /* the last one given */
    struct place places[FDSTORE_PLACES + 1];
};

/* ---- the manager --------------------------------------------------------------------------- */

static void give_up(struct fdstore *store, const char *cause)
{
    if (!store->is_incomplete)
        log_warning(
            "the service manager's descriptor store is incomplete: %s; descriptors outside it are "
            "lost if this process, the keeper, is killed (FileDescriptorStoreMax=)",
            cause);
    store->is_incomplete = true;
}

/* Returns true for errors that may pass in a moment. */
static bool is_busy(int error)
{
    return error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM || error == -ETOOMANYREFS;
}

static bool is_any_pending(const struct fdstore *store)
{
    return store->pending_adds + store->pending_removals > 0;
}

/* Waits for a slow manager, because a message that it takes is as good as stored; in all at most
 * half a second in each turn of the keeper. Does not wait if messages are pending: then the wait
 * has already failed. */
static int send_patiently(struct fdstore *store, const char *text, int fd)
{
    struct pollfd manager = {.fd = store->notify_fd, .events = POLLOUT};
    int error = notify_send_to(store->notify_fd, text, fd);

    while (is_busy(error) && !is_any_pending(store) && store->patience_ms > 0) {
        uint64_t from_ms = loop_now_ms(), took_ms;
        if (error == -EAGAIN)
            poll(&manager, 1, (int)store->patience_ms);
        else
            poll(NULL, 0, 1);
        took_ms = loop_now_ms() - from_ms;
        store->patience_ms -= took_ms < store->patience_ms ? took_ms : store->patience_ms;
        error = notify_send_to(store->notify_fd, text, fd);
    }
    return error;
}

static void format_name(uint32_t place, char name[MESSAGE_BYTES])
{
    if (place == 0)
        snprintf(name, MESSAGE_BYTES, INDEX_NAME);
    else
        snprintf(name, MESSAGE_BYTES, "%u", place);
}

static int store_message(struct fdstore *store, uint32_t place, int fd)
{
    char name[MESSAGE_BYTES], text[MESSAGE_BYTES * 2];

    format_name(place, name);
    snprintf(text, sizeof text, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
    return send_patiently(store, text, fd);
}

static int removal_message(struct fdstore *store, const char *name)
{
    char text[MESSAGE_BYTES + 256];

    snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return send_patiently(store, text, -1);
}

/* ---- pending messages ----------------------------------------------------------------------- */

static bool make_pending(struct fdstore *store)
{
    store->pending = malloc((FDSTORE_PLACES + 1) * sizeof *store->pending);
    for (uint32_t i = 0; store->pending && i <= FDSTORE_PLACES; i++)
        store->pending[i] = PENDING_NONE;
    return store->pending != NULL;
}

static void set_pending(struct fdstore *store, uint32_t place, int message)
{
    if (!is_any_pending(store))
        log_warning("the service manager is busy; descriptors that it has not stored yet are lost "
                    "if this process, the keeper, is killed; gmsfs tries again");
    store->pending[place] = message;
    store->pending_adds += message >= 0;
    store->pending_removals += message == PENDING_REMOVAL;
}

static void end_pending(struct fdstore *store, uint32_t place)
{
    int message = store->pending[place];

    store->pending_adds -= message >= 0;
    store->pending_removals -= message == PENDING_REMOVAL;
    store->pending[place] = PENDING_NONE;
    file_close_fd(&message);
    if (!is_any_pending(store))
        log_info("the service manager's descriptor store is complete again");
}

/* Returns false if the manager is still busy. A place whose message the manager rejects stays
 * taken, because its owner knows the number. */
static bool deliver(struct fdstore *store, uint32_t place)
{
    char name[MESSAGE_BYTES];
    int message = store->pending[place], error;

    format_name(place, name);
    error = message == PENDING_REMOVAL ? removal_message(store, name)
                                       : store_message(store, place, message);
    if (is_busy(error))
        return false;
    end_pending(store, place);
    if (error)
        give_up(store, strerror(-error));
    return true;
}

/* Sends pending messages. Removals come after all additions, because an addition may replace a
 * removed descriptor. */
static bool deliver_some(struct fdstore *store)
{
    uint32_t sent = 0, seen = 0;

    for (; is_any_pending(store) && sent < BATCH && seen <= FDSTORE_PLACES; seen++) {
        int message = store->pending[store->pending_at];
        if (message >= 0 || (message == PENDING_REMOVAL && store->pending_adds == 0)) {
            if (!deliver(store, store->pending_at))
                break;
            sent++;
        }
        store->pending_at = (store->pending_at + 1) % (FDSTORE_PLACES + 1);
    }
    return sent > 0;
}

void fdstore_resend(struct fdstore *store, uint64_t now_ms)
{
    store->patience_ms = PATIENCE_MS;
    if (!is_any_pending(store) || now_ms < store->retry_ms)
        return;
    store->retry_ms = now_ms + (deliver_some(store) ? NEXT_MS : RETRY_MS);
}

uint64_t fdstore_next_ms(const struct fdstore *store)
{
    return is_any_pending(store) ? store->retry_ms : UINT64_MAX;
}

static void remove_place(struct fdstore *store, uint32_t place)
{
    char name[MESSAGE_BYTES];
    int error = -EAGAIN;

    if (store->pending[place] >= 0) {
        end_pending(store, place);
        return;
    }
    format_name(place, name);
    if (!is_any_pending(store))
        error = removal_message(store, name);
    if (is_busy(error))
        set_pending(store, place, PENDING_REMOVAL);
    else if (error)
        log_error("cannot remove descriptor %s from the service manager's store: %s", name,
                  strerror(-error));
    store->removes = true;
}

void fdstore_settle(struct fdstore *store)
{
    int ends[2];

    if (store->notify_fd < 0 || !store->removes)
        return;
    store->removes = false;
    if (is_any_pending(store) || loop_now_ms() < store->deaf_ms || pipe2(ends, O_CLOEXEC) != 0)
        return;
    int error = send_patiently(store, "BARRIER=1", ends[1]);
    close(ends[1]);
    struct pollfd closed = {.fd = ends[0]};
    if (!error && poll(&closed, 1, SETTLE_MS) == 0) {
        store->deaf_ms = loop_now_ms() + DEAF_MS;
        log_warning(
            "the service manager does not answer; its descriptor store may hold freed memory for "
            "a while");
    }
    close(ends[0]);
}

/* ---- the index ----------------------------------------------------------------------------- */

void fdstore_init(struct fdstore *store)
{
    *store = (struct fdstore){.notify_fd = -1, .index_fd = -1, .patience_ms = PATIENCE_MS};
}

void fdstore_close(struct fdstore *store)
{
    for (uint32_t i = 0; store->pending && i <= FDSTORE_PLACES; i++)
        if (store->pending[i] >= 0)
            close(store->pending[i]);
    free(store->pending);
    file_close_fd(&store->notify_fd);
    file_close_fd(&store->index_fd);
    if (store->index)
        munmap(store->index, sizeof *store->index);
    fdstore_init(store);
}

static int map_index(struct fdstore *store)
{
    void *index =
        mmap(NULL, sizeof *store->index, PROT_READ | PROT_WRITE, MAP_SHARED, store->index_fd, 0);

    if (index == MAP_FAILED)
        return -errno;
    store->index = index;
    return 0;
}

/* The index needs a place in the store too. */
static uint32_t count_room(void)
{
    const char *text = getenv("FDSTORE"); /* since systemd 254 */
    unsigned long most = text ? strtoul(text, NULL, 10) : FDSTORE_PLACES + 1;

    return most > FDSTORE_PLACES ? FDSTORE_PLACES : most > 0 ? (uint32_t)most - 1 : 0;
}

/* Sends it now, or makes it pending. */
static int add_message(struct fdstore *store, uint32_t place, int fd)
{
    int error = is_any_pending(store) ? -EAGAIN : store_message(store, place, fd);

    if (!is_busy(error))
        return error;
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    if (kept < 0)
        return -errno;
    set_pending(store, place, kept);
    return 0;
}

void fdstore_open(struct fdstore *store)
{
    int error = 0;

    fdstore_init(store);
    store->room = count_room();
    if (store->room == 0)
        return;
    store->notify_fd = notify_connect();
    if (store->notify_fd < 0)
        return;
    store->index_fd = memfd_create(INDEX_NAME, MFD_CLOEXEC);
    if (!make_pending(store))
        error = -ENOMEM;
    else if (store->index_fd < 0 || ftruncate(store->index_fd, sizeof *store->index) != 0)
        error = -errno;
    if (!error)
        error = map_index(store);
    if (!error) {
        store->index->version = FDSTORE_VERSION;
        error = add_message(store, 0, store->index_fd);
    }
    if (!error)
        return;
    give_up(store, strerror(-error));
    fdstore_close(store);
}

/* Keeps the first places for the mount itself, without which stored memory is useless. */
static uint32_t find_free(struct fdstore *store, enum fdstore_kind kind)
{
    uint32_t first = kind == FDSTORE_KEPT ? OWN_PLACES + 1 : 1;
    uint32_t last = kind == FDSTORE_KEPT || store->room < OWN_PLACES ? store->room : OWN_PLACES;

    for (uint32_t tries = first; tries <= last; tries++) {
        store->next = store->next >= first && store->next < last ? store->next + 1 : first;
        if (store->index->places[store->next].kind == FDSTORE_FREE &&
            store->pending[store->next] == PENDING_NONE)
            return store->next;
    }
    return 0;
}

uint32_t fdstore_add(struct fdstore *store, enum fdstore_kind kind, int fd, uint64_t id,
                     uint64_t bytes)
{
    if (store->notify_fd < 0)
        return 0;
    uint32_t number = find_free(store, kind);
    if (number == 0) {
        give_up(store, "it is full");
        return 0;
    }
    struct place *place = &store->index->places[number];
    place->serial = ++store->index->serial;
    place->id = id;
    place->bytes = bytes;
    *(volatile uint32_t *)&place->kind = kind;
    int error = add_message(store, number, fd);
    if (!error)
        return number;
    place->kind = FDSTORE_FREE;
    give_up(store, strerror(-error));
    return 0;
}

void fdstore_remove(struct fdstore *store, uint32_t place)
{
    if (store->notify_fd < 0 || place == 0)
        return;
    remove_place(store, place);
    store->index->places[place].kind = FDSTORE_FREE;
}

static void deliver_all(struct fdstore *store)
{
    uint64_t now_ms = loop_now_ms(), until_ms = now_ms + CLEAR_MS;

    while (deliver_some(store) || is_any_pending(store)) {
        struct pollfd manager = {.fd = store->notify_fd, .events = POLLOUT};
        if (is_any_pending(store) && poll(&manager, 1, RETRY_MS) < 0 && errno != EINTR)
            return;
        if (is_any_pending(store) && loop_now_ms() >= until_ms) {
            log_error("the service manager does not remove all descriptors from its store");
            return;
        }
    }
}

void fdstore_clear(struct fdstore *store)
{
    if (store->notify_fd < 0)
        return;
    for (uint32_t i = 1; i <= FDSTORE_PLACES; i++)
        if (store->index->places[i].kind != FDSTORE_FREE)
            fdstore_remove(store, i);
    remove_place(store, 0);
    deliver_all(store);
    fdstore_settle(store);
    fdstore_close(store);
}

/* ---- a restarted keeper --------------------------------------------------------------------- */

/* Copies the name at *at, and moves *at past it. Returns false if there is none. */
static bool next_name(const char **at, char *name, size_t room)
{
    size_t bytes = strcspn(*at, ":");

    if (bytes == 0 || bytes >= room)
        return false;
    memcpy(name, *at, bytes);
    name[bytes] = '\0';
    *at += bytes + ((*at)[bytes] == ':');
    return true;
}

bool fdstore_is_offered(void)
{
    const char *pid = getenv("LISTEN_PID"), *names = getenv("LISTEN_FDNAMES");
    char name[256];

    if (!pid || !names || strtol(pid, NULL, 10) != getpid())
        return false;
    while (next_name(&names, name, sizeof name))
        if (strcmp(name, INDEX_NAME) == 0)
            return true;
    return false;
}

static int open_index(struct fdstore *store, int fd)
{
    struct stat stat;

    store->index_fd = fd;
    if (fstat(fd, &stat) != 0 || stat.st_size != (off_t)sizeof *store->index)
        return -EPROTO;
    int error = map_index(store);
    return !error && store->index->version != FDSTORE_VERSION ? -EPROTO : error;
}

struct arrivals {
    int count;
    const char *names;
};

/* Finds the index, which describes the others. */
static int find_index(struct fdstore *store, const struct arrivals *arrivals)
{
    const char *at = arrivals->names;
    char name[256];

    for (int i = 0; i < arrivals->count && next_name(&at, name, sizeof name); i++)
        if (strcmp(name, INDEX_NAME) == 0)
            return open_index(store, FIRST_FD + i);
    return -ENOENT;
}

/* A descriptor whose place is free was about to be removed. */
static bool take_one(struct fdstore *store, const char *name, int fd, struct fdstore_item *item)
{
    unsigned long number = strtoul(name, NULL, 10);
    bool is_place = store->index && number > 0 && number <= FDSTORE_PLACES;

    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (fd == store->index_fd)
        return false;
    if (is_place && store->index->places[number].kind != FDSTORE_FREE) {
        const struct place *place = &store->index->places[number];
        *item = (struct fdstore_item){.place = (uint32_t)number,
                                      .kind = place->kind,
                                      .fd = fd,
                                      .serial = place->serial,
                                      .id = place->id,
                                      .bytes = place->bytes};
        return true;
    }
    if (is_place)
        remove_place(store, (uint32_t)number);
    else
        removal_message(store, name);
    close(fd);
    return false;
}

static size_t take_each(struct fdstore *store, const struct arrivals *arrivals,
                        struct fdstore_item *items)
{
    const char *at = arrivals->names;
    char name[256];
    size_t taken = 0;

    for (int i = 0; i < arrivals->count && next_name(&at, name, sizeof name); i++)
        taken += take_one(store, name, FIRST_FD + i, &items[taken]);
    return taken;
}

/* Frees the places without a descriptor: the last keeper ended before it sent them. */
static void free_others(struct fdstore *store, const struct fdstore_item *items, size_t count)
{
    SCOPED_FREE uint8_t *has_come = calloc(FDSTORE_PLACES + 1, 1);

    if (!has_come)
        return; /* they stay taken, which wastes them */
    for (size_t i = 0; i < count; i++)
        has_come[items[i].place] = 1;
    for (uint32_t i = 1; i <= FDSTORE_PLACES; i++)
        if (!has_come[i])
            store->index->places[i].kind = FDSTORE_FREE;
}

int fdstore_take(struct fdstore *store, struct fdstore_item **items, size_t *count)
{
    const char *number = getenv("LISTEN_FDS"), *names = getenv("LISTEN_FDNAMES");
    struct arrivals arrivals = {.count = number ? (int)strtol(number, NULL, 10) : 0,
                                .names = names ? names : ""};

    fdstore_init(store);
    store->room = count_room();
    store->notify_fd = notify_connect();
    if (arrivals.count <= 0 || store->notify_fd < 0)
        return store->notify_fd < 0 ? store->notify_fd : -ENOENT;
    *items = calloc((size_t)arrivals.count, sizeof **items);
    int error = *items && make_pending(store) ? 0 : -ENOMEM;
    if (error)
        goto out;
    error = find_index(store, &arrivals);
    if (error && store->index) {
        munmap(store->index, sizeof *store->index);
        store->index = NULL;
    }
    *count = take_each(store, &arrivals, *items);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (error)
        removal_message(store, INDEX_NAME);
    else
        free_others(store, *items, *count);
out:
    if (error) {
        free(*items);
        *items = NULL;
        fdstore_close(store);
    }
    return error;
}
