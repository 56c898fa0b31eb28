/* SPDX-License-Identifier: Apache-2.0 */
/* The states of each operation and which may follow which, printed and held. */
#include "service/steps.h"
#include "tap.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct steps *const all[] = {&move_steps, &alloc_steps,  &spool_steps,
                                          &turn_steps, &ending_steps, &bulk_steps};

#define COUNT (sizeof all / sizeof all[0])

static const char printed[] = "move begins: waits short makes verifies reads ends\n"
                              "move waits: begins cancelled\n"
                              "move short: begins waits cancelled\n"
                              "move makes: copies cancelled ends\n"
                              "move copies: again syncs cancelled ends\n"
                              "move again: syncs cancelled ends\n"
                              "move syncs: cancelled ends\n"
                              "move verifies: cancelled ends\n"
                              "move reads: cancelled ends\n"
                              "move cancelled: cancelled ends\n"
                              "move ends:\n"
                              "alloc tries: waits makes ends\n"
                              "alloc waits: tries ends\n"
                              "alloc makes: waits ends\n"
                              "alloc ends:\n"
                              "spool begins: queues waits runs ends\n"
                              "spool queues: begins\n"
                              "spool waits: begins\n"
                              "spool runs: ends\n"
                              "spool ends:\n"
                              "turn begins: waits runs\n"
                              "turn waits: runs fails\n"
                              "turn runs: ends\n"
                              "turn fails: ends\n"
                              "turn ends:\n"
                              "ending waits: seals ends\n"
                              "ending seals: prepares ends\n"
                              "ending prepares: prepares ends\n"
                              "ending ends:\n"
                              "bulk decodes: applies ends\n"
                              "bulk applies: waits ends\n"
                              "bulk waits: applies ends\n"
                              "bulk ends:\n";

static void print(FILE *to, const struct steps *steps)
{
    for (unsigned state = 0; state < steps->count; state++) {
        fprintf(to, "%s %s:", steps->name, steps->rows[state].name);
        for (unsigned next = 0; next < steps->count; next++) {
            if (steps->rows[state].next & (1u << next))
                fprintf(to, " %s", steps->rows[next].name);
        }
        fprintf(to, "\n");
    }
}

TAP_TEST(the_tables_are_as_printed_here)
{
    char text[sizeof printed + 4096] = "";
    FILE *to = fmemopen(text, sizeof text, "w");

    require(to != NULL);
    for (size_t i = 0; i < COUNT; i++)
        print(to, all[i]);
    fclose(to);
    check_str(text, printed);
}

/* Returns the set of states reachable from this one, itself included. */
static uint32_t reach(const struct steps *steps, unsigned from)
{
    uint32_t reached = 1u << from, before = 0;

    while (reached != before) {
        before = reached;
        for (unsigned state = 0; state < steps->count; state++) {
            if (before & (1u << state))
                reached |= steps->rows[state].next;
        }
    }
    return reached;
}

TAP_TEST(every_state_is_come_to_and_ends)
{
    for (size_t i = 0; i < COUNT; i++) {
        unsigned end = all[i]->count - 1;

        check_int(reach(all[i], 0), (1u << all[i]->count) - 1);
        for (unsigned state = 0; state < end; state++) {
            check(all[i]->rows[state].next != 0);
            check(reach(all[i], state) & (1u << end));
        }
        check_int(all[i]->rows[end].next, 0);
        check_str(all[i]->rows[end].name, "ends");
    }
}

TAP_TEST(a_transition_that_the_table_does_not_have_aborts_a_test_build)
{
    enum spool_state state = SPOOL_WAITS;
    int status;
    pid_t child = fork();

    if (child == 0) {
        close(STDERR_FILENO);
        steps_go(spool_steps, &state, SPOOL_RUNS);
        _exit(0);
    }
    require(child > 0 && waitpid(child, &status, 0) == child);
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    steps_go(spool_steps, &state, SPOOL_BEGINS);
    check_int(state, SPOOL_BEGINS);
}
