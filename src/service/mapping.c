/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapping - memory of immutable layouts that the kernel reads and maps by itself
 *
 * The keeper registers the memory's file with the kernel, once, when a reader opens it first. Every
 * later opener gets the same number, so that all openers of a file have the same pages.
 */
#include "service/allocations.h"
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

struct mapping_op {
    struct task task; /* first */
    struct service_request *request;
    struct piece *piece;
    uint64_t memory;
    int fd;
    uint32_t backing;
    uint64_t file_bytes;
    int error;
};

/* Finds the committed allocation of an immutable store that no writer has. NULL: it is none. */
static const struct layout_allocation *find_immutable(const struct service *s, uint64_t serial)
{
    const struct core_store *store = NULL;
    const struct layout_allocation *allocation = core_find_allocation(s->core, serial, &store);
    bool is_immutable = allocation && store && !store->working && !store->lock.sealed &&
                        layout_is_immutable(core_get_layout(s->core, store));

    return is_immutable && allocation->memory != LAYOUT_NO_MEMORY ? allocation : NULL;
}

static struct piece *find_piece(const struct service *s, const struct layout_allocation *allocation)
{
    return allocation ? idvec_find(&s->pieces.all, allocation->memory) : NULL;
}

struct service_mapping service_get_mapping(const struct service *s, uint64_t serial)
{
    const struct layout_allocation *allocation = find_immutable(s, serial);
    const struct piece *piece = find_piece(s, allocation);
    struct vmm_info info;

    if (!piece)
        return (struct service_mapping){0};
    vmm_get_info(s->vmm, &info);
    return (struct service_mapping){
        .is_immutable = true,
        .is_host = info.memory == VMM_MEMORY_HOST,
        .is_known = piece->backing_is_known || !piece->memory.immutable || !s->host.back,
        .memory = piece->id,
        .backing = piece->backing,
        .size_bytes = allocation->size_bytes,
        .file_bytes = piece->file_bytes,
    };
}

static void run_map(struct job *job)
{
    struct mapping_op *op = (struct mapping_op *)job;
    const struct service_host *host = &op->task.service->host;
    struct stat stat;

    op->error = fstat(op->fd, &stat) == 0 ? 0 : -errno;
    if (!op->error)
        op->error = host->back(host->context, op->memory, &op->backing);
    if (!op->error)
        op->file_bytes = (uint64_t)stat.st_size;
}

static void end_map(struct service *s, struct task *task)
{
    struct mapping_op *op = (struct mapping_op *)task;

    if (!op->error || op->error == -EPERM) {
        op->piece->backing_is_known = true;
        op->piece->backing = op->backing;
        op->piece->file_bytes = op->file_bytes;
    }
    service_answer(op->request, 0, NULL);
    piece_end(s, op->piece);
    free(op);
}

int service_map(struct service *s, uint64_t serial, struct service_request *request)
{
    struct piece *piece = find_piece(s, find_immutable(s, serial));
    struct mapping_op *op;

    if (!piece || !piece->memory.immutable || piece->backing_is_known || !s->host.back) {
        service_answer(request, 0, NULL);
        return 0;
    }
    op = calloc(1, sizeof *op);
    if (!op)
        return -ENOMEM;
    *op = (struct mapping_op){.task = {.job.run = run_map, .end = end_map},
                              .request = request,
                              .piece = piece,
                              .memory = piece->id,
                              .fd = piece->memory.fd_readonly};
    piece->may_be_backed = true;
    piece_begin(piece);
    int error = service_submit(s, SERVICE_POOL_MEMORY, &op->task);
    if (!error)
        return 0;
    piece_end(s, piece);
    free(op);
    return error;
}
