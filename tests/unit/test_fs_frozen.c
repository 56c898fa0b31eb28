/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel remembers of a mount whoever serves it: a node's number holds its kind, an open
 * directory's offsets are counted in kinds. A change here is another FS_KERNEL_VERSION, and one
 * that a mount cannot be upgraded across.
 */
#include "fs/fs.h"
#include "fs/node.h"
#include "tap.h"

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
};

TAP_TEST(kinds_of_nodes_have_the_numbers_that_kernels_know)
{
    check_int(FS_KERNEL_VERSION, 1);
    check_int(NODE_KIND_COUNT, 28);
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
}

/* Worker and keeper of two builds both look into it. */
TAP_TEST(the_ledger_is_laid_out_as_it_was)
{
    check_int(FS_LEDGER_VERSION, 1);
    check_int(offsetof(struct fs_ledger, init_bytes), 131072);
    check_int(offsetof(struct fs_ledger, init), 131080);
    check_int(offsetof(struct fs_ledger, started_ms), 131592);
    check_int(offsetof(struct fs_ledger, handles_end), 131600);
    check_int(offsetof(struct fs_ledger, handles), 131608);
    check_int(sizeof(struct fs_kept_handle), 80);
    check_int(offsetof(struct fs_ledger, recovery), 131608 + 65536 * 80);
    check_int(sizeof(struct fs_recovery), 152);
}
