/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_places - requests under way, and the blocks of the ring */
#include "vmm/copier_client_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AGAIN_MS 10u   /* for a block whose request nobody waits for */
#define WAIT_SLICE_MS 1000u /* a wake-up that was lost costs no more */

void *block_of(const struct cuda_bytes *bytes, unsigned place)
{
    return (char *)bytes->shared + COPIER_HEADER_BYTES + place * COPIER_BLOCK_BYTES;
}

static bool is_free(struct cuda_bytes *bytes, unsigned place)
{
    const struct place *p = &bytes->places[place];

    if (p->holders > 0)
        return false;
    return !p->pending || place_look(bytes, place, NULL) != -EAGAIN;
}

int place_try(struct cuda_bytes *bytes, unsigned first, unsigned count, unsigned *place)
{
    for (unsigned i = first; i < first + count; i++) {
        if (!is_free(bytes, i))
            continue;
        bytes->places[i].holders = 1;
        *place = i;
        return 0;
    }
    return -EAGAIN;
}

void bytes_wait_ms(struct cuda_bytes *bytes, unsigned ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&bytes->changed, &bytes->mutex, &until);
}

int place_take(struct cuda_bytes *bytes, unsigned first, unsigned count, unsigned *place)
{
    uint64_t until_ms = bytes_now_ms() + bytes_hang_ms();

    while (place_try(bytes, first, count, place) < 0) {
        if (bytes_now_ms() > until_ms)
            return -ETIMEDOUT;
        bytes_wait_ms(bytes, LOOK_AGAIN_MS);
    }
    return 0;
}

static void settle(struct cuda_bytes *bytes, struct place *p, int error)
{
    p->pending = false;
    p->error = error;
    if (p->slot >= 0)
        slot_drop(bytes, (unsigned)p->slot);
    p->slot = -1;
    pthread_cond_broadcast(&bytes->changed);
}

static int send_request(const struct cuda_bytes *bytes, struct copier_request *request, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = request, .iov_len = sizeof(*request)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    /* As many requests as there are places always fit. */
    return sendmsg(bytes->socket, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int place_send(struct cuda_bytes *bytes, unsigned place, struct copier_request request, int fd)
{
    struct place *p = &bytes->places[place];
    struct copier_result *result = &bytes->shared->results[place];
    bool uses_slot = request.act == COPIER_GET || request.act == COPIER_PUT;

    if (bytes->state != COPIER_UP || bytes->killed)
        return -EPIPE;
    if (bytes->next_ticket < COPIER_TICKET)
        bytes->next_ticket = COPIER_TICKET;
    request.place = place;
    request.ticket = p->ticket = bytes->next_ticket++;
    atomic_store_explicit(&result->done, COPIER_PENDING, memory_order_release);
    if (send_request(bytes, &request, fd) < 0) {
        copier_retire(bytes);
        return -EPIPE;
    }
    p->pending = true;
    p->slot = uses_slot ? (int)request.slot : -1;
    if (uses_slot)
        bytes->slots[request.slot].users++;
    bytes->last_use_ms = bytes_now_ms();
    return 0;
}

int place_look(struct cuda_bytes *bytes, unsigned place, char *why)
{
    struct place *p = &bytes->places[place];
    int error;

    if (why)
        why[0] = '\0';
    if (!p->pending)
        return p->error;
    error = copier_check_result(&bytes->shared->results[place], p->ticket, why);
    if (error == -EAGAIN)
        return error;
    if (error == -EPIPE) /* nonsense: it goes on being pending until the copier is gone */
        copier_retire(bytes);
    else
        settle(bytes, p, error);
    return error;
}

int place_wait(struct cuda_bytes *bytes, unsigned place, char *why)
{
    uint64_t until_ms = bytes_now_ms() + bytes_hang_ms();
    struct copier_result *result = &bytes->shared->results[place];
    int error;

    while ((error = place_look(bytes, place, why)) == -EAGAIN) {
        uint64_t now_ms = bytes_now_ms();
        uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
        struct timespec wait;

        if (left_ms == 0) {
            copier_retire(bytes);
            return -ETIMEDOUT;
        }
        if (left_ms > WAIT_SLICE_MS)
            left_ms = WAIT_SLICE_MS;
        wait = (struct timespec){(time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000L};
        pthread_mutex_unlock(&bytes->mutex);
        syscall(SYS_futex, &result->done, FUTEX_WAIT, COPIER_PENDING, &wait, NULL, 0);
        pthread_mutex_lock(&bytes->mutex);
    }
    return error;
}

void place_drop(struct cuda_bytes *bytes, unsigned place)
{
    if (--bytes->places[place].holders == 0)
        pthread_cond_broadcast(&bytes->changed);
}

void places_fail(struct cuda_bytes *bytes)
{
    for (unsigned i = 0; i < COPIER_PLACES; i++) {
        struct copier_result *result = &bytes->shared->results[i];

        /* What it finished counts, though nobody has looked yet. */
        if (bytes->places[i].pending && place_look(bytes, i, NULL) < 0 && bytes->places[i].pending)
            settle(bytes, &bytes->places[i], -EPIPE);
        atomic_store_explicit(&result->done, COPIER_DEAD, memory_order_release);
        syscall(SYS_futex, &result->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

bool places_are_pending(struct cuda_bytes *bytes)
{
    bool any = false;

    for (unsigned i = 0; i < COPIER_PLACES; i++)
        any = any || (bytes->places[i].pending && place_look(bytes, i, NULL) == -EAGAIN);
    return any;
}

bool places_are_held(const struct cuda_bytes *bytes)
{
    for (unsigned i = 0; i < COPIER_PLACES; i++)
        if (bytes->places[i].holders > 0)
            return true;
    return false;
}
