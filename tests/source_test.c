/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_test - places whose server is slow, breaks, lies or hangs, in test builds
 *
 * test://PATH?FAULT&FAULT...: the file or directory at PATH, with
 *   fail=N    an error at byte N of each file, in words
 *   slow=MS   so many milliseconds for each read
 *   size=N    each file is announced with N bytes more than it has
 *   hang=N    reads of byte N wait until they are cancelled
 *   check=1   the check of its sums waits until it is cancelled
 *   huge      each file is announced with more bytes than a file can have
 *   names=X   the list also has the name X
 */
#include "source/source_files_list.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "test://"

struct test_state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_cancelled;
};

/* Returns the text behind "NAME=" in the place's query; NULL: it is not there. */
static const char *find_fault(const char *place, const char *name)
{
    const char *query = strchr(place, '?');
    size_t bytes = strlen(name);

    for (; query; query = strchr(query, '&')) {
        query++;
        if (strncmp(query, name, bytes) == 0 && query[bytes] == '=')
            return query + bytes + 1;
    }
    return NULL;
}

static uint64_t find_number(const char *place, const char *name, uint64_t otherwise)
{
    const char *text = find_fault(place, name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static char *make_path(const char *place, const char *name)
{
    SCOPED_FREE char *plain = strdup(place + strlen(PREFIX));

    if (!plain)
        return NULL;
    plain[strcspn(plain, "?")] = '\0';
    return name ? source_join(plain, name) : strdup(plain);
}

static int test_open(void **state, struct failure *failure)
{
    struct test_state *made = calloc(1, sizeof(*made));

    if (!made)
        return failure_no_memory(failure);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    *state = made;
    return 0;
}

static void test_close(void *state)
{
    struct test_state *made = state;

    pthread_mutex_destroy(&made->lock);
    pthread_cond_destroy(&made->changed);
    free(made);
}

static bool test_is_tree(const char *place)
{
    SCOPED_FREE char *path = make_path(place, NULL);
    struct stat status;

    return path && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int test_list(void *state, const char *tree, const char *folder, bool is_deep,
                     struct source_list *list, struct failure *failure)
{
    SCOPED_FREE char *path = make_path(tree, NULL);
    const char *more = find_fault(tree, "names");
    int error = more ? source_list_add(list, more, 1, false) : 0;
    struct source_files files = {0};

    (void)state;
    if (!error)
        error = source_files.list(&files, path, folder, is_deep, list, failure);
    source_files_unbound(&files.bounds);
    return error;
}

static int test_add(void *state, struct source_item *item, struct failure *failure)
{
    SCOPED_FREE char *path = make_path(item->place, item->name);
    int *fd = malloc(sizeof(*fd));
    struct stat status;

    (void)state;
    if (!path || !fd)
        return failure_no_memory(failure);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &status) < 0) {
        free(fd);
        return source_fail(failure, -errno, item->file.shown, "the server has no such file");
    }
    item->own = fd;
    item->file.size_bytes = (uint64_t)status.st_size + find_number(item->place, "size", 0);
    if (find_fault(item->place, "huge"))
        item->file.size_bytes = UINT64_MAX;
    return 0;
}

static void test_drop(void *state, struct source_item *item)
{
    (void)state;
    file_close_fd(item->own);
    free(item->own);
}

/* Waits so long, or until it is cancelled. */
static int wait_for(struct test_state *state, uint64_t ms)
{
    struct timespec until = clock_after_ms(CLOCK_REALTIME, (unsigned)ms);
    bool is_cancelled;
    int error = 0;

    pthread_mutex_lock(&state->lock);
    while (!state->is_cancelled && error == 0)
        error = pthread_cond_timedwait(&state->changed, &state->lock, &until);
    is_cancelled = state->is_cancelled;
    pthread_mutex_unlock(&state->lock);
    return is_cancelled ? -ECANCELED : 0;
}

static bool has_byte(uint64_t at, uint64_t offset_bytes, size_t size_bytes)
{
    return at >= offset_bytes && at - offset_bytes < size_bytes;
}

static int test_read(void *state, const struct source_item *item, uint64_t offset_bytes,
                     void *bytes, size_t size_bytes, struct failure *failure)
{
    uint64_t slow_ms = find_number(item->place, "slow", 0);
    int error = slow_ms ? wait_for(state, slow_ms) : 0;

    while (!error &&
           has_byte(find_number(item->place, "hang", UINT64_MAX), offset_bytes, size_bytes))
        error = wait_for(state, 1000);
    if (!error && has_byte(find_number(item->place, "fail", UINT64_MAX), offset_bytes, size_bytes))
        error = failure_set(failure, -EIO, "the server answered 503; try again later");
    return error ? error : file_read_at(*(int *)item->own, bytes, size_bytes, offset_bytes);
}

static int test_check(void *state, const struct source_item *item, struct failure *failure)
{
    int error = 0;

    (void)failure;
    while (!error && find_fault(item->place, "check"))
        error = wait_for(state, 1000);
    return error;
}

static void test_cancel(void *state)
{
    struct test_state *made = state;

    pthread_mutex_lock(&made->lock);
    made->is_cancelled = true;
    pthread_cond_broadcast(&made->changed);
    pthread_mutex_unlock(&made->lock);
}

static unsigned test_threads(void *state)
{
    (void)state;
    return 4;
}

static bool test_is_slow(void *state)
{
    (void)state;
    return true;
}

const struct source_backend source_test = {.open = test_open,
                                           .close = test_close,
                                           .is_tree = test_is_tree,
                                           .list = test_list,
                                           .add = test_add,
                                           .drop = test_drop,
                                           .read = test_read,
                                           .check = test_check,
                                           .cancel = test_cancel,
                                           .threads = test_threads,
                                           .is_slow = test_is_slow};
