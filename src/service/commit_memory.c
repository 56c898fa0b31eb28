/* SPDX-License-Identifier: Apache-2.0 */
#include "service/commit_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMED_WRITERS 3u

static const struct core_store *find_store(const struct service *s, uint64_t session)
{
    const struct core_session *writer = core_find_session(s->core, session);
    return writer ? core_find_store(s->core, writer->store) : NULL;
}

/* Returns the piece of this allocation if a process can still seal it, or if an immutable commit
 * that failed has sealed it, which a plain one must refuse; else NULL. */
static struct piece *find_piece(const struct service *s, const struct layout_allocation *allocation,
                                bool immutable)
{
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    if (!piece || !piece->memory.sealed || piece->tier != VMM_TIER_DEVICE)
        return NULL;
    return !piece->memory.final || (piece->memory.immutable && !immutable) ? piece : NULL;
}

bool commit_memory_is_needed(const struct service *s, uint64_t session, bool immutable)
{
    const struct core_store *store = find_store(s, session);
    if (!store || !vmm_can_finish(s->vmm))
        return false;
    const struct layout *layout = core_get_layout(s->core, store);
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        if (find_piece(s, layout_at_rank(layout, i), immutable))
            return true;
    return false;
}

int commit_memory_begin(struct commit_memory *memory, struct service *s, uint64_t session,
                        bool immutable)
{
    const struct core_store *store = find_store(s, session);
    *memory = (struct commit_memory){.wants_immutable = immutable};
    if (!store || !vmm_can_finish(s->vmm))
        return 0;
    const struct layout *layout = core_get_layout(s->core, store);
    size_t count = layout_count_allocations(layout);
    memory->pieces = calloc(count ? count : 1, sizeof(struct piece *));
    memory->is_immutable = calloc(count ? count : 1, sizeof(bool));
    if (!memory->pieces || !memory->is_immutable) {
        commit_memory_end(memory, s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        struct piece *piece = find_piece(s, layout_at_rank(layout, i), immutable);
        if (!piece)
            continue;
        piece_begin(piece);
        memory->pieces[memory->count++] = piece;
    }
    return 0;
}

void commit_memory_run(struct commit_memory *memory, struct vmm *vmm)
{
    for (; memory->done < memory->count; memory->done++) {
        const struct vmm_piece *piece = &memory->pieces[memory->done]->memory;
        int error = memory->wants_immutable ? vmm_make_immutable(vmm, piece) : -EOPNOTSUPP;
        memory->is_immutable[memory->done] = error == 0;
        if (error == -EOPNOTSUPP)
            error = vmm_finish(vmm, piece);
        memory->error = error;
        if (error)
            return;
    }
}

/* Writes "process 7 (python3) or 8". Only the session's own process has a known name. */
static void name_writers(const struct service *s, const struct core_store *store, uint64_t session,
                         char *text, size_t bytes)
{
    const struct core_session *own = core_find_session(s->core, session);
    size_t used = 0;
    for (size_t i = 0; i < store->writer_count && i < NAMED_WRITERS && used < bytes; i++) {
        struct core_process writer = store->writers[i];
        bool is_own = core_same_process(own->owner, writer) && own->comm[0];
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRIu64 "%s%s%s",
                                 i == 0 ? "process " : " or ", writer.pid, is_own ? " (" : "",
                                 is_own ? own->comm : "", is_own ? ")" : "");
    }
    if (store->writer_count > NAMED_WRITERS && used < bytes)
        snprintf(text + used, bytes - used, " or another one");
    if (store->writer_count == 0)
        snprintf(text, bytes, "a process that the daemon cannot see");
}

static const char *find_name(const struct layout *layout, uint64_t memory)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        if (layout_at_rank(layout, i)->memory == memory)
            return layout_at_rank(layout, i)->name;
    return "";
}

int commit_memory_explain(const struct commit_memory *memory, const struct service *s,
                          uint64_t session, char why[256])
{
    const struct core_store *store = find_store(s, session);
    char writers[128] = "";
    why[0] = '\0';
    if (!memory->error || !store)
        return memory->error;
    const char *name = find_name(core_get_layout(s->core, store), memory->pieces[memory->done]->id);
    if (memory->error == -EBUSY) {
        name_writers(s, store, session, writers, sizeof writers);
        snprintf(why, 256,
                 "%s has allocation %.60s mapped for writing: unmap it, then commit again", writers,
                 name);
    } else if (memory->error == -EPERM) {
        snprintf(
            why, 256,
            "allocation %.60s is sealed against writes (F_SEAL_WRITE): commit it as immutable, "
            "or remove it and make it anew",
            name);
        return -EINVAL;
    }
    return memory->error;
}

void commit_memory_end(struct commit_memory *memory, struct service *s)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        struct piece *piece = memory->pieces[i];
        piece->memory.final |= i < memory->done;
        piece->memory.immutable |= i < memory->done && memory->is_immutable[i];
        piece_end(s, piece);
    }
    free(memory->pieces);
    free(memory->is_immutable);
    *memory = (struct commit_memory){0};
}
