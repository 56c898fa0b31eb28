/* SPDX-License-Identifier: Apache-2.0 */
/* Tests where GMS clients look for sockets, by the environment. */
#include "daemon/gms_dir.h"
#include "tap.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char found[PATH_MAX];

static void clear_environment(void)
{
    static const char *const NAMES[] = {"GMS_SOCKET_DIR", "TMPDIR", "TEMP", "TMP"};

    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        unsetenv(NAMES[i]);
}

/* Runs in a directory of its own, which is removed afterwards. */
static void within(void (*test)(const char *dir))
{
    const char *tmpdir = getenv("TMPDIR");
    char dir[256], base[200], before[PATH_MAX];

    snprintf(base, sizeof base, "%s", tmpdir && *tmpdir ? tmpdir : "/tmp");
    snprintf(dir, sizeof dir, "%s/gms_dir.XXXXXX", base);
    require(mkdtemp(dir) != NULL && getcwd(before, sizeof before) && chdir(dir) == 0);
    clear_environment();
    test(dir);
    clear_environment();
    setenv("TMPDIR", base, 1);
    require(chdir(before) == 0);
    rmdir(dir);
}

static void check_first_usable(const char *dir)
{
    FILE *file = fopen("file", "we");

    require(file != NULL);
    fclose(file);
    setenv("TMP", dir, 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, dir);
    setenv("TEMP", "/usr", 1);
    if (access("/usr", W_OK) == 0) {
        check_int(gms_dir_find(found, sizeof found), 0);
        check_str(found, "/usr");
    }
    setenv("TEMP", dir, 1);
    setenv("TMP", "/usr", 1);
    setenv("TMPDIR", "", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, dir);
    setenv("TMPDIR", "/no/such/directory", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, dir);
    setenv("TMPDIR", "file", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, dir);
    unlink("file");
}

TAP_TEST(the_first_temporary_directory_that_can_be_used_is_taken)
{
    within(check_first_usable);
}

static void check_own_word_counts(const char *dir)
{
    setenv("TMPDIR", dir, 1);
    setenv("GMS_SOCKET_DIR", "", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, dir);
    setenv("GMS_SOCKET_DIR", "/no/such/directory", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, "/no/such/directory");
}

TAP_TEST(gms_socket_dir_counts_before_all_others_whether_it_is_there_or_not)
{
    within(check_own_word_counts);
}

static void check_absolute(const char *dir)
{
    char expected[PATH_MAX], here[PATH_MAX - 8];

    (void)dir;
    require(getcwd(here, sizeof here) != NULL && mkdir("sub", 0700) == 0);
    snprintf(expected, sizeof expected, "%s/sub", here);
    setenv("GMS_SOCKET_DIR", "sub", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, expected);
    clear_environment();
    setenv("TMPDIR", "sub", 1);
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, expected);
    check_int(gms_dir_find(found, strlen(expected)), -ENAMETOOLONG);
    check_int(gms_dir_find(found, strlen(expected) + 1), 0);
    rmdir("sub");
}

TAP_TEST(a_path_is_absolute_and_fits)
{
    within(check_absolute);
}

static void check_default(const char *dir)
{
    (void)dir;
    check_int(gms_dir_find(found, sizeof found), 0);
    check_str(found, "/tmp");
}

TAP_TEST(without_a_word_it_is_tmp)
{
    within(check_default);
}
