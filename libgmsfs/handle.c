/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a handle, and what fork() does to it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "graph.h"
#include "internal.h"

#define HANDLE_FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC, linux/magic.h since 5.19 */

static pthread_rwlock_t handle_gate = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t handle_registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gmsfs *handle_registry;
static pthread_once_t handle_fork_once = PTHREAD_ONCE_INIT;
static int handle_fork_error;

/* ---- fork --------------------------------------------------------------------------------- */

static void handle_fork_prepare(void)
{
    pthread_rwlock_wrlock(&handle_gate);
    gfs_graph_fork_prepare();
    pthread_mutex_lock(&handle_registry_lock);
    for (struct gmsfs *handle = handle_registry; handle; handle = handle->next)
        pthread_mutex_lock(&handle->state);
}

static void handle_fork_parent(void)
{
    for (struct gmsfs *handle = handle_registry; handle; handle = handle->next)
        pthread_mutex_unlock(&handle->state);
    pthread_mutex_unlock(&handle_registry_lock);
    gfs_graph_fork_parent();
    pthread_rwlock_unlock(&handle_gate);
}

static void handle_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Threads that held a handle's mutexes do not exist here, so these start anew. */
static void handle_fork_child(void)
{
    for (struct gmsfs *handle = handle_registry; handle; handle = handle->next) {
        handle_close_fd(&handle->fds_fd);
        handle_close_fd(&handle->ctl_fd);
        handle_close_fd(&handle->dir_fd);
        gfs_memory_after_fork(&handle->memory, &handle->range, &handle->map, handle->waking);
        atomic_store(&handle->dead, 1);
        pthread_mutex_init(&handle->op, NULL);
        pthread_mutex_init(&handle->state, NULL);
    }
    gfs_graph_fork_child();
    handle_registry = NULL;
    pthread_mutex_init(&handle_registry_lock, NULL);
    pthread_rwlock_init(&handle_gate, NULL);
}

static void handle_fork_register(void)
{
    handle_fork_error = pthread_atfork(handle_fork_prepare, handle_fork_parent, handle_fork_child);
}

void gfs_gate_enter(void)
{
    pthread_rwlock_rdlock(&handle_gate);
}

void gfs_gate_leave(void)
{
    pthread_rwlock_unlock(&handle_gate);
}

static void handle_register(struct gmsfs *handle)
{
    pthread_mutex_lock(&handle_registry_lock);
    handle->next = handle_registry;
    handle_registry = handle;
    pthread_mutex_unlock(&handle_registry_lock);
}

static void handle_unregister(struct gmsfs *handle)
{
    struct gmsfs **at;

    pthread_mutex_lock(&handle_registry_lock);
    for (at = &handle_registry; *at && *at != handle; at = &(*at)->next)
        ;
    if (*at)
        *at = handle->next;
    pthread_mutex_unlock(&handle_registry_lock);
}

/* ---- entering ----------------------------------------------------------------------------- */

int gfs_enter(struct gmsfs *handle)
{
    if (!handle)
        return -EINVAL;
    if (atomic_load(&handle->dead))
        return -ECHILD;
    pthread_mutex_lock(&handle->op);
    return 0;
}

void gfs_leave(struct gmsfs *handle)
{
    pthread_mutex_unlock(&handle->op);
}

void gfs_state_lock(struct gmsfs *handle)
{
    pthread_mutex_lock(&handle->state);
}

void gfs_state_unlock(struct gmsfs *handle)
{
    pthread_mutex_unlock(&handle->state);
}

/* ---- files -------------------------------------------------------------------------------- */

static int handle_open_ctl(int dir_fd, int flags)
{
    int fd;

    do
        fd = gfs_fd_above(openat(dir_fd, "ctl", flags | O_CLOEXEC));
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

/* For writing if that may be, else for reading. */
static int handle_open_ctl_best(int dir_fd, int *writable)
{
    int fd = handle_open_ctl(dir_fd, O_RDWR);

    *writable = fd >= 0;
    if (fd == -EACCES || fd == -EROFS)
        fd = handle_open_ctl(dir_fd, O_RDONLY);
    return fd;
}

int gfs_ctl_open(struct gmsfs *handle, int need_write)
{
    int fd, writable;

    gfs_gate_enter();
    fd = handle_open_ctl_best(handle->dir_fd, &writable);
    if (fd >= 0 && need_write && !writable) {
        close(fd);
        fd = -EACCES;
    }
    if (fd >= 0) {
        handle_close_fd(&handle->ctl_fd);
        handle->ctl_fd = fd;
        handle->writable = writable;
    }
    gfs_gate_leave();
    if (fd == -ENOENT)
        return -ESTALE;
    return fd < 0 ? fd : 0;
}

void gfs_fds_close(struct gmsfs *handle)
{
    gfs_gate_enter();
    handle_close_fd(&handle->fds_fd);
    gfs_gate_leave();
}

struct handle_files {
    int dir_fd;
    int ctl_fd;
    int writable;
    struct gfs_memory memory;
};

/* Inside the gate. */
static int handle_open_files(const char *path, struct handle_files *files)
{
    const struct gfs_memory_kind *kind;
    struct gmsfs_ioc_info info;
    struct statfs fs;
    int error = 0;

    *files = (struct handle_files){.dir_fd = -1, .ctl_fd = -1};
    files->dir_fd = gfs_fd_above(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (files->dir_fd < 0 || fstatfs(files->dir_fd, &fs) < 0) {
        error = -errno;
        goto out;
    }
    error = -ENOTTY;
    if ((unsigned long)fs.f_type != HANDLE_FUSE_MAGIC)
        goto out;
    files->ctl_fd = handle_open_ctl_best(files->dir_fd, &files->writable);
    if (files->ctl_fd < 0) {
        error = files->ctl_fd == -ENOENT ? -ENOTTY : files->ctl_fd;
        goto out;
    }
    memset(&info, 0, sizeof info);
    error = gfs_ioctl(&(struct gmsfs){.ctl_fd = files->ctl_fd}, GMSFS_IOC_INFO, &info);
    kind = gfs_memory_find_kind(info.memory);
    if (!error && !kind)
        error = -EOPNOTSUPP;
    gfs_memory_init(&files->memory, kind, info.device_uuid, info.granularity_bytes);
    if (!error && (info.granularity_bytes == 0 ||
                   info.granularity_bytes % (uint64_t)sysconf(_SC_PAGESIZE) != 0 ||
                   (info.granularity_bytes & (info.granularity_bytes - 1)) != 0))
        error = -EPROTO;
out:
    if (error) {
        handle_close_fd(&files->ctl_fd);
        handle_close_fd(&files->dir_fd);
    }
    return error;
}

/* What is reserved belongs to a device. */
static int handle_set_memory(struct gmsfs *handle, const struct gfs_memory *memory)
{
    const struct gfs_memory *old = &handle->memory;
    struct gfs_wishes wishes;

    if (old->kind == memory->kind && old->granularity_bytes == memory->granularity_bytes &&
        memcmp(old->uuid, memory->uuid, sizeof old->uuid) == 0)
        return 0;
    if (handle->map.reservation_count || handle->copy_count || handle->space_count)
        return -EXDEV;
    gfs_memory_close(&handle->memory);
    wishes = old->wishes;
    handle->memory = *memory;
    handle->memory.wishes = wishes;
    return 0;
}

static void handle_set_files(struct gmsfs *handle, const struct handle_files *files)
{
    handle->dir_fd = files->dir_fd;
    handle->ctl_fd = files->ctl_fd;
    handle->writable = files->writable;
    handle->granularity_bytes = files->memory.granularity_bytes;
    handle->slab_bytes = 0;
}

/* A handle outlives changes of the working directory. */
static int handle_path_absolute(const char *path, char **absolute)
{
    char directory[PATH_MAX];
    size_t bytes;

    if (path[0] == '/') {
        *absolute = strdup(path);
        return *absolute ? 0 : -ENOMEM;
    }
    if (!getcwd(directory, sizeof directory))
        return -errno;
    bytes = strlen(directory) + 1 + strlen(path) + 1;
    *absolute = malloc(bytes);
    if (!*absolute)
        return -ENOMEM;
    strcpy(*absolute, directory);
    strcat(*absolute, "/");
    strcat(*absolute, path);
    return 0;
}

static void handle_free(struct gmsfs *handle)
{
    free(handle->memory.wishes.streams);
    free(handle->copies);
    gfs_slabs_free(&handle->slabs);
    gfs_vmap_free(&handle->map);
    pthread_mutex_destroy(&handle->state);
    pthread_mutex_destroy(&handle->op);
    free(handle->path);
    free(handle);
}

/* ---- public ------------------------------------------------------------------------------- */

int gmsfs_open(const char *path, gmsfs_t **out)
{
    struct handle_files files;
    struct gmsfs *handle;
    int error;

    if (!path || !out)
        return -EINVAL;
    pthread_once(&handle_fork_once, handle_fork_register);
    if (handle_fork_error)
        return -handle_fork_error;
    handle = calloc(1, sizeof *handle);
    if (!handle)
        return -ENOMEM;
    pthread_mutex_init(&handle->op, NULL);
    pthread_mutex_init(&handle->state, NULL);
    handle->dir_fd = handle->ctl_fd = handle->fds_fd = -1;
    handle->slab_wish_bytes = GMSFS_SLAB_DEFAULT;
    error = handle_path_absolute(path, &handle->path);
    if (!error) {
        gfs_gate_enter();
        error = handle_open_files(path, &files);
        if (!error) {
            handle->memory = files.memory;
            handle_set_files(handle, &files);
            handle_register(handle);
        }
        gfs_gate_leave();
    }
    if (error)
        handle_free(handle);
    else
        *out = handle;
    return error;
}

static void handle_drop_memory(struct gmsfs *handle)
{
    GFS_SCOPE(scope);

    if (gfs_memory_enter(&handle->memory, 1, &scope))
        return;
    gfs_memory_synchronise(&handle->memory);
    gfs_private_drop_all(handle);
    gfs_va_drop_all(handle);
}

void gmsfs_close(gmsfs_t *handle)
{
    if (!handle)
        return;
    /* In a forked child the mappings do not exist; their addresses may be something else's. */
    if (atomic_load(&handle->dead)) {
        handle_free(handle);
        return;
    }
    pthread_mutex_lock(&handle->op);
    if (handle->map.reservation_count || handle->copy_count)
        handle_drop_memory(handle);
    gfs_memory_close(&handle->memory);
    gfs_session_release(handle);
    gfs_gate_enter();
    handle_unregister(handle);
    handle_close_fd(&handle->fds_fd);
    handle_close_fd(&handle->ctl_fd);
    handle_close_fd(&handle->dir_fd);
    gfs_gate_leave();
    pthread_mutex_unlock(&handle->op);
    handle_free(handle);
}

int gfs_reopen(struct gmsfs *handle)
{
    struct handle_files files;
    int error;

    gfs_gate_enter();
    error = handle_open_files(handle->path, &files);
    if (!error) {
        error = handle_set_memory(handle, &files.memory);
        if (error) {
            handle_close_fd(&files.ctl_fd);
            handle_close_fd(&files.dir_fd);
        }
    }
    if (!error) {
        handle_close_fd(&handle->fds_fd);
        handle_close_fd(&handle->ctl_fd);
        handle_close_fd(&handle->dir_fd);
        handle_set_files(handle, &files);
    }
    gfs_gate_leave();
    return error;
}

int gmsfs_reopen(gmsfs_t *handle)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    if (handle->mode != GMSFS_MODE_NONE)
        error = -EBUSY;
    for (size_t i = 0; i < handle->map.mapping_count && !error; i++)
        if (handle->map.mappings[i].live)
            error = -EBUSY;
    if (!error)
        error = gfs_reopen(handle);
    gfs_leave(handle);
    return error;
}
