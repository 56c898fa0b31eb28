/* SPDX-License-Identifier: Apache-2.0 */
/* The words of places and names, and lists of them: used by source.c and by the backends. */
#include "base/scope.h"
#include "source/source_backend.h"
#include "source/url.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SCHEME_END      "://"
#define PART_MOST_BYTES 255u /* of a name, as file systems have it */

/* ---- places -------------------------------------------------------------------------------- */

size_t source_scheme_bytes(const char *place)
{
    size_t bytes =
        strspn(place, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

    return strncmp(place + bytes, SCHEME_END, strlen(SCHEME_END)) == 0 ? bytes : 0;
}

bool source_has_scheme(const char *place)
{
    return source_scheme_bytes(place) > 0;
}

static bool is_scheme(const char *place, const char *scheme)
{
    return source_scheme_bytes(place) == strlen(scheme) &&
           strncasecmp(place, scheme, strlen(scheme)) == 0;
}

size_t source_query_at(const char *place)
{
    bool has_keys = source_scheme_bytes(place) == 0 || is_scheme(place, "s3");

    return has_keys || is_scheme(place, "hf") ? strlen(place) : strcspn(place, "?#");
}

/* Returns the '@' that ends a name and password; NULL: there are none. Where what stands for a port
 * is no number, it is the begin of a password that has a '/', '?' or '#' and was not encoded. */
static char *find_password_end(char *host)
{
    size_t bytes = strcspn(host, "/?#"), name = strcspn(host, ":");
    char *at = memrchr(host, '@', bytes);

    if (at || host[0] == '[' || name >= bytes)
        return at;
    return name + 1 + strspn(host + name + 1, "0123456789") == bytes ? NULL : strrchr(host, '@');
}

char *source_show(const char *place)
{
    size_t scheme = source_scheme_bytes(place), begin = scheme + strlen(SCHEME_END);
    char *shown = strdup(place), *at;

    if (!shown || scheme == 0)
        return shown;
    at = is_scheme(place, "hf") ? NULL : find_password_end(shown + begin);
    if (at)
        memmove(shown + begin, at + 1, strlen(at));
    shown[source_query_at(shown)] = '\0';
    return shown;
}

char *source_join(const char *tree, const char *name)
{
    size_t bytes = strlen(tree);
    bool has_slash = bytes == 0 || tree[bytes - 1] == '/';
    char *joined = NULL;

    return asprintf(&joined, "%s%s%s", tree, has_slash ? "" : "/", name) < 0 ? NULL : joined;
}

int source_fail(struct failure *failure, int error, const char *place, const char *format, ...)
{
    SCOPED_FREE char *shown = source_show(place);
    size_t used;
    va_list arguments;

    used = (size_t)snprintf(failure->text, sizeof(failure->text), "%.300s: ", shown ? shown : "");
    va_start(arguments, format);
    vsnprintf(failure->text + used, sizeof(failure->text) - used, format, arguments);
    va_end(arguments);
    for (char *c = failure->text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return error;
}

/* ---- names --------------------------------------------------------------------------------- */

/* Returns what is wrong with one part of a name. */
static const char *part_fault(const char *part, size_t bytes)
{
    if (bytes == 0)
        return "has an empty part";
    if (bytes > PART_MOST_BYTES)
        return "has a part of more than 255 bytes";
    if (part[0] == '.' && (bytes == 1 || (bytes == 2 && part[1] == '.')))
        return bytes == 1 ? "has the part '.'" : "has the part '..'";
    return NULL;
}

int source_file_name(const char *place, char **name)
{
    SCOPED_FREE char *shown = source_show(place);
    const char *slash = shown ? strrchr(shown, '/') : NULL;
    bool is_encoded = is_scheme(place, "http") || is_scheme(place, "https");

    *name = shown ? strdup(slash ? slash + 1 : shown) : NULL;
    if (!*name)
        return -ENOMEM;
    if (!is_encoded || (url_decode(*name) && !strchr(*name, '/')))
        return 0;
    free(*name);
    *name = NULL;
    return -EINVAL;
}

const char *source_name_fault(const char *name)
{
    const char *fault = NULL, *part = name;

    if (name[0] == '/')
        return "is no relative name";
    if (strlen(name) > SOURCE_MAX_NAME_BYTES)
        return "is longer than names may be";
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return "has a control character";
    while (!fault) {
        size_t bytes = strcspn(part, "/");

        fault = part_fault(part, bytes);
        if (part[bytes] == '\0')
            break;
        part += bytes + 1;
    }
    return fault;
}

/* ---- lists --------------------------------------------------------------------------------- */

int source_list_add(struct source_list *list, const char *name, uint64_t size_bytes, bool is_folder)
{
    size_t count = list->count;

    if (count >= SOURCE_MAX_LISTED)
        return -E2BIG;
    if ((count & (count - 1)) == 0) { /* the room is the next power of two */
        struct source_entry *grown =
            reallocarray(list->entries, count ? 2 * count : 1, sizeof(*list->entries));
        if (!grown)
            return -ENOMEM;
        list->entries = grown;
    }
    list->entries[count] = (struct source_entry){strdup(name), size_bytes, is_folder};
    if (!list->entries[count].name)
        return -ENOMEM;
    list->count++;
    return 0;
}

void source_list_free(struct source_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->entries[i].name);
    free(list->entries);
    *list = (struct source_list){0};
}
