/* SPDX-License-Identifier: Apache-2.0 */
/* Memory beside the device: accounts of their own, and bytes from each tier to each other. */
#include "vmm_fixture.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char spill[] = "/tmp/gmsfs-spill.XXXXXX";

static int open_tiers(uint64_t host_bytes, uint64_t spill_bytes)
{
    struct vmm_options options = {.backend = "host",
                                  .size_bytes = 16 * MIB,
                                  .host_bytes = host_bytes,
                                  .spill_bytes = spill_bytes};
    int rc;

    strcpy(spill + sizeof spill - 7, "XXXXXX");
    require(mkdtemp(spill) != NULL);
    if (spill_bytes)
        strcpy(options.spill, spill);
    rc = try_open(options);
    if (rc < 0)
        rmdir(spill);
    return rc;
}

static void close_tiers(void)
{
    vmm_close(vmm);
    check_int(rmdir(spill), 0); /* there is nothing in it */
}

static bool lacks_disk(void)
{
    return skip(open_tiers(8 * MIB, 8 * MIB) < 0, "no files without names in /tmp");
}

TAP_TEST(each_tier_has_an_account_of_its_own)
{
    struct vmm_info info;

    if (lacks_disk())
        return;
    check_int(vmm_reserve_in(vmm, VMM_TIER_HOST, 6 * MIB), 0);
    check_int(vmm_reserve_in(vmm, VMM_TIER_HOST, 4 * MIB), -ENOMEM);
    check_int(vmm_reserve_in(vmm, VMM_TIER_DISK, 8 * MIB), 0);
    check_int(vmm_reserve_in(vmm, VMM_TIER_DISK, 2 * MIB), -ENOMEM);
    check_int(vmm_reserve_in(vmm, VMM_TIER_DEVICE, 16 * MIB), 0);
    vmm_get_info(vmm, &info);
    check_int(info.used_bytes, 16 * MIB);
    check_int(info.host_used_bytes, 6 * MIB);
    check_int(info.host_total_bytes, 8 * MIB);
    check_int(info.spill_used_bytes, 8 * MIB);
    check_int(info.spill_total_bytes, 8 * MIB);
    vmm_unreserve_in(vmm, VMM_TIER_HOST, 6 * MIB);
    vmm_unreserve_in(vmm, VMM_TIER_DISK, 8 * MIB);
    vmm_unreserve_in(vmm, VMM_TIER_DEVICE, 16 * MIB);
    close_tiers();
}

TAP_TEST(bytes_go_from_each_tier_to_each_other)
{
    struct vmm_piece pieces[VMM_TIER_COUNT];
    uint8_t bytes[1000], seen[1000];

    if (lacks_disk())
        return;
    for (unsigned tier = 0; tier < VMM_TIER_COUNT; tier++) {
        require(vmm_create_in(vmm, (enum vmm_tier)tier, 4 * MIB + 1, &pieces[tier]) == 0);
        check_int(pieces[tier].aligned_bytes, 6 * MIB);
    }
    for (unsigned from = 0; from < VMM_TIER_COUNT; from++) {
        for (unsigned to = 0; to < VMM_TIER_COUNT; to++) {
            uint64_t offset = 4 * MIB - 500;

            memset(bytes, (int)(16 * from + to + 1), sizeof bytes);
            check_int(vmm_write(vmm, &pieces[from], bytes, sizeof bytes, offset), 0);
            if (from == to) {
                check_int(vmm_move(vmm, &pieces[from], &pieces[to], 0, 1), -EINVAL);
                continue;
            }
            check_int(vmm_move(vmm, &pieces[from], &pieces[to], 0, 6 * MIB), 0);
            check_int(vmm_read(vmm, &pieces[to], seen, sizeof seen, offset), 0);
            check_bytes(seen, sizeof seen, bytes, sizeof bytes);
        }
    }
    for (unsigned tier = 0; tier < VMM_TIER_COUNT; tier++)
        vmm_destroy(vmm, &pieces[tier]);
    close_tiers();
}

TAP_TEST(moves_beyond_a_piece_are_refused)
{
    struct vmm_piece device, host;

    if (lacks_disk())
        return;
    require(vmm_create_in(vmm, VMM_TIER_DEVICE, 2 * MIB, &device) == 0);
    require(vmm_create_in(vmm, VMM_TIER_HOST, 2 * MIB, &host) == 0);
    check_int(vmm_move(vmm, &device, &host, 0, 2 * MIB + 1), -EINVAL);
    check_int(vmm_move(vmm, &device, &host, 2 * MIB, 1), -EINVAL);
    check_int(vmm_move(vmm, &device, &host, UINT64_MAX, 1), -EINVAL);
    check_int(vmm_move(vmm, &device, &host, 2 * MIB - 1, 1), 0);
    vmm_destroy(vmm, &device);
    vmm_destroy(vmm, &host);
    close_tiers();
}

TAP_TEST(pieces_on_the_disk_can_be_read_by_others_and_not_written)
{
    struct vmm_piece piece;
    int reader = -1;

    if (lacks_disk())
        return;
    require(vmm_create_in(vmm, VMM_TIER_DISK, 2 * MIB, &piece) == 0);
    check_int(mode_of(piece.fd), 0);
    require(vmm_duplicate(vmm, &piece, false, &reader) == 0);
    check_int(fcntl(reader, F_GETFL) & O_ACCMODE, O_RDONLY);
    check_int(fcntl(piece.fd_readonly, F_GETFL) & O_ACCMODE, O_RDONLY);
    check_int(write(reader, "x", 1), -1);
    close(reader);
    vmm_destroy(vmm, &piece);
    close_tiers();
}

static size_t count_cached_pages(int fd, size_t bytes)
{
    size_t pages = bytes / 4096, count = 0;
    unsigned char *there = malloc(pages);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

    require(there && map != MAP_FAILED);
    require(mincore(map, bytes, there) == 0);
    for (size_t i = 0; i < pages; i++)
        count += there[i] & 1;
    munmap(map, bytes);
    free(there);
    return count;
}

/* Whether this directory's file system moves bytes past the page cache. */
static bool has_direct_files(void)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    void *block = aligned_alloc(4096, 4096);
    bool has;

    require(block != NULL);
    memset(block, 1, 4096);
    has = fd >= 0 && pwrite(fd, block, 4096, 0) == 4096 && count_cached_pages(fd, 4096) == 0;
    if (fd >= 0)
        close(fd);
    free(block);
    return has;
}

TAP_TEST(moves_to_the_disk_and_back_go_past_the_page_cache)
{
    struct vmm_piece disk, host, device;

    if (lacks_disk() || skip(!has_direct_files(), "no direct files in /tmp"))
        return;
    require(vmm_create_in(vmm, VMM_TIER_DEVICE, 6 * MIB, &device) == 0);
    require(vmm_create_in(vmm, VMM_TIER_HOST, 6 * MIB, &host) == 0);
    require(vmm_create_in(vmm, VMM_TIER_DISK, 6 * MIB, &disk) == 0);
    check_int(vmm_move(vmm, &device, &disk, 0, 6 * MIB), 0);
    check_int(count_cached_pages(disk.fd, 6 * MIB), 0);
    check_int(vmm_move(vmm, &disk, &host, 0, 6 * MIB), 0);
    check_int(count_cached_pages(disk.fd, 6 * MIB), 0);
    check_int(fcntl(disk.fd, F_GETFL) & O_DIRECT, 0); /* readers get it without O_DIRECT */
    vmm_destroy(vmm, &device);
    vmm_destroy(vmm, &host);
    vmm_destroy(vmm, &disk);
    close_tiers();
}

/* At places where no block begins. */
TAP_TEST(what_cannot_go_past_the_page_cache_goes_through_it)
{
    struct vmm_piece disk, host;
    uint64_t bytes = 4 * MIB, offset = 1001;
    auto_free uint8_t *seen = malloc(bytes);

    require(seen != NULL);
    if (lacks_disk())
        return;
    require(vmm_create_in(vmm, VMM_TIER_HOST, 6 * MIB, &host) == 0);
    require(vmm_create_in(vmm, VMM_TIER_DISK, 6 * MIB, &disk) == 0);
    memset(seen, 7, bytes);
    check_int(vmm_write(vmm, &host, seen, bytes, offset), 0);
    check_int(vmm_move(vmm, &host, &disk, offset, bytes), 0);
    check_int(vmm_read(vmm, &disk, seen, bytes, offset - 1), 0);
    check_int(seen[0], 0);
    check_int(seen[1], 7);
    check_int(seen[bytes - 1], 7);
    vmm_destroy(vmm, &host);
    vmm_destroy(vmm, &disk);
    close_tiers();
}

TAP_TEST(a_piece_on_the_disk_that_was_cut_off_cannot_be_read)
{
    struct vmm_piece piece;

    if (lacks_disk())
        return;
    require(vmm_create_in(vmm, VMM_TIER_DISK, 2 * MIB, &piece) == 0);
    check_int(vmm_sync(vmm, &piece), 0);
    check_int(vmm_probe(vmm, &piece, 0, 2 * MIB), 0);
    check_int(vmm_probe(vmm, &piece, 2 * MIB - VMM_PROBE_BYTES, VMM_PROBE_BYTES), 0);
    check_int(vmm_probe(vmm, &piece, 2 * MIB, VMM_PROBE_BYTES), -EINVAL);
    check_int(vmm_probe(vmm, &piece, 1, VMM_PROBE_BYTES), -EINVAL);
    require(ftruncate(piece.fd, 2 * MIB - 1) == 0);
    check_int(vmm_probe(vmm, &piece, 0, VMM_PROBE_BYTES), -EIO);
    vmm_destroy(vmm, &piece);
    close_tiers();
}

TAP_TEST(there_are_no_tiers_unless_they_are_asked_for)
{
    struct vmm_piece piece;

    require(open_tiers(0, 0) == 0);
    check(!vmm_has_tier(vmm, VMM_TIER_HOST));
    check(!vmm_has_tier(vmm, VMM_TIER_DISK));
    check_int(vmm_create_in(vmm, VMM_TIER_HOST, 1, &piece), -EOPNOTSUPP);
    check_int(vmm_create_in(vmm, VMM_TIER_DISK, 1, &piece), -EOPNOTSUPP);
    check_int(vmm_reserve_in(vmm, VMM_TIER_DISK, 1), -ENOMEM);
    close_tiers();
}

/* The device is not the host's memory there, but the account would give it. */
TAP_TEST(host_tier_that_the_cgroup_has_no_memory_for_is_enomem)
{
    struct vmm_options options = {
        .backend = "host", .size_bytes = 16 * GIB, .host_bytes = 16 * GIB};
    struct vmm_piece piece;

    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB, 32 * GIB));
    require(fake_root_put(root, "/proc/self/cgroup", "0::/job\n"));
    require(fake_root_put(root, "/proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 none rw\n"));
    require(fake_root_put_number(root, "/cg/job/memory.max", 256 * MIB));
    require(fake_root_put_number(root, "/cg/job/memory.current", 200 * MIB));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
    check_int(vmm_create_in(vmm, VMM_TIER_HOST, 26 * MIB, &piece), -ENOMEM);
    require(vmm_create_in(vmm, VMM_TIER_HOST, 24 * MIB, &piece) == 0);
    check_int(vmm_populate(vmm, &piece, 0, 24 * MIB), 0);
    vmm_destroy(vmm, &piece);
    close_short_host();
}

static uint64_t count_committed(const struct vmm_piece *piece)
{
    struct stat st;

    return fstat(piece->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : UINT64_MAX;
}

TAP_TEST(memory_of_the_host_tier_is_made_by_parts)
{
    struct vmm_piece piece;

    require(open_tiers(64 * MIB, 0) == 0);
    require(vmm_create_in(vmm, VMM_TIER_HOST, 16 * MIB, &piece) == 0);
    check(count_committed(&piece) == 0);
    check_int(vmm_populate(vmm, &piece, 4 * MIB, 2 * MIB), 0);
    check(count_committed(&piece) == 2 * MIB);
    check_int(vmm_populate(vmm, &piece, 5 * MIB, 3 * MIB), 0); /* some is there */
    check(count_committed(&piece) == 4 * MIB);
    check_int(vmm_populate(vmm, &piece, 0, 16 * MIB), 0);
    check(count_committed(&piece) == 16 * MIB);
    check_int(vmm_populate(vmm, &piece, 15 * MIB, 2 * MIB), -EINVAL);
    vmm_destroy(vmm, &piece);
    close_tiers();
}

TAP_TEST(directory_that_cannot_be_used_is_said)
{
    struct vmm_options options = {
        .backend = "host", .size_bytes = 16 * MIB, .spill = "/nothing", .spill_bytes = GIB};

    check_int(try_open(options), -ENOENT);
    check_str(error, "disk tier (spill=/nothing): cannot be opened: No such file or directory "
                     "(create it: mkdir -p)");
    strcpy(options.spill, "/tmp");
    options.spill_bytes = MIB;
    check_int(try_open(options), -EINVAL);
    check(strstr(error, "spill_size=") != NULL);
}
