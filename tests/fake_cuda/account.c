/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory as locked files, and its account over all processes (see fake.h). */
#include "fake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* gpuN/account, read and written under its lock. `used_bytes` may include memory that is already
 * free; a sweep corrects that. */
struct account {
    uint64_t used_bytes;
    uint64_t next_seq;
};

static void path_of(char path[PATH_BYTES], unsigned gpu, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/gpu%u/%s", machine_dir(), gpu, name);
}

static void memory_path(char path[PATH_BYTES], const struct account_memory *memory)
{
    char name[32];

    snprintf(name, sizeof(name), "m%lu", memory->seq);
    path_of(path, memory->gpu, name);
}

static int lock(int fd, int how)
{
    int rc;

    do
        rc = flock(fd, how);
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : 0;
}

/* Other users take part, with any umask. */
static int make_account(unsigned gpu)
{
    char path[PATH_BYTES];
    int fd;

    path_of(path, gpu, "");
    if (mkdir(path, 0777) == 0)
        chmod(path, 0777);
    path_of(path, gpu, "account");
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        fchmod(fd, 0666);
    return fd < 0 ? -errno : fd;
}

static int account_lock(unsigned gpu, struct account *account)
{
    char path[PATH_BYTES];
    int fd, rc;

    path_of(path, gpu, "account");
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fd = make_account(gpu);
    if (fd < 0)
        return fd;
    rc = lock(fd, LOCK_EX);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    if (pread(fd, account, sizeof(*account), 0) != sizeof(*account))
        *account = (struct account){.next_seq = 1};
    return fd;
}

static void account_unlock(int fd, const struct account *account)
{
    if (pwrite(fd, account, sizeof(*account), 0) != sizeof(*account))
        fprintf(stderr, "fake_cuda: the account is lost: %s\n", strerror(errno));
    close(fd);
}

/* Removes the file if no process holds it. Returns whether it did. */
static bool drop_if_free(const char *path, uint64_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    bool is_free = false;

    *bytes = 0;
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0) {
        *bytes = (uint64_t)st.st_size;
        is_free = flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0;
    }
    close(fd);
    return is_free;
}

static void sweep(unsigned gpu, struct account *account)
{
    char path[PATH_BYTES];
    struct dirent *entry;
    DIR *dir;

    path_of(path, gpu, "");
    dir = opendir(path);
    account->used_bytes = 0;
    while (dir && (entry = readdir(dir))) {
        uint64_t bytes;

        if (entry->d_name[0] != 'm')
            continue;
        path_of(path, gpu, entry->d_name);
        if (!drop_if_free(path, &bytes))
            account->used_bytes += bytes;
    }
    if (dir)
        closedir(dir);
}

static bool fits(const struct account *account, const struct machine *machine, uint64_t bytes)
{
    uint64_t taken = account->used_bytes + machine->others_bytes;

    return taken <= machine->memory_bytes && bytes <= machine->memory_bytes - taken;
}

/* The file is locked before the account is unlocked, so that a sweep never finds it free. */
static int make_file(const struct account_memory *memory)
{
    char path[PATH_BYTES];
    int fd, rc;

    memory_path(path, memory);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    rc = lock(fd, LOCK_SH);
    if (rc == 0 && (fchmod(fd, 0666) < 0 || ftruncate(fd, (off_t)memory->bytes) < 0))
        rc = -errno;
    if (rc < 0) {
        unlink(path);
        close(fd);
    }
    return rc < 0 ? rc : fd;
}

int account_create(unsigned gpu, uint64_t bytes, struct account_memory *memory)
{
    struct account account;
    struct machine machine;
    int fd, account_fd = account_lock(gpu, &account);

    if (account_fd < 0)
        return account_fd;
    machine_read(&machine);
    if (!fits(&account, &machine, bytes))
        sweep(gpu, &account);
    fd = -ENOMEM;
    if (fits(&account, &machine, bytes)) {
        do { /* a process that was killed here has made the file, and not counted it */
            *memory =
                (struct account_memory){.gpu = gpu, .seq = account.next_seq++, .bytes = bytes};
            fd = make_file(memory);
        } while (fd == -EEXIST);
        if (fd >= 0)
            account.used_bytes += bytes;
    }
    account_unlock(account_fd, &account);
    return fd;
}

static int open_and_hold(const char *path, int flags)
{
    int fd = open(path, flags);
    int rc;

    if (fd < 0)
        return -errno;
    rc = lock(fd, LOCK_SH);
    if (rc < 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int account_open(const struct account_memory *memory, int flags)
{
    char path[PATH_BYTES];

    memory_path(path, memory);
    return open_and_hold(path, flags);
}

int account_import(int fd, struct account_memory *memory)
{
    char path[PATH_BYTES], link[64];
    size_t dir_length = strlen(machine_dir());
    struct stat st;
    ssize_t got;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    got = readlink(link, path, sizeof(path) - 1);
    if (got < 0 || fstat(fd, &st) < 0)
        return -EINVAL;
    path[got] = '\0';
    if (strncmp(path, machine_dir(), dir_length) ||
        sscanf(path + dir_length, "/gpu%u/m%lu", &memory->gpu, &memory->seq) != 2)
        return -EINVAL;
    memory->bytes = (uint64_t)st.st_size;
    return open_and_hold(link, O_RDWR | O_CLOEXEC);
}

void account_settle(const struct account_memory *memory)
{
    struct account account;
    char path[PATH_BYTES];
    uint64_t bytes;
    int fd = account_lock(memory->gpu, &account);

    if (fd < 0)
        return;
    memory_path(path, memory);
    if (drop_if_free(path, &bytes))
        account.used_bytes -= bytes < account.used_bytes ? bytes : account.used_bytes;
    account_unlock(fd, &account);
}

uint64_t account_used(unsigned gpu)
{
    struct account account;
    int fd = account_lock(gpu, &account);

    if (fd < 0)
        return 0;
    sweep(gpu, &account);
    account_unlock(fd, &account);
    return account.used_bytes;
}
