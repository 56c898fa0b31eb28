/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_memory - the memory of a ledger, for keeper and workers, also of other builds */
#include "fs/fs.h"

#include "base/test_hooks.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SLOTS (1u << 24) /* far above the number of any build */

static size_t bytes_for(uint32_t slots)
{
    return sizeof(struct fs_ledger) + slots * sizeof(struct fs_kept_request);
}

size_t fs_ledger_bytes(const struct fs_ledger *ledger)
{
    return bytes_for(ledger->slots);
}

/* Tests make mounts with fewer slots, as another build would. */
static uint32_t choose_slots(void)
{
    return (uint32_t)hook_number("GMSFS_LEDGER_SLOTS", FS_LEDGER_SLOTS);
}

static int map_memory(int fd, size_t bytes, struct fs_ledger **ledger)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    *ledger = memory;
    return 0;
}

int fs_ledger_make(int *fd, struct fs_ledger **ledger)
{
    uint32_t slots = choose_slots();
    int error = 0;

    *fd = memfd_create("journal-ledger", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes_for(slots)) != 0)
        return -errno;
    error = map_memory(*fd, bytes_for(slots), ledger);
    if (!error)
        (*ledger)->slots = slots;
    return error;
}

int fs_ledger_map(int fd, struct fs_ledger **ledger)
{
    uint32_t slots = 0;
    struct stat file;

    if (fstat(fd, &file) != 0 ||
        pread(fd, &slots, sizeof slots, offsetof(struct fs_ledger, slots)) < 0)
        return -errno;
    if (slots <= FS_LEDGER_CLOSING + 2 || slots > MOST_SLOTS ||
        file.st_size < (off_t)bytes_for(slots))
        return -EPROTO;
    return map_memory(fd, bytes_for(slots), ledger);
}

int fs_ledger_grow(int fd, struct fs_ledger **ledger)
{
    uint32_t slots = choose_slots();
    struct fs_ledger *former = *ledger;

    if (former->slots >= slots)
        return 0;
    if (ftruncate(fd, (off_t)bytes_for(slots)) != 0)
        return -errno;
    int error = map_memory(fd, bytes_for(slots), ledger);
    if (error)
        return error;
    munmap(former, fs_ledger_bytes(former));
    (*ledger)->slots = slots;
    return 0;
}
