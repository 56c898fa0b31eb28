/* SPDX-License-Identifier: Apache-2.0 */
/* The regions of a mount: registering, unregistering and listing them, by messages on `.fds`.
 *
 * A connection may break before the answer, because a daemon's worker that ends is replaced. A
 * request that changes something is sent again only if a look shows that it was not carried out; no
 * two requests are in flight then, because the worker of the first is gone. */
#include "regions.h"

#include "base/array.h"
#include "base/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

int gfs_region_fail(enum gmsfs_region_reason *reason, enum gmsfs_region_reason why, int error)
{
    if (reason)
        *reason = why;
    return error;
}

/* ---- requests ------------------------------------------------------------------------------ */

static struct gmsfs_fds_region_request regions_request(enum gmsfs_fds_op op, uint32_t uid,
                                                       enum gmsfs_region_kind kind)
{
    return (struct gmsfs_fds_region_request){
        .request = {.version = GMSFS_ABI_VERSION, .op = op}, .kind = (uint32_t)kind, .uid = uid};
}

static int regions_set_name(struct gmsfs_fds_region_request *request, const char *name,
                            enum gmsfs_region_reason *reason)
{
    size_t bytes = name ? strlen(name) : 0;

    if (!name)
        return -EINVAL;
    if (bytes > GMSFS_REGION_NAME_MAX)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_NAME, -ENAMETOOLONG);
    memcpy(request->name, name, bytes);
    request->name_bytes = (uint32_t)bytes;
    return 0;
}

static int regions_set_key(struct gmsfs_fds_region_request *request, const char *key,
                           enum gmsfs_region_reason *reason)
{
    size_t bytes = key ? strlen(key) : 0;

    if (bytes > GMSFS_REGION_KEY_MAX)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -ENAMETOOLONG);
    if (bytes > 0)
        memcpy(request->key, key, bytes);
    request->key_bytes = (uint32_t)bytes;
    return 0;
}

static int regions_set_handle(struct gmsfs_fds_region_request *request,
                              const struct gmsfs_region_request *wish,
                              enum gmsfs_region_reason *reason)
{
    if (wish->kind == GMSFS_REGION_CUDA &&
        (!wish->raw_handle || wish->raw_handle_bytes != GMSFS_REGION_HANDLE_BYTES))
        return gfs_region_fail(reason, GMSFS_REGION_BAD_HANDLE, -EINVAL);
    if (wish->kind != GMSFS_REGION_CUDA && wish->raw_handle_bytes)
        return -EINVAL;
    if (wish->raw_handle_bytes)
        memcpy(request->raw_handle, wish->raw_handle, wish->raw_handle_bytes);
    request->handle_bytes = (uint32_t)wish->raw_handle_bytes;
    return 0;
}

static int regions_set_owner(struct gmsfs_fds_region_request *request,
                             const struct gmsfs_region_request *wish)
{
    if (wish->group_count > GMSFS_REGION_GROUPS_MAX || (wish->group_count && !wish->groups))
        return -EINVAL;
    request->uid = wish->uid;
    request->gid = wish->gid;
    request->group_count = (uint32_t)wish->group_count;
    for (size_t i = 0; i < wish->group_count; i++)
        request->groups[i] = wish->groups[i];
    return 0;
}

/* ---- asking --------------------------------------------------------------------------------- */

struct regions_ask {
    const struct gmsfs_fds_region_request *request;
    int fd; /* goes along; -1: none */
    /* Of a request without an answer: 1: it was carried out, 0: not; -errno. NULL: it may be made
     * twice. */
    int (*was_done)(struct gmsfs_regions *regions, const struct regions_ask *ask);
    /* region with this name before the call; for all: the first to be unregistered. NULL if none */
    const struct gmsfs_region_info *old;
    uint64_t old_count; /* how many; of all they are asked for again */
};

/* Inside. The answer as it is, error and all. */
static int regions_exchange(struct gmsfs_regions *regions,
                            const struct gmsfs_fds_region_request *request, int fd,
                            struct gfs_regions_answer *answer)
{
    const size_t head = offsetof(struct gfs_regions_answer, list);
    size_t size = 0;
    int error = gfs_regions_ask(regions, request, sizeof *request, fd, answer, &size, NULL);

    if (!error && (size < head || answer->header.count > GMSFS_REGION_LIST_MAX ||
                   size != head + answer->header.count * sizeof answer->list[0])) {
        /* A daemon that knows no regions answers with a header alone. */
        error = answer->header.error ? -ENOTTY : -EPROTO;
        gfs_regions_disconnect(regions);
    }
    return error;
}

/* Inside. One that got no answer. */
static int regions_exchange_again(struct gmsfs_regions *regions, const struct regions_ask *ask,
                                  struct gfs_regions_answer *answer)
{
    int done = ask->was_done ? ask->was_done(regions, ask) : 0;
    int error = done < 0 ? done : 0;

    memset(answer, 0, sizeof *answer);
    if (done == 0 || (done > 0 && ask->request->request.op == GMSFS_FDS_REGION_UNREGISTER_ALL))
        error = regions_exchange(regions, ask->request, ask->fd, answer);
    if (!error && done > 0)
        answer->region.count += ask->old_count;
    return error;
}

/* Inside. The answer's error and reason are the call's. */
static int regions_call(struct gmsfs_regions *regions, const struct regions_ask *ask,
                        struct gfs_regions_answer *answer, enum gmsfs_region_reason *reason)
{
    struct gfs_again again;

    gfs_again_begin(&again);
    int error = regions_exchange(regions, ask->request, ask->fd, answer);
    while (error == -ECONNRESET) {
        error = gfs_regions_pause(regions, &again);
        if (!error)
            error = regions_exchange_again(regions, ask, answer);
    }
    if (error)
        return error;
    return gfs_region_fail(reason, (enum gmsfs_region_reason)answer->region.reason,
                           answer->header.error);
}

static struct gmsfs_fds_region_request regions_request_one(uint32_t uid, const char *name)
{
    struct gmsfs_fds_region_request request =
        regions_request(GMSFS_FDS_REGION_LIST, uid, GMSFS_REGION_ANY);

    request.flags = GMSFS_REGION_LIST_ONE;
    regions_set_name(&request, name, NULL);
    return request;
}

/* Inside. Looks for a region of this name, of either kind. 1: found; 0: none; -errno. */
static int regions_look(struct gmsfs_regions *regions, uint32_t uid, const char *name,
                        struct gmsfs_region_info *info)
{
    struct gmsfs_fds_region_request request = regions_request_one(uid, name);
    struct gfs_regions_answer answer;
    int error = regions_exchange(regions, &request, -1, &answer);

    if (!error)
        error = answer.header.error;
    if (!error && answer.header.count == 1)
        *info = answer.list[0];
    if (error == -ENOENT)
        return 0;
    return error ? error : answer.header.count == 1;
}

/* True if the region was registered by this call: it is new, and as described. */
static int regions_was_registered(struct gmsfs_regions *regions, const struct regions_ask *ask)
{
    const struct gmsfs_fds_region_request *request = ask->request;
    struct gmsfs_region_info info;
    int found = regions_look(regions, request->uid, request->name, &info);

    if (found <= 0)
        return found;
    return !(ask->old && ask->old->id == info.id) && info.kind == request->kind &&
           info.offset == request->offset && info.byte_size == request->byte_size &&
           (info.kind != GMSFS_REGION_CUDA || info.device_id == request->device_id) &&
           memcmp(info.raw_handle, request->raw_handle, sizeof info.raw_handle) == 0 &&
           memcmp(info.key, request->key, sizeof info.key) == 0;
}

static int regions_was_unregistered(struct gmsfs_regions *regions, const struct regions_ask *ask)
{
    struct gmsfs_region_info info;
    int found = regions_look(regions, ask->request->uid, ask->old->name, &info);

    if (found < 0)
        return found;
    return found == 0 || info.id != ask->old->id || (info.flags & GMSFS_REGION_DRAINING) != 0;
}

/* ---- objects in /dev/shm ------------------------------------------------------------------- */

/* As the daemon judges it: it is not opened here where it would be refused there. */
static int regions_read_key(const char *key, enum gmsfs_region_reason *reason,
                            char name[GMSFS_REGION_KEY_MAX + 2])
{
    const size_t prefix = sizeof GMSFS_REGION_RESERVED_PREFIX - 1;

    key += strspn(key, "/");
    size_t bytes = strlen(key);
    while (bytes > 0 && key[bytes - 1] == '/')
        bytes--;
    if (bytes == 0)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -EINVAL);
    if (bytes >= prefix && memcmp(key, GMSFS_REGION_RESERVED_PREFIX, prefix) == 0)
        return gfs_region_fail(reason, GMSFS_REGION_RESERVED_KEY, -EINVAL);
    name[0] = '/';
    memcpy(name + 1, key, bytes);
    name[bytes + 1] = '\0';
    return 0;
}

static int regions_open_object(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);

    if (fd < 0 && errno == EACCES)
        fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    return gfs_fd_above(fd);
}

/* fd: the caller's, or one that was opened here, then *opened is set. */
static int regions_find_object(const struct gmsfs_regions *regions,
                               const struct gmsfs_region_request *wish,
                               enum gmsfs_region_reason *reason, int *fd, int *opened)
{
    char name[GMSFS_REGION_KEY_MAX + 2];

    *fd = wish->fd;
    if (wish->kind != GMSFS_REGION_SYSTEM || wish->fd >= 0)
        return 0;
    if (!wish->key)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -EINVAL);
    int error = regions_read_key(wish->key, reason, name);
    if (error || strchr(name + 1, '/')) /* STORE/ALLOCATION */
        return error;
    if (wish->uid != GMSFS_REGION_SELF && wish->uid != regions->uid)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_OBJECT, -EINVAL);
    *fd = regions_open_object(name);
    if (*fd < 0)
        return gfs_region_fail(reason, GMSFS_REGION_NO_OBJECT, -errno);
    *opened = 1;
    return 0;
}

/* ---- public -------------------------------------------------------------------------------- */

static int regions_open(const char *path, struct gmsfs_regions **out)
{
    struct gmsfs_regions *regions = calloc(1, sizeof *regions);
    struct stat stat;

    if (!regions)
        return -ENOMEM;
    *regions =
        (struct gmsfs_regions){.pid = getpid(), .owner_fd = -1, .fds_fd = -1, .uid = geteuid()};
    pthread_mutex_init(&regions->op, NULL);
    regions->path = strdup(path);
    regions->dir_fd = gfs_fd_above(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    int error = regions->dir_fd < 0 ? gfs_file_error(errno) : gfs_check_mount(regions->dir_fd);
    if (!error && fstatat(regions->dir_fd, "regions", &stat, 0) < 0 && errno == ENOENT)
        error = -ENOTTY;
    if (!error && !regions->path)
        error = -ENOMEM;
    if (error) {
        gmsfs_regions_close(regions);
        return error;
    }
    *out = regions;
    return 0;
}

int gmsfs_regions_open(const char *path, gmsfs_regions_t **regions)
{
    int error = -EINVAL;

    gfs_hold_thread();
    if (path && regions)
        error = regions_open(path, regions);
    gfs_let_thread();
    return error;
}

static struct gfs_closed regions_closed;

static void regions_retire(struct gmsfs_regions *regions)
{
    SCOPED_FREE struct gmsfs_regions *oldest = NULL;

    gfs_regions_disconnect(regions);
    gfs_fd_close(&regions->owner_fd);
    gfs_fd_close(&regions->dir_fd);
    free(regions->path);
    regions->path = NULL;
    oldest = gfs_closed_keep(&regions_closed, regions);
    if (!oldest)
        return;
    pthread_mutex_destroy(&oldest->op);
}

/* In a child of fork(2) there is no other thread, so none can release op. */
void gmsfs_regions_close(gmsfs_regions_t *regions)
{
    int error = gfs_regions_enter_last(regions), was_closed;

    if (error && error != -ECHILD)
        return;
    gfs_hold_thread();
    was_closed = atomic_exchange(&regions->closed, 1);
    if (!error)
        gfs_regions_leave(regions);
    if (!was_closed)
        regions_retire(regions);
    gfs_let_thread();
}

/* Inside. */
static int regions_get(struct gmsfs_regions *regions, uint32_t uid, enum gmsfs_region_kind kind,
                       const char *name, struct gmsfs_region_info *info)
{
    struct gmsfs_fds_region_request request = regions_request(GMSFS_FDS_REGION_LIST, uid, kind);
    struct regions_ask ask = {.request = &request, .fd = -1};
    struct gfs_regions_answer answer;

    request.flags = GMSFS_REGION_LIST_ONE;
    regions_set_name(&request, name, NULL);
    int error = regions_call(regions, &ask, &answer, NULL);
    if (!error && answer.header.count != 1)
        error = -EPROTO;
    if (!error)
        *info = answer.list[0];
    return error;
}

/* Inside. Looks for an older region of the name first, to tell it from the new one. */
static int regions_register(struct gmsfs_regions *regions,
                            const struct gmsfs_fds_region_request *request, int fd,
                            enum gmsfs_region_reason *reason)
{
    struct regions_ask ask = {.request = request, .fd = fd, .was_done = regions_was_registered};
    struct gfs_regions_answer answer;
    struct gmsfs_region_info old;
    int error = regions_get(regions, request->uid, GMSFS_REGION_ANY, request->name, &old);

    if (error == -ECANCELED || error == -ETIMEDOUT)
        return error;
    if (!error) /* REGISTER explains other failures better */
        ask.old = &old;
    return regions_call(regions, &ask, &answer, reason);
}

static int regions_register_wish(struct gmsfs_regions *regions,
                                 const struct gmsfs_region_request *wish,
                                 enum gmsfs_region_reason *reason)
{
    struct gmsfs_fds_region_request request;
    int fd = -1, opened = 0, error;

    request = regions_request(GMSFS_FDS_REGION_REGISTER, wish->uid, wish->kind);
    request.offset = wish->offset;
    request.byte_size = wish->byte_size;
    request.device_id = wish->device_id;
    error = regions_set_owner(&request, wish);
    if (!error)
        error = regions_set_name(&request, wish->name, reason);
    if (!error)
        error = regions_set_key(&request, wish->key, reason);
    if (!error)
        error = regions_set_handle(&request, wish, reason);
    if (!error)
        error = regions_find_object(regions, wish, reason, &fd, &opened);
    if (!error)
        error = gfs_regions_enter(regions);
    if (!error) {
        error = regions_register(regions, &request, fd, reason);
        gfs_regions_leave(regions);
    }
    if (opened)
        close(fd);
    return error;
}

int gmsfs_region_register(gmsfs_regions_t *regions, const struct gmsfs_region_request *wish,
                          enum gmsfs_region_reason *reason)
{
    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    if (!regions || !wish || (wish->kind != GMSFS_REGION_SYSTEM && wish->kind != GMSFS_REGION_CUDA))
        return -EINVAL;
    gfs_hold_thread();
    int error = regions_register_wish(regions, wish, reason);
    gfs_let_thread();
    return error;
}

/* Looks for the region first: afterwards its absence could not tell whether it ever existed. */
int gmsfs_region_unregister(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                            const char *name)
{
    struct gmsfs_fds_region_request request =
        regions_request(GMSFS_FDS_REGION_UNREGISTER, uid, kind);
    struct regions_ask ask = {.request = &request, .fd = -1, .was_done = regions_was_unregistered};
    struct gfs_regions_answer answer;
    struct gmsfs_region_info old;
    int error = regions_set_name(&request, name, NULL);

    if (error == -ENAMETOOLONG) /* no region can have such a name */
        return -ENOENT;
    if (!error)
        error = gfs_regions_enter(regions);
    if (error)
        return error;
    error = regions_get(regions, uid, kind, name, &old);
    ask.old = &old;
    if (!error)
        error = regions_call(regions, &ask, &answer, NULL);
    gfs_regions_leave(regions);
    return error;
}

/* Inside. */
static int regions_read_list(struct gmsfs_regions *regions, uint32_t uid,
                             enum gmsfs_region_kind kind, struct gmsfs_region_info **list,
                             size_t *count)
{
    struct gmsfs_fds_region_request request = regions_request(GMSFS_FDS_REGION_LIST, uid, kind);
    struct gmsfs_region_info *all = NULL;
    struct gfs_regions_answer answer;
    size_t used = 0, room = 0;
    int error;

    do {
        error = regions_call(regions, &(struct regions_ask){.request = &request, .fd = -1}, &answer,
                             NULL);
        if (!error)
            error = ARRAY_RESERVE(all, room, used + answer.header.count);
        if (error || answer.header.count == 0)
            break;
        memcpy(all + used, answer.list, answer.header.count * sizeof *all);
        used += answer.header.count;
        all[used - 1].name[GMSFS_REGION_NAME_MAX] = '\0';
        memset(request.name, 0, sizeof request.name);
        regions_set_name(&request, all[used - 1].name, NULL);
    } while (answer.header.remaining > 0);
    if (error) {
        free(all);
        return error;
    }
    *list = all;
    *count = used;
    return 0;
}

/* Inside. Counts the regions that UNREGISTER_ALL would remove, and finds the first. */
static int regions_count_old(struct gmsfs_regions *regions, uint32_t uid,
                             enum gmsfs_region_kind kind, struct regions_ask *ask,
                             struct gmsfs_region_info *first)
{
    struct gmsfs_region_info *list;
    size_t count;
    int error = regions_read_list(regions, uid, kind, &list, &count);

    if (error)
        return error;
    for (size_t i = 0; i < count; i++) {
        if (list[i].flags & GMSFS_REGION_DRAINING)
            continue;
        if (ask->old_count++ == 0)
            *first = list[i];
    }
    gmsfs_region_list_free(list);
    if (ask->old_count > 0) {
        ask->was_done = regions_was_unregistered;
        ask->old = first;
    }
    return 0;
}

int gmsfs_region_unregister_all(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                                uint64_t *count)
{
    struct gmsfs_fds_region_request request =
        regions_request(GMSFS_FDS_REGION_UNREGISTER_ALL, uid, kind);
    struct regions_ask ask = {.request = &request, .fd = -1};
    struct gfs_regions_answer answer;
    struct gmsfs_region_info first;
    int error = gfs_regions_enter(regions);

    if (error)
        return error;
    if (count)
        error = regions_count_old(regions, uid, kind, &ask, &first);
    if (!error)
        error = regions_call(regions, &ask, &answer, NULL);
    gfs_regions_leave(regions);
    if (!error && count)
        *count = answer.region.count;
    return error;
}

int(gmsfs_region_get)(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                      const char *name, struct gmsfs_region_info *info, size_t info_bytes)
{
    struct gmsfs_region_info found;

    if (!info || gfs_check_struct(info_bytes) || !name)
        return -EINVAL;
    if (strlen(name) > GMSFS_REGION_NAME_MAX) /* no region can have such a name */
        return -ENOENT;
    int error = gfs_regions_enter(regions);
    if (error)
        return error;
    error = regions_get(regions, uid, kind, name, &found);
    gfs_regions_leave(regions);
    if (!error)
        gfs_give_struct(info, info_bytes, &found, sizeof found);
    return error;
}

int(gmsfs_region_list)(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                       struct gmsfs_region_info **out, size_t *count, size_t item_bytes)
{
    struct gmsfs_region_info *list = NULL;
    size_t found = 0;
    int error = out && count ? gfs_regions_enter(regions) : -EINVAL;

    if (error)
        return error;
    error = regions_read_list(regions, uid, kind, &list, &found);
    gfs_regions_leave(regions);
    if (error)
        return error;
    void *given = list;
    error = gfs_give_list(&given, found, item_bytes, sizeof *list);
    if (error) {
        free(given);
        return error;
    }
    *out = given;
    *count = found;
    return 0;
}

void gmsfs_region_list_free(struct gmsfs_region_info *list)
{
    free(list);
}
