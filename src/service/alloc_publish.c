/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_publish - records new memory in a writer's layout */
#include "service/alloc_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int record_resized(struct service *s, struct alloc_op *op)
{
    return service_record(s, .type = RECORD_ALLOC_MEMORY, .session = op->session,
                          .serial = op->serial, .memory = op->pieces[0]->id,
                          .size_bytes = op->size_bytes, .aligned_bytes = op->aligned_bytes,
                          .making_bytes = op->charged_bytes, .drawn_bytes = op->drawn_bytes);
}

/* Removes the allocations that record_each had added before one was refused; the table owns their
 * pieces. */
static void remove_added(struct service *s, const struct alloc_op *op, uint32_t count,
                         const uint64_t *serials)
{
    for (uint32_t i = 0; i < count; i++) {
        service_record(s, .type = RECORD_ALLOC_REMOVE, .session = op->session,
                       .serial = serials[i]);
    }
}

/* Records one of several that differ, with its share of the bytes charged for all. */
static int record_one(struct service *s, struct alloc_op *op, uint32_t index,
                      struct outcome *outcome)
{
    const struct service_alloc_item *item = &op->items[index];
    uint64_t bytes = op->pieces[index]->reserved_bytes;
    uint64_t drawn_bytes = bytes < op->drawn_bytes ? bytes : op->drawn_bytes;
    int error = service_record_for(s, outcome, .type = RECORD_ALLOC_ADD, .session = op->session,
                                   .name = item->name, .name_bytes = strlen(item->name),
                                   .tag = item->tag, .tag_bytes = strlen(item->tag), .count = 1,
                                   .memories = &op->pieces[index]->id, .memory_count = 1,
                                   .size_bytes = item->size_bytes, .aligned_bytes = bytes,
                                   .making_bytes = bytes, .drawn_bytes = drawn_bytes);
    if (error)
        return error;
    op->charged_bytes -= bytes;
    op->drawn_bytes -= drawn_bytes;
    op->pieces[index] = NULL; /* owned by the table */
    return 0;
}

static int record_each(struct service *s, struct alloc_op *op, uint64_t *slots)
{
    uint64_t serials[SERVICE_MAX_ALLOC_ITEMS];
    uint32_t added = 0;
    int error = 0;
    while (!error && added < op->count) {
        struct outcome outcome;
        error = record_one(s, op, added, &outcome);
        if (error)
            break;
        slots[added] = outcome.slot;
        serials[added++] = outcome.serial;
    }
    if (error)
        remove_added(s, op, added, serials);
    return error;
}

static int record_added(struct service *s, struct alloc_op *op, struct service_answer *answer)
{
    uint64_t *memories = piece_list_ids(op->pieces, op->count);
    struct outcome outcome;
    if (!memories)
        return -ENOMEM;
    int error = service_record_for(
        s, &outcome, .type = RECORD_ALLOC_ADD, .session = op->session, .name = op->name,
        .name_bytes = strlen(op->name), .tag = op->tag, .tag_bytes = strlen(op->tag),
        .count = op->count, .memories = memories, .memory_count = op->count,
        .size_bytes = op->size_bytes, .aligned_bytes = op->aligned_bytes,
        .making_bytes = op->charged_bytes, .drawn_bytes = op->drawn_bytes,
        .value = (const uint8_t *)op->wire_id, .value_bytes = strlen(op->wire_id));
    free(memories);
    if (error)
        return error;
    const struct core_store *store = NULL;
    const struct layout_allocation *first = core_find_allocation(s->core, outcome.serial, &store);
    answer->slot = outcome.slot;
    answer->rank = outcome.rank;
    answer->aligned_bytes = op->aligned_bytes;
    if (first)
        memcpy(answer->name, first->name, strlen(first->name) + 1);
    return 0;
}

int alloc_publish(struct alloc_op *op, struct service_answer *answer, uint64_t *slots)
{
    struct service *s = op->service;
    int error = piece_enter_all(s, op->pieces, op->count);
    if (error)
        return error;
    if (op->items)
        error = record_each(s, op, slots);
    else
        error = op->serial ? record_resized(s, op) : record_added(s, op, answer);
    piece_leave_all(s, op->pieces, op->count, error);
    return error;
}
