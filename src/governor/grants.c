/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/grants.h"

#include "base/array.h"
#include "governor/decide.h"
#include "governor/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void free_counts(struct governor_counts *counts)
{
    for (size_t i = 0; i < counts->count; i++)
        free(counts->list[i].store);
    free(counts->list);
    *counts = (struct governor_counts){0};
}

/* Adds a count; the lines of a store follow each other. */
static int add_count(struct governor_counts *counts, size_t *room, const char *store,
                     uint64_t grants)
{
    if (counts->count > 0 && strcmp(counts->list[counts->count - 1].store, store) == 0) {
        counts->list[counts->count - 1].grants += grants;
        return 0;
    }
    if (counts->count == GOVERNOR_MAX_STORES)
        return 0;
    if (ARRAY_RESERVE(counts->list, *room, counts->count + 1) != 0)
        return -ENOMEM;
    counts->list[counts->count] = (struct governor_count){strdup(store), grants};
    if (!counts->list[counts->count].store)
        return -ENOMEM;
    counts->count++;
    return 0;
}

static int compare_counts(const void *left, const void *right)
{
    const struct governor_count *a = left, *b = right;

    return strcmp(a->store, b->store);
}

static int read_counts(const char *text, size_t bytes, uint64_t now_ms,
                       struct governor_counts *counts)
{
    const char *at = text, *end = text + bytes;
    char store[GOVERNOR_LABEL_BYTES];
    uint64_t grants;
    size_t room = 0;
    int error = 0;

    *counts = (struct governor_counts){.since_ms = now_ms};
    while (!error && governor_metrics_next_grants(&at, end, store, &grants))
        error = add_count(counts, &room, store, grants);
    if (error)
        free_counts(counts);
    else if (counts->count > 1)
        qsort(counts->list, counts->count, sizeof(*counts->list), compare_counts);
    return error;
}

static int copy_counts(const struct governor_counts *from, struct governor_counts *to)
{
    size_t room = 0;
    int error = 0;

    *to = (struct governor_counts){.since_ms = from->since_ms};
    for (size_t i = 0; i < from->count && !error; i++)
        error = add_count(to, &room, from->list[i].store, from->list[i].grants);
    if (error)
        free_counts(to);
    return error;
}

/* Moves the window: it starts between half and all of its length ago; at first, with the mount. */
static int move_window(struct governor_grants *grants, uint64_t now_ms)
{
    struct governor_counts copy;

    if (grants->later.since_ms != 0 && now_ms - grants->later.since_ms < GOVERNOR_WINDOW_MS / 2)
        return 0;
    int error = copy_counts(&grants->now, &copy);
    if (error)
        return error;
    free_counts(&grants->before);
    grants->before = grants->later;
    grants->later = copy;
    return 0;
}

int governor_grants_take(struct governor_grants *grants, const char *text, size_t bytes,
                         uint64_t now_ms)
{
    struct governor_counts counts;
    int error = read_counts(text, bytes, now_ms, &counts);

    if (error)
        return error;
    free_counts(&grants->now);
    grants->now = counts;
    return move_window(grants, now_ms);
}

void governor_grants_free(struct governor_grants *grants)
{
    free_counts(&grants->before);
    free_counts(&grants->later);
    free_counts(&grants->now);
}

static uint64_t find_count(const struct governor_counts *counts, const char *store)
{
    const struct governor_count key = {.store = (char *)store}, *found;

    found = counts->count ? bsearch(&key, counts->list, counts->count, sizeof(key), compare_counts)
                          : NULL;
    return found ? found->grants : 0;
}

/* A store that was made again counts from its start. */
uint64_t governor_grants_count(const struct governor_grants *grants, const char *store)
{
    uint64_t now = find_count(&grants->now, store), before = find_count(&grants->before, store);

    return now >= before ? now - before : now;
}
