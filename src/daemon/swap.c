/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/swap.h"

#include "base/log.h"
#include "base/size.h"
#include "vmm/headroom.h"

/* Returns 0 if there is no swap or its size cannot be read. */
static uint64_t read_swap(void)
{
    struct headroom *headroom;
    uint64_t bytes = 0;

    if (headroom_open("", &headroom) != 0)
        return 0;
    if (headroom_read_swap(headroom, &bytes) != 0)
        bytes = 0;
    headroom_close(headroom);
    return bytes;
}

void swap_warn(const struct vmm_options *options)
{
    char size[SIZE_TEXT_BYTES];

    /* Pages of hugetlbfs are never swapped out. */
    if (options->host_bytes == 0 || options->host_hugepage_bytes > 0)
        return;
    uint64_t bytes = read_swap();
    if (bytes > 0)
        log_warning("host_size=: up to %s of stores' memory on the host may be swapped out, and "
                    "is then promoted at the speed of swap; keep it in memory: MemorySwapMax=0 in "
                    "the daemon's unit (memory.swap.max of its cgroup), host_hugepages=2M, or "
                    "swapoff",
                    size_format(bytes, size));
}
