/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode - encodes and decodes a state, where each allocation fails once
 *
 * Without memory it returns -ENOMEM, and leaves nothing behind. The decoded state needs no memory
 * to end: its endings find the room that a record would have left.
 */
#include "own_fault.h"

#include "../unit/core_states.h"

TAP_TEST(a_state_that_is_decoded_where_memory_lacks_is_refused_whole)
{
    struct core *decoded = NULL;
    struct failure failure;
    struct state state;
    int64_t living;
    int after = 0, failed = 0, error;

    begin_faults(FAULT_SITES, FAULT_NONE);
    make_rich();
    state = state_of(core);
    living = control->living[FAULT_COMMAND];
    do {
        memset(failure.text, 0, 64);
        arm(after++);
        error = core_decode(state.bytes, state.size, &decoded, &failure);
        control->armed = false;
        /* A block that cannot shrink stays as large as it is. */
        require(error == 0 || (error == -ENOMEM && control->fired));
        failed += error < 0;
        check(error == 0 || strcmp(failure.text, "this process is out of memory") == 0);
        core_free(decoded);
        decoded = NULL;
        check_int(control->living[FAULT_COMMAND], living);
    } while (control->fired && !tap_failed);
    check(failed > 100 && failed + 4 > after);
    fprintf(stderr, "# %d of %d allocations are needed\n", failed, after - 1);
    free(state.bytes);
}

TAP_TEST(a_state_that_is_encoded_where_memory_lacks_is_not_encoded_in_part)
{
    struct state state = {0};
    int64_t living;
    int after = 0, error;

    begin_faults(FAULT_SITES, FAULT_NONE);
    make_rich();
    living = control->living[FAULT_COMMAND];
    do {
        arm(after++);
        error = core_encode(core, &state.bytes, &state.size);
        control->armed = false;
        require(error == (control->fired ? -ENOMEM : 0));
        check(error == 0 || (!state.bytes && control->living[FAULT_COMMAND] == living));
    } while (error < 0);
    check(after > 1);
    free(state.bytes);
}

/* Makes closes, ends and waits that are over, with no memory from the first to the last. */
static void end_all(struct core *of)
{
    struct record record = {.now_ms = 5000};
    struct effect effect;

    while (of->files.count + of->sessions.count + of->waiters.count > 0) {
        const struct idvec *vec = of->waiters.count > 0 ? &of->waiters
                                  : of->files.count > 0 ? &of->files
                                                        : &of->sessions;
        uint64_t id = *(const uint64_t *)vec->items[vec->count - 1];

        record.type = vec == &of->waiters ? RECORD_WAIT_END
                      : vec == &of->files ? RECORD_FILE_CLOSE
                                          : RECORD_SESSION_END;
        record.waiter = record.file = record.session = id;
        record.count = EINTR;
        arm(0);
        require(core_apply(of, &record, NULL) == 0);
        require(!control->fired);
        control->armed = false;
        while (core_next_effect(of, &effect))
            ;
    }
}

TAP_TEST(what_came_back_ends_without_memory)
{
    struct core *decoded;

    begin_faults(FAULT_SITES, FAULT_NONE);
    make_rich();
    decoded = reborn(core);
    end_all(decoded);
    check_int(decoded->reserved_bytes, 0);
    core_free(decoded);
}
