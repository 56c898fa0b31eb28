/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the pure part of the commands' parsing and printing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clean.h"
#include "base/key_name.h"
#include "cli/cli.h"
#include "cli/mount_look.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run.h"
#include "cli/store_state.h"
#include "cli/ui.h"
#include "model/tensor_value.h"
#include "mover/work.h"
#include "tap.h"

#define MIB (1ull << 20)

TAP_TEST(control_characters_are_made_harmless_and_utf8_stays)
{
    char text[] = "a\033[1m\n\x7f"
                  "b\xc3\xa4\xc2\x9bz";

    clean_text(text);
    check_str(text, "a?[1m??b\xc3\xa4??z");
}

TAP_TEST(direction_marks_and_invalid_utf8_are_made_harmless)
{
    static const char *const harmful[] = {
        "\xd8\x9c",         "\xe2\x80\x8e", "\xe2\x80\x8f",     "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaa",     "\xe2\x80\xae", "\xe2\x81\xa6",     "\xe2\x81\xa9", "\x9b",
        "\xc0\x9b",         "\xe0\x82\x9b", "\xf0\x80\x82\x9b", "\xe2\x80",     "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xff"};
    static const char harmless[] = "\xe2\x80\x90\xe2\x80\xaf\xe2\x81\xaa\xf0\x9f\x98\x80";
    char text[64], marks[] = "????";

    for (size_t i = 0; i < sizeof(harmful) / sizeof(harmful[0]); i++) {
        snprintf(text, sizeof(text), "%s", harmful[i]);
        clean_text(text);
        check_str(text, marks + strlen(marks) - strlen(harmful[i]));
    }
    snprintf(text, sizeof(text), "%s", harmless);
    clean_text(text);
    check_str(text, harmless);
}

TAP_TEST(bytes_are_cleaned_behind_a_nul_and_keep_the_wanted_ones)
{
    char bytes[] = "a\tb\n\0\033\xc3";

    clean_bytes(bytes, sizeof(bytes) - 1, "\n\t");
    check_int(memcmp(bytes, "a\tb\n???", sizeof(bytes) - 1), 0);
}

/* Returns the exit status of a command that finds no memory. */
static int end_without_memory(bool is_done)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        fclose(stderr);
        if (is_done)
            output_set_done();
        cli_out_of_memory();
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

TAP_TEST(a_command_without_memory_tells_whether_its_change_stands)
{
    check_int(end_without_memory(false), CLI_FAILURE);
    check_int(end_without_memory(true), CLI_UNREPORTED);
}

TAP_TEST(a_line_of_any_length_is_one_line)
{
    auto_free char *text = NULL, *name = malloc(10000);
    size_t size;
    FILE *to = open_memstream(&text, &size);

    require(to != NULL && name != NULL);
    memset(name, '\n', 9999);
    name[9999] = '\0';
    ui_line(to, "%s and \033", name);
    fclose(to);
    check_int(size, 9999 + strlen(" and ?\n"));
    check_int(strcspn(text, "\n"), size - 1);
}

TAP_TEST(a_bar_is_full_or_empty_only_at_the_ends)
{
    char text[16];

    ui_bar(text, sizeof(text), 12, 0, 100);
    check_str(text, "[----------]");
    ui_bar(text, sizeof(text), 12, 1, 1000000);
    check_str(text, "[#---------]");
    ui_bar(text, sizeof(text), 12, 50, 100);
    check_str(text, "[#####-----]");
    ui_bar(text, sizeof(text), 12, 999999, 1000000);
    check_str(text, "[#########-]");
    ui_bar(text, sizeof(text), 12, 200, 100);
    check_str(text, "[##########]");
    ui_bar(text, sizeof(text), 12, UINT64_MAX - 1, UINT64_MAX);
    check_str(text, "[#########-]");
    ui_bar(text, sizeof(text), 12, 0, 0);
    check_str(text, "[----------]");
    ui_bar(text, sizeof(text), 2, 1, 2);
    check_str(text, "");
    ui_bar(text, sizeof(text), 40, 1, 2);
    check_str(text, "");
}

TAP_TEST(percent_rounds_down)
{
    check_int(ui_percent(0, 0), 0);
    check_int(ui_percent(999, 1000), 99);
    check_int(ui_percent(1000, 1000), 100);
    check_int(ui_percent(UINT64_MAX, UINT64_MAX), 100);
}

static char *table_text(struct ui_table *table)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    require(to != NULL);
    ui_table_end(table, to, 1);
    fclose(to);
    return text;
}

TAP_TEST(a_table_aligns_by_characters_and_ends_without_blanks)
{
    struct ui_table table;
    auto_free char *text = NULL;

    ui_table_begin(&table, "lrl");
    ui_table_add(&table, (const char *[]){"NAME", "N", "LAST"});
    ui_table_add(&table, (const char *[]){"\xc3\xa4", "100", "x"});
    ui_table_add(&table, (const char *[]){"b\tc", "1", NULL});
    text = table_text(&table);
    check_str(text, " NAME    N  LAST\n"
                    " \xc3\xa4     100  x\n"
                    " b?c     1  \n");
}

TAP_TEST(a_table_holds_many_rows)
{
    struct ui_table table;
    auto_free char *text = NULL;

    ui_table_begin(&table, "l");
    for (int i = 0; i < 1000; i++)
        ui_table_add(&table, (const char *[]){"x"});
    text = table_text(&table);
    check_int(strlen(text), 3000);
}

TAP_TEST(progress_fits_the_terminal_and_has_no_bar_without_one)
{
    char text[PROGRESS_TEXT_BYTES];

    progress_format(text, "copying", 512 * MIB, 1024 * MIB, 2000, 0);
    check_str(text, "copying   50%  512.0 MiB of 1.0 GiB  0.27 GB/s  0:02 left");
    progress_format(text, "copying", 512 * MIB, 1024 * MIB, 2000, 200);
    check(strstr(text, "[###################-") != NULL);
    for (unsigned width = 1; width < 200; width++) {
        progress_format(text, "copying", 512 * MIB, 1024 * MIB, 2000, width);
        check(strlen(text) < width || (width == 1 && text[0] == '\0'));
    }
    progress_format(text, "copying", 0, 0, 0, 0);
    check_str(text, "copying    0%  0 B of 0 B  0.00 GB/s");
    progress_format(text, "copying", 10 * MIB, 100 * MIB, 4000, 0);
    check_str(text, "copying   10%  10.0 MiB of 100.0 MiB  2.6 MB/s  0:36 left");
}

TAP_TEST(keys_are_encoded_as_the_mount_does)
{
    char name[KEY_NAME_BYTES], key[300];

    check_int(key_name_encode("a.b/c%d", name), 0);
    check_str(name, "a.b%2Fc%25d");
    check_int(key_name_encode(".", name), 0);
    check_str(name, "%2E");
    check_int(key_name_encode("..", name), 0);
    check_str(name, "%2E.");
    check_int(key_name_encode("", name), -EINVAL);
    memset(key, 'k', sizeof(key));
    key[255] = '\0';
    check_int(key_name_encode(key, name), 0);
    key[255] = 'k';
    key[256] = '\0';
    check_int(key_name_encode(key, name), -EINVAL);
    memset(key, '/', 86);
    key[86] = '\0';
    check_int(key_name_encode(key, name), -EINVAL);
    key[85] = '\0';
    check_int(key_name_encode(key, name), 0);
}

TAP_TEST(states_are_parsed_in_any_case)
{
    enum gmsfs_state state;

    check_int(store_state_parse("committed", &state), 0);
    check_int(state, GMSFS_STATE_COMMITTED);
    check_int(store_state_parse("LAYOUT_COMMITTED", &state), 0);
    check_int(state, GMSFS_STATE_LAYOUT_COMMITTED);
    check_int(store_state_parse("", &state), -EINVAL);
    check_int(store_state_parse("RW ", &state), -EINVAL);
    check_str(store_state_name(GMSFS_STATE_RO), "RO");
}

static const char mountinfo[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
    "40 22 0:30 / /mnt/a rw,nosuid - fuse.gmsfs host rw,user_id=0\n"
    "41 22 0:31 / /mnt/with\\040space ro,nosuid shared:3 master:1 - fuse.gmsfs GPU\\0400 "
    "rw,user_id=10\n"
    "42 22 0:32 / /mnt/other rw - fuse.sshfs x rw\n"
    "43 40 0:33 / /mnt/a/deep rw - fuse.gmsfs host rw\n"
    "44 40 0:34 / /mnt/a rw - fuse.gmsfs host2 rw\n"
    "broken line - fuse.gmsfs\n"
    "45 40 0:34 / /mnt/b rw -\n";

TAP_TEST(mounts_are_found_in_mountinfo)
{
    struct mounts mounts;

    mounts_parse(mountinfo, &mounts);
    require(mounts.count == 4);
    check_int(mounts.list[0].id, 40);
    check_str(mounts.list[1].path, "/mnt/with space");
    check_str(mounts.list[1].source, "GPU 0");
    check(mounts.list[1].read_only);
    check(!mounts.list[0].read_only);
    check_int(mounts.list[0].owner, 0);
    check_int(mounts.list[1].owner, 10);
    check(mounts.list[2].owner == (uid_t)-1);
    mounts_free(&mounts);
    mounts_parse("", &mounts);
    check_int(mounts.count, 0);
    mounts_free(&mounts);
}

TAP_TEST(a_path_finds_the_mount_on_top)
{
    struct mounts mounts;

    mounts_parse(mountinfo, &mounts);
    require(mounts_find(&mounts, "/mnt/a", false) != NULL);
    check_int(mounts_find(&mounts, "/mnt/a", false)->id, 44);
    check_int(mounts_find(&mounts, "//mnt/./a/", false)->id, 44);
    check_int(mounts_find(&mounts, "/mnt/a/deep/weights", true)->id, 43);
    check(mounts_find(&mounts, "/mnt/a/deep/weights", false) == NULL);
    check(mounts_find(&mounts, "/mnt/ab", true) == NULL);
    check(mounts_find(&mounts, "/", true) == NULL);
    mounts_free(&mounts);
}

TAP_TEST(a_session_is_found_in_the_table)
{
    static const char table[] = "12 RW held 77 0 sh 2026-01-01T00:00:00Z 1\n"
                                "w13 RO waiting 78 0 sh 2026-01-01T00:00:00Z 0\n"
                                "garbage\n";
    json_t *sessions = mount_look_parse_sessions(table);

    check(run_lists_session(table, 12));
    check(!run_lists_session(table, 13));
    check(!run_lists_session(table, 1));
    check(!run_lists_session("", 12));
    check_int(json_array_size(sessions), 2);
    check_str(json_string_value(json_object_get(json_array_get(sessions, 1), "id")), "w13");
    check_int(json_integer_value(json_object_get(json_array_get(sessions, 0), "pid")), 77);
    json_decref(sessions);
}

TAP_TEST(a_commit_is_found_among_the_events)
{
    static const char events[] = "{\"lost\":3}\n"
                                 "{\"event\":\"committed\",\"session\":4}\n"
                                 "{\"event\":\"revoked\",\"session\":5}\n"
                                 "not json\n"
                                 "{\"event\":\"committed\",\"session\":6}";

    check(run_has_commit(events, 4));
    check(!run_has_commit(events, 5));
    check(run_has_commit(events, 6));
    check(!run_has_commit(events, 0));
    check(!run_has_commit("", 4));
}

static struct tensor_value parse_value(const char *text)
{
    struct tensor_value value;

    require(tensor_value_parse(text, strlen(text), &value) == 0);
    return value;
}

TAP_TEST(a_tensor_value_tells_its_size)
{
    struct tensor_value value =
        parse_value("{\"dtype\":\"torch.bfloat16\",\"shape\":[3,5],\"stride\":[5,1]}");
    char text[16];

    check(value.is_tensor && value.has_size);
    check_int(value.size_bytes, 30);
    check_str(value.dtype, "bfloat16");
    tensor_value_format_shape(value.shape, text, sizeof(text));
    check_str(text, "3x5");
    tensor_value_format_shape(value.shape, text, 4);
    check_str(text, "3x5");
    tensor_value_free(&value);

    value = parse_value("{\"dtype\":\"torch.float4_e2m1fn_x2\",\"shape\":[3]}");
    check_int(value.size_bytes, 3);
    tensor_value_free(&value);
    value = parse_value("{\"dtype\":\"torch.int64\",\"shape\":[]}");
    check_int(value.size_bytes, 8);
    tensor_value_format_shape(value.shape, text, sizeof(text));
    check_str(text, "scalar");
    tensor_value_free(&value);
}

TAP_TEST(a_long_shape_is_cut_visibly)
{
    struct tensor_value value =
        parse_value("{\"dtype\":\"torch.uint8\",\"shape\":[1234567,1234567,1]}");
    char text[12];

    tensor_value_format_shape(value.shape, text, sizeof(text));
    check_str(text, "1234567x...");
    tensor_value_free(&value);
}

TAP_TEST(values_that_are_not_understood_have_no_dtype)
{
    static const char *const others[] = {
        "",
        "hello",
        "7",
        "{}",
        "{\"dtype\":\"torch.uint8\"}",
        "{\"dtype\":\"torch.uint8\",\"shape\":[-1]}",
        "{\"dtype\":\"torch.uint8\",\"shape\":[4294967296,4294967296]}",
        "{\"dtype\":\"torch.uint8\",\"shape\":[\"1\"]}",
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct tensor_value value = parse_value(others[i]);
        check(!value.is_tensor);
        tensor_value_free(&value);
    }
    struct tensor_value value = parse_value("{\"dtype\":\"torch.qint8\",\"shape\":[1]}");
    check(value.is_tensor && !value.has_size);
    check_str(value.dtype, "qint8");
    tensor_value_free(&value);
}

/* ---- work ---------------------------------------------------------------------------------- */

struct tally {
    atomic_ullong bytes;
    atomic_uint pieces;
    unsigned fail_at; /* piece that fails, counted from 1; 0: none */
    atomic_int out;   /* threads that have state of their own */
};

static int tally_begin(void *shared, void **own)
{
    struct tally *tally = shared;

    atomic_fetch_add(&tally->out, 1);
    *own = malloc(WORK_PIECE_BYTES);
    return *own ? 0 : -ENOMEM;
}

static int tally_end(void *shared, void *own)
{
    struct tally *tally = shared;

    atomic_fetch_sub(&tally->out, 1);
    free(own);
    return 0;
}

static int tally_piece(void *context, const struct work_piece *piece, void *own)
{
    struct tally *tally = context;
    unsigned number = atomic_fetch_add(&tally->pieces, 1) + 1;

    if (own)
        memset(own, 0, piece->size_bytes);
    atomic_fetch_add(&tally->bytes, piece->size_bytes);
    return number == tally->fail_at ? -EIO : 0;
}

TAP_TEST(work_does_every_byte_once_with_any_number_of_threads)
{
    static const uint64_t sizes[] = {0, 1, WORK_PIECE_BYTES, WORK_PIECE_BYTES + 1, 0};
    static const size_t order[] = {4, 3, 2, 1, 0};

    for (unsigned threads = 1; threads <= 9; threads += 4) {
        struct tally tally = {.fail_at = 0};
        struct work work = {.item_bytes = sizes,
                            .order = threads == 5 ? order : NULL,
                            .item_count = 5,
                            .threads = threads,
                            .shared = &tally,
                            .begin = tally_begin,
                            .end = tally_end,
                            .context = &tally,
                            .piece = tally_piece};
        check_int(work_run(&work), 0);
        check_int(atomic_load(&tally.pieces), 4);
        check_int(atomic_load(&tally.out), 0);
        check_int(atomic_load(&tally.bytes), 2 * WORK_PIECE_BYTES + 2);
        check_int(atomic_load(&work.done_bytes), 2 * WORK_PIECE_BYTES + 2);
    }
}

TAP_TEST(work_stops_at_the_first_error)
{
    static const uint64_t sizes[] = {100ull * WORK_PIECE_BYTES};
    struct tally tally = {.fail_at = 3};
    struct work work = {.item_bytes = sizes,
                        .item_count = 1,
                        .threads = 1,
                        .context = &tally,
                        .piece = tally_piece};

    check_int(work_run(&work), -EIO);
    check_int(atomic_load(&tally.pieces), 3);
}

TAP_TEST(work_without_pieces_is_done)
{
    struct tally tally = {.fail_at = 0};
    struct work work = {.threads = 4, .context = &tally, .piece = tally_piece};

    check_int(work_run(&work), 0);
    check_int(atomic_load(&tally.pieces), 0);
}
