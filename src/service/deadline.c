/* SPDX-License-Identifier: Apache-2.0 */
/* deadline - a pairing heap: the earliest is the root, and any of them can be taken out */
#include "service/service_internal.h"

static struct deadline *meld(struct deadline *a, struct deadline *b)
{
    if (!a || !b)
        return a ? a : b;
    struct deadline *first = b->at_ms < a->at_ms ? b : a, *later = first == a ? b : a;
    later->next = first->child;
    if (later->next)
        later->next->link = &later->next;
    later->link = &first->child;
    first->child = later;
    return first;
}

/* Melds pairs, then these into one. */
static struct deadline *meld_all(struct deadline *rest)
{
    struct deadline *pairs = NULL, *whole = NULL;
    while (rest) {
        struct deadline *a = rest, *b = a->next;
        rest = b ? b->next : NULL;
        struct deadline *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct deadline *pair = pairs;
        pairs = pair->next;
        whole = meld(whole, pair);
    }
    return whole;
}

static void add(struct service *s, struct deadline *deadlines)
{
    s->deadlines = meld(s->deadlines, deadlines);
    if (!s->deadlines)
        return;
    s->deadlines->next = NULL;
    s->deadlines->link = &s->deadlines;
}

void deadline_clear(struct service *s, struct deadline *deadline)
{
    if (!deadline->link)
        return;
    *deadline->link = deadline->next;
    if (deadline->next)
        deadline->next->link = deadline->link;
    struct deadline *below = meld_all(deadline->child);
    deadline->child = deadline->next = NULL;
    deadline->link = NULL;
    add(s, below);
    s->step.sets_timer = true;
}

void deadline_set(struct service *s, struct deadline *deadline, uint64_t at_ms)
{
    deadline_clear(s, deadline);
    if (at_ms == UINT64_MAX)
        return;
    deadline->at_ms = at_ms;
    add(s, deadline);
    s->step.sets_timer = true;
}

uint64_t deadline_first(const struct service *s)
{
    return s->deadlines ? s->deadlines->at_ms : UINT64_MAX;
}

void deadline_pass_all(struct service *s, uint64_t now_ms)
{
    struct deadline *due;
    while ((due = s->deadlines) && due->at_ms <= now_ms) {
        deadline_clear(s, due);
        due->pass(s, due);
    }
}
