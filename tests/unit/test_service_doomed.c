/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that leaves with its store goes to jobs in slices, so that no step of the loop is long. */
#include "service_fixture.h"

#include "service/service_internal.h"

#define BATCH  64u /* piece_free.c's FREE_BATCH */
#define JOBS   8u  /* and FREE_MOST_JOBS */
#define MOST   (JOBS * BATCH)
#define PIECES (MOST + 4 * BATCH)

static void begin_with_pieces(void)
{
    service_start();
    for (unsigned i = 0; i < PIECES; i++) {
        struct piece *piece = piece_new(service, 0, 0);
        require(piece && vmm_create(vmm, 1, false, &piece->memory) == 0);
        require(piece_enter_all(service, &piece, 1) == 0);
    }
}

static void doom_all(void)
{
    size_t at = 0;

    for (size_t i = 0; i < PIECES; i++) {
        const struct piece *piece = service->pieces.all.items[i];
        piece_doom(service, piece->id, &at);
    }
    service->step.is_unsettled = true;
}

TAP_TEST(many_pieces_are_freed_in_slices_each_in_a_step_of_its_own)
{
    begin_with_pieces();
    doom_all();
    defers = true;
    settle_step();
    check_int(service->pieces.all.count, 0);
    check_int(submitted[SERVICE_POOL_FREE], MOST / BATCH);
    settle_step(); /* of a request that changes nothing */
    check_int(submitted[SERVICE_POOL_FREE], MOST / BATCH);
    for (unsigned jobs = MOST / BATCH + 1; jobs <= PIECES / BATCH; jobs++) {
        run_first_job();
        check_int(submitted[SERVICE_POOL_FREE], jobs);
    }
    run_deferred();
    check_int(submitted[SERVICE_POOL_FREE], PIECES / BATCH);
    check(!service->pieces.freeing && service->pieces.free_jobs[SERVICE_POOL_FREE] == 0);
    service_end();
}

TAP_TEST(hung_jobs_hold_up_no_piece_whose_memory_a_client_waits_for)
{
    begin_with_pieces();
    doom_all();
    defers = true;
    settle_step();
    check_int(submitted[SERVICE_POOL_FREE], JOBS);
    service->brief.freeing = (struct brief_wait *)1; /* a client waits */
    piece_free_doomed(service);
    service->brief.freeing = NULL;
    check_int(submitted[SERVICE_POOL_FREE], JOBS);
    check_int(submitted[SERVICE_POOL_MEMORY], PIECES / BATCH - JOBS);
    run_deferred();
    check_int(service->pieces.free_jobs[SERVICE_POOL_MEMORY], 0);
    service_end();
}
