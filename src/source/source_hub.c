/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf://OWNER/MODEL[@REVISION][/PATH]: models of a hub, and of its local cache
 *
 * A repository is asked for once; all files are those of the commit that it had then. A file that
 * the cache has in a snapshot of this commit is read there. Without a network the cache's own note
 * of the revision is the commit.
 */
#include "source/source_remote.h"

#include "base/array.h"
#include "base/scope.h"
#include "source/hub_list.h"
#include "source/hub_settings.h"
#include "source/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENDPOINT    "https://huggingface.co"
#define TOKEN_BYTES 1024u
#define MOST_LIST   ((size_t)32 << 20) /* as JSON; decoded it takes many times as much memory */

struct hub_entry {
    char *name;
    uint64_t size_bytes; /* UINT64_MAX: not told */
    struct source_sum sum;
};

struct hub_repository {
    struct hub_repository *next;
    char name[2 * HUB_MOST_NAME_BYTES + 2], revision[256];
    char commit[HUB_COMMIT_DIGITS + 1];
    char *snapshot;            /* its folder in the cache */
    bool is_offline;           /* only the cache is known */
    char reason[256];          /* why the hub was not asked */
    struct hub_entry *entries; /* sorted by name */
    size_t count, room;
};

struct hub {
    struct remote remote; /* the first member */
    struct http_auth auth;
    char *endpoint; /* without a slash at its end */
    char token[TOKEN_BYTES];
    char *cache;
    void *files; /* the state of source_files */
    struct hub_repository *repositories;
};

/* A file, and what reads it. */
struct hub_own {
    const struct source_backend *backend;
    void *state;
    struct source_item inner;
    char *path; /* in the cache; NULL: it comes from the server */
};

/* The remote functions as a table, so that both kinds of files are called alike. */
static const struct source_backend from_server = {
    .drop = remote_drop, .read = remote_read, .copy = remote_copy, .check = remote_check};

/* ---- settings -------------------------------------------------------------------------------- */

static void read_token(struct hub *hub)
{
    SCOPED_FREE char *own = hub_in_home("token");
    const char *token = hub_setting("HF_TOKEN");

    if (token)
        snprintf(hub->token, sizeof(hub->token), "%.*s", (int)strcspn(token, " \t\r\n"), token);
    else if (hub_setting("HF_TOKEN_PATH"))
        hub_read_line(hub_setting("HF_TOKEN_PATH"), hub->token, sizeof(hub->token));
    else if (own)
        hub_read_line(own, hub->token, sizeof(hub->token));
}

static int hub_write(const struct http_auth *auth, const char *url, char *lines,
                     struct failure *failure)
{
    const struct hub *hub = (const struct hub *)((const char *)auth - offsetof(struct hub, auth));

    (void)url, (void)failure;
    if (hub->token[0])
        snprintf(lines, HTTP_AUTH_BYTES, "Authorization: Bearer %s\n", hub->token);
    return 0;
}

static void hub_explain(const struct http_auth *auth, const struct http_reply *reply, char *text,
                        size_t room)
{
    const struct hub *hub = (const struct hub *)((const char *)auth - offsetof(struct hub, auth));
    char message[256];

    http_reply_get(reply, "X-Error-Message", message, sizeof(message));
    if (reply->status != 401 && reply->status != 403 && reply->status != 404)
        text[0] = '\0';
    else if (hub->token[0])
        snprintf(text, room, "%s%s: look at the name, and whether HF_TOKEN's user may read it",
                 message[0] ? ": " : "", message);
    else
        snprintf(text, room,
                 "%s%s: look at the name; if the model is private or gated, set HF_TOKEN",
                 message[0] ? ": " : "", message);
}

static void hub_close(void *state);

/* Takes the hub's address, and its cache and token. */
static int take_settings(struct hub *hub, struct failure *failure)
{
    hub->endpoint = strdup(hub_setting("HF_ENDPOINT") ? getenv("HF_ENDPOINT") : ENDPOINT);
    hub->cache = hub_setting("HF_HUB_CACHE") ? strdup(getenv("HF_HUB_CACHE")) : hub_in_home("hub");
    if (!hub->endpoint || !hub->cache)
        return failure_no_memory(failure);
    if (!url_trim_endpoint(hub->endpoint))
        return failure_set(failure, -EINVAL,
                           "the hub's address '%.200s' is refused; set HF_ENDPOINT to https://HOST "
                           "or http://HOST",
                           hub->endpoint);
    read_token(hub);
    return 0;
}

static int hub_open(void **state, struct failure *failure)
{
    struct hub *hub;
    int error = remote_open(sizeof(*hub), state, failure);

    if (error)
        return error;
    hub = *state;
    hub->auth = (struct http_auth){.write = hub_write, .explain = hub_explain};
    error = source_files.open(&hub->files, failure);
    if (error == 0)
        error = take_settings(hub, failure);
    if (error)
        hub_close(hub);
    return error;
}

static void free_repository(struct hub_repository *repository)
{
    for (size_t i = 0; i < repository->count; i++)
        free(repository->entries[i].name);
    free(repository->entries);
    free(repository->snapshot);
    free(repository);
}

static void hub_close(void *state)
{
    struct hub *hub = state;
    struct hub_repository *repository;

    while ((repository = hub->repositories)) {
        hub->repositories = repository->next;
        free_repository(repository);
    }
    if (hub->files)
        source_files.close(hub->files);
    free(hub->endpoint);
    free(hub->cache);
    remote_close(hub);
}

/* ---- repositories ---------------------------------------------------------------------------- */

static int add_entry(void *context, const struct hub_file *file)
{
    struct hub_repository *repository = context;

    if (repository->count >= SOURCE_MAX_FILES)
        return -E2BIG;
    if (ARRAY_RESERVE(repository->entries, repository->room, repository->count + 1))
        return -ENOMEM;
    struct hub_entry *entry = &repository->entries[repository->count];
    *entry = (struct hub_entry){.name = strdup(file->name), .size_bytes = file->size_bytes};
    if (!entry->name)
        return -ENOMEM;
    if (file->has_sha256) {
        entry->sum.kind = SOURCE_SUM_SHA256;
        memcpy(entry->sum.bytes, file->sha256, sizeof(file->sha256));
    }
    repository->count++;
    return 0;
}

static int entry_compare(const void *left, const void *right)
{
    const struct hub_entry *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int decode(struct hub_repository *repository, const char *json, size_t bytes,
                  const char *place, struct failure *failure)
{
    const char *fault = NULL;
    int error = hub_decode(json, bytes, add_entry, repository, repository->commit, &fault);

    if (repository->count)
        qsort(repository->entries, repository->count, sizeof(struct hub_entry), entry_compare);
    if (error == -EPROTO)
        return source_fail(failure, error, place, "the hub's answer is refused: %s", fault);
    return error ? source_fail(failure, error, place, "the hub's answer: %s", failure_reason(error))
                 : 0;
}

/* Finds the commit that the cache has for a revision. False: none. */
static bool find_offline(const struct hub *hub, struct hub_repository *repository,
                         const char *folder)
{
    SCOPED_FREE char *path = NULL;

    if (strlen(repository->revision) == HUB_COMMIT_DIGITS && !strchr(repository->revision, '/'))
        snprintf(repository->commit, sizeof(repository->commit), "%.*s", (int)HUB_COMMIT_DIGITS,
                 repository->revision);
    else if (asprintf(&path, "%s/%s/refs/%s", hub->cache, folder, repository->revision) >= 0)
        hub_read_line(path, repository->commit, sizeof(repository->commit));
    repository->is_offline = true;
    return strspn(repository->commit, "0123456789abcdef") == HUB_COMMIT_DIGITS;
}

/* Writes "models--OWNER--MODEL". */
static void cache_folder(const char *repository, char *folder, size_t room)
{
    const char *slash = strchr(repository, '/');

    if (slash)
        snprintf(folder, room, "models--%.*s--%s", (int)(slash - repository), repository,
                 slash + 1);
    else
        snprintf(folder, room, "models--%s", repository);
}

static bool is_unreachable(int error)
{
    return error == -EHOSTUNREACH || error == -ECONNREFUSED || error == -ETIMEDOUT;
}

static int ask(struct hub *hub, struct hub_repository *repository, const char *place,
               struct failure *failure)
{
    SCOPED_FREE char *revision = malloc(3 * sizeof(repository->revision));
    SCOPED_FREE char *url = NULL;
    SCOPED_FREE char *json = NULL;
    struct http_target target = {.auth = &hub->auth};
    struct failure why;
    size_t bytes;

    if (revision)
        url_encode(revision, repository->revision, URL_KEEP_NOTHING);
    if (!revision || asprintf(&url, "%s/api/models/%s/revision/%s?blobs=true", hub->endpoint,
                              repository->name, revision) < 0)
        return source_fail(failure, -ENOMEM, place, "out of memory");
    target.url = url;
    int error = http_get_text(hub->remote.http, &target, MOST_LIST, &json, &bytes, NULL, &why);
    if (error)
        snprintf(repository->reason, sizeof(repository->reason), "%.255s", why.text);
    return error ? source_fail(failure, error, place, "cannot ask the hub for it: %s%s", why.text,
                               is_unreachable(error) ? "; HF_ENDPOINT names the hub" : "")
                 : decode(repository, json, bytes, place, failure);
}

static int look_up(struct hub *hub, struct hub_repository *repository, const char *place,
                   struct failure *failure)
{
    const bool may_ask = !hub_is_set("HF_HUB_OFFLINE");
    char folder[3 * HUB_MOST_NAME_BYTES];
    int error = may_ask ? ask(hub, repository, place, failure) : -EHOSTUNREACH;

    if (!may_ask)
        strcpy(repository->reason, "HF_HUB_OFFLINE is set");
    cache_folder(repository->name, folder, sizeof(folder));
    if (is_unreachable(error)) {
        if (!find_offline(hub, repository, folder))
            return may_ask ? error
                           : source_fail(failure, -ENOENT, place,
                                         "is not in the cache %s, and HF_HUB_OFFLINE is set",
                                         hub->cache);
        error = 0;
    }
    if (error == 0 && asprintf(&repository->snapshot, "%s/%s/snapshots/%s", hub->cache, folder,
                               repository->commit) < 0)
        error = source_fail(failure, -ENOMEM, place, "out of memory");
    return error;
}

/* Finds the repository of a place, which is asked for once. */
static int find_repository(struct hub *hub, const char *place, struct hub_place *parsed,
                           struct hub_repository **found, struct failure *failure)
{
    struct hub_repository *repository = hub->repositories;

    if (hub_parse(place, parsed) != 0)
        return source_fail(failure, -EINVAL, place,
                           "is no model of a hub; a place is hf://OWNER/MODEL[@REVISION][/PATH], "
                           "with a slash in the revision as %%2F");
    while (repository && (strcmp(repository->name, parsed->repository) != 0 ||
                          strcmp(repository->revision, parsed->revision) != 0))
        repository = repository->next;
    *found = repository;
    if (repository)
        return 0;
    repository = calloc(1, sizeof(*repository));
    if (!repository)
        return source_fail(failure, -ENOMEM, place, "out of memory");
    strcpy(repository->name, parsed->repository);
    strcpy(repository->revision, parsed->revision);
    int error = look_up(hub, repository, place, failure);
    if (error) {
        free_repository(repository);
        return error;
    }
    repository->next = hub->repositories;
    hub->repositories = *found = repository;
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool hub_is_tree(const char *place)
{
    struct hub_place parsed;

    return hub_parse(place, &parsed) == 0 && !remote_is_file_name(parsed.path);
}

/* Returns the names A and B, with a slash between them unless one is empty. NULL: no memory. */
static char *join(const char *a, const char *b)
{
    char *joined = NULL;

    return asprintf(&joined, "%s%s%s", a, *a && *b ? "/" : "", b) < 0 ? NULL : joined;
}

/* Adds a file below a prefix, or the folder right below it that has the file. Sorted files of one
 * folder come one after another. */
static int list_entry(struct source_list *list, const struct hub_entry *entry, const char *prefix,
                      bool is_deep)
{
    const size_t bytes = strlen(prefix);
    const char *name = entry->name + bytes + (bytes > 0), *slash;
    char folder[SOURCE_MAX_NAME_BYTES + 1];

    if (strncmp(entry->name, prefix, bytes) != 0 || (bytes > 0 && entry->name[bytes] != '/') ||
        remote_is_hidden(name))
        return 0;
    slash = strchr(name, '/');
    if (is_deep || !slash)
        return source_list_add(list, name, entry->size_bytes, false);
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - name), name);
    const struct source_entry *last = list->count ? &list->entries[list->count - 1] : NULL;
    if (last && last->is_folder && strcmp(last->name, folder) == 0)
        return 0;
    return source_list_add(list, folder, 0, true);
}

static int hub_list(void *state, const char *tree, const char *folder, bool is_deep,
                    struct source_list *list, struct failure *failure)
{
    struct hub *hub = state;
    struct hub_repository *repository;
    struct hub_place parsed;
    int error = find_repository(hub, tree, &parsed, &repository, failure);
    SCOPED_FREE char *prefix = error ? NULL : join(parsed.path, folder ? folder : "");

    if (error)
        return error;
    if (!prefix)
        return source_fail(failure, -ENOMEM, tree, "out of memory");
    if (repository->is_offline)
        return source_files.list(hub->files, repository->snapshot, *prefix ? prefix : NULL, is_deep,
                                 list, failure);
    for (size_t i = 0; error == 0 && i < repository->count; i++)
        error = list_entry(list, &repository->entries[i], prefix, is_deep);
    return error ? source_fail(failure, error, tree, "cannot list it: %s", failure_reason(error))
                 : 0;
}

/* A snapshot of the cache may have some of the files only. */
static void hub_tell_unfinished(void *state, const char *tree, char *text, size_t room)
{
    struct hub_repository *repository;
    struct hub_place parsed;
    struct failure unused;

    if (find_repository(state, tree, &parsed, &repository, &unused) == 0 && repository->is_offline)
        snprintf(text, room, " (only the hub's cache was read: %s)", repository->reason);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const struct hub_entry *find_entry(const struct hub_repository *repository, const char *name)
{
    const struct hub_entry wanted = {.name = (char *)name};

    return repository->count ? bsearch(&wanted, repository->entries, repository->count,
                                       sizeof(wanted), entry_compare)
                             : NULL;
}

/* Returns the path of the file in the cache. NULL: it is not there whole. */
static char *find_cached(const struct hub_repository *repository, const struct hub_entry *entry,
                         const char *name)
{
    char *path = join(repository->snapshot, name);
    struct stat status;

    if (path && stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
        (!entry || entry->size_bytes == UINT64_MAX ||
         entry->size_bytes == (uint64_t)status.st_size))
        return path;
    free(path);
    return NULL;
}

static int add_cached(struct hub *hub, struct hub_own *own, struct failure *failure)
{
    own->backend = &source_files;
    own->state = hub->files;
    own->inner.place = own->path;
    return source_files.add(hub->files, &own->inner, failure);
}

static int add_remote(struct hub *hub, struct hub_own *own, const struct hub_repository *repository,
                      const struct hub_entry *entry, const char *name, struct failure *failure)
{
    SCOPED_FREE char *folder = NULL;
    SCOPED_FREE char *url = NULL;

    if (asprintf(&folder, "%s/%s/resolve/%s", hub->endpoint, repository->name,
                 repository->commit) >= 0)
        url = url_join(folder, name);
    if (!url)
        return source_fail(failure, -ENOMEM, own->inner.file.shown, "out of memory");
    own->backend = &from_server;
    own->state = hub;
    int error = remote_add(&hub->remote, &own->inner, url, &hub->auth, NULL, failure);
    if (error)
        return error;
    if (entry->size_bytes != UINT64_MAX && entry->size_bytes != own->inner.file.size_bytes)
        error = source_fail(failure, -EPROTO, own->inner.file.shown,
                            "has %llu bytes on the server, but the hub announced %llu; try again",
                            (unsigned long long)own->inner.file.size_bytes,
                            (unsigned long long)entry->size_bytes);
    else if (remote_promise(&own->inner, &entry->sum) != 0)
        error = source_fail(failure, -ENOMEM, own->inner.file.shown, "out of memory");
    if (error) {
        remote_drop(hub, &own->inner);
        free(own->inner.file.identity);
    }
    return error;
}

static int add_file(struct hub *hub, struct hub_own *own, const struct hub_repository *repository,
                    const char *name, struct failure *failure)
{
    const struct hub_entry *entry = find_entry(repository, name);

    if (source_name_fault(name))
        return source_fail(failure, -EINVAL, own->inner.file.shown, "its name %s",
                           source_name_fault(name));
    if (!entry && !repository->is_offline)
        return source_fail(failure, -ENOENT, own->inner.file.shown,
                           "the repository has no such file at this revision");
    own->path = find_cached(repository, entry, name);
    if (own->path)
        return add_cached(hub, own, failure);
    if (repository->is_offline)
        return source_fail(failure, -ENOENT, own->inner.file.shown,
                           "is not in the cache %s, and the hub was not asked: %s", hub->cache,
                           repository->reason);
    return add_remote(hub, own, repository, entry, name, failure);
}

static int hub_add_file(void *state, struct source_item *item, struct failure *failure)
{
    struct hub *hub = state;
    struct hub_repository *repository;
    struct hub_place parsed;
    int error = find_repository(hub, item->place, &parsed, &repository, failure);
    SCOPED_FREE char *name = error ? NULL : join(parsed.path, item->name ? item->name : "");
    struct hub_own *own = error ? NULL : calloc(1, sizeof(*own));

    if (error)
        return error;
    if (name && own) {
        own->inner.file.shown = item->file.shown;
        own->inner.flags = item->flags & ~(unsigned)SOURCE_NO_LINKS; /* the cache has links */
        error = add_file(hub, own, repository, name, failure);
    } else {
        error = source_fail(failure, -ENOMEM, item->file.shown, "out of memory");
    }
    if (error) {
        free(own ? own->path : NULL);
        free(own);
        return error;
    }
    own->inner.file.shown = item->file.shown;
    item->file = own->inner.file; /* also owns the identity now */
    item->own = own;
    return 0;
}

static void hub_drop(void *state, struct source_item *item)
{
    struct hub_own *own = item->own;

    (void)state;
    own->backend->drop(own->state, &own->inner);
    free(own->path);
    free(own);
}

static int hub_read(void *state, const struct source_item *item, uint64_t offset_bytes, void *bytes,
                    size_t size_bytes, struct failure *failure)
{
    const struct hub_own *own = item->own;

    (void)state;
    return own->backend->read(own->state, &own->inner, offset_bytes, bytes, size_bytes, failure);
}

static int hub_copy(void *state, const struct source_item *item, uint64_t offset_bytes,
                    uint64_t size_bytes, struct source_receiver *receiver, struct failure *failure)
{
    const struct hub_own *own = item->own;

    (void)state;
    return own->backend->copy(own->state, &own->inner, offset_bytes, size_bytes, receiver, failure);
}

static int hub_check(void *state, const struct source_item *item, struct failure *failure)
{
    const struct hub_own *own = item->own;

    (void)state;
    return own->backend->check ? own->backend->check(own->state, &own->inner, failure) : 0;
}

static void hub_prepare(void *state, enum direct_use direct, uint64_t read_bytes,
                        uint64_t taken_bytes)
{
    struct hub *hub = state;

    source_files.prepare(hub->files, direct, read_bytes, taken_bytes);
}

const struct source_backend source_hub = {
    .open = hub_open,
    .close = hub_close,
    .is_tree = hub_is_tree,
    .list = hub_list,
    .tell_unfinished = hub_tell_unfinished,
    .add = hub_add_file,
    .drop = hub_drop,
    .read = hub_read,
    .copy = hub_copy,
    .check = hub_check,
    .cancel = remote_cancel,
    .prepare = hub_prepare,
    .threads = remote_threads,
    .is_slow = remote_is_slow,
};
