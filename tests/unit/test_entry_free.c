/* SPDX-License-Identifier: Apache-2.0 */
/* Page faults inside free(3) of entries, while a child process, as of a snapshot, shares the pages.
 */
#include "tap.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT        64
#define SPACER_BYTES 256u /* with them, the begins of equal blocks fall on all parts of a page */

static long faults;
static size_t freed;

static void count_free(void *block);

#define free(block) count_free(block)
#include "meta/entry.c"
#undef free

static long read_faults(void)
{
    struct rusage usage;

    require(getrusage(RUSAGE_THREAD, &usage) == 0);
    return usage.ru_minflt;
}

/* Writes to the first and the last byte, as free(3) does beside them. */
static void count_free(void *block)
{
    volatile char *bytes = block;
    size_t size = malloc_usable_size(block);
    long before = read_faults();

    bytes[0] = 1;
    bytes[size - 1] = 1;
    faults += read_faults() - before;
    freed++;
    free(block);
}

static pid_t share_pages(void)
{
    pid_t parent = getpid(), child = fork();

    require(child >= 0);
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent)
            pause();
        _exit(0);
    }
    return child;
}

/* Checks entries of which each has its own block, with room for one entry or for more. */
static void check_faults(uint32_t value_bytes, bool with_room)
{
    static struct layout_entry *entries[COUNT];
    static void *spacers[COUNT];
    uint8_t *value = calloc(1, value_bytes);
    struct layout_put put = {.key = "key", .key_bytes = 3, .slot = LAYOUT_UNBOUND};
    pid_t child;

    require(value != NULL);
    put.value = value;
    put.value_bytes = value_bytes;
    faults = 0;
    freed = 0;
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = layout_entry_cost(&put);
        struct layout_entry_maker maker = {.left_bytes = with_room ? 2 * bytes : bytes};
        entries[i] = layout_entry_new(&maker, &put, i);
        spacers[i] = malloc(SPACER_BYTES);
        require(entries[i] && spacers[i]);
    }
    child = share_pages();
    for (size_t i = 0; i < COUNT; i += 2) /* the pages of both neighbours are still shared */
        layout_entries_release(&entries[i], 1);
    check_int(freed, COUNT / 2);
    /* malloc's own bytes behind a few blocks lie on the next page. */
    check_int(faults < COUNT / 8 ? 0 : faults, 0);
    for (size_t i = 1; i < COUNT; i += 2)
        layout_entries_release(&entries[i], 1);
    for (size_t i = 0; i < COUNT; i++)
        free(spacers[i]);
    free(value);
    require(kill(child, SIGKILL) == 0);
    require(waitpid(child, NULL, 0) == child);
}

TAP_TEST(a_shared_value_meets_its_page_faults_before_free_takes_mallocs_lock)
{
    check_faults(64u << 10, false);
}

TAP_TEST(a_shared_block_with_room_left_does_so_too)
{
    check_faults(2500, true);
}
