/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which blocks of entries give their pages back, wait, and are freed. */
#include "tap.h"

#define pages_drop    note_drop
#define busy_let_pass note_pass
#define free(object)  note_free(object)
static void note_free(void *object);
#include "service/discard.c"
#undef free

static char blocks[3]; /* one for a small value, two for large ones */
static char notes[64];

static void note(char what, const void *block)
{
    size_t used = strlen(notes);

    require(used + 3 < sizeof notes);
    notes[used] = what;
    if (block)
        notes[used + 1] = (char)('0' + ((const char *)block - blocks));
}

void note_drop(void *at, size_t bytes)
{
    check(bytes >= LARGE_BYTES);
    note('d', at);
}

void note_pass(void)
{
    note('w', NULL);
}

static void note_free(void *object)
{
    note('f', object);
}

TAP_TEST(large_values_lose_their_pages_before_the_first_block_and_wait_before_their_own_is_freed)
{
    void *all[] = {&blocks[0], &blocks[1], &blocks[2]};
    size_t bytes[] = {LARGE_BYTES - 1, LARGE_BYTES, 64 << 10};

    service_free_entries(all, bytes, 3);
    check_str(notes, "d1d2f0wf1wf2");
}
