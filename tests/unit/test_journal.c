/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the journal: transactions and snapshots, as the next worker finds them. */
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static struct journal_files files;
static struct journal *journal;
static char found[1u << 20]; /* output of journal_read, as text */

static void reopen(void)
{
    struct failure failure = {.text = ""};

    journal_close(journal);
    journal = NULL;
    if (!check_int(journal_open(&files, &journal, &failure), 0))
        fprintf(stderr, "# %s\n", failure.text);
    require(journal != NULL);
}

static void begin(void)
{
    journal_close(journal);
    journal = NULL;
    if (files.head > 0)
        journal_close_files(&files);
    require(journal_make_files(&files) == 0);
    reopen();
}

static void add(const char *text)
{
    require(journal_reserve(journal, journal_entry_room(strlen(text))) == 0);
    const struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    journal_add(journal, (uint32_t)strlen(text), &part, 1);
}

static void publish(const char *text)
{
    add(text);
    journal_publish(journal);
}

static int note_entry(void *context, const struct journal_entry *entry)
{
    size_t at = strlen(found);

    (void)context;
    if (entry->type != entry->size)
        return -EILSEQ;
    snprintf(found + at, sizeof found - at, "%s%.*s%s", at ? " " : "", (int)entry->size,
             (const char *)entry->bytes, entry->is_delivered ? "!" : "");
    return 0;
}

static int read_all(void)
{
    struct failure failure;

    found[0] = '\0';
    return journal_read(journal, note_entry, NULL, &failure);
}

static void check_found(const char *wanted)
{
    check_int(read_all(), 0);
    if (!check(strcmp(found, wanted) == 0))
        fprintf(stderr, "# found \"%s\", expected \"%s\"\n", found, wanted);
}

static void check_snapshot(const char *wanted)
{
    size_t size = 0;
    const char *snapshot = journal_get_snapshot(journal, &size);

    if (!wanted) {
        check(snapshot == NULL);
        return;
    }
    check_int(size, strlen(wanted));
    check(snapshot && size == strlen(wanted) && memcmp(snapshot, wanted, size) == 0);
}

TAP_BEFORE_EACH(begin)

TAP_TEST(a_new_journal_has_nothing)
{
    check(journal_is_new(journal));
    check_snapshot(NULL);
    check_found("");
    check(!journal_has_transaction(journal));
    journal_publish(journal);
    check(journal_is_new(journal));
}

TAP_TEST(published_entries_and_no_others_are_there_for_the_next_worker)
{
    add("one");
    add("");
    publish("three");
    publish("four");
    add("lost");
    reopen();
    check(!journal_is_new(journal));
    check_found("one  three four");
    publish("five");
    reopen();
    check_found("one  three four five");
}

TAP_TEST(all_parts_of_an_entry_are_its_bytes)
{
    char abc[] = "abc", def[] = "def";
    const struct iovec parts[] = {{abc, 3}, {NULL, 0}, {def, 3}};

    require(journal_reserve(journal, journal_entry_room(6)) == 0);
    journal_add(journal, 6, parts, 3);
    journal_publish(journal);
    check_found("abcdef");
}

TAP_TEST(withdrawn_entries_are_not_there)
{
    add("one");
    size_t mark = journal_get_mark(journal);
    add("wrong");
    journal_rewind(journal, mark);
    publish("two");
    check_found("one two");
    add("wrong");
    journal_rewind(journal, 0);
    check(!journal_has_transaction(journal));
    journal_publish(journal);
    check_found("one two");
}

TAP_TEST(it_is_known_which_answers_have_left)
{
    publish("a");
    journal_set_delivered(journal);
    publish("b");
    reopen();
    check_found("a! b");
    journal_set_delivered(journal);
    publish("c");
    check_found("a! b! c");
}

TAP_TEST(a_snapshot_stands_for_the_turns_before_it)
{
    publish("a");
    journal_begin_snapshot(journal);
    publish("b");
    require(journal_write_snapshot(journal, "A", 1) == 0);
    publish("c");
    check_found("a b c");
    check_int(journal_end_snapshot(journal), 0);
    check_found("b c");
    reopen();
    check_snapshot("A");
    check_found("b c");
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "ABC", 3) == 0);
    check_int(journal_end_snapshot(journal), 0);
    publish("d");
    reopen();
    check_snapshot("ABC");
    check_found("d");
}

TAP_TEST(an_unfinished_snapshot_changes_nothing)
{
    publish("a");
    journal_begin_snapshot(journal);
    publish("b");
    require(journal_write_snapshot(journal, "half", 4) == 0);
    reopen();
    check_snapshot(NULL);
    check_found("a b");
    publish("c");
    journal_begin_snapshot(journal);
    publish("d");
    journal_abandon_snapshot(journal);
    reopen();
    check_found("a b c d");
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "ABCD", 4) == 0);
    publish("e");
    check_int(journal_end_snapshot(journal), 0);
    reopen();
    check_snapshot("ABCD");
    check_found("e");
}

TAP_TEST(another_process_may_write_the_snapshot)
{
    int status = 0;

    publish("a");
    journal_begin_snapshot(journal);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0)
        _exit(journal_write_snapshot(journal, "A", 1) == 0 ? 0 : 1);
    publish("b");
    require(waitpid(child, &status, 0) == child && status == 0);
    check_int(journal_end_snapshot(journal), 0);
    reopen();
    check_snapshot("A");
    check_found("b");
}

TAP_TEST(a_snapshot_that_was_not_written_is_none)
{
    publish("a");
    journal_begin_snapshot(journal);
    check_int(journal_end_snapshot(journal), -EPROTO);
    reopen();
    check_snapshot(NULL);
    check_found("a");
}

TAP_TEST(it_says_when_enough_was_written_for_a_snapshot)
{
    static char text[1u << 20];

    memset(text, 'x', sizeof text - 1);
    while (journal_get_numbers(journal).bytes < JOURNAL_SNAPSHOT_BYTES) {
        check(!journal_wants_snapshot(journal, JOURNAL_SNAPSHOT_BYTES));
        publish(text);
    }
    check(journal_wants_snapshot(journal, JOURNAL_SNAPSHOT_BYTES));
    journal_begin_snapshot(journal);
    check(!journal_wants_snapshot(journal, JOURNAL_SNAPSHOT_BYTES));
    require(journal_write_snapshot(journal, "S", 1) == 0);
    check_int(journal_end_snapshot(journal), 0);
    check_int(journal_get_numbers(journal).bytes, 0);
    check_int(journal_get_numbers(journal).snapshots, 1);
}

TAP_TEST(more_than_a_file_holds_is_refused_and_harms_nothing)
{
    check_int(journal_reserve(journal, (size_t)JOURNAL_MAX_BYTES), -ENOMEM);
    publish("a");
    check_found("a");
}

/* Runs with files of this size. */
static void begin_small(off_t bytes)
{
    begin();
    for (unsigned i = 0; i < 2; i++)
        require(ftruncate(files.transactions[i], bytes) == 0);
    reopen();
}

static bool fits(size_t size)
{
    return journal_reserve(journal, journal_entry_room(size)) == 0;
}

/* Large entries fail while small ones still fit into the reserve; these fill it to the last
 * byte. */
TAP_TEST(a_file_is_filled_to_its_end_and_never_beyond)
{
    enum {
        BYTES = 1 << 20
    };
    static char large[JOURNAL_SMALL_BYTES * 2];
    uint64_t count = 0, bytes;
    struct stat before, after;

    begin_small(BYTES);
    require(fstat(files.transactions[0], &before) == 0);
    memset(large, 'x', sizeof large - 1);
    while (fits(sizeof large - 1)) {
        publish(large);
        count++;
    }
    check(count > 40);
    bytes = journal_get_numbers(journal).bytes;
    check(bytes > BYTES / 2 && bytes < BYTES);
    while (fits(1)) {
        publish("y");
        count++;
    }
    bytes = journal_get_numbers(journal).bytes;
    check(bytes <= BYTES && BYTES - bytes < 16 + journal_entry_room(1));
    check(!fits(0) || BYTES - bytes >= 16 + journal_entry_room(0));
    journal_rewind(journal, 0);
    check(!fits(1) && !fits(SIZE_MAX / 2));
    require(fstat(files.transactions[0], &after) == 0);
    check_int(after.st_size, before.st_size);
    reopen();
    check(!fits(1));
    check_int(journal_get_numbers(journal).bytes, bytes);
    check_int(read_all(), 0);
}

TAP_TEST(beyond_its_bound_it_takes_only_small_entries_until_a_snapshot)
{
    static char large[JOURNAL_SMALL_BYTES * 2], small[JOURNAL_SMALL_BYTES / 2];
    unsigned count = 0;

    journal_set_bound(journal, 10 * sizeof large);
    memset(large, 'x', sizeof large - 1);
    memset(small, 'y', sizeof small - 1);
    for (; fits(sizeof large - 1) && count < 100; count++)
        publish(large);
    check_int(count, 9);
    check(journal_is_at_bound(journal));
    for (count = 0; fits(sizeof small - 1) && count < 100; count++)
        publish(small);
    check_int(count, 100);
    journal_begin_snapshot(journal);
    check(!fits(sizeof large - 1));
    require(journal_write_snapshot(journal, "state", 5) == 0);
    check_int(journal_end_snapshot(journal), 0);
    check(!journal_is_at_bound(journal) && fits(sizeof large - 1));
}

TAP_TEST(bytes_reserved_beside_an_entry_are_there_when_the_file_is_full)
{
    begin_small(1 << 20);
    while (journal_reserve_with(journal, journal_entry_room(1), 20000) == 0)
        publish("y");
    check(journal_has_room(journal, 20000 - 2 * journal_entry_room(1)));
    check(!journal_has_room(journal, 20000 + 2 * journal_entry_room(1)));
    check(fits(1));
}

static uint64_t memory_of(int fd)
{
    struct stat stat;

    require(fstat(fd, &stat) == 0);
    return (uint64_t)stat.st_blocks * 512;
}

/* More than is kept for the next time. */
static void publish_much(void)
{
    static char text[1u << 20];

    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 80; i++)
        publish(text);
}

TAP_TEST(memory_that_a_dead_worker_has_made_is_given_back)
{
    publish_much();
    journal_begin_snapshot(journal);
    publish("a");
    require(journal_write_snapshot(journal, "half", 4) == 0);
    reopen();
    check_int(memory_of(files.snapshots[1]), 0);
    check(memory_of(files.transactions[0]) > 80u << 20); /* that is all of it */
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "S", 1) == 0);
    require(journal_end_snapshot(journal) == 0);
    check(memory_of(files.transactions[0]) > 80u << 20);
    journal_free_former(journal);
    check_int(memory_of(files.transactions[0]), 64u << 20);
    check_found("");
    publish("b");
    reopen();
    check_found("b");
}

TAP_TEST(memory_of_a_file_that_is_not_in_use_is_given_back)
{
    publish_much();
    publish("a");
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "S", 1) == 0);
    require(journal_end_snapshot(journal) == 0);
    require(fallocate(files.transactions[0], 0, 0, 100 << 20) == 0);
    reopen();
    check_int(memory_of(files.transactions[0]), 64u << 20);
    check_found("");
}

TAP_TEST(trimmed_it_has_little_more_memory_than_it_uses)
{
    publish_much();
    journal_begin_snapshot(journal);
    publish_much();
    require(journal_write_snapshot(journal, "S", 1) == 0);
    require(journal_end_snapshot(journal) == 0);
    journal_begin_snapshot(journal);
    publish("a");
    journal_trim(journal); /* a snapshot is in progress: the former one counts */
    check(memory_of(files.transactions[1]) > 80u << 20);
    require(journal_write_snapshot(journal, "T", 1) == 0);
    require(journal_end_snapshot(journal) == 0);
    journal_trim(journal);
    check(memory_of(files.transactions[0]) <= 1u << 20);
    check(memory_of(files.transactions[1]) <= 1u << 20);
    publish("bc");
    reopen();
    check_snapshot("T");
    check_found("a bc");
}

TAP_TEST(memory_of_the_caller_outlives_it)
{
    unsigned char zeros[JOURNAL_OWN_BYTES] = {0};

    check(memcmp(journal_get_own(journal), zeros, sizeof zeros) == 0);
    memset(journal_get_own(journal), 0xff, JOURNAL_OWN_BYTES);
    publish("a");
    reopen();
    memset(zeros, 0xff, sizeof zeros);
    check(memcmp(journal_get_own(journal), zeros, sizeof zeros) == 0);
    check_found("a");
}

/* Without memory nothing was published, even if the head says so. */
TAP_TEST(an_end_where_there_is_no_memory_is_refused)
{
    struct journal *other = NULL;
    struct failure failure = {.text = ""};
    uint64_t tail = JOURNAL_MAX_BYTES / 2;

    publish("a");
    require(pwrite(files.head, &tail, sizeof tail, 32) == sizeof tail);
    check_int(journal_open(&files, &other, &failure), -EPROTO);
    check(strstr(failure.text, "damaged") != NULL);
}

/* Changes every published byte, one at a time. */
TAP_TEST(damage_is_refused_and_told)
{
    struct stat head;
    unsigned char byte, flipped;

    publish("one");
    publish("twothree");
    require(fstat(files.head, &head) == 0);
    uint64_t bytes = journal_get_numbers(journal).bytes;
    for (uint64_t at = 0; at < bytes; at++) {
        require(pread(files.transactions[0], &byte, 1, (off_t)at) == 1);
        flipped = byte ^ 0x10;
        require(pwrite(files.transactions[0], &flipped, 1, (off_t)at) == 1);
        check_int(read_all(), -EPROTO);
        require(pwrite(files.transactions[0], &byte, 1, (off_t)at) == 1);
    }
    check_found("one twothree");
}

TAP_TEST(a_damaged_snapshot_is_refused)
{
    struct journal *other = NULL;
    struct failure failure = {.text = ""};

    publish("a");
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "snapshot", 8) == 0);
    require(journal_end_snapshot(journal) == 0);
    require(pwrite(files.snapshots[1], "S", 1, 0) == 1);
    check_int(journal_open(&files, &other, &failure), -EPROTO);
    check(strstr(failure.text, "snapshot") != NULL);
    require(ftruncate(files.snapshots[1], 4) == 0);
    check_int(journal_open(&files, &other, &failure), -EPROTO);
}

TAP_TEST(another_version_is_refused)
{
    struct journal *other = NULL;
    struct failure failure = {.text = ""};
    uint32_t version = JOURNAL_VERSION + 1;

    require(pwrite(files.head, &version, sizeof version, 8) == sizeof version);
    check_int(journal_open(&files, &other, &failure), -EPROTONOSUPPORT);
    check(strstr(failure.text, "version") != NULL);
    version = 0;
    require(pwrite(files.head, &version, sizeof version, 0) == sizeof version);
    check_int(journal_open(&files, &other, &failure), -EPROTO);
}

static void check_numbers(uint64_t from, uint64_t to)
{
    static char wanted[1u << 20];
    size_t at = 0;

    wanted[0] = '\0';
    for (uint64_t i = from; i < to; i++)
        at += (size_t)snprintf(wanted + at, sizeof wanted - at, "%s%" PRIu64, at ? " " : "", i);
    check_found(wanted);
}

/* Compares with a list of published entries: at any time the next worker finds all of them, as a
 * snapshot of a prefix and the rest. */
TAP_TEST(random_turns_snapshots_and_deaths_lose_nothing)
{
    enum {
        COUNT = 4000
    };
    uint64_t covered = 0, next = 0, covering = 0;
    bool under_way = false;
    char text[32];

    srandom(7);
    for (int step = 0; step < COUNT; step++) {
        switch (random() % 8) {
        case 0:
            if (under_way)
                break;
            journal_begin_snapshot(journal);
            covering = next;
            snprintf(text, sizeof text, "%" PRIu64, covering);
            require(journal_write_snapshot(journal, text, strlen(text)) == 0);
            under_way = true;
            break;
        case 1:
            if (!under_way)
                break;
            require(journal_end_snapshot(journal) == 0);
            journal_free_former(journal);
            covered = covering;
            under_way = false;
            break;
        case 2:
            add("never");
            reopen();
            under_way = false;
            break;
        default:
            snprintf(text, sizeof text, "%" PRIu64, next++);
            publish(text);
        }
        if (step % 16 == 0)
            check_numbers(covered, next);
    }
    reopen();
    snprintf(text, sizeof text, "%" PRIu64, covered);
    check_snapshot(text);
    check_numbers(covered, next);
    journal_close(journal);
    journal_close_files(&files);
}
