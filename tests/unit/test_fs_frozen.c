/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that the kernel remembers of a mount across workers: a node's number contains its kind, an
 * open directory's offsets are counted in kinds, up to `files`. A change here needs another
 * FS_KERNEL_VERSION, and no mount can be upgraded across it; a kind at the end changes no other.
 */
#include "fs/fs.h"
#include "fs/init.h"
#include "fs/node.h"
#include "tap.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number, frozen;
} kinds[] = {
    {"none", NODE_NONE, 0},
    {"root", NODE_ROOT, 1},
    {"device", NODE_DEVICE, 2},
    {"events", NODE_EVENTS, 3},
    {"metrics", NODE_METRICS, 4},
    {".fds", NODE_FDS, 5},
    {"store", NODE_STORE, 6},
    {"state", NODE_STATE, 7},
    {"residency", NODE_RESIDENCY, 8},
    {"layout_hash", NODE_LAYOUT_HASH, 9},
    {"layout", NODE_LAYOUT, 10},
    {"info", NODE_INFO, 11},
    {"sessions", NODE_SESSIONS, 12},
    {"lock", NODE_LOCK, 13},
    {"auto", NODE_AUTO, 14},
    {"ctl", NODE_CTL, 15},
    {"data", NODE_DATA, 16},
    {"commit", NODE_COMMIT, 17},
    {"seal", NODE_SEAL, 18},
    {"abort", NODE_ABORT, 19},
    {"allocations", NODE_ALLOCATIONS, 20},
    {"metadata", NODE_METADATA, 21},
    {"allocation", NODE_ALLOCATION, 22},
    {"entry", NODE_ENTRY, 23},
    {"regions", NODE_REGIONS, 24},
    {"region owner", NODE_REGION_OWNER, 25},
    {"region", NODE_REGION, 26},
    {"pools", NODE_POOLS, 27},
    {"files", NODE_FILES, 28},
    {"directory in files", NODE_FILES_DIRECTORY, 29},
    {"file in files", NODE_FILE, 30},
    {"pieces", NODE_PIECES, 31},
    {"by-id", NODE_BY_ID, 32},
    {"directory in by-id", NODE_CONTENTS, 33},
    {"file of tensors", NODE_MADE, 34},
    {"GGUF file of tensors", NODE_MADE_GGUF, 35},
};

TAP_TEST(kinds_of_nodes_have_the_numbers_that_kernels_know)
{
    check_int(FS_KERNEL_VERSION, 1);
    check_int(NODE_KIND_COUNT, 36);
    check_int(sizeof kinds / sizeof kinds[0], NODE_KIND_COUNT);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        check_int(kinds[i].number, kinds[i].frozen);
}

TAP_TEST(a_number_of_a_node_is_made_as_it_was)
{
    check_int((long long)node_make_id(NODE_ROOT, 0), 1);
    check_int((long long)node_make_id(NODE_STATE, 3), 0x307);
    check_int((long long)node_make_id(NODE_ALLOCATION, 0x123456), 0x12345616);
    check_int(node_get_kind(0x307), NODE_STATE);
    check_int((long long)node_get_id(&(struct node){
                  .kind = NODE_FILES_DIRECTORY, .contents = 1, .rank = 2, .depth = 3}),
              0x40000839d);
    check_int(node_get_kind(0x40000839d), NODE_FILES_DIRECTORY);
}

/* Worker and keeper of two builds both look into it. */
TAP_TEST(the_ledger_is_laid_out_as_it_was)
{
    const long handles = 536, behind = handles + 65536 * 96;

    check_int(FS_LEDGER_VERSION, 7);
    check_int(offsetof(struct fs_ledger, slots), 0);
    check_int(offsetof(struct fs_ledger, init_bytes), 4);
    check_int(offsetof(struct fs_ledger, init), 8);
    check_int(offsetof(struct fs_ledger, started_ms), 520);
    check_int(offsetof(struct fs_ledger, handles_end), 528);
    check_int(offsetof(struct fs_ledger, handles), handles);
    check_int(sizeof(struct fs_kept_handle), 96);
    check_int(offsetof(struct fs_ledger, recovery), behind);
    check_int(sizeof(struct fs_recovery), 152);
    check_int(offsetof(struct fs_ledger, init_answer_bytes), behind + 152);
    check_int(offsetof(struct fs_ledger, init_answer), behind + 156);
    check_int(offsetof(struct fs_ledger, at), behind + 288);
    check_int(offsetof(struct fs_ledger, refused), behind + 288 + 2048);
    check_int(offsetof(struct fs_ledger, refused_askers), behind + 288 + 2056);
    check_int(sizeof(struct fs_refused_asker), 16);
    check_int(offsetof(struct fs_ledger, looks), behind + 288 + 2056 + 256);
    check_int(offsetof(struct fs_ledger, requests), behind + 288 + 2056 + 256 + 256 * 16);
    check_int(sizeof(struct fs_kept_request), 16);
    check_int(sizeof(struct fs_look), 16);
}

/* The old content stays, and the new part is free. */
TAP_TEST(the_ledger_of_a_build_with_fewer_slots_serves_as_it_is_and_grows)
{
    struct fs_ledger *made, *mapped;
    auto_fd fd = -1;

    setenv("GMSFS_LEDGER_SLOTS", "1100", 1);
    check_int(fs_ledger_make(&fd, &made), 0);
    unsetenv("GMSFS_LEDGER_SLOTS");
    made->requests[1099].unique = 7;
    check_int(fs_ledger_map(fd, &mapped), 0);
    check_int(mapped->slots, 1100);
    check_int((long long)mapped->requests[1099].unique, 7);
    check_int(fs_ledger_grow(fd, &mapped), 0);
    check_int(mapped->slots, FS_LEDGER_SLOTS);
    check_int((long long)mapped->requests[1099].unique, 7);
    check_int((long long)mapped->requests[FS_LEDGER_SLOTS - 1].unique, 0);
    check_int(made->slots, FS_LEDGER_SLOTS); /* each process that maps it sees this number */
}

TAP_TEST(what_is_shorter_than_it_says_is_no_ledger)
{
    struct fs_ledger *made, *mapped;
    auto_fd fd = -1;

    check_int(fs_ledger_make(&fd, &made), 0);
    check_int(ftruncate(fd, (off_t)fs_ledger_bytes(made) - 1), 0);
    check_int(fs_ledger_map(fd, &mapped), -EPROTO);
    made->slots = 0;
    check_int(fs_ledger_map(fd, &mapped), -EPROTO);
}

/* A kernel with all capabilities, and the wishes of libfuse 3.14 then. */
static struct fuse_conn_info meet_kernel(void)
{
    return (struct fuse_conn_info){.proto_major = 7,
                                   .proto_minor = 45,
                                   .max_readahead = 131072,
                                   .capable = UINT32_MAX,
                                   .want = FUSE_CAP_ASYNC_READ | FUSE_CAP_AUTO_INVAL_DATA |
                                           FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ASYNC_DIO |
                                           FUSE_CAP_IOCTL_DIR | FUSE_CAP_ATOMIC_O_TRUNC |
                                           FUSE_CAP_READDIRPLUS | FUSE_CAP_PARALLEL_DIROPS |
                                           FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE};
}

static const uint32_t frozen_flags = FUSE_ASYNC_READ | FUSE_AUTO_INVAL_DATA | FUSE_HANDLE_KILLPRIV |
                                     FUSE_ATOMIC_O_TRUNC | FUSE_DO_READDIRPLUS |
                                     FUSE_PARALLEL_DIROPS;

TAP_TEST(what_a_mount_asks_of_the_kernel_is_what_it_was)
{
    struct fuse_conn_info chosen = meet_kernel();

    fs_init_choose(&chosen);
    check_int(chosen.want, FUSE_CAP_ASYNC_READ | FUSE_CAP_AUTO_INVAL_DATA |
                               FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_IOCTL_DIR |
                               FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_READDIRPLUS |
                               FUSE_CAP_PARALLEL_DIROPS);
    check_int(chosen.max_background, 65535);
    check_int(chosen.max_write, 1 << 20);
}

TAP_TEST(what_was_answered_once_is_kept_to_whatever_would_be_chosen_now)
{
    const struct fuse_init_out same = {.major = 7,
                                       .minor = 38,
                                       .max_readahead = 131072,
                                       .flags = frozen_flags,
                                       .max_background = 65535,
                                       .congestion_threshold = 49151,
                                       .max_write = 1 << 20,
                                       .time_gran = 1};
    struct fuse_init_out other = same;
    struct fuse_conn_info chosen = meet_kernel(), repeated = meet_kernel();

    fs_init_choose(&chosen);
    fs_init_choose(&repeated);
    fs_init_repeat(&repeated, &same);
    check_int(repeated.want, chosen.want);
    check_int(repeated.max_background, 65535);
    check_int(repeated.max_write, 1 << 20);
    other.flags = FUSE_WRITEBACK_CACHE | FUSE_ASYNC_DIO;
    other.max_write = 65536;
    other.max_background = 12;
    fs_init_repeat(&repeated, &other);
    check_int(repeated.want, FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_ASYNC_DIO | FUSE_CAP_IOCTL_DIR);
    check_int(repeated.max_background, 12);
    check_int(repeated.max_write, 65536);
    check_int(repeated.congestion_threshold, 49151);
}
