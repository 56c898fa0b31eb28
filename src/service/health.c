/* SPDX-License-Identifier: Apache-2.0 */
/* health - news of the device: suspect memory, a lost device */
#include "service/ending.h"
#include "service/summing.h"

#include <string.h>

static void note(struct service *s, uint32_t flags, const char *why)
{
    service_record(s, .type = RECORD_HEALTH, .flags = flags, .name = why,
                   .name_bytes = strlen(why));
}

/* There will be no second event: without memory for a wait the sessions end before their
 * transfers. */
static void end_sessions(struct service *s)
{
    const struct ending revocation = {.type = ENDING_REVOKE, .by_uid = CORE_BY_DAEMON};
    const struct core_session *session;
    service_revoke_all(s, &revocation);
    while ((session = service_find_open_session(s)) != NULL) {
        service_record(s, .type = RECORD_SESSION_END, .session = session->id,
                       .flags = CORE_END_REVOKED, .uid = CORE_BY_DAEMON);
    }
}

void service_on_health(struct service *s)
{
    struct vmm_health news;
    if (!vmm_take_health(s->vmm, &news))
        return;
    if (news.lost) {
        note(s, CORE_NOTE_LOST, news.why);
        end_sessions(s);
    } else {
        note(s, CORE_NOTE_SUSPECT, news.why);
        service_fail_suspect_sums(s);
    }
}
