/* SPDX-License-Identifier: Apache-2.0 */
/* trace_plan - deeds of planners in the log at level debug */
#include "service/trace.h"

#include <inttypes.h>

static const char *const deed_names[] = {
    [DEED_HEAL] = "heal",
    [DEED_PROMOTE] = "promote",
    [DEED_REFUSE] = "refuse",
    [DEED_MAKE_ROOM] = "make_room",
    [DEED_COVER_SHORTFALL] = "cover_shortfall",
    [DEED_DROP_SPARE] = "drop_spare",
    [DEED_MOVE_DOWN] = "move_down",
};

static const struct {
    service_planner *planner;
    const char *reason;
} reasons[] = {
    {plan_heal, "its memory is suspect, and the disk has a copy"},
    {plan_promotion, "a waiter needs the store on the device"},
    {plan_shortfall, "the device has less free memory than the account shows"},
    {plan_writer, "a waiter for the lock: its reservation does not fit yet"},
    {plan_alloc, "an ALLOC waits for memory"},
    {plan_move, "a move waits for memory, and none is on its way"},
    {plan_spare, "moves wait for memory of the tier"},
};

static const char *get_reason(service_planner *planner)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].planner == planner)
            return reasons[i].reason;
    return "unknown";
}

void trace_deed(struct service *s, service_planner *planner, const struct deed *deed, bool comes)
{
    bool seeks_room = deed->type == DEED_MAKE_ROOM || deed->type == DEED_COVER_SHORTFALL;
    char name[NAME_MAX + 1];

    log_trace(service_works_for(s),
              "plan %s store=%" PRIu64 " '%s' bytes=%" PRIu64 " move=%" PRIu64
              " tier=%d because %s%s",
              deed_names[deed->type], deed->store, trace_store_name(s, deed->store, name),
              deed->bytes, deed->move, (int)deed->place, get_reason(planner),
              !seeks_room ? ""
              : comes     ? "; room comes"
                          : "; frees no memory");
}
