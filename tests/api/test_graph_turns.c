/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools of several processes over one store, and of processes that die. */
#include "graph_fixture.h"

#define TURNS 20

/* Returns when the other process has reached the point that the test wants. */
static pid_t start_deed(const char *deed, int *answers)
{
    pid_t pid = start_self(deed, answers);
    char word = 0;

    check_int(read(*answers, &word, 1), 1);
    check_int(word, '!');
    return pid;
}

static void kill_deed(pid_t pid, int answers)
{
    check_int(kill(pid, SIGKILL), 0);
    check_int(waitpid(pid, NULL, 0), pid);
    close(answers);
}

static int wait_for_state(const char *state)
{
    for (int i = 0; i < WAIT_MS && strcmp(read_line("state"), state) != 0; i++)
        usleep(1000);
    return check_str(read_line("state"), state);
}

TAP_TEST(pool_that_is_killed_awake_leaves_an_empty_store_and_no_memory)
{
    auto_pool *pool = fresh_pool();
    uint64_t before = device_free_bytes();
    int answers;
    pid_t pid = start_deed("awake", &answers);

    check_str(read_line("state"), "RW");
    check_int(device_free_bytes(), before - 4 * CHUNK);
    kill_deed(pid, answers);
    wait_for_state("EMPTY");
    wait_for_free(before);
}

TAP_TEST(pool_that_is_killed_after_keep_leaves_its_memory_to_the_next)
{
    gmsfs_graph_pool_t *pool = fresh_pool();
    uint64_t before = device_free_bytes();
    unsigned char *a;
    int answers;
    pid_t pid = start_deed("kept", &answers);

    kill_deed(pid, answers);
    check_str(read_line("state"), "COMMITTED");
    check_int(device_free_bytes(), before - 4 * CHUNK);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(stats_of(pool).physical_bytes, 4 * CHUNK);
    a = take(new_space(pool, 0), 4 * CHUNK);
    check_int(a[3 * CHUNK], 99);
    check_int(device_free_bytes(), before - 4 * CHUNK);
    end_pool(pool);
    wait_for_free(before);
}

TAP_TEST(pool_that_is_killed_over_kept_chunks_leaves_an_empty_store)
{
    auto_pool *pool = fresh_awake_pool();
    uint64_t before = device_free_bytes();
    int answers;
    pid_t pid;

    take(new_space(pool, 0), 2 * CHUNK);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    pid = start_deed("awake", &answers);
    kill_deed(pid, answers);
    wait_for_state("EMPTY");
    wait_for_free(before);
}

/* In turns over one set of chunks: each finds the other's bytes, and they are never both awake. */
TAP_TEST(two_processes_take_turns)
{
    auto_pool *pool = fresh_awake_pool();
    unsigned char *a = take(new_space(pool, 0), 3 * CHUNK);
    int answers, status = -1;
    pid_t pid;

    memset(a, 0, 3 * CHUNK);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    pid = start_self("turns", &answers);
    for (int i = 0; i < TURNS; i++) {
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
        check_int(a[0], a[2 * CHUNK]);
        a[0]++;
        usleep(200);
        a[2 * CHUNK]++;
        check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    }
    check_int(waitpid(pid, &status, 0), pid);
    check_int(status, 0);
    close(answers);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(a[0], 2 * TURNS);
    check_int(stats_of(pool).physical_bytes, 3 * CHUNK);
}

/* ---- the other process ---------------------------------------------------------------------- */

static void deed_say(void)
{
    check_int(write(ANSWER_FD, "!", 1), 1);
    pause();
}

static void deed_say_and_wait_for(const sigset_t *signals)
{
    int number;

    check_int(write(ANSWER_FD, "!", 1), 1);
    check_int(sigwait(signals, &number), 0);
}

/* Its mount dies and returns twice: while it sleeps, and while it is awake (50-crash). */
static void deed_survive(gmsfs_graph_pool_t *pool)
{
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *a;
    sigset_t signals;
    void *ptr = NULL;

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    check_int(sigprocmask(SIG_BLOCK, &signals, NULL), 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    a = take(space, CHUNK);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    deed_say_and_wait_for(&signals);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_str(read_line("state"), "RW");
    a[CHUNK - 1] = 1;
    deed_say_and_wait_for(&signals);
    a[CHUNK - 1] = 2;
    check_int(gmsfs_graph_space_alloc(space, 2 * CHUNK, &ptr), -ENOTCONN);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), -ENOTCONN);
    check_int(stats_of(pool).awake, 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_str(read_line("state"), "RW");
    a[CHUNK - 1] = 3;
}

static void deed_turns(gmsfs_graph_pool_t *pool)
{
    unsigned char *a;

    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    a = take(new_space(pool, 0), 3 * CHUNK);
    for (int i = 0; i < TURNS; i++) {
        check_int(a[0], a[2 * CHUNK]);
        a[0]++;
        a[2 * CHUNK]++;
        check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
        if (i < TURNS - 1)
            check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    }
}

TAP_TEST(deed_of_another_process)
{
    const char *deed = getenv("GMSFS_GRAPH_DEED");
    gmsfs_graph_pool_t *pool;
    unsigned char *a;

    if (!deed)
        return;
    pool = open_pool(CHUNK);
    if (strcmp(deed, "turns") == 0) {
        deed_turns(pool);
    } else if (strcmp(deed, "survive") == 0) {
        deed_survive(pool);
    } else {
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
        a = take(new_space(pool, 0), 4 * CHUNK);
        a[3 * CHUNK] = 99;
        if (strcmp(deed, "kept") == 0)
            check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
        deed_say();
    }
    gmsfs_graph_close(pool);
}
