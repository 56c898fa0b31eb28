/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_answer.h"

#include "base/container.h"
#include "base/passing.h"
#include "base/probe.h"
#include "fs/trace.h"
#include "service/client_error.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int send_now(int fd, const void *bytes, size_t size)
{
    fs_die_if_told("GMSFS_DIE_ANSWERING_FDS");
    return send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void on_released(struct event_held *held)
{
    struct fds_answer *answer = CONTAINER_OF(held, struct fds_answer, held);
    int error = send_now(answer->fd, answer->bytes, answer->size);
    free(answer->bytes);
    answer->bytes = NULL;
    if (error)
        answer->failed(answer);
}

int fds_answer_send(struct fds_answer *answer, void *bytes, size_t size)
{
    const struct fs_host *host = &answer->fs->host;
    struct gmsfs_fds_header *header = bytes;
    header->error = service_error_for_client(header->error);
    PROBE_ANSWER(answer->asker, PROBE_FDS, header->error);
    if (log_is_debug())
        fs_trace_told(answer->asker, header->error, size, 0);
    answer->held.released = on_released;
    if (!host->hold(host->context, &answer->held))
        return send_now(answer->fd, bytes, size);
    answer->bytes = malloc(size);
    if (!answer->bytes) {
        fds_answer_forget(answer);
        return -ENOMEM;
    }
    memcpy(answer->bytes, bytes, size);
    answer->size = size;
    return 0;
}

void fds_answer_forget(struct fds_answer *answer)
{
    const struct fs_host *host = &answer->fs->host;
    host->unhold(host->context, &answer->held);
    free(answer->bytes);
    answer->bytes = NULL;
}

/* Places the tag, or shares the last item's, because neighbours' tags are mostly alike. A tag that
 * does not fit is left out. */
static uint32_t place_tag(struct fds_items *message, const char *tag)
{
    size_t size = tag ? strlen(tag) + 1 : 0;
    const struct gmsfs_fds_item *last = message->items + message->header.count - 1;
    if (size && message->header.count && last->tag_at != GMSFS_FDS_NO_TAG &&
        strcmp(message->tags + last->tag_at, tag) == 0)
        return last->tag_at;
    if (!size || size > sizeof message->tags - message->tag_bytes)
        return GMSFS_FDS_NO_TAG;
    memcpy(message->tags + message->tag_bytes, tag, size);
    message->tag_bytes += size;
    return (uint32_t)(message->tag_bytes - size);
}

void fds_add_item(struct fds_items *message, const struct service_descriptor *descriptor)
{
    uint32_t at = message->header.count;
    uint32_t tag_at = place_tag(message, descriptor->tag);
    message->items[at] = (struct gmsfs_fds_item){
        .rank = descriptor->rank,
        .slot = descriptor->slot,
        .size_bytes = descriptor->size_bytes,
        .aligned_bytes = descriptor->aligned_bytes,
        .tag_at = tag_at,
    };
    /* all are of one kind: a store moves as a whole */
    message->header.memory = (uint32_t)descriptor->memory;
    message->descriptors[at] = descriptor->fd;
    message->header.count++;
}

_Static_assert(offsetof(struct fds_items, tags) ==
                   sizeof(struct gmsfs_fds_header) +
                       GMSFS_BATCH_MAX * sizeof(struct gmsfs_fds_item),
               "a message has no padding");

int fds_send_items(int fd, struct fds_items *message)
{
    union passing control;
    size_t count = message->header.count;
    struct iovec parts[] = {
        {.iov_base = message, .iov_len = sizeof message->header + count * sizeof message->items[0]},
        {.iov_base = message->tags, .iov_len = message->tag_bytes},
    };
    struct msghdr head = {.msg_iov = parts, .msg_iovlen = 2};
    passing_put(&head, &control, message->descriptors, count);
    return sendmsg(fd, &head, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
