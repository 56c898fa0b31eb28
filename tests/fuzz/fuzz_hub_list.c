/* SPDX-License-Identifier: Apache-2.0 */
/* What a hub says about a repository, and places of repositories. The first byte chooses. */
#include "fuzz.h"

#include "source/hub_list.h"

#include <errno.h>

static int add(void *context, const struct hub_file *file)
{
    (void)context;
    must(file->name != NULL);
    must(file->size_bytes == UINT64_MAX || file->size_bytes <= INT64_MAX);
    return 0;
}

static void read_place(const char *text)
{
    char place[4096];
    struct hub_place parsed;

    snprintf(place, sizeof(place), "hf://%s", text);
    if (hub_parse(place, &parsed) != 0)
        return;
    must(parsed.repository[0] && !strstr(parsed.repository, "..") &&
         !strchr(parsed.repository, '@'));
    must(parsed.revision[0] && !strstr(parsed.revision, "..") && parsed.revision[0] != '/');
    must(parsed.path >= place && parsed.path <= place + strlen(place));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char commit[HUB_COMMIT_DIGITS + 1] = "";
    const char *fault;
    char *text;

    if (size == 0)
        return 0;
    text = fuzz_text(data + 1, size - 1);
    if (data[0] & 1) {
        read_place(text);
    } else {
        int error = hub_decode(text, size - 1, add, NULL, commit, &fault);

        must(error == 0 || error == -EPROTO);
        must(error == 0 ? strspn(commit, "0123456789abcdef") == HUB_COMMIT_DIGITS
                        : fuzz_is_line(fault));
    }
    free(text);
    return 0;
}
