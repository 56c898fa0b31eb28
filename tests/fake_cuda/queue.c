/* SPDX-License-Identifier: Apache-2.0 */
/* With `lazy 1`: pending copies on streams, in the order of their requests. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct queued {
    const struct drv_stream *stream;
    unsigned long number;
    void *to;
    const void *from;
    size_t bytes;
    struct queued *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static struct queued *first;
static unsigned long last_number;

bool queue_add(const struct drv_stream *stream, void *to, const void *from, size_t bytes)
{
    struct queued *made = malloc(sizeof(*made)), **link;

    if (!made)
        return false;
    pthread_mutex_lock(&mutex);
    *made = (struct queued){stream, ++last_number, to, from, bytes, NULL};
    for (link = &first; *link; link = &(*link)->next)
        ;
    *link = made;
    pthread_mutex_unlock(&mutex);
    return true;
}

unsigned long queue_mark(void)
{
    unsigned long number;

    pthread_mutex_lock(&mutex);
    number = last_number;
    pthread_mutex_unlock(&mutex);
    return number;
}

static bool is_meant(const struct queued *queued, const struct drv_stream *stream)
{
    if (stream == FAKE_LEGACY)
        return stream_is_blocking(queued->stream);
    return !stream || queued->stream == stream;
}

void queue_run(const struct drv_stream *stream, unsigned long upto)
{
    struct queued **link = &first, *done;

    pthread_mutex_lock(&mutex);
    while ((done = *link) && done->number <= upto) {
        if (!is_meant(done, stream)) {
            link = &done->next;
            continue;
        }
        memmove(done->to, done->from, done->bytes);
        *link = done->next;
        free(done);
    }
    pthread_mutex_unlock(&mutex);
}

bool queue_has(const struct drv_stream *stream, unsigned long upto)
{
    const struct queued *at;
    bool has;

    pthread_mutex_lock(&mutex);
    for (at = first; at && stream && at->stream != stream; at = at->next)
        ;
    has = at && at->number <= upto;
    pthread_mutex_unlock(&mutex);
    return has;
}
