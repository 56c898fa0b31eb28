/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are dropped: those inside, and no other byte. */
#include "base/pages.h"
#include "tap.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 24
#define USED  0xa5

static size_t page;

static uint8_t *make_used(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *at =
        mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    require(at != MAP_FAILED);
    memset(at, USED, PAGES * page);
    return at;
}

/* Checks each byte: the pages of `dropped`, a bit each, are zeros. */
static void check_pages(uint8_t *at, unsigned dropped)
{
    for (size_t i = 0; i < PAGES; i++) {
        size_t used = 0;
        for (size_t j = 0; j < page; j++)
            used += at[i * page + j] == USED;
        check_int(used, dropped >> i & 1 ? 0 : page);
    }
    munmap(at, PAGES * page);
}

TAP_TEST(whole_pages_are_dropped_and_the_ends_stay)
{
    uint8_t *at = make_used();

    pages_drop(at + 1, 3 * page);
    pages_drop(at + 8 * page, 2 * page);
    pages_drop(at + 12 * page + 1, 2 * page - 2);
    check_pages(at, 3u << 1 | 3u << 8);
}
