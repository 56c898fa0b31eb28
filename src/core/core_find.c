/* SPDX-License-Identifier: Apache-2.0 */
/* core_find - finds objects by id, and makes room for more */
#include "core/core_check.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>

struct core_store *core_store(const struct core *core, uint64_t id)
{
    return idvec_find(&core->stores, id);
}

struct core_session *core_session(const struct core *core, uint64_t id)
{
    return idvec_find(&core->sessions, id);
}

struct core_file *core_file(const struct core *core, uint64_t id)
{
    return idvec_find(&core->files, id);
}

struct core_waiter *core_waiter(const struct core *core, uint64_t id)
{
    return idvec_find(&core->waiters, id);
}

int apply_find_writer(const struct apply *apply, struct core_session **session)
{
    *session = core_session(apply->core, apply->record->session);
    if (!*session)
        return -ESTALE;
    return (*session)->mode == LOCK_MODE_RW ? 0 : -ENOLCK;
}

struct core_waiter *core_find_file_waiter(const struct core *core, uint64_t file)
{
    for (size_t i = 0; i < core->waiters.count; i++) {
        struct core_waiter *waiter = core->waiters.items[i];

        if (waiter->file == file)
            return waiter;
    }
    return NULL;
}

bool core_same_process(struct core_process a, struct core_process b)
{
    return a.pid != 0 && a.pid == b.pid && a.start == b.start;
}

int core_wrong(const struct check *check, const char *text)
{
    if (!check->kind)
        return failure_set(check->failure, -EINVAL, "%s", text);
    return failure_set(check->failure, -EINVAL, "%s %" PRIu64 ": %s", check->kind, check->id, text);
}

bool core_is_text(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

int core_check_each(struct check *check, const char *kind, const struct idvec *items, uint64_t next,
                    int (*check_one)(struct check *check, const void *item))
{
    uint64_t before = 0;
    int error = 0;

    check->kind = kind;
    for (size_t i = 0; i < items->count && error == 0; i++) {
        check->index = i;
        check->id = *(const uint64_t *)items->items[i];
        error = check->id > before && check->id < next
                    ? check_one(check, items->items[i])
                    : core_wrong(check, "its number is out of order");
        before = check->id;
    }
    check->kind = NULL;
    return error;
}

bool core_is_zero(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0 && at[size - 1] == 0)
        size--;
    return size == 0;
}

uint64_t core_count_references(const struct core *core, uint64_t region)
{
    uint64_t count = 0;

    for (size_t i = 0; i < core->files.count; i++) {
        const struct core_file *file = core->files.items[i];

        count += file->kind == CORE_KIND_REGION && file->holds && file->serial == region;
    }
    return count;
}

size_t core_find_index(const struct idvec *vec, uint64_t id)
{
    size_t at = 0;

    ARRAY_SEARCH(at, vec->count, *(const uint64_t *)vec->items[at] < id);
    return at < vec->count && *(const uint64_t *)vec->items[at] == id ? at : vec->count;
}

int core_reserve(struct idvec *vec, size_t more)
{
    return ARRAY_RESERVE(vec->items, vec->room, vec->count + more);
}
