/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of places, and the files of one command. */
#include "source/source.h"

#include "base/scope.h"
#include "source/source_backend.h"

#include <errno.h>
#include <search.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct source_backend source_memory; /* source_add_bytes() */

#define STEP_BYTES ((size_t)1 << 20)

/* A row for each scheme. A backend has one state for all of its schemes. */
static const struct source_kind {
    const char *scheme;                   /* NULL: paths */
    const struct source_backend *backend; /* NULL: not in this build */
} kinds[] = {
    {NULL, &source_files},  {"http", &source_http}, {"https", &source_http},
    {"s3", &source_s3},     {"hf", &source_hub},
#ifdef GMSFS_TEST_HOOKS
    {"test", &source_test},
#endif
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

struct source {
    struct source_item **items;
    size_t count, room;
    void *places; /* a tree of tsearch(3): items by place and name */
    struct {
        const struct source_backend *backend; /* NULL: not used */
        void *state;
    } used[KINDS];
    atomic_bool is_cancelled;
};

/* ---- places -------------------------------------------------------------------------------- */

static const struct source_kind *find_kind(const char *place)
{
    size_t bytes = source_scheme_bytes(place);

    if (bytes == 0)
        return &kinds[0];
    for (size_t i = 1; i < KINDS; i++)
        if (strlen(kinds[i].scheme) == bytes && strncasecmp(kinds[i].scheme, place, bytes) == 0)
            return &kinds[i];
    return NULL;
}

bool source_is_tree(const char *place)
{
    const struct source_kind *kind = find_kind(place);

    return kind && kind->backend && kind->backend->is_tree && kind->backend->is_tree(place);
}

static int fail_memory(struct failure *failure, const char *place)
{
    return source_fail(failure, -ENOMEM, place, "out of memory");
}

/* ---- backends ------------------------------------------------------------------------------ */

/* Refuses a scheme that is unknown, or known and not in this build. */
static int refuse_kind(const struct source_kind *kind, const char *place, struct failure *failure)
{
    int bytes = (int)source_scheme_bytes(place);

    if (!kind)
        return source_fail(failure, -EPROTONOSUPPORT, place,
                           "%.*s:// is not known; name a path, http://, https://, s3:// or hf://",
                           bytes > 20 ? 20 : bytes, place);
    return source_fail(failure, -EPROTONOSUPPORT, place,
                       "this gmsfs was built without %s://; fetch the files, and name their paths",
                       kind->scheme);
}

/* Finds the state of a backend, which is made for its first place. */
static int use_backend(struct source *source, const struct source_backend *backend, void **state,
                       struct failure *failure)
{
    size_t at = 0;
    int error = 0;

    while (source->used[at].backend && source->used[at].backend != backend)
        at++;
    if (!source->used[at].backend) {
        if (backend->open)
            error = backend->open(&source->used[at].state, failure);
        if (error)
            return error;
        source->used[at].backend = backend;
    }
    *state = source->used[at].state;
    return 0;
}

static int use_place(struct source *source, const char *place,
                     const struct source_backend **backend, void **state, struct failure *failure)
{
    const struct source_kind *kind = find_kind(place);

    if (strlen(place) > SOURCE_MAX_PLACE_BYTES)
        return source_fail(failure, -ENAMETOOLONG, place, "is longer than a place may be");
    if (!kind || !kind->backend)
        return refuse_kind(kind, place, failure);
    *backend = kind->backend;
    return use_backend(source, kind->backend, state, failure);
}

/* ---- the source ---------------------------------------------------------------------------- */

struct source *source_open(void)
{
    return calloc(1, sizeof(struct source));
}

struct source *source_open_with(const struct source_backend *backend, void *state)
{
    struct source *source = source_open();

    if (!source)
        return NULL;
    source->used[0].backend = backend;
    source->used[0].state = state;
    return source;
}

static void free_item(struct source_item *item)
{
    if (!item)
        return;
    free((char *)item->place);
    free((char *)item->name);
    free((char *)item->file.shown);
    free(item->file.identity);
    free(item);
}

static void keep_item(void *item)
{
    (void)item;
}

void source_close(struct source *source)
{
    if (!source)
        return;
    for (size_t i = 0; i < source->count; i++) {
        struct source_item *item = source->items[i];

        item->backend->drop(item->state, item);
        free_item(item);
    }
    for (size_t i = 0; i < KINDS && source->used[i].backend; i++)
        if (source->used[i].backend->close)
            source->used[i].backend->close(source->used[i].state);
    tdestroy(source->places, keep_item);
    free(source->items);
    free(source);
}

/* ---- lists --------------------------------------------------------------------------------- */

static int entry_compare(const void *left, const void *right)
{
    const struct source_entry *a = left, *b = right;

    return strcmp(a->name, b->name);
}

/* Checks a sorted list that a server sent. */
static int list_check(const char *tree, const struct source_list *list, struct failure *failure)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->entries[i].name, *fault = source_name_fault(name);

        if (!fault && i > 0 && strcmp(list->entries[i - 1].name, name) == 0)
            fault = "is announced twice";
        if (fault)
            return source_fail(failure, -EINVAL, tree,
                               "announces the file '%.300s', whose name %s; such a tree is not "
                               "loaded",
                               name, fault);
    }
    return 0;
}

int source_list(struct source *source, const char *tree, const char *folder, bool is_deep,
                struct source_list *list, struct failure *failure)
{
    const struct source_backend *backend;
    void *state;
    int error = use_place(source, tree, &backend, &state, failure);

    *list = (struct source_list){0};
    if (!error && !backend->list)
        error = source_fail(failure, -ENOTDIR, tree, "cannot be listed; name a file");
    if (!error)
        error = backend->list(state, tree, folder, is_deep, list, failure);
    if (!error && list->count)
        qsort(list->entries, list->count, sizeof(*list->entries), entry_compare);
    if (!error && source_has_scheme(tree))
        error = list_check(tree, list, failure);
    if (error)
        source_list_free(list);
    return error;
}

void source_tell_unfinished(struct source *source, const char *tree, char *text, size_t room)
{
    const struct source_backend *backend;
    struct failure unused;
    void *state;

    text[0] = '\0';
    if (use_place(source, tree, &backend, &state, &unused) == 0 && backend->tell_unfinished)
        backend->tell_unfinished(state, tree, text, room);
}

/* ---- files --------------------------------------------------------------------------------- */

static int make_room(struct source *source, const char *place, struct failure *failure)
{
    struct source_item **grown;

    if (source->count >= SOURCE_MAX_FILES)
        return source_fail(failure, -E2BIG, place, "is one file too many; one command reads %u",
                           SOURCE_MAX_FILES);
    if (source->count < source->room)
        return 0;
    grown = reallocarray(source->items, 2 * source->room + 16, sizeof(struct source_item *));
    if (!grown)
        return fail_memory(failure, place);
    source->items = grown;
    source->room = 2 * source->room + 16;
    return 0;
}

static char *show_file(const char *place, const char *name)
{
    SCOPED_FREE char *tree = name ? source_show(place) : NULL;

    if (!name)
        return source_show(place);
    return tree ? source_join(tree, name) : NULL;
}

static struct source_item *make_item(const char *place, const char *name, unsigned flags)
{
    struct source_item *item = calloc(1, sizeof(*item));

    if (!item)
        return NULL;
    item->place = strdup(place);
    item->name = name ? strdup(name) : NULL;
    item->flags = flags;
    item->file.shown = show_file(place, name);
    if (item->place && (item->name || !name) && item->file.shown)
        return item;
    free_item(item);
    return NULL;
}

static int check_size(struct source_item *item, struct failure *failure)
{
    if (item->file.size_bytes <= SOURCE_MAX_FILE_BYTES)
        return 0;
    item->backend->drop(item->state, item);
    return source_fail(failure, -EFBIG, item->file.shown,
                       "is announced with more bytes than a file can have");
}

static int compare_places(const void *left, const void *right)
{
    const struct source_item *a = left, *b = right;
    int order = strcmp(a->place, b->place);

    if (order != 0)
        return order;
    return a->name && b->name ? strcmp(a->name, b->name) : (a->name != NULL) - (b->name != NULL);
}

/* Finds a file that was added from the same place, under rules that are as strict. */
static const struct source_item *find_added(const struct source *source, const char *place,
                                            const char *name, unsigned flags)
{
    const struct source_item wanted = {.place = place, .name = name};
    struct source_item *const *found = tfind(&wanted, &source->places, compare_places);

    return found && (flags & ~(*found)->flags) == 0 ? *found : NULL;
}

static int add_item(struct source *source, struct source_item *item, size_t *file)
{
    item->number = source->count;
    *file = source->count;
    source->items[source->count++] = item;
    return 0;
}

static int add_place(struct source *source, const char *place, const char *name, unsigned flags,
                     size_t *file, struct failure *failure)
{
    const struct source_backend *backend;
    void *state;
    int error = use_place(source, place, &backend, &state, failure);

    if (!error)
        error = make_room(source, place, failure);
    if (error)
        return error;
    struct source_item *item = make_item(place, name, flags);
    if (!item)
        return fail_memory(failure, place);
    item->backend = backend;
    item->state = state;
    error = backend->add(state, item, failure);
    if (!error)
        error = check_size(item, failure);
    if (!error && !tsearch(item, &source->places, compare_places)) {
        backend->drop(state, item);
        error = fail_memory(failure, place);
    }
    if (!error)
        return add_item(source, item, file);
    free_item(item);
    return error;
}

int source_add(struct source *source, const char *place, const char *name, unsigned flags,
               size_t *file, struct failure *failure)
{
    const struct source_item *added = find_added(source, place, name, flags);

    if (!added)
        return add_place(source, place, name, flags, file, failure);
    *file = added->number;
    return 0;
}

/* Returns how many bytes of a place, which ends there, are before the file's own name. */
static size_t folder_bytes(const char *place, size_t end)
{
    while (end > 0 && place[end - 1] != '/')
        end--;
    return end;
}

int source_add_beside(struct source *source, size_t other, const char *name, size_t *file,
                      struct failure *failure)
{
    const struct source_item *beside = source->items[other];
    const char *of = beside->name ? beside->name : beside->place;
    size_t bytes = folder_bytes(of, beside->name ? strlen(of) : source_query_at(of));
    SCOPED_FREE char *folder = strndup(of, bytes);
    SCOPED_FREE char *joined = folder ? source_join(folder, name) : NULL;

    if (!joined)
        return fail_memory(failure, beside->file.shown);
    if (beside->name)
        return source_add(source, beside->place, joined, 0, file, failure);
    return source_add(source, folder, name, 0, file, failure);
}

int source_add_bytes(struct source *source, size_t shown_as, uint8_t *bytes, size_t size_bytes,
                     size_t *file)
{
    struct failure unused;
    int error = make_room(source, "", &unused);

    if (error)
        return error;
    struct source_item *item = make_item(source->items[shown_as]->file.shown, NULL, 0);
    if (!item)
        return -ENOMEM;
    item->backend = &source_memory;
    item->file.size_bytes = size_bytes;
    item->own = bytes;
    return add_item(source, item, file);
}

int source_add_own(struct source *source, const char *shown, uint64_t size_bytes)
{
    struct failure unused;
    size_t file;
    int error = make_room(source, shown, &unused);

    if (error)
        return error;
    struct source_item *item = make_item(shown, NULL, 0);
    if (!item)
        return -ENOMEM;
    item->backend = source->used[0].backend;
    item->state = source->used[0].state;
    item->file.size_bytes = size_bytes;
    return add_item(source, item, &file);
}

const struct source_file *source_get(const struct source *source, size_t file)
{
    return &source->items[file]->file;
}

bool source_is_same(const struct source *source, size_t file, size_t other)
{
    const struct source_item *a = source->items[file], *b = source->items[other];

    if (a->backend != b->backend || a->backend == &source_memory)
        return file == other;
    if (a->backend == &source_files)
        return strcmp(a->file.identity, b->file.identity) == 0;
    return strcmp(a->file.shown, b->file.shown) == 0;
}

bool source_find_store(const struct source *source, size_t file, uint8_t store_id[16])
{
    const struct source_item *item = source->items[file];

    return item->backend->find_store && item->backend->find_store(item->state, item, store_id);
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* Refuses what no backend has to look at. */
static int check_range(struct source *source, size_t file, uint64_t offset_bytes,
                       uint64_t size_bytes, struct failure *failure)
{
    uint64_t whole_bytes = source->items[file]->file.size_bytes;

    failure->text[0] = '\0';
    if (atomic_load(&source->is_cancelled))
        return -ECANCELED;
    return offset_bytes <= whole_bytes && size_bytes <= whole_bytes - offset_bytes ? 0 : -ENODATA;
}

int source_read(struct source *source, size_t file, uint64_t offset_bytes, void *bytes,
                size_t size_bytes, struct failure *failure)
{
    const struct source_item *item = source->items[file];
    int error = check_range(source, file, offset_bytes, size_bytes, failure);

    return error ? error
                 : item->backend->read(item->state, item, offset_bytes, bytes, size_bytes, failure);
}

/* For backends that only read. */
static int copy_by_read(const struct source_item *item, uint64_t offset_bytes, uint64_t size_bytes,
                        struct source_receiver *receiver, struct failure *failure)
{
    size_t step, room_bytes;
    uint8_t *room;
    int error = 0;

    for (; !error && size_bytes > 0; size_bytes -= step, offset_bytes += step) {
        step = size_bytes < STEP_BYTES ? (size_t)size_bytes : STEP_BYTES;
        step = receiver->left_bytes < step ? (size_t)receiver->left_bytes : step;
        error = receiver->room(receiver, step, false, &room, &room_bytes);
        if (error)
            return error;
        step = room_bytes < step ? room_bytes : step;
        error = item->backend->read(item->state, item, offset_bytes, room, step, failure);
        if (!error)
            error = receiver->put(receiver, room, step);
    }
    return error;
}

int source_copy(struct source *source, size_t file, uint64_t offset_bytes, uint64_t size_bytes,
                struct source_receiver *receiver, struct failure *failure)
{
    const struct source_item *item = source->items[file];
    int error = check_range(source, file, offset_bytes, size_bytes, failure);

    if (error)
        return error;
    return item->backend->copy
               ? item->backend->copy(item->state, item, offset_bytes, size_bytes, receiver, failure)
               : copy_by_read(item, offset_bytes, size_bytes, receiver, failure);
}

int source_check(struct source *source, struct failure *failure)
{
    struct failure why;
    int error = 0;

    for (size_t i = 0; i < source->count && !error; i++) {
        const struct source_item *item = source->items[i];

        if (atomic_load(&source->is_cancelled))
            return -ECANCELED;
        if (item->backend->check)
            error = item->backend->check(item->state, item, &why);
        if (error && error != -ECANCELED)
            source_fail(failure, error, item->file.shown, "%s", why.text);
    }
    return error;
}

void source_cancel(struct source *source)
{
    atomic_store(&source->is_cancelled, true);
    for (size_t i = 0; i < KINDS && source->used[i].backend; i++)
        if (source->used[i].backend->cancel)
            source->used[i].backend->cancel(source->used[i].state);
}

void source_prepare(struct source *source, enum direct_use direct, uint64_t read_bytes,
                    uint64_t taken_bytes)
{
    for (size_t i = 0; i < KINDS && source->used[i].backend; i++)
        if (source->used[i].backend->prepare)
            source->used[i].backend->prepare(source->used[i].state, direct, read_bytes,
                                             taken_bytes);
}

uint64_t source_threads(const struct source *source, uint64_t asked)
{
    unsigned most = 0;

    for (size_t i = 0; i < KINDS && source->used[i].backend; i++) {
        unsigned wanted = source->used[i].backend->threads
                              ? source->used[i].backend->threads(source->used[i].state)
                              : 0;
        most = wanted > most ? wanted : most;
    }
    return asked ? asked : most;
}

bool source_is_slow(const struct source *source)
{
    bool is_slow = false;

    for (size_t i = 0; i < KINDS && source->used[i].backend; i++)
        is_slow |= source->used[i].backend->is_slow &&
                   source->used[i].backend->is_slow(source->used[i].state);
    return is_slow;
}

/* ---- bytes of this process ----------------------------------------------------------------- */

static void memory_drop(void *state, struct source_item *item)
{
    (void)state;
    free(item->own);
}

static int memory_read(void *state, const struct source_item *item, uint64_t offset_bytes,
                       void *bytes, size_t size_bytes, struct failure *failure)
{
    (void)state;
    (void)failure;
    memcpy(bytes, (const uint8_t *)item->own + offset_bytes, size_bytes);
    return 0;
}

static const struct source_backend source_memory = {.drop = memory_drop, .read = memory_read};
