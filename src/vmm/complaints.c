/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/complaints.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#define MINUTE_MS UINT64_C(60000)

/* Under the mutex. */
static void tell_left_out(struct complaints *complaints)
{
    if (complaints->left_out)
        log_warning("%s: %u more %s were left out", complaints->device, complaints->left_out,
                    complaints->kind);
    complaints->left_out = 0;
}

void complaints_init(struct complaints *complaints, const char *device, const char *kind)
{
    *complaints = (struct complaints){.device = device, .kind = kind};
    pthread_mutex_init(&complaints->mutex, NULL);
}

bool complaints_may_log(struct complaints *complaints)
{
    uint64_t at_ms = clock_now_ms();

    SCOPED_LOCK(&complaints->mutex);
    if (complaints->since_ms == 0 || at_ms - complaints->since_ms >= MINUTE_MS) {
        tell_left_out(complaints);
        complaints->since_ms = at_ms;
        complaints->logged = 0;
    }
    bool may = complaints->logged < COMPLAINTS_A_MINUTE;
    if (may)
        complaints->logged++;
    else if (complaints->left_out++ == 0)
        log_warning("%s: further %s of this minute are not logged", complaints->device,
                    complaints->kind);
    return may;
}

void complaints_end(struct complaints *complaints)
{
    tell_left_out(complaints);
    pthread_mutex_destroy(&complaints->mutex);
}
