/* SPDX-License-Identifier: Apache-2.0 */
/* Tests names of repositories of a hub, and what a hub says about one. */
#include "source/hub_list.h"

#include "tap.h"

#include <errno.h>

#define SHA "0123456789abcdef0123456789abcdef01234567"
#define SUM "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct hub_place parsed;

static void check_place(const char *place, const char *repository, const char *revision,
                        const char *path)
{
    check_int(hub_parse(place, &parsed), 0);
    check_str(parsed.repository, repository);
    check_str(parsed.revision, revision);
    check_str(parsed.path, path);
}

TAP_TEST(parts_of_a_place)
{
    check_place("hf://org/model", "org/model", "main", "");
    check_place("hf://org/model/", "org/model", "main", "");
    check_place("hf://org/model@v1.0/a/b", "org/model", "v1.0", "a/b");
    check_place("hf://org/model@refs/pr/1/a", "org/model", "refs/pr/1", "a");
    check_place("hf://org/model@x%2Fy/a@b", "org/model", "x/y", "a@b");
    check_place("hf://gpt2@main", "gpt2", "main", "");
}

TAP_TEST(places_that_are_none)
{
    static const char *const places[] = {
        "hf://",        "hf:///m",       "hf://o/..",   "hf://../m",    "hf://o/m@",
        "hf://o/m@a%0", "hf://o/m@a%00", "hf://o/m@..", "hf://o/m@/a",  "hf://o/m@%2Fa",
        "hf://a--b/c",  "hf://-a/b",     "hf://o/m m",  "hf://o/m@a b", "hf://o/m?x",
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        check_int(hub_parse(places[i], &parsed), -EINVAL);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static char found[512], commit[HUB_COMMIT_DIGITS + 1];
static const char *fault;

static int add(void *context, const struct hub_file *file)
{
    const size_t at = strlen(found);

    (void)context;
    snprintf(found + at, sizeof(found) - at, "%s=%lld%s;", file->name, (long long)file->size_bytes,
             file->has_sha256 && file->sha256[1] == 0x11 ? "+sum" : "");
    return strcmp(file->name, "stop") == 0 ? -E2BIG : 0;
}

static int decode(const char *json)
{
    found[0] = '\0';
    return hub_decode(json, strlen(json), add, NULL, commit, &fault);
}

TAP_TEST(files_have_sizes_and_sums)
{
    check_int(decode("{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"a\"},"
                     "{\"rfilename\":\"b/c\",\"size\":5,\"lfs\":{\"sha256\":\"" SUM "\"}},"
                     "{\"rfilename\":\"d\",\"size\":null,\"lfs\":{\"oid\":\"sha256:" SUM "\"}},"
                     "{\"rfilename\":\"e\",\"size\":6,\"lfs\":null}]}"),
              0);
    check_str(found, "a=-1;b/c=5+sum;d=-1+sum;e=6;");
    check_str(commit, SHA);
    check_int(decode("{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"stop\"}]}"), -E2BIG);
}

TAP_TEST(answers_that_are_none)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"sha\":\"" SHA "\"}",
        "{\"siblings\":[]}",
        "{\"sha\":\"../../x\",\"siblings\":[]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[{}]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[7]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"a\",\"size\":-1}]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"a\",\"size\":\"1\"}]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"a\",\"lfs\":{\"sha256\":\"00\"}}]}",
        "{\"sha\":\"" SHA "\",\"siblings\":[{\"rfilename\":\"a\",\"rfilename\":\"b\"}]}",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        check_int(decode(texts[i]), -EPROTO);
        check(fault != NULL);
    }
}
