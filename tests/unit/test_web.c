/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the configuration of `gmsfs web`, and the rule by which it makes way for writers. */
#include "tap.h"
#include "web/web.h"

#include <stdlib.h>

static char *written;
static size_t written_bytes;

static void write_service(const struct web *web, const struct web_process *process)
{
    FILE *to;

    free(written);
    written = NULL;
    to = open_memstream(&written, &written_bytes);
    require(to != NULL);
    if (process)
        web_write_all(web, process, to);
    else
        web_write(web, to);
    require(fclose(to) == 0);
}

static const char *write_one(const char *name, const char *path, const struct web_process *process)
{
    struct web_mount mount = {.name = name, .path = path};
    struct web web = {
        .mounts = &mount, .mount_count = 1, .listen = "127.0.0.1:1", .is_loopback = true};

    write_service(&web, process);
    return written;
}

static void write_with_pulls(unsigned pulls)
{
    struct web_mount mount = {.name = "host", .path = "/x"};
    struct web web = {.mounts = &mount, .mount_count = 1, .listen = "127.0.0.1:1", .pulls = pulls};

    write_service(&web, NULL);
}

static bool has(const char *text)
{
    return strstr(written, text) != NULL;
}

static size_t longest_line(void)
{
    size_t longest = 0, bytes;

    for (const char *line = written; *line; line += bytes + (line[bytes] == '\n')) {
        bytes = strcspn(line, "\n");
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* nginx refuses a string of more than 4096 bytes. */
TAP_TEST(the_longest_list_of_mounts_is_in_short_strings)
{
    static char names[256][WEB_MAX_NAME + 1];
    static struct web_mount mounts[256];
    struct web web = {.mounts = mounts, .mount_count = 256, .listen = "127.0.0.1:1"};

    for (unsigned i = 0; i < 256; i++) {
        snprintf(names[i], sizeof(names[i]), "%0*u", (int)WEB_MAX_NAME, i);
        mounts[i] = (struct web_mount){.name = names[i], .path = "/x"};
    }
    write_service(&web, NULL);
    check(longest_line() < 4096);
    for (unsigned i = 0; i < 256; i++)
        check(has(names[i]));
}

TAP_TEST(odd_letters_of_a_path_are_quoted)
{
    write_one("host", "/a b;{}#'\"\\$x", NULL);
    check(has("        alias \"/a b;{}#'\\\"\\\\${gmsfs_dollar}x/regions/../\";\n"));
    write_one("host", "/", NULL);
    check(has("        alias \"/regions/../\";\n"));
}

TAP_TEST(a_dot_in_a_name_stands_for_itself)
{
    write_one("a.b", "/x", NULL);
    check(has("    location /a.b/ {\n"));
    check(has("\"(?s)^/a\\.b/(?:device)\\z\""));
    check(has("    \"~^/a\\.b/\" \"/x\";\n"));
}

TAP_TEST(bytes_by_id_have_a_bound_beside_those_of_all)
{
    write_with_pulls(7);
    check(has("            limit_conn gmsfs_puller 3;\n            limit_conn gmsfs_pulls 7;\n"
              "            limit_conn gmsfs_client 32;\n            limit_conn gmsfs_all 512;\n"));
    write_with_pulls(1);
    check(has("            limit_conn gmsfs_puller 1;\n            limit_conn gmsfs_pulls 1;\n"));
    write_with_pulls(0);
    check(!has("gmsfs_pull"));
}

TAP_TEST(files_of_nginx_lie_in_the_private_directory)
{
    struct web_process process = {.directory = "/tmp/$a \"b", .user = "u", .group = "g"};

    write_one("host", "/x", &process);
    check(has("user \"u\" \"g\";\n"));
    check(has("pid \"/tmp/$a \\\"b/nginx.pid\";\n"));
    check(has("scgi_temp_path \"/tmp/$a \\\"b/scgi\";\n"));
    process.user = NULL;
    write_one("host", "/x", &process);
    check(!has("user \""));
}

TAP_TEST(names_of_mounts)
{
    static const char *const good[] = {"host", "gpu0", "a.b", "A_b-9", "uix"};
    static const char *const bad[] = {"",    ".",  "..",  ".a",       "a/b",
                                      "a b", "ui", "a\n", "\xc3\xa9", "a$"};
    char longest[WEB_MAX_NAME + 2];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        check(web_check_name(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check(!web_check_name(bad[i]));
    memset(longest, 'a', sizeof(longest));
    longest[WEB_MAX_NAME] = '\0';
    check(web_check_name(longest));
    longest[WEB_MAX_NAME] = 'a';
    longest[WEB_MAX_NAME + 1] = '\0';
    check(!web_check_name(longest));
}

TAP_TEST(a_server_is_in_the_way_of_a_writer_that_waits_for_its_readers)
{
    static const char reader[] = "9 RO held 6940 33 nginx 2026-11-28T19:37:48Z 1\n";
    static const char writer[] = "w4 RW waiting 7655 0 bash 2026-11-28T19:37:49Z 0\n";
    static const char more[] = "w5 RO waiting 7655 0 bash 2026-11-28T19:37:49Z 0\n";
    char text[512];

    snprintf(text, sizeof(text), "%s%s", reader, writer);
    check(web_is_in_the_way(text, 33));
    check(!web_is_in_the_way(text, 34));
    check(!web_is_in_the_way(reader, 33));
    check(!web_is_in_the_way(writer, 33));
    snprintf(text, sizeof(text), "%s%s", reader, more);
    check(!web_is_in_the_way(text, 33));
    snprintf(text, sizeof(text), "9 RO held 6940 33 cp x 1\n%s", writer);
    check(!web_is_in_the_way(text, 33));
    check(!web_is_in_the_way("", 33));
}
