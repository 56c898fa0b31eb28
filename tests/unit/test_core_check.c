/* SPDX-License-Identifier: Apache-2.0 */
/* core_check notices every member of a state that does not fit the others. */
#include "core_fixture.h"
#include "core_states.h"

#include "core/core_internal.h"

/* One field of the rich core; core_check has to see that it does not fit the others. */
#define STORE(field)   ((struct core_store *)core_find_store(core, rich.weights))->field
#define NEXT(field)    ((struct core_store *)core_find_store(core, rich.next))->field
#define READER(field)  ((struct core_session *)core_find_session(core, rich.reader))->field
#define WRITER(field)  ((struct core_session *)core_find_session(core, rich.writer))->field
#define WAITING(field) ((struct core_waiter *)core_find_waiter(core, rich.waiting))->field
#define OPENING(field) ((struct core_waiter *)core_find_waiter(core, rich.open))->field
#define FILE_(field)   ((struct core_file *)core_find_file(core, rich.document))->field
#define TICKET(field)  ((struct core_ticket *)idvec_find(&core->tickets, rich.ticket))->field
#define MEMORY(field)  ((struct core_memory *)core->memories.items[0])->field
#define EVENT(field)   ((struct core_event *)core_find_event(core, core->next_event - 1))->field

TAP_TEST(core_check_notices_what_is_wrong_with_the_whole)
{
    make_rich();
    LIE(core->next_id, 1);
    LIE(core->draining, true);
    LIE(core->drainer.uid, 1);
    LIE(core->drainer.token[7], 1);
    LIE(core->drainer.process.pid, 1);
    LIE(core->lost, true);
    LIE(core->suspect, 0);
    LIE(core->reserved_bytes, 1);
    LIE(core->reserving, 0);
    LIE(core->shares[CORE_BOUND_FILES].taken, 0);
    LIE(core->shares[CORE_BOUND_TICKETS].taken, 0);
    LIE(core->shares[CORE_BOUND_GATHERED].taken, 0);
    LIE(core->options.patience_ms, 0);
    LIE(core->next_event, core->next_event + 1);
    LIE(core->event_bytes, core->event_bytes + 1);
    LIE(core->events[(core->next_event - 2) % core->options.limits.events].at, 1);
    LIE(core->events[(core->next_event - 1) % core->options.limits.events].resolved_by,
        CORE_FENCE_ABORT);
    core_start();
    strcpy(core->health_reason, "well, and yet");
    check_int(core_check(core, &(struct failure){0}), -EINVAL);
}

TAP_TEST(core_check_notices_what_is_wrong_with_stores)
{
    make_rich();
    LIE(STORE(id), rich.next + 1);
    LIE(STORE(name[0]), 0);
    LIE(STORE(name[3]), '/');
    LIE(STORE(mode), 010000);
    LIE(STORE(suspect), 0);
    LIE(STORE(drain.is_on), true);
    LIE(STORE(drain.deadline_ms), 1);
    LIE(STORE(drain.id), 1);
    LIE(STORE(drain.by.token[0]), 1);
    LIE(STORE(lock.closed), true);
    LIE(STORE(sessions.taken), 0);
    LIE(STORE(waiters.taken), 0);
    LIE(STORE(lock.committed), false);
    LIE(STORE(lock.sealed), true);
    LIE(STORE(history.count), CORE_HISTORY_EVENTS + 1);
    LIE(STORE(history.first), CORE_HISTORY_EVENTS);
    LIE(STORE(history.events[0].type), CORE_EVENT_RO_CONNECTED);
    LIE(STORE(history.events[0].allocations), LAYOUT_MAX_ALLOCATIONS + 1);
    LIE(core->fence.is_up, true);
    LIE(core->fence.names[0][0], 'n');
    LIE(core->fence.names[1][0], 'n');
    LIE(core->fence.resolved_by, 3);
    LIE(STORE(lock.waiter_count), 1);
    LIE(STORE(lock.session_count), 1);
    LIE(STORE(lock.sessions[0].mode), LOCK_MODE_RW);
    LIE(STORE(lock.waiters[0].wish), LOCK_WISH_RO);
    LIE(STORE(lock.waiters[0].kept_until_ms), 0);
    LIE(STORE(lock.waiters[0].looking), true);
    LIE(STORE(fixed), NULL);
    LIE(STORE(fixed), NEXT(fixed));
    LIE(STORE(encoding), NULL);
    LIE(STORE(working), NEXT(working));
    LIE(NEXT(fixed), NEXT(working));
    LIE(NEXT(working), NULL);
    LIE(((struct core_store *)core_find_store(core, rich.fresh))->group[0], 1);
    memcpy(NEXT(name), STORE(name), sizeof NEXT(name));
    check_int(core_check(core, &(struct failure){0}), -EINVAL);
}

TAP_TEST(core_check_notices_what_is_wrong_with_memory_and_ids)
{
    const struct layout *working;

    make_rich();
    LIE(MEMORY(id), 1000);
    LIE(MEMORY(refs), 2);
    LIE(MEMORY(aligned_bytes), 1);
    LIE(MEMORY(committed), 0);
    LIE(MEMORY(committed), rich.next);
    LIE(MEMORY(suspect), 0);
    LIE(MEMORY(suspect), rich.next);
    working = NEXT(working);
    LIE(((struct layout_allocation *)layout_at_rank(working, 0))->size_bytes, 1);
    LIE(((struct layout_allocation *)layout_at_rank(working, 0))->memory, LAYOUT_NO_MEMORY);
    LIE(((struct layout_allocation *)layout_at_rank(working, 0))->serial, 3);
    LIE(((struct layout_allocation *)layout_at_rank(working, 0))->spool, true);
    LIE(((struct layout_allocation *)layout_at_rank(working, 1))->serial, rich.weights);
    LIE(((struct layout_allocation *)layout_at_rank(working, 1))->serial, rich.gone);
    LIE(((struct layout_allocation *)layout_at_rank(working, 1))->serial, core->next_id);
    LIE(((struct layout_allocation *)layout_at_rank(working, 1))->memory, MEMORY(id));
    LIE(((struct layout_entry *)layout_find_entry(working, "more", 4))->serial, rich.gone);
    LIE(((struct layout_entry *)layout_find_entry(working, "more", 4))->serial, 0);
}

#define WORKING(rank) ((struct layout_allocation *)layout_at_rank(NEXT(working), rank))

TAP_TEST(core_check_notices_what_is_wrong_with_wire_ids)
{
    struct layout_allocation *kept, *fresh;
    char id[] = "allocation-2";

    make_rich();
    kept = WORKING(0); /* is committed, too */
    fresh = WORKING(1);
    require(kept->wire_id && fresh->wire_id && !WORKING(2)->wire_id);
    LIE(kept->wire_id, NULL);
    LIE(kept->wire_id, fresh->wire_id);
    LIE(kept->wire_id[12], '\xa5'); /* one as well, and of the same place among them */
    LIE(kept->wire_id[12], 'x');
    LIE(fresh->wire_id[0], '\0');
    LIE(fresh->wire_id[0], 'x');
    LIE(WORKING(2)->wire_id, id);
}

TAP_TEST(core_check_notices_what_is_wrong_with_sessions_and_files)
{
    make_rich();
    LIE(READER(files), 1);
    LIE(READER(mode), LOCK_MODE_RW);
    LIE(READER(store), rich.next);
    LIE(READER(store), 1);
    LIE(READER(touched), true);
    LIE(READER(due_bytes), 1);
    LIE(READER(opener), 3);
    LIE(READER(exclusive), true);
    LIE(READER(implicit), true);
    LIE(READER(uid), 12);
    LIE(WRITER(opener), 0);
    LIE(WRITER(opener), rich.gone);
    LIE(WRITER(opener), core->next_id);
    LIE(WRITER(reserved_bytes), 0);
    LIE(WRITER(drawn_bytes), 1);
    LIE(((struct core_session *)core_find_session(core, rich.ending))->ending, false);
    LIE(core->next_session, rich.writer);
    LIE(FILE_(kind), CORE_KIND_COUNT);
    LIE(FILE_(holds), true);
    LIE(FILE_(kind), 0);
    LIE(FILE_(flags), 1u << 12);
    LIE(FILE_(store), core->next_id);
    LIE(FILE_(session), rich.reader);
    LIE(FILE_(session), rich.writer);
    LIE(FILE_(session), core->next_session);
    LIE(FILE_(uid), 12);
    LIE(FILE_(gathered_bytes), 0);
    LIE(FILE_(gathered_bytes), UINT64_MAX);
    memset(READER(comm), 'x', CORE_COMM_BYTES);
    check_int(core_check(core, &(struct failure){0}), -EINVAL);
}

TAP_TEST(core_check_notices_what_is_wrong_with_waiters)
{
    make_rich();
    LIE(WAITING(store), rich.fresh);
    LIE(WAITING(store), 1);
    LIE(WAITING(file), 0);
    LIE(WAITING(file), rich.gone);
    LIE(WAITING(file), core_find_session(core, rich.writer)->opener);
    LIE(WAITING(file), core_find_waiter(core, rich.looking)->file);
    LIE(WAITING(kind), CORE_KIND_LOCK);
    LIE(WAITING(flags), 1u << 12);
    LIE(WAITING(wish), LOCK_WISH_RO);
    LIE(WAITING(uid), 12);
    LIE(WAITING(reserve_bytes), 0);
    LIE(WAITING(away), true);
    LIE(WAITING(grant.session), NULL);
    LIE(OPENING(grant.file), NULL);
    LIE(OPENING(kind), CORE_KIND_CTL);
    LIE(OPENING(wish), LOCK_WISH_AUTO);
    LIE(OPENING(reserve_bytes), 1);
    LIE(core->next_waiter, rich.open);
}

TAP_TEST(core_check_notices_what_is_wrong_with_tickets_and_events)
{
    make_rich();
    LIE(TICKET(session), 999);
    LIE(TICKET(session), rich.reader);
    LIE(TICKET(secret[0]), 1);
    LIE(TICKET(count), 2);
    LIE(TICKET(first), LAYOUT_MAX_ALLOCATIONS);
    LIE(TICKET(serial), core->next_id);
    LIE(TICKET(holder), 12);
    LIE(core->next_ticket, rich.ticket);
    LIE(EVENT(seq), 1);
    LIE(EVENT(type), CORE_EVENT_TYPE_COUNT);
    LIE(EVENT(type), CORE_EVENT_COMMITTED);
    LIE(EVENT(store[1]), '/');
    LIE(EVENT(session), core->next_session);
    LIE(EVENT(waiter), core->next_waiter);
    LIE(EVENT(bound[0]), 0);
    LIE(EVENT(by.pid), 1);
    LIE(EVENT(by_uid), 1);
    LIE(EVENT(resumes), 1);
    LIE(EVENT(type), CORE_EVENT_RESUMED);
}
