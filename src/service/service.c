/* SPDX-License-Identifier: Apache-2.0 */
/* service - makes and frees the service; calls of the loop; observers */
#include "base/pages.h"
#include "service/account.h"
#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"
#include "service/parked.h"
#include "service/summing.h"
#include "service/transfers.h"
#include "service/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Creates a store that exists from the start, with the owner of the options. */
static int create_first_store(struct service *s, const char *name)
{
    struct record record = {.type = RECORD_STORE_CREATE,
                            .name = name,
                            .name_bytes = strlen(name),
                            .uid = s->options.uid,
                            .gid = s->options.gid,
                            .mode = 0755};
    int error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
    return error ? error : service_apply_record(s, &record, NULL);
}

struct service *service_make(struct vmm *vmm, const struct service_options *options,
                             const struct service_host *host)
{
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->vmm = vmm;
    s->options = *options;
    s->host = *host;
    s->counts = host->counts ? host->counts : &s->numbers.counts;
    if (!vmm_tells_holders(vmm))
        s->host.back = NULL; /* mappings of a registered file could not be charged */
    s->next_memory = 1;
    layout_drop_pages_by(pages_drop);
    service_init_bounds(s);
    turns_init(s);
    return s;
}

void service_get_core_options(const struct vmm *vmm, const struct service_options *options,
                              struct core_options *core_options)
{
    struct vmm_info info;
    vmm_get_info(vmm, &info);
    *core_options = (struct core_options){.patience_ms = options->patience_ms,
                                          .granularity_bytes = info.granularity_bytes,
                                          .limits = {.regions = options->max_regions},
                                          .admin_uid = options->admin_uid};
}

int service_new(struct vmm *vmm, const struct service_options *options,
                const struct service_host *host, struct service **service)
{
    struct service *s = service_make(vmm, options, host);
    if (!s)
        return -ENOMEM;
    struct core_options core_options;
    service_get_core_options(vmm, options, &core_options);
    int error = core_new(&core_options, &s->core);
    if (!error)
        error = create_first_store(s, "weights");
    if (!error && options->has_kv_cache)
        error = create_first_store(s, "kv_cache");
    if (error) {
        service_free(s);
        return error;
    }
    *service = s;
    return 0;
}

void service_stop(struct service *s)
{
    s->ending = true;
    service_end_moves(s);
}

void service_free(struct service *s)
{
    if (!s)
        return;
    service_stop(s);
    piece_drop_mapped(s);
    service_drop_parked(s);
    while (s->alloc_queue)
        service_cancel_alloc(s, s->alloc_queue, -ENOTCONN);
    service_drop_spools(s);
    service_drop_bulks(s);
    service_drop_brief_waits(s);
    service_drop_sums(s);
    for (size_t i = 0; i < s->pieces.all.count; i++) {
        struct piece *piece = s->pieces.all.items[i];
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
    }
    for (size_t i = 0; i < s->in_flights.count; i++)
        service_drop_in_flight(s, s->in_flights.items[i]);
    service_free_region_objects(s);
    idvec_free(&s->pieces.all);
    idvec_free(&s->in_flights);
    idvec_free(&s->parked);
    idvec_free_items(&s->backoffs.told);
    service_free_watches(s);
    turns_free(s);
    service_free_bounds(s);
    core_free(s->core);
    free(s);
}

const struct core *service_get_core(const struct service *s)
{
    return s->core;
}

void service_get_device(const struct service *s, struct vmm_info *info)
{
    vmm_get_info(s->vmm, info);
}

/* ---- observers --------------------------------------------------------------------------- */

void service_observe(struct service *s, struct service_observer *observer)
{
    observer->next = s->observers;
    s->observers = observer;
}

void service_unobserve(struct service *s, struct service_observer *observer)
{
    LIST_REMOVE(s->observers, observer);
}

/* ---- the loop ---------------------------------------------------------------------------- */

void service_pass_time(struct service *s)
{
    bool has_unread = s->host.has_unread(s->host.context);
    service_record(s, .type = RECORD_TIME, .flags = has_unread ? CORE_TIME_UNREAD : 0);
}

void service_on_timer(struct service *s)
{
    deadline_pass_all(s, service_now(s));
    service_pass_time(s);
}

void service_on_idle(struct service *s)
{
    service_apply_slices(s);
}

/* ---- numbers ----------------------------------------------------------------------------- */

void service_get_numbers(const struct service *s, struct service_numbers *numbers)
{
    *numbers = s->numbers;
    numbers->counts = *s->counts;
}

uint64_t service_count_open_files(const struct service *s)
{
    const struct idvec *regions = &s->core->regions.items;
    uint64_t own = 0;
    for (size_t i = 0; i < regions->count; i++)
        own += ((const struct region *)regions->items[i])->file != 0;
    return s->core->files.count - own;
}
