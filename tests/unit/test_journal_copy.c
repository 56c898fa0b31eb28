/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a journal has the journal's content; a cut, changed or foreign copy is refused.
 */
#include "daemon/journal_show.h"
#include "daemon/replay.h"
#include "journal/journal_copy.h"
#include "journal/journal_internal.h"
#include "tap.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct journal_files files, again;
static struct failure failure;

static void add(struct journal *journal, uint32_t type, const void *bytes, size_t size)
{
    const struct iovec part = {(void *)(uintptr_t)bytes, size};

    require(journal_reserve(journal, journal_entry_room(size)) == 0);
    journal_add(journal, type, &part, 1);
}

static void add_record(struct journal *journal, struct core *core, struct record record)
{
    uint8_t bytes[4096];

    require(record_most_bytes(&record) <= sizeof bytes);
    add(journal, TRANSACTION_RECORD, bytes, (size_t)(record_pack(bytes, &record) - bytes));
    require(core_apply(core, &record, NULL) == 0);
}

/* A journal of a mount with one store, in a copy; the descriptor of the copy. */
static int make_copy(void)
{
    const struct core_options options = {.granularity_bytes = 65536, .patience_ms = 1000};
    struct journal *journal = NULL;
    struct core *core = NULL;
    uint8_t *state = NULL;
    size_t size = 0;

    require(journal_make_files(&files) == 0);
    require(journal_open(&files, &journal, &failure) == 0);
    require(core_new(&options, &core) == 0 && core_encode(core, &state, &size) == 0);
    add(journal, TRANSACTION_STATE, state, size);
    add_record(journal, core,
               (struct record){.type = RECORD_STORE_CREATE,
                               .name = "e\x1bvil",
                               .name_bytes = 5,
                               .uid = 7,
                               .mode = 0700,
                               .now_ms = 1,
                               .wall_ms = 1000});
    journal_publish(journal);
    add_record(journal, core, (struct record){.type = RECORD_TIME, .now_ms = 2, .wall_ms = 2000});
    journal_publish(journal);
    free(state);
    core_free(core);
    journal_close(journal);
    int fd = memfd_create("copy", MFD_CLOEXEC);
    require(fd >= 0 && journal_write_copy(&files, fd) == 0);
    journal_close_files(&files);
    return fd;
}

/* Returns the copy's content as text, or NULL if it was refused, with the cause in `failure`. */
static char *show(int fd)
{
    struct journal *journal = NULL;
    char *text = NULL;
    size_t size = 0;

    failure.text[0] = '\0';
    if (journal_read_copy(fd, &again, &failure))
        return NULL;
    FILE *to = open_memstream(&text, &size);
    int error = journal_open(&again, &journal, &failure);
    if (!error)
        error = journal_show(journal, to, &failure);
    journal_close(journal);
    journal_close_files(&again);
    fclose(to);
    if (!error)
        return text;
    free(text);
    return NULL;
}

static void check_refused(int fd)
{
    char *text = show(fd);

    check(text == NULL);
    check(failure.text[0] != '\0' && !strchr(failure.text, '\n'));
    free(text);
}

static off_t size_of(int fd)
{
    struct stat stat;

    require(fstat(fd, &stat) == 0);
    return stat.st_size;
}

TAP_TEST(a_copy_shows_state_and_records_and_is_harmless)
{
    auto_fd fd = make_copy();
    auto_free char *text = show(fd);

    require(text != NULL);
    check(strstr(text, "state stores=0 ") == text);
    check(strstr(text, "record 0 1970-01-01T00:00:01.000Z store_create "));
    check(strstr(text, "uid=7 mode=0700 name='e?vil'\n"));
    check(strstr(text, "record 1 1970-01-01T00:00:02.000Z time"));
    check(!strchr(text, '\x1b'));
}

TAP_TEST(a_replay_counts_the_records_whose_states_hold)
{
    auto_fd fd = make_copy();
    struct journal *journal = NULL;
    uint64_t records = 0;

    require(journal_read_copy(fd, &again, &failure) == 0);
    require(journal_open(&again, &journal, &failure) == 0);
    check_int(replay_check_each(journal, &records, &failure), 0);
    check_int((long long)records, 2);
    journal_close(journal);
    journal_close_files(&again);
}

TAP_TEST(a_record_that_cannot_be_applied_is_named)
{
    struct journal *journal = NULL;
    struct core *core = NULL;
    uint64_t records = 0;
    uint8_t bytes[4096];
    struct record record = {.type = RECORD_SESSION_END, .session = 99};
    auto_fd fd = make_copy();

    require(journal_read_copy(fd, &again, &failure) == 0);
    require(journal_open(&again, &journal, &failure) == 0);
    require(replay_journal(journal, &core, &failure) == 0);
    core_free(core);
    add(journal, TRANSACTION_RECORD, bytes, (size_t)(record_pack(bytes, &record) - bytes));
    journal_publish(journal);
    check(replay_check_each(journal, &records, &failure) != 0);
    check_int((long long)records, 2);
    check(strstr(failure.text, "record 2 (session_end)"));
    journal_close(journal);
    journal_close_files(&again);
}

TAP_TEST(a_copy_that_is_cut_off_anywhere_is_refused)
{
    auto_fd fd = make_copy();

    for (off_t size = size_of(fd) - 1; size >= 0; size -= size > 4300 ? 7 : 97) {
        require(ftruncate(fd, size) == 0);
        check_refused(fd);
    }
}

TAP_TEST(a_copy_that_more_follows_is_refused)
{
    auto_fd fd = make_copy();

    require(pwrite(fd, "x", 1, size_of(fd)) == 1);
    check_refused(fd);
}

/* A number that is too large anywhere takes neither memory nor a crash. */
TAP_TEST(huge_counts_are_refused_or_without_effect)
{
    const uint64_t huge[] = {UINT64_MAX, UINT64_MAX / 2, UINT64_C(1) << 40, UINT64_C(1) << 33};

    for (off_t at = 0; at < 256; at += 8) {
        for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
            int fd = make_copy();
            require(pwrite(fd, &huge[i], sizeof huge[i], at) == sizeof huge[i]);
            char *text = show(fd);
            check(text || (failure.text[0] && !strchr(failure.text, '\n')));
            free(text);
            close(fd);
        }
    }
}

TAP_TEST(random_bytes_are_refused)
{
    uint8_t bytes[8192];
    auto_fd fd = memfd_create("random", MFD_CLOEXEC);

    srand(42);
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand();
        require(ftruncate(fd, 0) == 0);
        require(pwrite(fd, bytes, sizeof bytes, 0) == (ssize_t)sizeof bytes);
        check_refused(fd);
    }
}

TAP_TEST(the_files_of_a_process_are_found_by_their_names)
{
    struct journal_files found;
    struct stat one, other;

    require(journal_make_files(&files) == 0);
    require(journal_find_files(getpid(), &found) == 0);
    require(fstat(files.transactions[1], &one) == 0);
    require(fstat(found.transactions[1], &other) == 0);
    check(one.st_ino == other.st_ino);
    journal_close_files(&found);
    journal_close_files(&files);
    check_int(journal_find_files(getpid(), &found), -ENOENT);
}

TAP_TEST(files_of_a_former_build_are_told_from_none)
{
    struct journal_files found;
    auto_fd head = memfd_create("journal", MFD_CLOEXEC);

    require(head >= 0);
    check_int(journal_find_files(getpid(), &found), -EPROTONOSUPPORT);
}

TAP_TEST(a_head_that_does_not_fit_its_files_is_not_copied)
{
    uint64_t bytes = JOURNAL_MAX_BYTES + 1;
    auto_fd copy = memfd_create("copy", MFD_CLOEXEC);

    require(copy >= 0 && journal_make_files(&files) == 0);
    require(pwrite(files.head, &bytes, sizeof bytes, offsetof(struct head, tails)) == sizeof bytes);
    check_int(journal_write_copy(&files, copy), -EPROTO);
    journal_close_files(&files);
}
