/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_mapped - memory that the state has given up and processes still map
 *
 * A mapping outlives the open file and its lock, and the kernel tells no end of it. So immutable
 * memory stays charged, and with the keeper, until no process has it open or mapped. A job looks,
 * after a pause that doubles while nothing changes. The bytes do not count as being freed: nobody
 * knows when they come.
 */
#include "service/account.h"

#include <stdlib.h>

#define FIRST_PAUSE_MS 100u
#define LAST_PAUSE_MS  5000u

struct look {
    struct task task; /* first */
    size_t count;
    struct piece *pieces[];
};

static void look_later(struct service *s, uint64_t pause_ms)
{
    s->pieces.pause_ms = pause_ms < LAST_PAUSE_MS ? pause_ms : LAST_PAUSE_MS;
    deadline_set(s, &s->pieces.look, service_now(s) + s->pieces.pause_ms);
}

static void run_look(struct job *job)
{
    struct look *look = (struct look *)job;

    for (size_t i = 0; i < look->count; i++)
        look->pieces[i]->is_mapped = vmm_is_held(&look->pieces[i]->memory);
}

/* Pieces that became mapped meanwhile are behind those that the job looked at. */
static void end_look(struct service *s, struct task *task)
{
    struct look *look = (struct look *)task;
    size_t before = s->pieces.mapped_count;

    for (size_t i = 0; i < look->count; i++) {
        struct piece *piece = look->pieces[i];
        if (piece->is_mapped)
            continue;
        *piece->link_freeing = piece->next_freeing;
        if (piece->next_freeing)
            piece->next_freeing->link_freeing = piece->link_freeing;
        s->pieces.mapped_count--;
        s->numbers.mapped_bytes -= piece->reserved_bytes;
        piece->counted = false;
        piece_free(s, piece);
    }
    piece_free_gathered(s);
    s->pieces.is_looking = false;
    if (s->pieces.mapped_count > 0)
        look_later(s, s->pieces.mapped_count < before ? FIRST_PAUSE_MS : 2 * s->pieces.pause_ms);
    free(look);
}

static void begin_look(struct service *s, struct deadline *deadline)
{
    struct look *look = calloc(1, sizeof *look + s->pieces.mapped_count * sizeof look->pieces[0]);
    (void)deadline;

    if (look) {
        look->task = (struct task){.job.run = run_look, .end = end_look};
        for (struct piece *piece = s->pieces.mapped; piece; piece = piece->next_freeing)
            look->pieces[look->count++] = piece;
        s->pieces.is_looking = service_submit(s, SERVICE_POOL_FREE, &look->task) == 0;
    }
    if (s->pieces.is_looking)
        return;
    free(look);
    look_later(s, LAST_PAUSE_MS);
}

void piece_stays_mapped(struct service *s, struct piece *piece)
{
    piece->next_freeing = s->pieces.mapped;
    piece->link_freeing = &s->pieces.mapped;
    if (s->pieces.mapped)
        s->pieces.mapped->link_freeing = &piece->next_freeing;
    s->pieces.mapped = piece;
    s->pieces.mapped_count++;
    s->numbers.mapped_bytes += piece->reserved_bytes;
    s->pieces.look.pass = begin_look;
    if (!s->pieces.is_looking)
        look_later(s, FIRST_PAUSE_MS);
}

void piece_drop_mapped(struct service *s)
{
    for (struct piece *next, *piece = s->pieces.mapped; piece; piece = next) {
        next = piece->next_freeing;
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
    }
    s->pieces.mapped = NULL;
    deadline_clear(s, &s->pieces.look);
}
