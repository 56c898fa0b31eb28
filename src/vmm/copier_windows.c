/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_windows - pieces that the copier has mapped, and files that it keeps
 *
 * Importing and mapping a piece takes 100 us, so it stays mapped until another one needs its
 * window, it is freed, or the copier ends. The copier only follows orders: all choices are made
 * here.
 */
#include "vmm/copier_client_internal.h"

#include <errno.h>

int window_find(const struct copier_client *client, uint64_t serial)
{
    for (unsigned i = 0; i < COPIER_WINDOWS; i++)
        if (client->windows[i].state != WINDOW_FREE && client->windows[i].serial == serial)
            return (int)i;
    return -1;
}

/* Returns a free window, else the one unused for longest; -1: all are in use. */
static int choose(const struct copier_client *client)
{
    int best = -1;

    for (unsigned i = 0; i < COPIER_WINDOWS; i++) {
        const struct window *window = &client->windows[i];

        if (window->state == WINDOW_FREE)
            return (int)i;
        if (window->state == WINDOW_MAPPED && window->users == 0 &&
            (best < 0 || window->last_used < client->windows[best].last_used))
            best = (int)i;
    }
    return best;
}

/* Carries out a request without bytes. */
static int ask(struct copier_client *client, const struct copier_request *request, int fd,
               char *why)
{
    unsigned entry;
    int error = ring_take(client, COPIER_BLOCKS, COPIER_CONTROLS, &entry);

    if (error < 0)
        return error;
    error = ring_submit(client, entry, *request, fd);
    if (error == 0)
        error = ring_wait(client, entry, why);
    ring_release(client, entry);
    return error;
}

static bool is_ours(const struct copier_client *client, unsigned index, unsigned attempt,
                    uint64_t serial)
{
    const struct window *window = &client->windows[index];

    return client->attempts == attempt && window->state == WINDOW_CHANGING &&
           window->serial == serial;
}

/* Maps the piece in place of the window's present one. If the copier ends meanwhile, it clears the
 * window. */
static int exchange(struct copier_client *client, unsigned index, const struct copier_piece *piece,
                    char *why)
{
    struct copier_request unmap = {.act = COPIER_UNMAP, .window = index};
    struct copier_request map = {.act = COPIER_MAP, .window = index, .bytes = piece->bytes};
    struct window *window = &client->windows[index];
    bool was_mapped = window->state == WINDOW_MAPPED;
    unsigned attempt = client->attempts;
    int error = 0;

    *window = (struct window){
        .state = WINDOW_CHANGING,
        .serial = piece->serial,
        .leaving = was_mapped ? window->serial : 0,
    };
    if (was_mapped) {
        error = ask(client, &unmap, -1, why);
        if (!is_ours(client, index, attempt, piece->serial))
            return -EPIPE;
        if (error < 0) {
            /* ending the copier unmaps its memory */
            copier_process_retire(client);
            return -EPIPE;
        }
        window->leaving = 0;
        pthread_cond_broadcast(&client->changed);
    }
    error = ask(client, &map, piece->fd, why);
    if (!is_ours(client, index, attempt, piece->serial))
        return -EPIPE;
    window->state = error == 0 ? WINDOW_MAPPED : WINDOW_FREE;
    pthread_cond_broadcast(&client->changed);
    return error;
}

int window_take(struct copier_client *client, const struct copier_piece *piece, unsigned *taken,
                char *why)
{
    unsigned attempt = client->attempts;
    int index, error;

    for (;;) {
        if (client->state != COPIER_UP || client->attempts != attempt)
            return -EPIPE;
        index = window_find(client, piece->serial);
        if (index >= 0 && client->windows[index].state == WINDOW_MAPPED)
            break;
        if (index < 0 && (index = choose(client)) >= 0) {
            error = exchange(client, (unsigned)index, piece, why);
            if (error < 0)
                return error;
            break;
        }

        /* another thread maps it now, or all are in use: both end soon */
        pthread_cond_wait(&client->changed, &client->mutex);
    }
    client->windows[index].last_used = ++client->uses;
    *taken = (unsigned)index;
    return 0;
}

/* Waits for pending requests of the piece: readaheads or moves. */
static int await_users(struct copier_client *client, unsigned index)
{
    int error = 0;

    for (unsigned i = 0; i < COPIER_ENTRIES && error != -ETIMEDOUT; i++) {
        struct ring_entry *entry = &client->entries[i];

        if (!entry->pending || entry->window != (int)index)
            continue;
        entry->holders++;
        error = ring_wait(client, i, NULL);
        ring_release(client, i);
    }
    return error == -ETIMEDOUT ? error : 0;
}

/* Returns true if another piece is taking over its window. */
static bool is_leaving(const struct copier_client *client, uint64_t serial)
{
    for (unsigned i = 0; i < COPIER_WINDOWS; i++)
        if (client->windows[i].state == WINDOW_CHANGING && client->windows[i].leaving == serial)
            return true;
    return false;
}

static int unmap(struct copier_client *client, unsigned index, unsigned attempt)
{
    struct copier_request request = {.act = COPIER_UNMAP, .window = index};
    uint64_t serial = client->windows[index].serial;
    int error = await_users(client, index);

    /* its copier is gone */
    if (client->attempts != attempt || window_find(client, serial) != (int)index)
        return 0;
    if (error < 0)
        return error;
    client->windows[index].state = WINDOW_CHANGING;
    error = ask(client, &request, -1, NULL);
    if (error == 0 && is_ours(client, index, attempt, serial)) {
        client->windows[index] = (struct window){0};
        pthread_cond_broadcast(&client->changed);
    }
    return error;
}

void window_forget(struct copier_client *client, uint64_t serial)
{
    unsigned attempt = client->attempts;
    int index, error;

    while (client->state == COPIER_UP && is_leaving(client, serial))
        pthread_cond_wait(&client->changed, &client->mutex);
    if (is_leaving(client, serial)) {
        /* its copier is ending, or cannot even be killed */
        copier_process_await_end(client, attempt);
        return;
    }
    index = window_find(client, serial);
    if (index < 0)
        return;
    error = unmap(client, (unsigned)index, attempt);
    if (error == 0)
        return;

    /* After any failure the copier's end frees the memory. */
    if (client->attempts == attempt)
        copier_process_retire(client);
    copier_process_await_end(client, attempt);
}

/* Unmaps an unused window. -EPIPE: the copier is gone, and the window is in other use; else the
 * copier's result. */
static int empty(struct copier_client *client, unsigned index)
{
    struct copier_request request = {.act = COPIER_UNMAP, .window = index};
    struct window *window = &client->windows[index];
    unsigned attempt = client->attempts;

    *window = (struct window){.state = WINDOW_CHANGING, .leaving = window->serial};
    int error = ask(client, &request, -1, NULL);
    if (!is_ours(client, index, attempt, 0))
        return -EPIPE;
    if (error == 0)
        *window = (struct window){0};
    pthread_cond_broadcast(&client->changed);
    return error;
}

void windows_rest(struct copier_client *client)
{
    unsigned attempt = client->attempts;

    for (unsigned i = 0; i < COPIER_WINDOWS; i++) {
        const struct window *window = &client->windows[i];

        if (client->state != COPIER_UP || client->attempts != attempt)
            return;
        if (window->state != WINDOW_MAPPED || window->users > 0)
            continue;
        if (empty(client, i) < 0) {
            if (client->attempts == attempt)
                copier_process_retire(client);
            return;
        }
    }
}

/* The copier knows whether it has the file. */
void file_forget(struct copier_client *client, uint64_t serial)
{
    struct copier_request request = {.act = COPIER_FORGET, .file = serial};
    unsigned attempt = client->attempts;

    if (serial == 0 || client->state == COPIER_DOWN || client->state == COPIER_STARTING)
        return;
    int error = ask(client, &request, -1, NULL);
    if (error == 0)
        return;

    /* The copier hangs, has gone, or has the file in a move that no thread waits for: its end frees
     * the memory. */
    if (client->attempts == attempt)
        copier_process_retire(client);
    copier_process_await_end(client, attempt);
}

void windows_clear(struct copier_client *client)
{
    for (unsigned i = 0; i < COPIER_WINDOWS; i++)
        client->windows[i] = (struct window){0};
    pthread_cond_broadcast(&client->changed);
}
