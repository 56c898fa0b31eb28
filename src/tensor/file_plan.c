/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/file_plan.h"

#include "base/array.h"
#include "base/number.h"

#include <errno.h>
#include <stdlib.h>

#define SPAN_BYTES   ((uint64_t)1 << 20) /* as much as one read of memory gives */
#define SPAN_GAP     ((uint64_t)64 << 10)
#define SPAN_EXTENTS 4096u

/* Texts, and zeros, that follow each other are one extent. */
static void add(struct file_plan *plan, uint64_t source, uint64_t offset, uint64_t bytes)
{
    bool goes_on = plan->count > 0 && source == plan->last_source && source >= FILE_PLAN_ZEROS;

    if (bytes == 0)
        return;
    if (!goes_on && plan->extents)
        plan->extents[plan->count] = (struct file_extent){plan->size_bytes, source, offset};
    plan->count += !goes_on;
    plan->last_source = source;
    plan->size_bytes += bytes;
}

void file_plan_add_memory(struct file_plan *plan, uint64_t allocation, uint64_t offset,
                          uint64_t bytes)
{
    add(plan, allocation, offset, bytes);
}

void file_plan_add_zeros(struct file_plan *plan, uint64_t bytes)
{
    add(plan, FILE_PLAN_ZEROS, 0, bytes);
}

char *file_plan_add_text(struct file_plan *plan, size_t bytes)
{
    char *to = plan->text ? plan->text + plan->text_bytes : NULL;

    add(plan, FILE_PLAN_TEXT, plan->text_bytes, bytes);
    plan->text_bytes += bytes;
    return to;
}

int file_plan_room(struct file_plan *plan)
{
    plan->text = malloc(plan->text_bytes + 1);
    plan->extents = calloc(plan->count + 1, sizeof *plan->extents);
    plan->size_bytes = 0;
    plan->text_bytes = 0;
    plan->count = 0;
    return plan->text && plan->extents ? 0 : -ENOMEM;
}

void file_plan_free(struct file_plan *plan)
{
    free(plan->text);
    free(plan->extents);
    *plan = (struct file_plan){0};
}

uint64_t file_plan_bytes(const struct file_plan *plan)
{
    return plan->text_bytes + plan->count * sizeof *plan->extents;
}

size_t file_plan_find(const struct file_plan *plan, uint64_t at)
{
    size_t index = 0;

    ARRAY_SEARCH(index, plan->count, plan->extents[index].at <= at);
    return index - 1;
}

uint64_t file_plan_end(const struct file_plan *plan, size_t index)
{
    return index + 1 < plan->count ? plan->extents[index + 1].at : plan->size_bytes;
}

bool file_extent_is_memory(const struct file_extent *extent)
{
    return extent->source < FILE_PLAN_ZEROS;
}

struct file_span file_plan_span(const struct file_plan *plan, size_t index, uint64_t at,
                                uint64_t end)
{
    const struct file_extent *first = &plan->extents[index];
    struct file_span span = {first->source, first->offset + at - first->at, 0, 0};
    uint64_t last = span.offset, span_end = last;

    for (; at < end && index < plan->count && span.walked < SPAN_EXTENTS; index++) {
        const struct file_extent *extent = &plan->extents[index];

        span.walked++;
        at = number_smaller(file_plan_end(plan, index), end);
        if (!file_extent_is_memory(extent))
            continue;
        if (extent != first) {
            if (extent->source != span.source || extent->offset < last ||
                extent->offset > span_end + SPAN_GAP || extent->offset >= span.offset + SPAN_BYTES)
                break;
            last = extent->offset;
        }
        if (extent->offset + at - extent->at > span_end)
            span_end = extent->offset + at - extent->at;
    }
    span.bytes = number_smaller(span_end - span.offset, SPAN_BYTES);
    return span;
}
