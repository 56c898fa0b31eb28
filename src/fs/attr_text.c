/* SPDX-License-Identifier: Apache-2.0 */
/* attr_text - attributes of texts that are costly to make: their size is only known from the
 * text */
#include "fs/fs_internal.h"

static void reply_attr(fuse_req_t req, const struct node *node)
{
    struct fs *fs = fs_of(req);
    uint64_t id = node_get_id(node);
    const struct fuse_ctx *context = fuse_req_ctx(req);
    struct fs_handle *handle = fs_find_unread(fs, id, (uint32_t)context->pid, context->uid);
    struct fs_text text = {.uid = context->uid};
    struct stat stat;
    int error = 0;

    fs_stat(fs, node, &stat);
    if (handle && fs_is_told_text_true(fs, handle)) {
        stat.st_size = (off_t)handle->shown.size;
    } else {
        error = fs_text_render(fs, node, context->uid, &text);
        stat.st_size = error ? 0 : (off_t)text.size;
        if (!error && handle)
            fs_keep_told_text(fs, handle, (uint8_t *)text.data, text.size);
        else if (!error)
            fs_keep_measured(fs, &(struct fs_measured){.node = id,
                                                       .uid = context->uid,
                                                       .tid = (uint32_t)context->pid,
                                                       .text = (uint8_t *)text.data,
                                                       .bytes = text.size});
    }
    if (error)
        fs_reply_error(req, error);
    else
        fuse_reply_attr(req, &stat, 0);
}

static void reply_measured(struct fs_request *request, const struct service_answer *answer)
{
    struct node node;

    (void)answer;
    if (node_find(request->fs->core, request->node, &node))
        fs_reply_error(request->req, fs_gone(request->req, NULL));
    else
        reply_attr(request->req, &node);
}

void fs_reply_attr_of_text(fuse_req_t req, const struct node *node)
{
    struct fs_request *request;

    if (!node_get_traits(node->kind)->is_measured) {
        reply_attr(req, node);
        return;
    }
    request = fs_request_new(req, reply_measured, 0);
    if (!request)
        return;
    request->node = node_get_id(node);
    fs_request_submitted(request, service_measure(request->fs->service, &request->service));
}
