/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_backend - a kind of place: what source.c asks of it
 *
 * For source.c and source_*.c alone. A backend is a constant table in a file of its own and a row
 * for each of its schemes in source.c. It checks all that a server says: source.c holds only names,
 * counts and sizes against the bounds of source.h. It prints nothing, and its messages have no
 * credentials. Its state serves one source: source.c makes it when the first place is named, and
 * calls list() and add() on one thread, read() and copy() on any.
 */
#ifndef GMSFS_SOURCE_SOURCE_BACKEND_H
#define GMSFS_SOURCE_SOURCE_BACKEND_H

#include "source/source.h"

/* A file, as its backend sees it. */
struct source_item {
    struct source_file file;
    const char *place; /* as it was given: with a name a tree, else the file's own */
    const char *name;  /* in that tree, not encoded; NULL: none */
    unsigned flags;
    void *own; /* of the backend */

    /* Private to source.c. */
    const struct source_backend *backend;
    void *state;
    size_t number;
};

struct source_backend {
    /* NULL: it needs no state. */
    int (*open)(void **state, struct failure *failure);
    void (*close)(void *state);

    /* By the words of a place alone, except for paths. NULL: no place is a tree. */
    bool (*is_tree)(const char *place);
    /* Calls source_list_add() for each. NULL: there are no trees. */
    int (*list)(void *state, const char *tree, const char *folder, bool is_deep,
                struct source_list *list, struct failure *failure);
    /* NULL: nothing tells so. */
    void (*tell_unfinished)(void *state, const char *tree, char *text, size_t room);

    /* Looks at the file, and fills in item->file and item->own; if it fails, the failure has the
     * whole message (source_fail), and drop() is not called. */
    int (*add)(void *state, struct source_item *item, struct failure *failure);
    void (*drop)(void *state, struct source_item *item);
    bool (*find_store)(void *state, const struct source_item *item, uint8_t store_id[16]);

    /* As source_read and source_copy; the range lies in the file. copy NULL: by read(). */
    int (*read)(void *state, const struct source_item *item, uint64_t offset_bytes, void *bytes,
                size_t size_bytes, struct failure *failure);
    int (*copy)(void *state, const struct source_item *item, uint64_t offset_bytes,
                uint64_t size_bytes, struct source_receiver *receiver, struct failure *failure);
    /* As source_check, for one file. NULL: no place promises a sum. */
    int (*check)(void *state, const struct source_item *item, struct failure *failure);
    /* Wakes reads that wait. NULL: none waits. */
    void (*cancel)(void *state);

    /* As source_prepare. NULL: nothing to decide. */
    void (*prepare)(void *state, enum direct_use direct, uint64_t read_bytes, uint64_t taken_bytes);
    /* The least number of threads that read the files well; 0: as many as the processors. NULL: 0.
     * After prepare(). */
    unsigned (*threads)(void *state);
    /* As source_is_slow. NULL: never. After prepare(). */
    bool (*is_slow)(void *state);
};

extern const struct source_backend source_files; /* paths */
extern const struct source_backend source_http;  /* http://, https:// */
extern const struct source_backend source_s3;    /* s3:// */
extern const struct source_backend source_hub;   /* hf:// */
extern const struct source_backend source_test;  /* test://, only in test builds (tests/) */

/* Makes a source of one backend, whose places are not named by users. The source closes the state.
 * NULL: no memory. */
struct source *source_open_with(const struct source_backend *backend, void *state);
/* Adds a file of that backend, whose number is the count of the files before it. -ENOMEM */
int source_add_own(struct source *source, const char *shown, uint64_t size_bytes);

/* -ENOMEM, or beyond a bound: -E2BIG. source.c checks the names, if a server announced them. */
int source_list_add(struct source_list *list, const char *name, uint64_t size_bytes,
                    bool is_folder);

/* Returns the length of a place's scheme; 0: it is a path. */
size_t source_scheme_bytes(const char *place);

/* Returns where the query or fragment of a place begins, or its length: keys of s3:// and files of
 * hf:// may have '?' and '#' in their names. */
size_t source_query_at(const char *place);

/* Returns the tree and the name as one place, as paths and URLs are joined. The caller frees it;
 * NULL: out of memory. */
char *source_join(const char *tree, const char *name);

/* Writes "PLACE: text" without credentials, and with control characters made harmless; returns
 * `error`. */
int source_fail(struct failure *failure, int error, const char *place, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
