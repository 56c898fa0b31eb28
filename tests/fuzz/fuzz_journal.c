/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a journal, as left by a dead process: they are refused in one line, or give the next
 * worker a consistent state.
 *
 * An input is the flags, the sizes of the four files after the head, the head, and the files. With
 * FLAG_SUMS the sums are corrected first, because no input would get past them.
 */
#include "fuzz.h"

#include "../../src/journal/journal.c" /* sums need the offsets */
#include "core/core.h"
#include "daemon/journal_show.h"
#include "daemon/replay.h"

#define FLAG_SUMS 1u

struct input {
    uint32_t flags;
    uint16_t sizes[4]; /* of transactions, and of snapshots */
    uint32_t pad;
    struct head head;
};

struct content {
    uint8_t *bytes;
    size_t size;
};

static void sum_transactions(struct content *content, uint64_t generation, uint64_t at,
                             uint64_t tail)
{
    struct transaction_head transaction;

    while (at < content->size && at < tail && content->size - at >= sizeof transaction) {
        memcpy(&transaction, content->bytes + at, sizeof transaction);
        uint64_t first = at + sizeof transaction;
        if (transaction.bytes == 0 || transaction.bytes > content->size - first)
            return;
        transaction.hash = XXH3_64bits_withSeed(content->bytes + first, transaction.bytes,
                                                seed_of(generation, at));
        memcpy(content->bytes + at, &transaction, sizeof transaction);
        at = first + transaction.bytes;
    }
}

static void make_sums(struct head *head, struct content contents[4])
{
    unsigned first = file_of(head->base), second = file_of(head->base + 1);
    const struct content *snapshot = &contents[2 + first];

    sum_transactions(&contents[first], head->base, head->from[first], head->tails[first]);
    sum_transactions(&contents[second], head->base + 1, 0, head->tails[second]);
    if (head->snapshot_bytes[first] <= snapshot->size)
        head->snapshot_hash[first] =
            XXH3_64bits_withSeed(snapshot->bytes, head->snapshot_bytes[first], head->base);
}

static void fill(int fd, const void *bytes, size_t size)
{
    must(size == 0 || pwrite(fd, bytes, size, 0) == (ssize_t)size);
}

static void make_files(const struct input *input, const struct content contents[4],
                       struct journal_files *files)
{
    must(journal_make_files(files) == 0);
    fill(files->head, &input->head, sizeof input->head);
    for (unsigned i = 0; i < 2; i++) {
        must(ftruncate(files->transactions[i], ROOM_STEP_BYTES) == 0);
        fill(files->transactions[i], contents[i].bytes, contents[i].size);
        fill(files->snapshots[i], contents[2 + i].bytes, contents[2 + i].size);
    }
}

static void check_replay(const struct journal *journal)
{
    struct core *core = NULL;
    struct failure failure = {.text = ""};
    int error = replay_journal(journal, &core, &failure);

    if (error) { /* a record may fail for lack of device memory */
        must(error == -EPROTO || error == -EPROTONOSUPPORT || error == -EINVAL || error == -ENOMEM);
        must(!core && fuzz_is_line(failure.text));
        return;
    }
    must(core_check(core, &failure) == 0);
    core_free(core);
}

/* As `gmsfs journal` does: shows the journal as far as it is readable, and checks each state. */
static void check_showing(const struct journal *journal)
{
    struct failure failure = {.text = ""};
    uint64_t records = 0;
    FILE *to = fopen("/dev/null", "w");

    must(to != NULL);
    if (journal_show(journal, to, &failure))
        must(fuzz_is_line(failure.text));
    fclose(to);
    failure.text[0] = '\0';
    if (replay_check_each(journal, &records, &failure))
        must(fuzz_is_line(failure.text));
}

/* It works without the freed parts, and can be written to. */
static void check_writing(struct journal *journal)
{
    static char text[] = "acts of the next worker";
    const struct iovec part = {text, sizeof text};

    if (journal_reserve(journal, journal_entry_room(sizeof text)))
        return;
    uint64_t before = journal_get_numbers(journal).bytes;
    must(memcmp(journal_add(journal, 3, &part, 1), text, sizeof text) == 0);
    journal_publish(journal);
    must(journal_get_numbers(journal).bytes > before);
}

static void check_journal(const struct journal_files *files)
{
    struct journal *journal = NULL;
    struct failure failure = {.text = ""};
    int error = journal_open(files, &journal, &failure);

    if (error) {
        must(error == -EPROTO || error == -EPROTONOSUPPORT);
        must(!journal && fuzz_is_line(failure.text));
        return;
    }
    check_replay(journal);
    check_showing(journal);
    check_writing(journal);
    journal_close(journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input;
    struct content contents[4];
    struct journal_files files;

    if (size < sizeof input)
        return 0;
    memcpy(&input, data, sizeof input);
    size_t at = sizeof input;
    for (unsigned i = 0; i < 4; i++) {
        contents[i].size = input.sizes[i] < size - at ? input.sizes[i] : size - at;
        contents[i].bytes = (uint8_t *)fuzz_text(data + at, contents[i].size);
        at += contents[i].size;
    }
    if (input.flags & FLAG_SUMS)
        make_sums(&input.head, contents);
    make_files(&input, contents, &files);
    check_journal(&files);
    journal_close_files(&files);
    for (unsigned i = 0; i < 4; i++)
        free(contents[i].bytes);
    return 0;
}
