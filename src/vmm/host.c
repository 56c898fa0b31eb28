/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vmm_backend.h"

#include "base/digest.h"
#include "base/file_io.h"
#include "base/scope.h"
#include "vmm/backends.h"
#include "vmm/host_commit.h"
#include "vmm/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB                       (UINT64_C(1) << 10)
#define MIB                       (UINT64_C(1) << 20)
#define GIB                       (UINT64_C(1) << 30)
#define DEFAULT_GRANULARITY_BYTES (2 * MIB)
#define MAX_GRANULARITY_BYTES     GIB
#define SIZE_TEXT_BYTES           24
#define IDENTITY_BYTES            320

#define WINDOW_BYTES (64 * MIB)
#define ZEROS_BYTES  (64 * KIB)

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB (30U << 26)
#endif

struct host {
    struct host_commit commit;
    unsigned memfd_flags;
    int directory; /* memfd_open_huge's, for pieces without memory; -1: none */
};

static const uint8_t zeros[ZEROS_BYTES];

/* ---- options ------------------------------------------------------------------------------- */

static const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
    static const char units[] = " KMG";
    int unit = 0;

    for (; unit < 3 && bytes && bytes % KIB == 0; unit++)
        bytes /= KIB;
    snprintf(text, SIZE_TEXT_BYTES, "%llu%.*s", (unsigned long long)bytes, unit > 0, &units[unit]);
    return text;
}

static int check_hugepages(struct host *host, uint64_t hugepage_bytes, char *why, size_t why_bytes)
{
    struct headroom_pool pool = {0, 0};
    char size[SIZE_TEXT_BYTES];

    if (hugepage_bytes == 0)
        return 0;
    size_text(hugepage_bytes, size);
    if (hugepage_bytes != 2 * MIB && hugepage_bytes != GIB) {
        snprintf(why, why_bytes, "hugepages=%s: huge pages are of 2M or 1G; use one of these",
                 size);
        return -EINVAL;
    }
    int error = headroom_read_pool(host->commit.headroom, hugepage_bytes, &pool);
    if (error < 0) {
        snprintf(why, why_bytes,
                 "hugepages=%s: this machine has no such pages: %s; mount "
                 "without hugepages",
                 size, strerror(-error));
        return error;
    }
    if (pool.total_bytes == 0) {
        snprintf(why, why_bytes,
                 "hugepages=%s: the machine's pool of them is empty; fill it with: echo COUNT > "
                 "/sys/kernel/mm/hugepages/hugepages-%llukB/nr_hugepages",
                 size, (unsigned long long)(hugepage_bytes / KIB));
        return -ENOMEM;
    }
    host->commit.hugepage_bytes = hugepage_bytes;
    host->memfd_flags |= MFD_HUGETLB;
    host->memfd_flags |= hugepage_bytes == GIB ? MFD_HUGE_1GB : MFD_HUGE_2MB;
    return 0;
}

static int choose_granularity(const struct host *host, uint64_t granularity_bytes,
                              struct vmm_device *device, char *why, size_t why_bytes)
{
    uint64_t least = host->commit.hugepage_bytes;
    char given[SIZE_TEXT_BYTES], least_text[SIZE_TEXT_BYTES];

    if (least == 0)
        least = (uint64_t)sysconf(_SC_PAGESIZE);
    if (granularity_bytes == 0)
        granularity_bytes = least > DEFAULT_GRANULARITY_BYTES ? least : DEFAULT_GRANULARITY_BYTES;
    if (granularity_bytes < least || granularity_bytes > MAX_GRANULARITY_BYTES ||
        (granularity_bytes & (granularity_bytes - 1))) {
        snprintf(why, why_bytes,
                 "granularity=%s: it must be a power of two from %s (the page size) to 1G",
                 size_text(granularity_bytes, given), size_text(least, least_text));
        return -EINVAL;
    }
    device->granularity_bytes = granularity_bytes;
    return 0;
}

/* Half of the machine, so that programs keep room beside it; all huge pages, because they were set
 * aside for this use. */
static int default_size(const struct host *host, uint64_t *size_bytes, char *why, size_t why_bytes)
{
    struct headroom_info info;
    struct headroom_pool pool;
    int error;

    if (host->commit.hugepage_bytes) {
        error = headroom_read_pool(host->commit.headroom, host->commit.hugepage_bytes, &pool);
        *size_bytes = error < 0 ? 0 : pool.total_bytes;
    } else {
        error = headroom_read(host->commit.headroom, &info);
        *size_bytes = error < 0 ? 0 : info.limit_bytes / 2;
    }
    if (error < 0)
        snprintf(why, why_bytes,
                 "device host: cannot tell how much memory the machine has: %s; say size=SIZE",
                 strerror(-error));
    return error;
}

/* A size beyond the machine's memory is accepted, as for tmpfs: only the free memory counts, when
 * memory is made. */
static int choose_size(const struct host *host, uint64_t size_bytes, struct vmm_device *device,
                       char *why, size_t why_bytes)
{
    char given[SIZE_TEXT_BYTES], least[SIZE_TEXT_BYTES];
    int error = 0;

    if (size_bytes == 0)
        error = default_size(host, &size_bytes, why, why_bytes);
    if (error < 0)
        return error;
    if (size_bytes > INT64_MAX) {
        snprintf(why, why_bytes, "size=%s: more than a device can have; say a smaller size",
                 size_text(size_bytes, given));
        return -EINVAL;
    }
    if (size_bytes < device->granularity_bytes) {
        snprintf(why, why_bytes,
                 "size=%s: less than one unit of memory; say at least size=%s, or a smaller "
                 "granularity",
                 size_text(size_bytes, given), size_text(device->granularity_bytes, least));
        return -EINVAL;
    }
    device->total_bytes = size_bytes & ~(device->granularity_bytes - 1);
    return 0;
}

/* ---- identity ------------------------------------------------------------------------------ */

/* Reads the machine's id, or its name if it has no id, such as in a container. */
static void read_machine(const char *root, char machine[IDENTITY_BYTES])
{
    char path[4096];
    SCOPED_FILE FILE *file = NULL;

    machine[0] = '\0';
    snprintf(path, sizeof(path), "%s/etc/machine-id", root);
    file = fopen(path, "re");
    if (file && !fgets(machine, 256, file))
        machine[0] = '\0';
    machine[strcspn(machine, "\n")] = '\0';
    if (!machine[0] || !strcmp(machine, "uninitialized")) {
        if (gethostname(machine, 256) < 0)
            strcpy(machine, "localhost");
        machine[255] = '\0';
    }
}

static void choose_identity(const char *root, const uint8_t uuid[16], struct vmm_device *device)
{
    static const uint8_t none[16];
    char machine[IDENTITY_BYTES];

    snprintf(device->name, sizeof(device->name), "host memory");
    if (memcmp(uuid, none, sizeof(none))) {
        memcpy(device->uuid, uuid, sizeof(device->uuid));
        return;
    }
    read_machine(root, machine);
    strcat(machine, "gmsfs host");
    digest_make(machine, strlen(machine), device->uuid);
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* With any other mode than 0 a reader could open it for writing. */
static int open_pair(const struct host *host, bool bare, struct vmm_piece *piece)
{
    if (bare && host->directory >= 0)
        piece->fd = memfd_make_in(host->directory);
    else
        piece->fd = memfd_make("gmsfs", host->memfd_flags);
    if (piece->fd < 0)
        return piece->fd;
    piece->fd_readonly = memfd_open_readonly(piece->fd);
    if (piece->fd_readonly < 0)
        return piece->fd_readonly;
    return memfd_close_to_others(piece->fd);
}

static void close_pair(struct vmm_piece *piece)
{
    if (piece->fd_readonly >= 0)
        close(piece->fd_readonly);
    if (piece->fd >= 0)
        close(piece->fd);
}

static int host_create(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
                       struct vmm_piece *piece)
{
    struct host *host = device->state;
    struct vmm_piece made = {.fd = -1, .fd_readonly = -1};
    int error = open_pair(host, false, &made);

    if (error == 0)
        error = host_commit_make(&host->commit, made.fd, 0, aligned_bytes);
    if (error == 0 && seal)
        error = memfd_fix_size(made.fd);
    if (error < 0)
        close_pair(&made);
    else
        *piece = made;
    return error;
}

static int host_adopt(struct vmm_device *device, struct vmm_piece *piece)
{
    struct stat stat;

    (void)device;
    piece->immutable = memfd_is_immutable(piece->fd);
    /* a process killed between the seals and the clearing left its last page as it was */
    int error = piece->immutable ? memfd_make_immutable(piece->fd) : 0;
    if (error)
        return error;
    if (piece->fd_readonly == piece->fd) {
        int fd = memfd_reopen(piece->fd, false);
        if (fd < 0)
            return fd;
        piece->fd_readonly = fd;
    }
    piece->sealed = piece->sealed || memfd_has_fixed_size(piece->fd);
    piece->final = memfd_is_final(piece->fd);
    /* a spool has grown for a write that was not recorded; other memory may end with its size */
    if (fstat(piece->fd, &stat) == 0 &&
        ((uint64_t)stat.st_size < piece->aligned_bytes) == piece->sealed)
        piece->aligned_bytes = (uint64_t)stat.st_size;
    return 0;
}

static int host_create_bare(struct vmm_device *device, uint64_t aligned_bytes,
                            struct vmm_piece *piece)
{
    struct host *host = device->state;
    struct vmm_piece made = {.fd = -1, .fd_readonly = -1};
    int error = host_commit_check_room(&host->commit, aligned_bytes);

    if (error == 0)
        error = host_commit_check_limit(aligned_bytes);
    if (error == 0)
        error = open_pair(host, true, &made);
    if (error == 0 && ftruncate(made.fd, (off_t)aligned_bytes) < 0)
        error = -errno;
    if (error == 0 && host->directory < 0)
        error = memfd_seal(made.fd);
    if (error < 0)
        close_pair(&made);
    else
        *piece = made;
    return error;
}

static int host_populate(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                         uint64_t bytes)
{
    uint64_t mask = device->granularity_bytes - 1;

    struct host *host = device->state;

    return host_commit_make(&host->commit, piece->fd, offset & ~mask,
                            (offset + bytes + mask) & ~mask);
}

static int host_grow(struct vmm_device *device, const struct vmm_piece *piece,
                     uint64_t aligned_bytes)
{
    int error = host_commit_make(&((struct host *)device->state)->commit, piece->fd,
                                 piece->aligned_bytes, aligned_bytes);

    /* shrinking to its former size cannot fail: the piece is not sealed */
    if (error < 0 && ftruncate(piece->fd, (off_t)piece->aligned_bytes) < 0)
        return -errno;
    return error;
}

/* ---- transfers ----------------------------------------------------------------------------- */

/* hugetlbfs has no write(2): its files are moved through a window of mapped pages. One of `to` and
 * `from` is given. */
static int move_mapped(const struct host *host, int fd, uint8_t *to, const uint8_t *from,
                       size_t bytes, uint64_t offset)
{
    uint64_t page = host->commit.hugepage_bytes;
    uint64_t window = page > WINDOW_BYTES ? page : WINDOW_BYTES;

    while (bytes) {
        uint64_t start = offset & ~(page - 1);
        uint64_t within = offset - start;
        size_t part = bytes < window - within ? bytes : window - within;
        size_t length = (within + part + page - 1) & ~(page - 1);
        uint8_t *map =
            mmap(NULL, length, from ? PROT_WRITE : PROT_READ, MAP_SHARED, fd, (off_t)start);

        if (map == MAP_FAILED)
            return -errno;
        madvise(map, length, MADV_DONTFORK); /* in another process it would outlive the piece */
        if (from) {
            memcpy(map + within, from, part);
            from += part;
        } else {
            memcpy(to, map + within, part);
            to += part;
        }
        munmap(map, length);
        offset += part;
        bytes -= part;
    }
    return 0;
}

/* For ordinary files. One of `to` and `from` is given. */
static int move_plain(int fd, uint8_t *to, const uint8_t *from, size_t bytes, uint64_t offset)
{
    int error = to ? file_read_at(fd, to, bytes, offset) : file_write_at(fd, from, bytes, offset);

    return error == -ENODATA ? -EIO : error;
}

static int move(const struct host *host, int fd, uint8_t *to, const uint8_t *from, size_t bytes,
                uint64_t offset)
{
    return host->commit.hugepage_bytes ? move_mapped(host, fd, to, from, bytes, offset)
                                       : move_plain(fd, to, from, bytes, offset);
}

static int host_read(struct vmm_device *device, const struct vmm_piece *piece, void *to,
                     size_t bytes, uint64_t offset)
{
    return move(device->state, piece->fd, to, NULL, bytes, offset);
}

/* Writes by a description of its own. A client that may write shares the piece's description, and
 * may have set O_APPEND: then pwrite(2) goes to the end, where the seal stops it. */
static int write_by_own_description(const struct host *host, const struct vmm_piece *piece,
                                    const void *from, size_t bytes, uint64_t offset)
{
    SCOPED_CLOSE int fd = memfd_reopen(piece->fd, true);

    if (fd < 0)
        return fd;
    return move(host, fd, NULL, from, bytes, offset);
}

static int host_write(struct vmm_device *device, struct vmm_piece *piece, const void *from,
                      size_t bytes, uint64_t offset)
{
    int error = move(device->state, piece->fd, NULL, from, bytes, offset);

    return error == -EPERM && piece->sealed
               ? write_by_own_description(device->state, piece, from, bytes, offset)
               : error;
}

static int host_duplicate(struct vmm_device *device, const struct vmm_piece *piece, bool writable)
{
    (void)device;
    return memfd_reopen(piece->fd, writable);
}

static int host_seal(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
                     uint64_t aligned_bytes)
{
    int error = 0;

    while (error == 0 && size_bytes < aligned_bytes) {
        uint64_t left = aligned_bytes - size_bytes;
        size_t part = left < ZEROS_BYTES ? left : ZEROS_BYTES;

        error = host_write(device, piece, zeros, part, size_bytes);
        size_bytes += part;
    }
    if (error == 0 && aligned_bytes < piece->aligned_bytes)
        error = ftruncate(piece->fd, (off_t)aligned_bytes) < 0 ? -errno : 0;
    return error < 0 ? error : memfd_fix_size(piece->fd);
}

/* False also if the bytes cannot be read. */
static bool is_zero(int fd, uint64_t from, uint64_t to)
{
    SCOPED_FREE uint8_t *bytes = malloc(ZEROS_BYTES);
    bool is_zero = bytes != NULL;

    while (is_zero && from < to) {
        size_t part = to - from < ZEROS_BYTES ? to - from : ZEROS_BYTES;

        is_zero = file_read_at(fd, bytes, part, from) == 0 && memcmp(bytes, zeros, part) == 0;
        from += part;
    }
    return is_zero;
}

static int host_trim(struct vmm_device *device, const struct vmm_piece *piece, uint64_t *size_bytes)
{
    (void)device;
    if (!is_zero(piece->fd, *size_bytes, piece->aligned_bytes))
        *size_bytes = piece->aligned_bytes;
    if (ftruncate(piece->fd, (off_t)*size_bytes) < 0)
        return -errno;
    return memfd_fix_size(piece->fd);
}

static int host_finish(struct vmm_device *device, const struct vmm_piece *piece, bool immutable)
{
    (void)device;
    return immutable ? memfd_make_immutable(piece->fd) : memfd_finish(piece->fd);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* Makes and drops an empty piece: a failure is reported at mount, not at the first client. */
static int probe(const struct host *host, char *why, size_t why_bytes)
{
    struct vmm_piece piece = {.fd = -1, .fd_readonly = -1};
    int error = open_pair(host, false, &piece);

    close_pair(&piece);
    if (error < 0)
        snprintf(why, why_bytes,
                 "device host: cannot make memory files: %s; they need memfd_create(2)%s, free "
                 "descriptors and a mounted /proc",
                 strerror(-error), host->commit.hugepage_bytes ? " with huge pages" : "");
    return error;
}

static void host_free(struct host *host)
{
    if (host->directory >= 0)
        close(host->directory);
    host_commit_close(&host->commit);
    free(host);
}

static int host_open(const char *root, const struct vmm_options *options, struct vmm_device *device,
                     char *why, size_t why_bytes)
{
    struct host *host;

    if (options->device[0]) {
        snprintf(why, why_bytes, "device=%s: names a GPU; take backend=%s, or leave it out",
                 options->device, BACKENDS_DEFAULT);
        return -EINVAL;
    }
    host = calloc(1, sizeof(*host));
    if (!host) {
        snprintf(why, why_bytes, "device host: out of memory");
        return -ENOMEM;
    }
    host->directory = -1;
    int error = host_commit_open(root, &host->commit);
    if (error < 0)
        snprintf(why, why_bytes, "device host: cannot read the machine's memory: %s",
                 strerror(-error));
    if (error == 0)
        error = check_hugepages(host, options->hugepage_bytes, why, why_bytes);
    if (error == 0)
        error = choose_granularity(host, options->granularity_bytes, device, why, why_bytes);
    if (error == 0)
        error = choose_size(host, options->size_bytes, device, why, why_bytes);
    if (error == 0)
        error = probe(host, why, why_bytes);
    if (error < 0) {
        host_free(host);
        return error;
    }
    if (options->is_tier && !host->commit.hugepage_bytes)
        host->directory = memfd_open_huge();
    choose_identity(root, options->uuid, device);
    device->ends_anywhere = !host->commit.hugepage_bytes;
    device->state = host;
    return 0;
}

static void host_close(struct vmm_device *device)
{
    host_free(device->state);
    device->state = NULL;
}

const struct vmm_backend vmm_backend_host = {
    .open = host_open,
    .close = host_close,
    .create = host_create,
    .adopt = host_adopt,
    .create_bare = host_create_bare,
    .populate = host_populate,
    .grow = host_grow,
    .seal = host_seal,
    .trim = host_trim,
    .finish = host_finish,
    .read = host_read,
    .write = host_write,
    .duplicate = host_duplicate,
};
