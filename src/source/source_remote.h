/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source_remote - what all kinds of places on servers have in common: their files are read by http
 *
 * For source_http.c, source_s3.c and source_hub.c, whose tables have these functions. The state is
 * a struct http; item->own is private.
 */
#ifndef GMSFS_SOURCE_SOURCE_REMOTE_H
#define GMSFS_SOURCE_SOURCE_REMOTE_H

#include "source/http.h"
#include "source/source_backend.h"

#include <errno.h>
#include <stdatomic.h>

#define REMOTE_THREADS 16u /* a server gives one connection a part of its speed */

struct remote {
    struct http *http;
    atomic_bool is_cancelled;
};

/* Makes a state of state_bytes, of which the first are a struct remote and all others are 0. */
int remote_open(size_t state_bytes, void **state, struct failure *failure);
void remote_close(void *state);

/* Looks at the file of an address, and fills in the item. auth: valid until the item is dropped.
 * reply: the answer's headers, to be freed, also after an error; NULL: not wanted. */
int remote_add(struct remote *remote, struct source_item *item, const char *url,
               const struct http_auth *auth, struct http_reply *reply, struct failure *failure);

/* Promises a sum of the file's bytes, right after remote_add(). -ENOMEM. */
int remote_promise(struct source_item *item, const struct source_sum *sum);

/* True if a key or path ends as a single file of a model does; else it is a folder. */
bool remote_is_file_name(const char *name);
/* True if a part of the name begins with a dot, and is not "." or "..", which no list may have. */
bool remote_is_hidden(const char *name);

void remote_drop(void *state, struct source_item *item);
int remote_read(void *state, const struct source_item *item, uint64_t offset_bytes, void *bytes,
                size_t size_bytes, struct failure *failure);
int remote_copy(void *state, const struct source_item *item, uint64_t offset_bytes,
                uint64_t size_bytes, struct source_receiver *receiver, struct failure *failure);
int remote_check(void *state, const struct source_item *item, struct failure *failure);
void remote_cancel(void *state);
unsigned remote_threads(void *state);
bool remote_is_slow(void *state);

#endif
