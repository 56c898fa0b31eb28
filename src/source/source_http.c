/* SPDX-License-Identifier: Apache-2.0 */
/* http:// and https://: single files of a server, which cannot be listed. */
#include "source/source_remote.h"

#include "base/scope.h"
#include "source/url.h"

#include <string.h>

static int web_open(void **state, struct failure *failure)
{
    return remote_open(sizeof(struct remote), state, failure);
}

static int web_add(void *state, struct source_item *item, struct failure *failure)
{
    SCOPED_FREE char *url = item->name ? url_join(item->place, item->name) : strdup(item->place);

    return url ? remote_add(state, item, url, NULL, NULL, failure)
               : source_fail(failure, -ENOMEM, item->file.shown, "out of memory");
}

const struct source_backend source_http = {
    .open = web_open,
    .close = remote_close,
    .add = web_add,
    .drop = remote_drop,
    .read = remote_read,
    .copy = remote_copy,
    .cancel = remote_cancel,
    .threads = remote_threads,
    .is_slow = remote_is_slow,
};
