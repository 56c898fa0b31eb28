/* SPDX-License-Identifier: Apache-2.0 */
#include "source/source_remote.h"

#include "source/sum_check.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STEP_BYTES ((size_t)1 << 20)

struct remote_file {
    struct http_file file;
    char *url;
    struct sum_check *sum; /* NULL: none is promised */
    const atomic_bool *is_cancelled;
};

/* One read or copy. */
struct passage {
    struct sum_check *sum;
    uint64_t at;                      /* offset in the file of the next byte */
    uint8_t *room;                    /* of a read */
    struct source_receiver *receiver; /* of a copy */
};

int remote_open(size_t state_bytes, void **state, struct failure *failure)
{
    struct remote *remote = calloc(1, state_bytes);
    int error = remote ? http_open(&remote->http, failure) : failure_no_memory(failure);

    if (error)
        free(remote);
    else
        *state = remote;
    return error;
}

void remote_close(void *state)
{
    struct remote *remote = state;

    http_close(remote->http);
    free(remote);
}

void remote_cancel(void *state)
{
    struct remote *remote = state;

    atomic_store(&remote->is_cancelled, true);
    http_cancel(remote->http);
}

unsigned remote_threads(void *state)
{
    (void)state;
    return REMOTE_THREADS;
}

bool remote_is_slow(void *state)
{
    (void)state;
    return true;
}

bool remote_is_file_name(const char *name)
{
    static const char *const ends[] = {".safetensors", ".gguf", ".json", ".bin", ".txt", ".model"};
    const size_t bytes = strlen(name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (bytes > strlen(ends[i]) && strcasecmp(name + bytes - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

bool remote_is_hidden(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '/'), part = part ? part + 1 : NULL) {
        const size_t bytes = strcspn(part, "/");

        if (part[0] == '.' && bytes > 1 && !(bytes == 2 && part[1] == '.'))
            return true;
    }
    return false;
}

/* ---- files ---------------------------------------------------------------------------------- */

static void drop_file(struct remote_file *own)
{
    if (own) {
        http_file_free(&own->file);
        free(own->url);
        sum_check_free(own->sum);
    }
    free(own);
}

static int describe(struct source_item *item, const struct remote_file *own)
{
    const char *identity = own->file.etag ? own->file.etag : own->file.modified;

    item->file.size_bytes = own->file.size_bytes;
    item->file.mtime_ns = own->file.mtime_ns;
    item->file.identity = identity ? strdup(identity) : NULL;
    return identity && !item->file.identity ? -ENOMEM : 0;
}

int remote_add(struct remote *remote, struct source_item *item, const char *url,
               const struct http_auth *auth, struct http_reply *reply, struct failure *failure)
{
    struct remote_file *own = calloc(1, sizeof(*own));
    struct failure why;
    int error = -ENOMEM;

    failure_no_memory(&why);
    if (own)
        *own = (struct remote_file){.url = strdup(url), .is_cancelled = &remote->is_cancelled};
    if (own && own->url) {
        const struct http_target target = {own->url, auth};

        error = http_file_look(remote->http, &target, &own->file, reply, &why);
    }
    if (error == 0)
        error = describe(item, own);
    item->own = own;
    if (error == 0)
        return 0;
    drop_file(own);
    return source_fail(failure, error, item->file.shown, "cannot read it: %s", why.text);
}

void remote_drop(void *state, struct source_item *item)
{
    (void)state;
    drop_file(item->own);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void note(struct passage *passage, const uint8_t *bytes, size_t size_bytes, int fd,
                 uint64_t at_bytes)
{
    if (passage->sum)
        sum_check_pass(passage->sum, passage->at, bytes, size_bytes, fd, at_bytes);
    passage->at += size_bytes;
}

static int fill_room(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct passage *passage = context;

    memcpy(passage->room, bytes, size_bytes);
    passage->room += size_bytes;
    note(passage, bytes, size_bytes, -1, 0);
    return 0;
}

int remote_read(void *state, const struct source_item *item, uint64_t offset_bytes, void *bytes,
                size_t size_bytes, struct failure *failure)
{
    const struct remote *remote = state;
    struct remote_file *own = item->own;
    struct passage passage = {own->sum, offset_bytes, bytes, NULL};

    return http_file_copy(remote->http, &own->file, offset_bytes, size_bytes, fill_room, &passage,
                          failure);
}

static int pass_on(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct passage *passage = context;
    struct source_receiver *receiver = passage->receiver;
    size_t step;
    int error = 0;

    for (; !error && size_bytes > 0; bytes += step, size_bytes -= step) {
        const uint64_t at_bytes = receiver->at_bytes;
        const int fd = receiver->fd;

        step = receiver->left_bytes < size_bytes ? (size_t)receiver->left_bytes : size_bytes;
        error = receiver->put(receiver, bytes, step);
        if (!error)
            note(passage, bytes, step, fd, at_bytes);
    }
    return error;
}

int remote_copy(void *state, const struct source_item *item, uint64_t offset_bytes,
                uint64_t size_bytes, struct source_receiver *receiver, struct failure *failure)
{
    const struct remote *remote = state;
    struct remote_file *own = item->own;
    struct passage passage = {own->sum, offset_bytes, NULL, receiver};

    return http_file_copy(remote->http, &own->file, offset_bytes, size_bytes, pass_on, &passage,
                          failure);
}

/* ---- sums ------------------------------------------------------------------------------------ */

int remote_promise(struct source_item *item, const struct source_sum *sum)
{
    struct remote_file *own = item->own;
    int error;

    item->file.sum = *sum;
    if (item->flags & SOURCE_NO_SUM)
        return 0;
    own->sum = sum_check_new(sum, item->file.size_bytes, own->is_cancelled, &error);
    return error;
}

/* Fetches bytes that were not read: padding. */
static int fetch(const struct remote *remote, struct remote_file *own, uint64_t from,
                 uint64_t size_bytes, uint8_t *room, struct failure *failure)
{
    const uint64_t step = size_bytes < STEP_BYTES ? size_bytes : STEP_BYTES;
    struct passage passage = {own->sum, from, room, NULL};

    return http_file_copy(remote->http, &own->file, from, step, fill_room, &passage, failure);
}

int remote_check(void *state, const struct source_item *item, struct failure *failure)
{
    const struct remote *remote = state;
    struct remote_file *own = item->own;
    uint64_t from, size_bytes;
    int error = 0;

    if (!own->sum)
        return 0;
    uint8_t *room = malloc(STEP_BYTES);
    if (!room)
        return failure_no_memory(failure);
    while (!error && sum_check_misses(own->sum, &from, &size_bytes))
        error = fetch(remote, own, from, size_bytes, room, failure);
    free(room);
    if (!error && atomic_load(&remote->is_cancelled))
        error = -ECANCELED;
    return error ? error : sum_check_compare(own->sum, failure);
}
