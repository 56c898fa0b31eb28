/* SPDX-License-Identifier: Apache-2.0 */
/*
 * triton_table - the front end for Triton clients over a table in memory, in place of a mount
 *
 *   triton_table HTTP GRPC [DELAY_MS [TOKEN_FILE]]
 *
 * This table gives the front end the answers that libgmsfs gives otherwise, so that the rest of it
 * can be tested without a mount, with any answer of a mount. Prints its addresses; ends by SIGTERM.
 */
#include "tool.h"
#include "triton/registry.h"
#include "triton/triton.h"

#include <poll.h>
#include <sys/stat.h>

#define MAX_REGIONS    4096
#define MAX_REFERENCES 64 /* of a region */

struct row {
    struct gmsfs_region_info info;
    int fd;
    int references[MAX_REFERENCES]; /* of a pipe whose other end is the reference */
    int reference_count;
};

struct registry {
    struct row *rows[MAX_REGIONS]; /* by owner and name */
    size_t count;
};

struct registry_reference {
    struct gmsfs_region_info info;
    int file, fd;
};

int registry_open(const char *mount, struct registry **registry)
{
    (void)mount;
    *registry = calloc(1, sizeof **registry);
    return *registry ? 0 : -ENOMEM;
}

static void free_row(struct row *row)
{
    for (int i = 0; i < row->reference_count; i++)
        close(row->references[i]);
    close(row->fd);
    free(row);
}

void registry_close(struct registry *registry)
{
    for (size_t i = 0; i < registry->count; i++)
        free_row(registry->rows[i]);
    free(registry);
}

int registry_ping(struct registry *registry)
{
    (void)registry;
    return 0;
}

static bool is_lost(int reference)
{
    struct pollfd end = {.fd = reference};

    return poll(&end, 1, 0) == 1;
}

static void drop_lost(struct row *row)
{
    int kept = 0;

    for (int i = 0; i < row->reference_count; i++) {
        if (is_lost(row->references[i]))
            close(row->references[i]);
        else
            row->references[kept++] = row->references[i];
    }
    row->reference_count = kept;
    row->info.references = (uint64_t)kept;
}

/* Drops unreferenced regions at the next request. */
static void reap(struct registry *registry)
{
    size_t kept = 0;

    for (size_t i = 0; i < registry->count; i++) {
        struct row *row = registry->rows[i];
        drop_lost(row);
        if (row->info.flags & GMSFS_REGION_DRAINING && row->reference_count == 0)
            free_row(row);
        else
            registry->rows[kept++] = row;
    }
    registry->count = kept;
}

static bool fits(const struct row *row, uint32_t uid, enum gmsfs_region_kind kind, const char *name)
{
    return row->info.uid == uid && (kind == GMSFS_REGION_ANY || row->info.kind == kind) &&
           (!name || strcmp(row->info.name, name) == 0);
}

static struct row *find(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (fits(registry->rows[i], uid, kind, name))
            return registry->rows[i];
    }
    return NULL;
}

static int by_name(const void *left, const void *right)
{
    return strcmp((*(struct row *const *)left)->info.name,
                  (*(struct row *const *)right)->info.name);
}

static int check_object(const struct gmsfs_region_request *request,
                        enum gmsfs_region_reason *reason)
{
    struct stat facts;
    uint64_t end;

    *reason = GMSFS_REGION_NO_OBJECT;
    if (request->fd < 0 || fstat(request->fd, &facts) != 0)
        return -ENOENT;
    *reason = GMSFS_REGION_NO_SIZE;
    if (request->byte_size == 0)
        return -EINVAL;
    *reason = GMSFS_REGION_BAD_RANGE;
    if (__builtin_add_overflow(request->offset, request->byte_size, &end) ||
        end > (uint64_t)facts.st_size)
        return -EINVAL;
    *reason = GMSFS_REGION_FINE;
    return 0;
}

int registry_register(struct registry *registry, const struct gmsfs_region_request *request,
                      enum gmsfs_region_reason *reason)
{
    struct row *row;
    int error;

    reap(registry);
    if (find(registry, request->uid, GMSFS_REGION_ANY, request->name)) {
        *reason = GMSFS_REGION_EXISTS;
        return -EEXIST;
    }
    error = check_object(request, reason);
    if (error)
        return error;
    row = registry->count < MAX_REGIONS ? calloc(1, sizeof *row) : NULL;
    if (!row)
        return -ENOSPC;
    row->info =
        (struct gmsfs_region_info){.kind = request->kind,
                                   .uid = request->uid,
                                   .offset = request->offset,
                                   .byte_size = request->byte_size,
                                   .flags = GMSFS_REGION_DESCRIPTOR | GMSFS_REGION_WRITABLE};
    snprintf(row->info.name, sizeof row->info.name, "%s", request->name);
    snprintf(row->info.key, sizeof row->info.key, "%s", request->key ? request->key : "");
    row->fd = fcntl(request->fd, F_DUPFD_CLOEXEC, 0);
    registry->rows[registry->count++] = row;
    qsort(registry->rows, registry->count, sizeof(struct row *), by_name);
    return 0;
}

int registry_unregister(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                        const char *name)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (fits(registry->rows[i], uid, kind, name))
            registry->rows[i]->info.flags |= GMSFS_REGION_DRAINING;
    }
    reap(registry);
    return 0;
}

int registry_list(struct registry *registry, uint32_t uid, enum gmsfs_region_kind kind,
                  const char *name, struct gmsfs_region_info **list, size_t *count,
                  enum gmsfs_region_reason *reason)
{
    reap(registry);
    *list = NULL;
    *count = 0;
    if (name && !find(registry, uid, kind, name)) {
        *reason = GMSFS_REGION_UNKNOWN;
        return -ENOENT;
    }
    *list = calloc(registry->count + 1, sizeof **list);
    for (size_t i = 0; i < registry->count; i++) {
        if (fits(registry->rows[i], uid, kind, name))
            (*list)[(*count)++] = registry->rows[i]->info;
    }
    return 0;
}

int registry_hold(struct registry *registry, uint32_t uid, const char *name,
                  struct gmsfs_region_info *info, int *file, int *fd,
                  enum gmsfs_region_reason *reason)
{
    struct row *row;
    int ends[2];

    reap(registry);
    row = find(registry, uid, GMSFS_REGION_ANY, name);
    if (!row) {
        *reason = GMSFS_REGION_UNKNOWN;
        return -ENOENT;
    }
    if (row->reference_count == MAX_REFERENCES || pipe2(ends, O_CLOEXEC) != 0)
        return -ENFILE;
    row->references[row->reference_count++] = ends[0];
    row->info.references++;
    *info = row->info;
    *file = ends[1];
    *fd = fcntl(row->fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int registry_attach(int file, int fd, const struct gmsfs_region_info *info,
                    struct registry_reference **reference)
{
    *reference = malloc(sizeof **reference);
    if (!*reference)
        return -ENOMEM;
    **reference = (struct registry_reference){*info, file, fd};
    return 0;
}

int registry_check(const struct registry_reference *reference, uint64_t offset, uint64_t size_bytes,
                   enum gmsfs_region_reason *reason)
{
    uint64_t end;

    *reason = GMSFS_REGION_FINE;
    if (offset >= reference->info.byte_size)
        *reason = GMSFS_REGION_BAD_OFFSET;
    else if (__builtin_add_overflow(offset, size_bytes, &end))
        *reason = GMSFS_REGION_OVERFLOW;
    else if (end > reference->info.byte_size)
        *reason = GMSFS_REGION_BAD_END;
    return *reason == GMSFS_REGION_FINE ? 0 : -ERANGE;
}

int registry_read(struct registry_reference *reference, uint64_t offset, void *bytes,
                  size_t size_bytes, enum gmsfs_region_reason *reason)
{
    ssize_t got = pread(reference->fd, bytes, size_bytes, (off_t)(reference->info.offset + offset));

    *reason = got == (ssize_t)size_bytes ? GMSFS_REGION_FINE : GMSFS_REGION_SHRUNK;
    return got == (ssize_t)size_bytes ? 0 : -ENODATA;
}

int registry_write(struct registry_reference *reference, uint64_t offset, const void *bytes,
                   size_t size_bytes, enum gmsfs_region_reason *reason)
{
    struct stat facts;
    off_t at = (off_t)(reference->info.offset + offset);

    *reason = GMSFS_REGION_SHRUNK;
    if (fstat(reference->fd, &facts) != 0 || at + (off_t)size_bytes > facts.st_size)
        return -ENODATA;
    *reason = GMSFS_REGION_FINE;
    return pwrite(reference->fd, bytes, size_bytes, at) == (ssize_t)size_bytes ? 0 : -EIO;
}

void registry_drop(struct registry_reference *reference)
{
    if (!reference)
        return;
    close(reference->file);
    close(reference->fd);
    free(reference);
}

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct failure failure;

    if (argc == 2 && strcmp(argv[1], TRITON_CUDA_COMMAND) == 0)
        return triton_cuda_main();
    if (argc < 3 || argc > 5)
        tool_die("usage: triton_table HTTP GRPC [DELAY_MS [TOKEN_FILE]]");
    struct triton_options options = {.mount = "table",
                                     .http = {argv[1]},
                                     .http_count = 1,
                                     .grpc = {argv[2]},
                                     .grpc_count = 1,
                                     .has_test_models = true,
                                     .drain_ms = UINT64_MAX,
                                     .delay_ms = argc > 3 ? strtoull(argv[3], NULL, 10) : 0,
                                     .token_file = argc > 4 ? argv[4] : NULL,
                                     .on_serving = say};
    if (triton_run(&options, &failure) != 0)
        tool_die("%s", failure.text);
    return 0;
}
