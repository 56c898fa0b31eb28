/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_suspects - pieces whose bytes could not be moved a while ago
 *
 * A request that fails costs everybody the copier. So a piece of which one failed has the copier
 * for itself from then on: whoever reads it again and again harms nobody else.
 */
#include "vmm/copier_client_internal.h"

#define SUSPECT_MS    60000u
#define LOOK_AGAIN_MS 10u /* for requests that nobody waits for */

bool suspect_is(const struct cuda_bytes *bytes, uint64_t serial)
{
    for (unsigned i = 0; i < SUSPECTS; i++)
        if (bytes->suspects[i].serial == serial && bytes->suspects[i].until_ms > bytes_now_ms())
            return true;
    return false;
}

void suspect_note(struct cuda_bytes *bytes, uint64_t serial)
{
    unsigned at = 0;

    for (unsigned i = 0; i < SUSPECTS && bytes->suspects[at].serial != serial; i++)
        if (bytes->suspects[i].serial == serial ||
            bytes->suspects[i].until_ms < bytes->suspects[at].until_ms)
            at = i;
    bytes->suspects[at].serial = serial;
    bytes->suspects[at].until_ms = bytes_now_ms() + SUSPECT_MS;
}

void suspect_enter(struct cuda_bytes *bytes, bool alone)
{
    uint64_t until_ms = bytes_now_ms() + bytes_hang_ms();

    while (bytes->alone)
        pthread_cond_wait(&bytes->changed, &bytes->mutex);
    bytes->alone = alone;
    while (alone && (bytes->movers > 0 || places_are_pending(bytes)) && bytes_now_ms() < until_ms)
        bytes_wait_ms(bytes, LOOK_AGAIN_MS);
    bytes->movers++;
}

void suspect_leave(struct cuda_bytes *bytes, bool alone)
{
    bytes->movers--;
    if (alone)
        bytes->alone = false;
    if (alone || bytes->movers == 0)
        pthread_cond_broadcast(&bytes->changed);
}
