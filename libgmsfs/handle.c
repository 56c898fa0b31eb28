/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a handle. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "internal.h"

#include "base/scope.h"

#define HANDLE_FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC, linux/magic.h since 5.19 */

/* ---- files -------------------------------------------------------------------------------- */

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
        error = gfs_file_error(errno);
        goto out;
    }
    error = -ENOTTY;
    if ((unsigned long)fs.f_type != HANDLE_FUSE_MAGIC)
        goto out;
    files->ctl_fd = gfs_ctl_open_best(files->dir_fd, &files->writable);
    if (files->ctl_fd < 0) {
        error = files->ctl_fd == -ENOENT ? -ENOTTY : files->ctl_fd;
        goto out;
    }
    memset(&info, 0, sizeof info);
    error = gfs_ioctl(&(struct gmsfs_store){.ctl_fd = files->ctl_fd}, GMSFS_IOC_INFO, &info);
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
        gfs_fd_close(&files->ctl_fd);
        gfs_fd_close(&files->dir_fd);
    }
    return error;
}

static void handle_set_files(struct gmsfs_store *handle, const struct handle_files *files)
{
    handle->dir_fd = files->dir_fd;
    handle->ctl_fd = files->ctl_fd;
    handle->writable = files->writable;
    handle->granularity_bytes = files->memory.granularity_bytes;
    handle->slab_bytes = 0;
    handle->is_beside = 0;
}

/* A handle outlives changes of the working directory. */
static int handle_path_absolute(const char *path, char **absolute)
{
    char directory[PATH_MAX];

    if (path[0] == '/') {
        *absolute = strdup(path);
        return *absolute ? 0 : -ENOMEM;
    }
    if (!getcwd(directory, sizeof directory))
        return -errno;
    size_t bytes = strlen(directory) + 1 + strlen(path) + 1;
    *absolute = malloc(bytes);
    if (!*absolute)
        return -ENOMEM;
    strcpy(*absolute, directory);
    strcat(*absolute, "/");
    strcat(*absolute, path);
    return 0;
}

static void handle_free_parts(struct gmsfs_store *handle)
{
    free(handle->memory.wishes.streams);
    free(handle->copies);
    gmsfs_free_layout(handle->shape);
    gfs_slabs_free(&handle->slabs);
    gfs_vmap_free(&handle->map);
    free(handle->path);
}

static void handle_free(struct gmsfs_store *handle)
{
    handle_free_parts(handle);
    pthread_mutex_destroy(&handle->state);
    pthread_mutex_destroy(&handle->op);
    free(handle);
}

/* ---- closed ones --------------------------------------------------------------------------- */

static struct gfs_closed handle_closed;

static void handle_retire(struct gmsfs_store *handle)
{
    SCOPED_FREE struct gmsfs_store *oldest = NULL;

    gfs_state_lock(handle);
    handle_free_parts(handle);
    handle->map = (struct gfs_vmap){0};
    gfs_state_unlock(handle);
    oldest = gfs_closed_keep(&handle_closed, handle);
    if (!oldest)
        return;
    pthread_mutex_destroy(&oldest->state);
    pthread_mutex_destroy(&oldest->op);
}

/* ---- public ------------------------------------------------------------------------------- */

int gmsfs_open(const char *path, gmsfs_t **out)
{
    struct handle_files files;
    struct gmsfs_store *handle;

    if (!path || !out)
        return -EINVAL;
    int error = gfs_fork_watch();
    if (error)
        return error;
    handle = calloc(1, sizeof *handle);
    if (!handle)
        return -ENOMEM;
    pthread_mutex_init(&handle->op, NULL);
    pthread_mutex_init(&handle->state, NULL);
    handle->dir_fd = handle->ctl_fd = handle->fds_fd = handle->events_fd = -1;
    handle->slab_wish_bytes = GMSFS_SLAB_DEFAULT;
    handle->memory_wait_ms = GMSFS_TIMEOUT_FOREVER;
    error = handle_path_absolute(path, &handle->path);
    if (!error) {
        gfs_gate_enter();
        error = handle_open_files(path, &files);
        if (!error) {
            handle->memory = files.memory;
            handle_set_files(handle, &files);
            gfs_fork_register(handle);
        }
        gfs_gate_leave();
    }
    if (error)
        handle_free(handle);
    else
        *out = handle;
    return error;
}

static void handle_drop_memory(struct gmsfs_store *handle)
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
        if (atomic_exchange(&handle->dead, EBADF) != EBADF)
            handle_retire(handle);
        return;
    }
    if (gfs_enter_first(handle))
        return;
    if (handle->map.reservation_count || handle->copy_count)
        handle_drop_memory(handle);
    gfs_memory_close(&handle->memory);
    gfs_connect_give_up(handle);
    gfs_session_give_up_place(handle);
    gfs_session_release(handle);
    gfs_gate_enter();
    gfs_fork_unregister(handle);
    gfs_fd_close(&handle->events_fd);
    gfs_fd_close(&handle->fds_fd);
    gfs_fd_close(&handle->ctl_fd);
    gfs_fd_close(&handle->dir_fd);
    gfs_gate_leave();
    atomic_store(&handle->dead, EBADF);
    gfs_leave(handle);
    handle_retire(handle);
}

int gfs_reopen(struct gmsfs_store *handle)
{
    struct handle_files files;

    gfs_gate_enter();
    int error = handle_open_files(handle->path, &files);
    if (!error) {
        error = gfs_set_memory(handle, &files.memory);
        if (error) {
            gfs_fd_close(&files.ctl_fd);
            gfs_fd_close(&files.dir_fd);
        }
    }
    if (!error) {
        gfs_fd_close(&handle->events_fd);
        gfs_fd_close(&handle->fds_fd);
        gfs_fd_close(&handle->ctl_fd);
        gfs_fd_close(&handle->dir_fd);
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
    if (handle->mode != GMSFS_MODE_NONE || handle->connecting)
        error = -EBUSY;
    for (size_t i = 0; i < handle->map.mapping_count && !error; i++)
        if (handle->map.mappings[i].live)
            error = -EBUSY;
    if (!error)
        error = gfs_reopen(handle);
    gfs_leave(handle);
    return error;
}
