/* SPDX-License-Identifier: Apache-2.0 */
#include "source/hub_list.h"

#include "base/hex.h"
#include "source/url.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

/* ---- places ---------------------------------------------------------------------------------- */

/* A name is a part of an address and of a path of the cache. */
static bool is_name(const char *name, size_t bytes)
{
    if (bytes == 0 || bytes > HUB_MOST_NAME_BYTES || name[0] == '.' || name[0] == '-')
        return false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("-._", c)))
            return false;
    }
    return !memmem(name, bytes, "..", 2) && !memmem(name, bytes, "--", 2);
}

/* Returns the length of a revision: it ends at a slash, if it is none of the hub's refs/pr/N. */
static size_t revision_bytes(const char *at)
{
    const size_t folders = strncmp(at, "refs/pr/", 8) == 0         ? 8
                           : strncmp(at, "refs/convert/", 13) == 0 ? 13
                                                                   : 0;

    return folders + strcspn(at + folders, "/");
}

static bool is_revision(const char *revision)
{
    for (const char *at = revision; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    return revision[0] && revision[0] != '/' && revision[0] != '.' && !strstr(revision, "..") &&
           !strstr(revision, "//");
}

int hub_parse(const char *place, struct hub_place *parsed)
{
    const char *owner = place + 5, *model = owner, *at;
    size_t owner_bytes = strcspn(owner, "/@"), model_bytes = owner_bytes, bytes;

    *parsed = (struct hub_place){.revision = "main"};
    if (owner[owner_bytes] == '/' && owner[owner_bytes + 1]) {
        model = owner + owner_bytes + 1;
        model_bytes = strcspn(model, "/@");
        if (!is_name(owner, owner_bytes))
            return -EINVAL;
    }
    if (!is_name(model, model_bytes))
        return -EINVAL;
    at = model + model_bytes;
    memcpy(parsed->repository, owner, (size_t)(at - owner));
    if (*at == '@') {
        bytes = revision_bytes(++at);
        if (bytes >= sizeof(parsed->revision))
            return -EINVAL;
        memcpy(parsed->revision, at, bytes);
        parsed->revision[bytes] = '\0';
        at += bytes;
        if (!url_decode(parsed->revision) || !is_revision(parsed->revision))
            return -EINVAL;
    }
    parsed->path = *at == '/' ? at + 1 : at;
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool take_size(json_t *value, uint64_t *size_bytes)
{
    *size_bytes = UINT64_MAX;
    if (!value || json_is_null(value))
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *size_bytes = (uint64_t)json_integer_value(value);
    return true;
}

/* Large files have their sum here; older servers call it "oid". */
static bool take_sum(json_t *lfs, struct hub_file *file)
{
    if (!json_is_object(lfs))
        return true;
    json_t *value = json_object_get(lfs, "sha256");
    value = value ? value : json_object_get(lfs, "oid");
    const char *text = json_string_value(value);
    if (!text)
        return true;
    if (strncmp(text, "sha256:", 7) == 0)
        text += 7;
    file->has_sha256 = true;
    return strlen(text) == 2 * sizeof(file->sha256) &&
           hex_parse(text, file->sha256, sizeof(file->sha256)) == 0;
}

static int take_file(json_t *sibling, hub_add *add, void *context, const char **fault)
{
    struct hub_file file = {.name = json_string_value(json_object_get(sibling, "rfilename"))};

    if (!file.name || !take_size(json_object_get(sibling, "size"), &file.size_bytes)) {
        *fault = "it has a file without a name, or with a size that is no number";
        return -EPROTO;
    }
    if (!take_sum(json_object_get(sibling, "lfs"), &file)) {
        *fault = "a sha256 in it is not 64 hex digits";
        return -EPROTO;
    }
    return add(context, &file);
}

static bool take_commit(json_t *root, char commit[HUB_COMMIT_DIGITS + 1])
{
    const char *text = json_string_value(json_object_get(root, "sha"));
    uint8_t bytes[HUB_COMMIT_DIGITS / 2];

    if (!text || strlen(text) != HUB_COMMIT_DIGITS || hex_parse(text, bytes, sizeof(bytes)) != 0)
        return false;
    hex_format(bytes, sizeof(bytes), commit);
    return true;
}

int hub_decode(const char *json, size_t bytes, hub_add *add, void *context,
               char commit[HUB_COMMIT_DIGITS + 1], const char **fault)
{
    json_auto_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *siblings = json_object_get(root, "siblings"), *sibling;
    size_t index;
    int error;

    *fault = "it is no description of a repository; HF_ENDPOINT has to name a hub";
    if (!json_is_array(siblings) || !take_commit(root, commit))
        return -EPROTO;
    json_array_foreach (siblings, index, sibling) {
        error = take_file(sibling, add, context, fault);
        if (error)
            return error;
    }
    *fault = NULL;
    return 0;
}
