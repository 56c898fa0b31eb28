/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the files of a source: places, names, bounds, and bytes by a backend that is slow, breaks
 * or lies (tests/source_test.c). */
#include "source/source.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)3 * 1000 * 1000 + 17)

TAP_DROP(source_close, struct source *)
#define auto_source __attribute__((unused, cleanup(source_close_at))) struct source

static struct failure failure;
static char directory[] = "/tmp/gmsfs-source-XXXXXX";
static char place[256];
static uint8_t *content;

static void make_files(void)
{
    char path[64];
    FILE *file;

    strcpy(strrchr(directory, '-') + 1, "XXXXXX");
    require(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/a.bin", directory);
    content = malloc(FILE_BYTES);
    require(content);
    for (size_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)(i * 7 + i / 251);
    file = fopen(path, "w");
    require(file && fwrite(content, FILE_BYTES, 1, file) == 1 && fclose(file) == 0);
    snprintf(path, sizeof(path), "%s/folder", directory);
    require(mkdir(path, 0700) == 0);
    snprintf(path, sizeof(path), "%s/folder/b.bin", directory);
    file = fopen(path, "w");
    require(file && fputs("b", file) > 0 && fclose(file) == 0);
}

static void remove_files(void)
{
    static const char *const names[] = {"a.bin", "folder/b.bin", "folder", ""};
    char path[64];

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        require(remove(path) == 0);
    }
    free(content);
}

/* Returns the file with those faults. */
static const char *in_test(const char *name, const char *faults)
{
    snprintf(place, sizeof(place), "test://%s%s%s", directory, name, faults);
    return place;
}

/* ---- places and names ------------------------------------------------------------------------ */

TAP_BEFORE_EACH(make_files)
TAP_AFTER_EACH(remove_files)

TAP_TEST(a_place_with_a_scheme_is_no_path)
{
    check(source_has_scheme("https://host/x"));
    check(source_has_scheme("HF://org/model"));
    check(!source_has_scheme("/tmp/https://x"));
    check(!source_has_scheme("./http://x"));
    check(!source_has_scheme("://x"));
    check(!source_has_scheme("x:/y"));
}

TAP_TEST(an_unknown_scheme_is_refused_and_the_known_ones_are_named)
{
    auto_source *source = source_open();
    size_t file;

    check_int(source_add(source, "ftp://host/x", NULL, 0, &file, &failure), -EPROTONOSUPPORT);
    check_str(failure.text, "ftp://host/x: ftp:// is not known; name a path, http://, https://, "
                            "s3:// or hf://");
    check(!source_is_tree("ftp://host/x/"));
}

TAP_TEST(a_password_and_a_query_are_in_no_message)
{
    auto_source *source = source_open();
    size_t file;

    check(source_add(source, "ftp://me:secret@host/x@y?sign=secret", NULL, 0, &file, &failure) !=
          0);
    check(strstr(failure.text, "secret") == NULL);
    check(strstr(failure.text, "ftp://host/x@y: ") == failure.text);
}

static void check_shown(const char *of, const char *expected)
{
    char *shown = source_show(of);

    check_str(shown, expected);
    free(shown);
}

TAP_TEST(a_place_is_shown_with_its_name_whole_and_without_secrets)
{
    check_shown("/tmp/a?b#c@d", "/tmp/a?b#c@d");
    check_shown("https://host:80/a@b.gguf?sign=x#y", "https://host:80/a@b.gguf");
    check_shown("https://u:pa@host/f", "https://host/f");
    check_shown("https://u:pa/ss@host/f", "https://host/f");
    check_shown("https://u:p?a#s@s@host/f?x", "https://host/f");
    check_shown("http://[::1]:80/a@b", "http://[::1]:80/a@b");
    check_shown("s3://bucket/a?b#c@d.gguf", "s3://bucket/a?b#c@d.gguf");
    check_shown("HF://org/model@main/a?b#c", "HF://org/model@main/a?b#c");
}

TAP_TEST(names_that_leave_their_tree_are_refused)
{
    char name[400];

    check(source_name_fault("a") == NULL);
    check(source_name_fault("a/b..c/..d/...") == NULL);
    check_str(source_name_fault("/a"), "is no relative name");
    check_str(source_name_fault(""), "has an empty part");
    check_str(source_name_fault("a//b"), "has an empty part");
    check_str(source_name_fault("a/"), "has an empty part");
    check_str(source_name_fault(".."), "has the part '..'");
    check_str(source_name_fault("a/../b"), "has the part '..'");
    check_str(source_name_fault("./b"), "has the part '.'");
    check_str(source_name_fault("a\nb"), "has a control character");
    memset(name, 'n', sizeof(name));
    name[255] = '\0';
    check(source_name_fault(name) == NULL);
    name[255] = 'n';
    name[256] = '\0';
    check_str(source_name_fault(name), "has a part of more than 255 bytes");
}

TAP_TEST(a_list_has_files_and_folders_sorted)
{
    auto_source *source = source_open();
    struct source_list list;

    require(source_list(source, directory, NULL, false, &list, &failure) == 0);
    require(list.count == 2);
    check_str(list.entries[0].name, "a.bin");
    check(!list.entries[0].is_folder);
    check_str(list.entries[1].name, "folder");
    check(list.entries[1].is_folder);
    source_list_free(&list);
    require(source_list(source, directory, NULL, true, &list, &failure) == 0);
    require(list.count == 2);
    check_str(list.entries[1].name, "folder/b.bin");
    source_list_free(&list);
    check_int(source_list(source, directory, "nothing", false, &list, &failure), -ENOENT);
}

TAP_TEST(names_that_a_server_announces_are_checked)
{
    auto_source *source = source_open();
    struct source_list list;

    check_int(source_list(source, in_test("", "?names=../x"), NULL, false, &list, &failure),
              -EINVAL);
    check(strstr(failure.text, "announces the file '../x', whose name has the part '..'") != NULL);
    check_int(source_list(source, in_test("", "?names=a.bin"), NULL, false, &list, &failure),
              -EINVAL);
    check(strstr(failure.text, "'a.bin', whose name is announced twice") != NULL);
    check_int(list.count, 0);
}

TAP_TEST(a_file_beside_another_is_found_with_and_without_a_tree)
{
    auto_source *source = source_open();
    char path[300];
    size_t one, other;

    snprintf(path, sizeof(path), "%s/a.bin", directory);
    require(source_add(source, directory, "a.bin", 0, &one, &failure) == 0);
    check_str(source_get(source, one)->shown, path);
    require(source_add_beside(source, one, "folder/b.bin", &other, &failure) == 0);
    check_int(source_get(source, other)->size_bytes, 1);
    require(source_add(source, path, NULL, 0, &one, &failure) == 0);
    require(source_add_beside(source, one, "folder/b.bin", &other, &failure) == 0);
    snprintf(path, sizeof(path), "%s/folder/b.bin", directory);
    check_str(source_get(source, other)->shown, path);
}

TAP_TEST(files_past_the_page_cache_are_slow_on_any_number_of_processors)
{
    auto_source *source = source_open();
    size_t file;

    require(source_add(source, directory, "a.bin", 0, &file, &failure) == 0);
    source_prepare(source, DIRECT_NEVER, FILE_BYTES, 0);
    check(!source_is_slow(source));
    source_prepare(source, DIRECT_ALWAYS, FILE_BYTES, 0);
    check(source_is_slow(source));
}

TAP_TEST(a_file_that_was_added_before_keeps_its_number_unless_a_flag_is_new)
{
    auto_source *source = source_open();
    size_t one, other;

    require(source_add(source, directory, "a.bin", SOURCE_IN_TURN, &one, &failure) == 0);
    require(source_add(source, directory, "folder/b.bin", 0, &other, &failure) == 0);
    check(other != one);
    require(source_add_beside(source, other, "../a.bin", &other, &failure) == 0);
    check(other != one);
    require(source_add(source, directory, "a.bin", 0, &other, &failure) == 0);
    check_int(other, one);
    require(source_add(source, directory, "a.bin", SOURCE_NO_LINKS, &other, &failure) == 0);
    check(other != one);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Takes the bytes into one buffer, in contiguous parts of any size. */
struct taker {
    struct source_receiver receiver;
    uint8_t *bytes;
    size_t part_bytes, done_bytes;
};

static int taker_room(struct source_receiver *receiver, size_t most_bytes, bool in_blocks,
                      uint8_t **room, size_t *room_bytes)
{
    struct taker *taker = (struct taker *)receiver;

    check(!in_blocks);
    check(most_bytes > 0 && most_bytes <= receiver->left_bytes);
    *room = taker->bytes + taker->done_bytes;
    *room_bytes = most_bytes;
    return 0;
}

static int taker_put(struct source_receiver *receiver, const uint8_t *bytes, size_t size_bytes)
{
    struct taker *taker = (struct taker *)receiver;

    require(bytes == taker->bytes + taker->done_bytes);
    taker->done_bytes += size_bytes;
    receiver->at_bytes += size_bytes;
    receiver->left_bytes -= size_bytes;
    if (receiver->left_bytes == 0)
        receiver->left_bytes = taker->part_bytes;
    return 0;
}

/* Copies a range from that place, and returns the result. */
static int copy_range(const char *from, uint64_t at, size_t size_bytes, size_t part_bytes)
{
    struct source *source = source_open();
    struct taker taker = {.receiver = {.room = taker_room,
                                       .put = taker_put,
                                       .left_bytes = part_bytes,
                                       .step_bytes = SIZE_MAX,
                                       .fd = -1},
                          .bytes = malloc(size_bytes),
                          .part_bytes = part_bytes};
    size_t file;
    int error;

    require(taker.bytes && source_add(source, from, NULL, 0, &file, &failure) == 0);
    error = source_copy(source, file, at, size_bytes, &taker.receiver, &failure);
    if (!error) {
        check_int(taker.done_bytes, size_bytes);
        check(memcmp(taker.bytes, content + at, size_bytes) == 0);
    }
    free(taker.bytes);
    source_close(source);
    return error;
}

TAP_TEST(ranges_are_copied_in_parts_of_any_size)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/a.bin", directory);
    check_int(copy_range(path, 0, FILE_BYTES, FILE_BYTES), 0);
    check_int(copy_range(path, 17, 2000001, 4097), 0);
    check_int(copy_range(in_test("/a.bin", ""), 0, FILE_BYTES, FILE_BYTES), 0);
    check_int(copy_range(in_test("/a.bin", ""), 17, 2000001, 4097), 0);
    check_int(copy_range(path, FILE_BYTES, 0, 1), 0);
    check_int(copy_range(path, FILE_BYTES, 1, 1), -ENODATA);
    check_int(copy_range(path, UINT64_MAX, 2, 1), -ENODATA);
}

TAP_TEST(a_file_that_is_shorter_than_announced_is_an_error)
{
    check_int(copy_range(in_test("/a.bin", "?size=1"), 0, FILE_BYTES + 1, FILE_BYTES), -ENODATA);
    check_int(copy_range(in_test("/a.bin", "?size=1"), 0, FILE_BYTES, FILE_BYTES), 0);
}

TAP_TEST(a_failure_of_the_server_comes_in_its_words)
{
    check_int(copy_range(in_test("/a.bin", "?fail=2500000"), 0, FILE_BYTES, FILE_BYTES), -EIO);
    check_str(failure.text, "the server answered 503; try again later");
    check_int(copy_range(in_test("/a.bin", "?fail=2500000"), 0, 2500000, FILE_BYTES), 0);
}

TAP_TEST(a_size_that_no_file_can_have_is_refused)
{
    auto_source *source = source_open();
    size_t file;

    check_int(source_add(source, in_test("/a.bin", "?huge=1"), NULL, 0, &file, &failure), -EFBIG);
    check(strstr(failure.text, "more bytes than a file can have") != NULL);
}

static void *cancel_soon(void *source)
{
    usleep(50000);
    source_cancel(source);
    return NULL;
}

TAP_TEST(a_cancelled_source_wakes_its_reads_and_refuses_later_ones)
{
    auto_source *source = source_open();
    pthread_t thread;
    uint8_t byte;
    size_t file;

    require(source_add(source, in_test("/a.bin", "?hang=0"), NULL, 0, &file, &failure) == 0);
    require(pthread_create(&thread, NULL, cancel_soon, source) == 0);
    check_int(source_read(source, file, 0, &byte, 1, &failure), -ECANCELED);
    pthread_join(thread, NULL);
    check_int(source_read(source, file, 1, &byte, 1, &failure), -ECANCELED);
}

TAP_TEST(bytes_of_this_process_are_a_file_with_the_name_of_another)
{
    auto_source *source = source_open();
    uint8_t *bytes = (uint8_t *)strdup("hello"), got[3];
    size_t one, file;

    require(source_add(source, directory, "a.bin", 0, &one, &failure) == 0);
    require(source_add_bytes(source, one, bytes, 5, &file) == 0);
    check_str(source_get(source, file)->shown, source_get(source, one)->shown);
    check_int(source_get(source, file)->size_bytes, 5);
    check_int(source_read(source, file, 2, got, 3, &failure), 0);
    check(memcmp(got, "llo", 3) == 0);
    check_int(source_read(source, file, 3, got, 3, &failure), -ENODATA);
}

TAP_TEST(a_link_is_followed_unless_that_is_refused)
{
    auto_source *source = source_open();
    char link[64];
    size_t file;

    snprintf(link, sizeof(link), "%s/link", directory);
    require(symlink("a.bin", link) == 0);
    check_int(source_add(source, directory, "link", 0, &file, &failure), 0);
    check_int(source_add(source, directory, "link", SOURCE_NO_LINKS, &file, &failure), -ELOOP);
    require(unlink(link) == 0);
}

/* ---- files that change --------------------------------------------------------------------- */

/* Puts another file of the same size and times in the place of a.bin. */
static void replace_file(void)
{
    char path[64], other[64];
    struct stat status;
    FILE *file;

    snprintf(path, sizeof(path), "%s/a.bin", directory);
    snprintf(other, sizeof(other), "%s/other", directory);
    file = fopen(other, "w");
    require(file && fclose(file) == 0 && truncate(other, (off_t)FILE_BYTES) == 0);
    require(stat(path, &status) == 0);
    require(utimensat(AT_FDCWD, other, (struct timespec[]){status.st_atim, status.st_mtim}, 0) ==
            0);
    require(rename(other, path) == 0);
}

TAP_TEST(a_file_that_is_opened_in_turn_is_refused_once_another_has_its_place)
{
    struct source *source = source_open();
    size_t held, in_turn;
    uint8_t byte = 1;
    char path[64];

    require(source_add(source, directory, "a.bin", 0, &held, &failure) == 0);
    require(source_add(source, directory, "a.bin", SOURCE_IN_TURN, &in_turn, &failure) == 0);
    check_int(source_read(source, in_turn, 1, &byte, 1, &failure), 0);
    check_int(byte, content[1]);
    replace_file();
    check_int(source_read(source, in_turn, 1, &byte, 1, &failure), -ESTALE);
    check(strstr(failure.text, "another file than at the start") != NULL);
    check_int(source_read(source, held, 1, &byte, 1, &failure), 0);
    check_int(byte, content[1]);
    source_close(source);
    source = source_open();
    require(source_add(source, directory, "a.bin", SOURCE_IN_TURN, &in_turn, &failure) == 0);
    snprintf(path, sizeof(path), "%s/a.bin", directory);
    require(truncate(path, 5) == 0);
    check_int(source_read(source, in_turn, 1, &byte, 1, &failure), -ESTALE);
    source_close(source);
}

/* Makes the link DIRECTORY/folder/link, or changes it at once. */
static void put_link(const char *target)
{
    char link[64], made[64];

    snprintf(link, sizeof(link), "%s/folder/link", directory);
    snprintf(made, sizeof(made), "%s/made", directory);
    require(symlink(target, made) == 0 && rename(made, link) == 0);
}

TAP_TEST(a_link_that_leads_out_of_its_tree_after_the_list_is_refused)
{
    auto_source *source = source_open();
    struct source_list list;
    char tree[64], link[80];
    size_t file;

    snprintf(tree, sizeof(tree), "%s/folder", directory);
    snprintf(link, sizeof(link), "%s/link", tree);
    put_link("b.bin");
    require(source_list(source, tree, NULL, true, &list, &failure) == 0);
    check_int(list.count, 2);
    source_list_free(&list);
    put_link("../a.bin");
    check_int(source_add(source, tree, "link", SOURCE_LISTED, &file, &failure), -EINVAL);
    check(strstr(failure.text, "/a.bin' by now, outside of the directory") != NULL);
    check_int(source_add(source, tree, "link", 0, &file, &failure), 0);
    put_link("b.bin");
    check_int(source_add(source, tree, "link", SOURCE_LISTED, &file, &failure), 0);
    require(unlink(link) == 0);
}
