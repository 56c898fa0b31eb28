/* SPDX-License-Identifier: Apache-2.0 */
/* copier_ring - pending requests, and the blocks of the ring */
#include "vmm/copier_client_internal.h"

#include "base/clock.h"
#include "base/passing.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 10u   /* for a block whose request no thread waits for */
#define WAIT_SLICE_MS 1000u /* bounds the cost of a lost wake-up */

void *ring_block(const struct copier_client *client, unsigned entry)
{
    return (char *)client->shared + COPIER_HEADER_BYTES + entry * COPIER_BLOCK_BYTES;
}

static bool is_free(struct copier_client *client, unsigned entry)
{
    const struct ring_entry *p = &client->entries[entry];

    if (p->holders > 0)
        return false;
    return !p->pending || ring_poll(client, entry, NULL) != -EAGAIN;
}

int ring_try_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry)
{
    for (unsigned i = first; i < first + count; i++) {
        if (!is_free(client, i))
            continue;
        client->entries[i].holders = 1;
        *entry = i;
        return 0;
    }
    return -EAGAIN;
}

int ring_take(struct copier_client *client, unsigned first, unsigned count, unsigned *entry)
{
    uint64_t until_ms = clock_now_ms() + copier_client_hang_ms();

    while (ring_try_take(client, first, count, entry) < 0) {
        if (clock_now_ms() > until_ms)
            return -ETIMEDOUT;
        copier_client_wait_ms(client, LOOK_AGAIN_MS);
    }
    return 0;
}

static void release_window(struct copier_client *client, struct window *window)
{
    if (window->users > 0 && --window->users == 0)
        pthread_cond_broadcast(&client->changed);
}

static void finish(struct copier_client *client, struct ring_entry *p, int error)
{
    p->pending = false;
    p->error = error;
    if (p->window >= 0)
        release_window(client, &client->windows[p->window]);
    p->window = -1;
    pthread_cond_broadcast(&client->changed);
}

static int send_request(const struct copier_client *client, struct copier_request *request, int fd)
{
    union passing control;
    struct iovec iov = {.iov_base = request, .iov_len = sizeof(*request)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    passing_put(&msg, &control, &fd, fd >= 0);
    /* the socket always has room for one request of each entry */
    return sendmsg(client->socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int ring_submit(struct copier_client *client, unsigned entry, struct copier_request request, int fd)
{
    struct ring_entry *p = &client->entries[entry];
    struct copier_result *result = &client->shared->results[entry];
    bool uses_window = copier_uses_window(request.act);

    if (client->state != COPIER_UP || client->killed)
        return -EPIPE;
    if (client->next_sequence < COPIER_FIRST_SEQUENCE)
        client->next_sequence = COPIER_FIRST_SEQUENCE;
    request.entry = entry;
    request.sequence = p->sequence = client->next_sequence++;
    atomic_store_explicit(&result->done, COPIER_PENDING, memory_order_release);
    if (send_request(client, &request, fd) < 0) {
        copier_process_retire(client);
        return -EPIPE;
    }
    p->pending = true;
    p->window = uses_window ? (int)request.window : -1;
    if (uses_window)
        client->windows[request.window].users++;
    client->last_use_ms = clock_now_ms();
    return 0;
}

int ring_poll(struct copier_client *client, unsigned entry, char *why)
{
    struct ring_entry *p = &client->entries[entry];
    int error;

    if (why)
        why[0] = '\0';
    if (!p->pending)
        return p->error;
    error = copier_check_result(&client->shared->results[entry], p->sequence, why);
    if (error == -EAGAIN)
        return error;
    if (error == -EPIPE) /* an invalid result: it stays pending until the copier is gone */
        copier_process_retire(client);
    else
        finish(client, p, error);
    return error;
}

int ring_wait(struct copier_client *client, unsigned entry, char *why)
{
    uint64_t until_ms = clock_now_ms() + copier_client_hang_ms();
    struct copier_result *result = &client->shared->results[entry];
    int error;

    while ((error = ring_poll(client, entry, why)) == -EAGAIN) {
        uint64_t now_ms = clock_now_ms();
        uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
        struct timespec wait;

        if (left_ms == 0) {
            copier_process_retire(client);
            return -ETIMEDOUT;
        }
        if (left_ms > WAIT_SLICE_MS)
            left_ms = WAIT_SLICE_MS;
        wait = (struct timespec){(time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000L};
        pthread_mutex_unlock(&client->mutex);
        syscall(SYS_futex, &result->done, FUTEX_WAIT, COPIER_PENDING, &wait, NULL, 0);
        pthread_mutex_lock(&client->mutex);
    }
    return error;
}

void ring_release(struct copier_client *client, unsigned entry)
{
    if (--client->entries[entry].holders == 0)
        pthread_cond_broadcast(&client->changed);
}

void ring_fail_all(struct copier_client *client)
{
    for (unsigned i = 0; i < COPIER_ENTRIES; i++) {
        struct copier_result *result = &client->shared->results[i];

        /* finished requests count, though no thread has looked yet */
        if (client->entries[i].pending && ring_poll(client, i, NULL) < 0 &&
            client->entries[i].pending)
            finish(client, &client->entries[i], -EPIPE);
        atomic_store_explicit(&result->done, COPIER_DEAD, memory_order_release);
        syscall(SYS_futex, &result->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

bool ring_is_pending(struct copier_client *client)
{
    bool any = false;

    for (unsigned i = 0; i < COPIER_ENTRIES; i++)
        any = any || (client->entries[i].pending && ring_poll(client, i, NULL) == -EAGAIN);
    return any;
}

bool ring_is_held(const struct copier_client *client)
{
    for (unsigned i = 0; i < COPIER_ENTRIES; i++)
        if (client->entries[i].holders > 0)
            return true;
    return false;
}
