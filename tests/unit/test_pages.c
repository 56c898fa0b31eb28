/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that are dropped: those inside, and no other byte. */
#include "base/pages.h"
#include "tap.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

TAP_TEST(parts_are_dropped_at_once_each_as_if_alone)
{
    uint8_t *at = make_used();
    void *parts[] = {at + page - 1, at + 4 * page + 1, at + 6 * page + 1, at + 9 * page,
                     at + 20 * page};
    size_t bytes[] = {2 * page, page, 1, 3 * page + 5, 4 * page};

    pages_drop_all(parts, bytes, 0);
    pages_drop_all(parts, bytes, sizeof bytes / sizeof bytes[0]);
    check_pages(at, 1u << 1 | 7u << 9 | 15u << 20);
}

TAP_TEST(more_parts_than_one_call_takes_are_dropped_too)
{
    void *parts[PAGES_PARTS_MAX + 1];
    size_t bytes[PAGES_PARTS_MAX + 1];
    uint8_t *at = make_used();

    for (size_t i = 0; i <= PAGES_PARTS_MAX; i++) {
        parts[i] = at + i % 3 * page;
        bytes[i] = page;
    }
    pages_drop_all(parts, bytes, PAGES_PARTS_MAX + 1);
    check_pages(at, 7);
}

TAP_TEST(without_a_descriptor_parts_are_dropped_one_by_one)
{
    uint8_t *at = make_used();
    void *parts[] = {at, at + 2 * page};
    size_t bytes[] = {page, page};
    struct rlimit before, none;

    require(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    require(setrlimit(RLIMIT_NOFILE, &none) == 0);
    pages_drop_all(parts, bytes, 2);
    setrlimit(RLIMIT_NOFILE, &before);
    check_pages(at, 5);
}
