/* SPDX-License-Identifier: Apache-2.0 */
#include "service/trace.h"

#include "base/clean.h"
#include "core/record_line.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

const char *trace_store_name(const struct service *s, uint64_t store, char name[NAME_MAX + 1])
{
    const struct core_store *found = core_find_store(s->core, store);
    return clean_quoted(name, NAME_MAX + 1, found ? found->name : "", NAME_MAX);
}

void trace_record(struct service *s, const struct record *record, const struct outcome *outcome,
                  int error, size_t first, uint64_t began_us)
{
    char line[RECORD_LINE_BYTES], effects[RECORD_LINE_BYTES] = "";
    const struct effect *effect;
    uint64_t took_us = log_read_clock_us() - began_us;
    record_line(record, line);
    for (size_t i = first; (effect = core_peek_effect(s->core, i)); i++)
        record_line_add_effect(effects, effect);
    log_trace(service_works_for(s),
              "record %s; %s%s session=%" PRIu64 " waiter=%" PRIu64 " file=%" PRIu64 ", %" PRIu64
              " us, effects:%s",
              line, error ? "refused " : "applied", error ? strerrorname_np(-error) : "",
              outcome->session, outcome->waiter, outcome->file, took_us,
              *effects ? effects : " none");
}

void trace_eviction(struct service *s, uint64_t store, uint64_t bytes, long chosen, bool comes)
{
    char name[NAME_MAX + 1];
    const char *why = chosen > 0          ? "stores were chosen to leave"
                      : chosen == 0       ? "there is room as it is"
                      : chosen == -EDQUOT ? "the budgets of the pools forbid it"
                                          : "no store may leave the device now";
    log_trace(service_works_for(s),
              "plan evict for store=%" PRIu64 " '%s' bytes=%" PRIu64 " chosen=%ld because %s; %s",
              store, trace_store_name(s, store, name), bytes, chosen > 0 ? chosen : 0, why,
              comes ? "room comes" : "frees no memory");
}
