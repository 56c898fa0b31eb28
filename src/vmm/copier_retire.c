/* SPDX-License-Identifier: Apache-2.0 */
/* copier_retire - bounds of waiting for the copier, and its removal */
#include "vmm/copier_client_internal.h"

#include "base/clock.h"
#include "base/test_hooks.h"

#include <signal.h>
#include <sys/socket.h>
#include <time.h>

/* ---- time ---------------------------------------------------------------------------------- */

unsigned copier_client_hang_ms(void)
{
    return (unsigned)hook_number("GMSFS_COPIER_HANG_MS", COPIER_HANG_MS);
}

void copier_client_wait_ms(struct copier_client *client, unsigned ms)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, ms);

    pthread_cond_timedwait(&client->changed, &client->mutex, &until);
}

/* ---- the end ------------------------------------------------------------------------------- */

void copier_process_retire(struct copier_client *client)
{
    if (client->state != COPIER_UP || client->killed)
        return;
    client->killed = true;
    kill(client->pid, SIGKILL);
    shutdown(client->socket, SHUT_RDWR); /* wakes its watcher */
}

void copier_process_await_end(struct copier_client *client, unsigned attempt)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, 2 * COPIER_END_MS);
    int error = 0;

    while (client->attempts == attempt && client->state != COPIER_DOWN && error == 0)
        error = pthread_cond_timedwait(&client->changed, &client->mutex, &until);
}
