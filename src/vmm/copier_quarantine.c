/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_quarantine - pieces with recently failed requests
 *
 * A request that fails costs all others the copier. So a piece with a failed request has the copier
 * alone from then on: repeated reads of it harm no other piece.
 */
#include "vmm/copier_client_internal.h"

#include "base/clock.h"

#define QUARANTINE_MS 60000u
#define LOOK_AGAIN_MS 10u /* for requests without a waiting thread */

bool quarantine_has(const struct copier_client *client, uint64_t serial)
{
    for (unsigned i = 0; i < QUARANTINE_PIECES; i++)
        if (client->quarantine[i].serial == serial &&
            client->quarantine[i].until_ms > clock_now_ms())
            return true;
    return false;
}

void quarantine_add(struct copier_client *client, uint64_t serial)
{
    unsigned at = 0;

    for (unsigned i = 0; i < QUARANTINE_PIECES && client->quarantine[at].serial != serial; i++)
        if (client->quarantine[i].serial == serial ||
            client->quarantine[i].until_ms < client->quarantine[at].until_ms)
            at = i;
    client->quarantine[at].serial = serial;
    client->quarantine[at].until_ms = clock_now_ms() + QUARANTINE_MS;
}

void quarantine_enter(struct copier_client *client, bool alone)
{
    uint64_t until_ms = clock_now_ms() + copier_client_hang_ms();

    while (client->alone)
        pthread_cond_wait(&client->changed, &client->mutex);
    client->alone = alone;
    while (alone && (client->movers > 0 || ring_is_pending(client)) && clock_now_ms() < until_ms)
        copier_client_wait_ms(client, LOOK_AGAIN_MS);
    client->movers++;
}

void quarantine_leave(struct copier_client *client, bool alone)
{
    client->movers--;
    if (alone)
        client->alone = false;
    if (alone || client->movers == 0)
        pthread_cond_broadcast(&client->changed);
}
