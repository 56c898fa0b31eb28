/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lives - a worker that dies before any of its steps, and the next one again: exhaustively, played
 *
 * Each deed of lives_deeds.h is done once to learn its results, and then with the worker dead
 * before each of its steps; and with the next one dead before each of its own, as it resumes and
 * afterwards: of those only some, unless FULL is set. Every client has to be answered as if nothing
 * had happened, once, and state, bytes, descriptors and events have to be those of the first time.
 * kills.c does the same with real kills on a real mount.
 *
 * PART=INDEX/COUNT: only that part of the first deaths (part.h); LIVES_DEED=NAME: only that deed.
 *
 * A trial is a process of its own (lives_world.h leaves the dead worker's memory as it is).
 */
#include "lives_deeds.h"
#include "part.h"

#include <sys/wait.h>

#define SAMPLE 17 /* of the second deaths without FULL */

static char wanted[TEXT_BYTES];
static unsigned deaths_tried;

/* ---- one trial ---------------------------------------------------------------------------- */

static void begin_world(void)
{
    int ends[2];

    fixture_now_ms = 1000;
    fixture_host_bytes = FIXTURE_BYTES;
    require(journal_make_files(&w.files) == 0);
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    w.kernel = ends[0];
    w.worker = ends[1];
    for (size_t i = 0; i < CLIENTS; i++)
        w.players[i].caller =
            (struct service_caller){.processes = {{.pid = 11 + i, .start = 1}}, .process_count = 1};
    kill_simulated = meet_step;
    begin_life();
    w.players[0].asks = BEGINNING;
    serve();
    trial->used = 0;
}

static void begin_deed(const struct deed *deed)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        w.players[i].asks = deed->asks[i];
        w.players[i].next = 0;
        w.players[i].last = (struct answer){0};
        memset(w.players[i].files, 0, sizeof w.players[i].files);
    }
}

static void run_trial(const struct deed *deed)
{
    begin_world();
    begin_deed(deed);
    if (setjmp(w.death)) {
        take_answers();
        w.life++;
        is_armed = true;
        begin_life();
    }
    is_armed = true;
    serve();
    is_armed = false;
    tell_state();
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* After a death another one of two clients may be answered first. */
static void sort_lines(char *text)
{
    static char sorted[TEXT_BYTES];
    char *lines[512], *rest = NULL;
    size_t count = 0, used = 0;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        require(count < 512);
        lines[count++] = line;
    }
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(sorted + used, sizeof sorted - used, "%s\n", lines[i]);
    memcpy(text, sorted, used + 1);
}

/* Returns the number of lives that have ended. */
static unsigned try_deaths(const struct deed *deed, int first, int second)
{
    int status;

    *trial = (struct trial){.kill_at = {first, second, -1}};
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        run_trial(deed);
        _exit(tap_failed);
    }
    require(waitpid(child, &status, 0) == child);
    if (!check_int(status, 0))
        fprintf(stderr, "# %s: the trial itself has failed\n", deed->name);
    sort_lines(trial->text);
    return (trial->step[0][0] != '\0') + (trial->step[1][0] != '\0');
}

static void judge(const struct deed *deed)
{
    deaths_tried++;
    if (check(strcmp(trial->text, wanted) == 0))
        return;
    fprintf(stderr, "# %s: dead before %s (%d)", deed->name, trial->step[0], trial->kill_at[0]);
    if (trial->step[1][0])
        fprintf(stderr, ", then before %s (%d)", trial->step[1], trial->kill_at[1]);
    fprintf(stderr, "\n# wanted:\n%s# got:\n%s", wanted, trial->text);
}

/* ---- all of them -------------------------------------------------------------------------- */

static void learn(const struct deed *deed)
{
    check_int(try_deaths(deed, -1, -1), 0);
    memcpy(wanted, trial->text, sizeof wanted);
    check(strstr(wanted, "cannot be") == NULL && strstr(wanted, "another") == NULL);
    if (getenv("LIVES_SHOW"))
        fprintf(stderr, "# %s, %d steps:\n%s", deed->name, trial->steps[0], wanted);
}

static void begin(void)
{
    if (!trial)
        trial =
            mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(trial != MAP_FAILED);
    deaths_tried = 0;
}

static bool is_wanted(const struct deed *deed)
{
    const char *name = getenv("LIVES_DEED");

    return !tap_failed && (!name || strcmp(name, deed->name) == 0);
}

static void try_each(const struct deed *deed)
{
    struct part part = part_of_steps();
    int first = part_first(part, 0, 1);

    learn(deed);
    while (!tap_failed && try_deaths(deed, first, -1) > 0) {
        judge(deed);
        first = part_next(part, first, 1);
    }
}

static void try_pairs(const struct deed *deed, int from, int every)
{
    struct part part = part_of_steps();
    unsigned deaths = 1;

    learn(deed);
    for (int first = part_first(part, from, every); !tap_failed && deaths > 0;
         first = part_next(part, first, every)) {
        for (int second = first % every; !tap_failed; second += every) {
            deaths = try_deaths(deed, first, second);
            if (deaths < 2)
                break;
            judge(deed);
        }
    }
}

#define DEED_COUNT (sizeof DEEDS / sizeof DEEDS[0])

TAP_TEST(a_worker_that_dies_before_any_step_of_any_request_is_not_noticed)
{
    begin();
    for (size_t i = 0; i < DEED_COUNT; i++)
        if (is_wanted(&DEEDS[i]))
            try_each(&DEEDS[i]);
    fprintf(stderr, "# %u trials\n", deaths_tried);
}

TAP_TEST(nor_is_the_next_one_that_dies_before_any_of_its_own_steps)
{
    int every = getenv("FULL") ? 1 : SAMPLE;

    begin();
    for (size_t i = 0; i < DEED_COUNT; i++)
        if (is_wanted(&DEEDS[i]))
            try_pairs(&DEEDS[i], (int)i, every);
    fprintf(stderr, "# %u trials\n", deaths_tried);
}
