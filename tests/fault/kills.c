/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kills - kills the worker of a mount at every step of every deed, or its copier at those of every
 * copy, and checks the results
 *
 *   kills new CONTROL                   makes the file that daemons are armed by
 *   kills arm CONTROL STEP              the next worker dies before this step of its
 *   kills fired CONTROL                 exit status 0 if it has; it is not armed any more
 *   kills run CONTROL GMSCTL MOUNT KEEPER EVERY AGAIN [GROUP[/NAME]...]
 *   kills copiers CONTROL GMSCTL MOUNT KEEPER EVERY AGAIN [GROUP[/NAME]...]
 *
 * `run` does the deeds of deeds.h: a few times to learn their results, then once for each step
 * (kill.h) that the worker makes meanwhile, or for each EVERY-th, with the worker killed before it.
 * With AGAIN (not 0), each of these once more for each AGAIN-th step of the next worker, which is
 * killed too, and once more with a third one killed, each time a step further on. The client must
 * be answered as if nothing had happened, once; the state and the events afterwards are those of
 * an undisturbed deed; nothing may be left behind.
 *
 * PART=INDEX/COUNT: only that part of the first steps (part.h).
 *
 * `copiers` does the same with copies.h. Clients must not notice that one copier was killed. After
 * a second one the move may fail, and then the store is in its former place; its bytes are right
 * either way.
 *
 * Values that differ between undisturbed runs (ids, tokens, times) are not compared. Prints a line
 * for each failure, with the steps, and a last line of numbers; exit status 1 if there are
 * failures.
 */
#include "copies.h"
#include "kill.h"
#include "part.h"
#include "patterns.h"
#include "scripts.h"

#define SETTLE_MS   5000u
#define LEARN_RUNS  3
#define EVENTS_ROOM PATTERN_ROOM

static struct kill_control *kills;
static pid_t keeper;
static int events_fd;
static unsigned trials;
static const char *begin_copy; /* makes the store that a copy starts from; NULL if there is none */

/* ---- the control ------------------------------------------------------------------------- */

static void make_kill_control(const char *path)
{
    uint32_t magic = KILL_MAGIC;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)sizeof *kills) != 0 ||
        pwrite(fd, &magic, sizeof magic, 0) != (ssize_t)sizeof magic)
        tool_die("%s: %s", path, strerror(errno));
    close(fd);
}

static void map_kill_control(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        tool_die("%s: %s", path, strerror(errno));
    kills = mmap(NULL, sizeof *kills, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (kills == MAP_FAILED)
        tool_die("%s: %s", path, strerror(errno));
    close(fd);
}

/* -1 for no such kill. */
static void arm_kills(const int wanted[KILL_MOST])
{

    for (unsigned i = 0; i < KILL_MOST; i++)
        kills->after[i] = wanted[i] < 0 ? KILL_NEVER : wanted[i];
    kills->kills = 0;
    kills->victim = 0;
    kills->armed = true;
}

/* ---- results of a deed ---------------------------------------------------------------------- */

struct outcome {
    int status;
    char said[TOOL_TEXT_BYTES];  /* by the deed, and by the deed's `after` */
    char events[EVENTS_ROOM];    /* in the order of their names */
    char state[TOOL_TEXT_BYTES]; /* of the store and the mount */
};

static int compare_lines(const void *left, const void *right)
{
    const char *a = *(char *const *)left, *b = *(char *const *)right;
    const char *name_a = strstr(a, "\"event\":"), *name_b = strstr(b, "\"event\":");
    int order = strncmp(name_a ? name_a : a, name_b ? name_b : b, 40);

    return order ? order : (a > b) - (a < b); /* in the order of arrival */
}

/* Sorts events: of several clients at a time chance decides which event comes first. */
static void sort_events(char *text)
{
    static char sorted[EVENTS_ROOM];
    char *lines[4096], *rest = NULL;
    size_t count = 0, used = 0;

    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (count < 4096 && !strstr(line, "\"worker_resumed\"") && !strstr(line, "\"recovered\""))
            lines[count++] = line;
    qsort(lines, count, sizeof *lines, compare_lines);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(sorted + used, sizeof sorted - used, "%s\n", lines[i]);
    memcpy(text, sorted, used);
    text[used] = '\0';
}

static void read_events(char *text, size_t room)
{
    size_t used = 0;
    ssize_t got;

    while (used < room - 1 && (got = read(events_fd, text + used, room - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
}

/* Returns true if there is no open file or session, and no running operation. */
static bool is_idle(void)
{
    static char text[TOOL_TEXT_BYTES];

    if (tool_read_text(tool_path("%s/metrics", script_mount).text, text, sizeof text) <= 0)
        return false;
    /* this program's, and the one that is read here */
    if (find_number(text, "\ngmsfs_open_files ") > 2 ||
        find_number(text, "\ngmsfs_jobs_in_flight ") != 0)
        return false;
    return tool_read_text(tool_path("%s/weights/sessions", script_mount).text, text, sizeof text) ==
           0;
}

/* Returns false if it does not come to rest. */
static bool wait_until_idle(void)
{
    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    while (!is_idle()) {
        if (tool_now_ms() > until_ms)
            return false;
        tool_pause_us(300);
    }
    return true;
}

static bool drains(const char *file)
{
    static char text[TOOL_TEXT_BYTES];

    return tool_read_text(tool_path("%s/%s", script_mount, file).text, text, sizeof text) <= 0 ||
           strstr(text, "\"draining\": true");
}

/* Waits until drains have ended: the end of a drainer that ends with the worker is noticed a moment
 * later. Returns false if the mount or the store drains for good. */
static bool wait_until_served(void)
{
    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    for (;;) {
        if (!drains("device") && !drains("weights/info"))
            return true;
        if (tool_now_ms() > until_ms)
            return false;
        tool_pause_us(1000);
    }
}

/* Reads the state that other processes can see. `hash` stands for allocations, entries and
 * values. */
static void look_at_state(struct outcome *outcome)
{
    static struct ran ran;

    run_script("open W/state r read 99 open W/layout_hash r read 99 open W/info r read 9999 "
               "open W/residency r read 999 open M/pools r read 9999 "
               "try stat W/allocations/a try stat M/s2 try stat M/s3",
               &ran);
    memcpy(outcome->state, ran.text, sizeof outcome->state);
}

/* Returns false if nothing can be said about the deed, because it hangs. */
static bool do_deed(const struct deed *deed, const int wanted[KILL_MOST], struct outcome *outcome)
{
    static struct ran ran, after;
    struct deed_run run;

    read_events(outcome->events, sizeof outcome->events); /* until here */
    run = prepare_deed(deed);
    arm_kills(wanted);
    finish_deed(&run, &ran);
    bool came_to_rest = wait_until_idle();
    if (strstr(deed->name, "broken-off"))
        came_to_rest &= wait_until_served();
    kills->armed = false;
    after.text[0] = '\0';
    outcome->status = ran.status;
    look_at_state(outcome);
    read_events(outcome->events, sizeof outcome->events);
    sort_events(outcome->events);
    if (deed->after)
        run_script(deed->after, &after);
    snprintf(outcome->said, sizeof outcome->said, "%.*s--\n%.*s", TOOL_TEXT_BYTES / 2 - 8, ran.text,
             TOOL_TEXT_BYTES / 2 - 8, after.text);
    return came_to_rest && ran.status != -1;
}

/* ---- a deed without a kill ------------------------------------------------------------------ */

/* Makes the store that every deed starts from, in a new directory: its slots and generations are
 * the same each time. */
static bool begin_in_new_store(void)
{
    static struct ran ran;

    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    clean_up();
    do { /* the kernel releases files some time after close(2) */
        run_script("connect M/ region-unregister-all self 0 disconnect rmdir W mkdir W", &ran);
    } while (ran.status != 0 && strstr(ran.text, "EBUSY") && tool_now_ms() < until_ms);
    if (ran.status != 0)
        complain("the store cannot be made anew: %s", ran.text);
    if (ran.status != 0)
        return false;
    if (!begin_copy)
        return begin_anew();
    run_script(begin_copy, &ran);
    if (ran.status != 0)
        complain("what it starts from cannot be made: %s", ran.text);
    return ran.status == 0;
}

struct learnt {
    struct outcome outcome; /* with `*` */
    bool said_varies;       /* it reads values that change all the time */
    bool moves;             /* that are begun again or forgotten, with the bytes unchanged */
    bool status_varies;     /* it is interrupted after a time; or polls, and a kill wakes it */
    bool events_vary;       /* the first to wake decides the result */
};

static void learn(const struct deed *deed, struct learnt *learnt)
{
    static const int none[KILL_MOST] = {-1, -1, -1};
    static struct outcome again;

    learnt->moves = (strstr(deed->words, "residency") || strcmp(deed->group, "evictions") == 0) &&
                    kills->whom == KILL_WORKER;
    learnt->status_varies = strstr(deed->words, " poll ") || strstr(deed->words, "alarm ");
    learnt->said_varies = learnt->status_varies;
    learnt->events_vary = strstr(deed->words, "alarm ");
    for (int i = 0; i < LEARN_RUNS; i++) {
        if (!begin_in_new_store() || !do_deed(deed, none, i ? &again : &learnt->outcome))
            tool_die("%s/%s: does not end where nothing befalls it", deed->group, deed->name);
        if (i == 0)
            continue;
        if ((again.status != learnt->outcome.status && !learnt->status_varies) ||
            !widen(learnt->outcome.state, again.state))
            tool_die("%s/%s: it ends otherwise each time:\n%s%s\n%s%s", deed->group, deed->name,
                     learnt->outcome.said, learnt->outcome.state, again.said, again.state);
        learnt->said_varies |= !widen(learnt->outcome.said, again.said);
        learnt->events_vary |= !widen(learnt->outcome.events, again.events);
    }
    forget_numbers(learnt->outcome.state, "\"promote_ms\": ");
    forget_numbers(learnt->outcome.events, "\"ms\":");
    if (getenv("KILLS_SHOW"))
        printf("%s/%s: status %d\n%s%s%s", deed->group, deed->name, learnt->outcome.status,
               learnt->outcome.said, learnt->outcome.state, learnt->outcome.events);
}

/* ---- kills ------------------------------------------------------------------------------- */

/* Returns true for a GMS connection that was accepted a moment ago, and is not the keeper's yet: it
 * has had no answer. */
static bool is_not_kept_yet(const struct deed *deed, const struct outcome *outcome)
{
    return strcmp(deed->group, "gms") == 0 && (strncmp(outcome->said, "ECONNRESET\n", 11) == 0 ||
                                               strncmp(outcome->said, "EPIPE\n", 6) == 0);
}

/* A connection to `.fds` belongs to the worker, and ends with it: the library makes another one. */
static bool may_break(const struct deed *deed, const struct outcome *outcome)
{
    if (is_not_kept_yet(deed, outcome))
        return true;
    return strstr(deed->words, "connect ") &&
           (strstr(outcome->said, "ECONNRESET") || strstr(outcome->said, "EPIPE") ||
            strstr(outcome->said, "ECONNREFUSED"));
}

static void tell(const struct deed *deed, const char *what, const char *wanted, const char *got)
{
    complain("%s/%s: killed before %s (%d)%s%s%s%s: %s", deed->group, deed->name, kills->at[0],
             trials, kills->kills > 1 ? ", then before " : "", kills->kills > 1 ? kills->at[1] : "",
             kills->kills > 2 ? ", then before " : "", kills->kills > 2 ? kills->at[2] : "", what);
    if (wanted)
        printf("  wanted:\n%s\n  got:\n%s\n", wanted, got);
}

static const char *after_of(const struct outcome *outcome)
{
    return strstr(outcome->said, "--\n");
}

/* A writer whose bytes two copiers in a row could not take: its store is lost. */
static bool has_lost_its_bytes(const struct deed *deed, const struct outcome *outcome)
{
    return kills->whom == KILL_COPIER && kills->kills > 1 &&
           strstr(deed->words, "open W/lock rw") && strncmp(outcome->said, "EIO\n", 4) == 0 &&
           strncmp(outcome->state, "EMPTY\n", 6) == 0;
}

static void judge(const struct deed *deed, const struct learnt *learnt,
                  const struct outcome *outcome)
{
    const struct outcome *wanted = &learnt->outcome;

    bool may_fail = kills->whom == KILL_COPIER && kills->kills > 1;

    if (may_break(deed, outcome) || has_lost_its_bytes(deed, outcome))
        return;
    if (learnt->moves || may_fail) {
        if (!matches(after_of(wanted), after_of(outcome)))
            tell(deed, "afterwards it is otherwise", wanted->said, outcome->said);
        return;
    }
    if ((outcome->status != wanted->status && !learnt->status_varies) ||
        (!learnt->said_varies && !matches(wanted->said, outcome->said)))
        tell(deed, "it is answered otherwise", wanted->said, outcome->said);
    else if (!matches(wanted->state, outcome->state))
        tell(deed, "the state is another one", wanted->state, outcome->state);
    else if (!learnt->events_vary && !matches(wanted->events, outcome->events))
        tell(deed, "other things happened", wanted->events, outcome->events);
}

/* Returns the number of killed workers; -1 if the mount is useless. */
static int try_kills(const struct deed *deed, const struct learnt *learnt, int first, int second,
                     int third)
{
    static struct outcome outcome;
    const int wanted[KILL_MOST] = {first, second, third};

    if (!begin_in_new_store())
        return -1;
    bool ended = do_deed(deed, wanted, &outcome);
    if (kills->kills == 0)
        return 0;
    trials++;
    if (!ended && (outcome.status == -1 || !may_break(deed, &outcome))) /* its regions may stay */
        tell(deed, "it hangs", outcome.said, outcome.state);
    else
        judge(deed, learnt, &outcome);
    return (int)kills->kills;
}

/* Counts at rest, because memory is freed some time after its client freed it. */
static int count_keepers(void)
{
    int least = INT_MAX;

    for (unsigned same = 0; same < 20; same++) {
        int fds = tool_count_fds(keeper, NULL);
        same = fds < least ? 0 : same;
        least = fds < least ? fds : least;
        tool_pause_us(1000);
    }
    return least;
}

/* Of all tiers. */
static uint64_t count_used(void)
{
    static const char *const tiers[] = {
        "\n  \"used_bytes\": ", "\n  \"host_used_bytes\": ", "\n  \"spill_used_bytes\": "};
    static char text[TOOL_TEXT_BYTES];
    uint64_t sum = 0;

    if (tool_read_text(tool_path("%s/device", script_mount).text, text, sizeof text) <= 0)
        return UINT64_MAX;
    for (size_t i = 0; i < 3; i++)
        sum += strstr(text, tiers[i]) ? find_number(text, tiers[i]) : 0;
    return sum;
}

static bool has_come_back_to(uint64_t used)
{
    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    while (count_used() > used) { /* less, if the former bytes had not been freed when it began */
        if (tool_now_ms() > until_ms) {
            complain("the mount uses %llu bytes, and used %llu", (unsigned long long)count_used(),
                     (unsigned long long)used);
            return false;
        }
        tool_pause_us(1000);
    }
    return true;
}

static bool keeper_has(int fds)
{
    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    while (tool_count_fds(keeper, NULL) > fds) {
        if (tool_now_ms() > until_ms) {
            complain("the keeper has %d descriptors, and had %d", tool_count_fds(keeper, NULL),
                     fds);
            return false;
        }
        tool_pause_us(1000);
    }
    return true;
}

struct wish {
    int every, again; /* 0 for no second kill */
};

/* Kills the third one too, each time one step further on, as far as its steps go. Returns as
 * try_kills. */
static int try_third(const struct deed *deed, const struct learnt *learnt, int first, int second)
{
    static int third;
    int got = try_kills(deed, learnt, first, second, third);

    third = got == (int)KILL_MOST ? third + 1 : 0;
    return got;
}

/* Kills the next worker too, and the one after it. Returns as try_kills. */
static int try_again(const struct deed *deed, const struct learnt *learnt, const struct wish *wish,
                     int first)
{
    int got;

    for (int second = first % wish->again;; second += wish->again) {
        got = try_kills(deed, learnt, first, second, -1);
        if (got > 1)
            got = try_third(deed, learnt, first, second);
        if (got <= 1)
            return got;
    }
}

/* `from`: the first step, so that the deeds do not all begin at the same one. */
static bool try_deed(const struct deed *deed, const struct wish *wish, int from)
{
    static struct learnt learnt;
    unsigned before = trials;
    uint64_t start_ms = tool_now_ms();
    int got = 1;

    learn(deed, &learnt);
    if (!begin_in_new_store())
        return false;
    int fds = count_keepers();
    uint64_t used = count_used();
    struct part part = part_of_steps();
    for (int first = part_first(part, from, wish->every); got > 0;
         first = part_next(part, first, wish->every)) {
        got = try_kills(deed, &learnt, first, -1, -1);
        if (got > 0 && wish->again)
            got = try_again(deed, &learnt, wish, first);
    }
    if (got < 0 || !begin_in_new_store() || !keeper_has(fds) || !has_come_back_to(used))
        return false;
    printf("%s/%s: %u kills, %llu ms\n", deed->group, deed->name, trials - before,
           (unsigned long long)(tool_now_ms() - start_ms));
    fflush(stdout);
    return true;
}

/* ---- beginning --------------------------------------------------------------------------- */

/* GROUP or GROUP/NAME; none means all. */
static bool is_wanted(const struct deed *deed, int count, char **wanted)
{
    struct tool_path whole = tool_path("%s/%s", deed->group, deed->name);

    for (int i = 0; i < count; i++)
        if (strcmp(deed->group, wanted[i]) == 0 || strcmp(whole.text, wanted[i]) == 0)
            return true;
    return count == 0;
}

/* Returns false if the mount is useless. */
static bool try_deeds(const struct wish *wish, int count, char **wanted)
{
    bool goes_on = true;

    for (size_t i = 0; goes_on && i < sizeof DEEDS / sizeof DEEDS[0]; i++)
        if (is_wanted(&DEEDS[i], count, wanted))
            goes_on = try_deed(&DEEDS[i], wish, (int)i);
    return goes_on;
}

static bool try_copies(const struct wish *wish, int count, char **wanted)
{
    bool goes_on = true;

    for (size_t i = 0; goes_on && i < sizeof COPIES / sizeof COPIES[0]; i++) {
        static char words[TOOL_TEXT_BYTES];
        const struct copy *copy = &COPIES[i];

        snprintf(words, sizeof words, COPIES_BEGIN "%s", copy->before ? copy->before : "");
        begin_copy = words;
        if (is_wanted(&copy->deed, count, wanted))
            goes_on = try_deed(&copy->deed, wish, (int)i);
    }
    return goes_on;
}

static int run(enum kill_role whom, int argc, char **argv)
{
    struct wish wish = {.every = atoi(argv[4]), .again = atoi(argv[5])};
    bool goes_on;

    map_kill_control(argv[0]);
    kills->whom = whom;
    script_gmsctl = argv[1];
    script_mount = argv[2];
    keeper = (pid_t)atoi(argv[3]);
    if (wish.every < 1)
        tool_die("EVERY is at least 1");
    events_fd = open(tool_path("%s/events", script_mount).text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (events_fd < 0)
        tool_die("events: %s", strerror(errno));
    goes_on = whom == KILL_COPIER ? try_copies(&wish, argc - 6, argv + 6)
                                  : try_deeds(&wish, argc - 6, argv + 6);
    printf("%u trials, %u wrong\n", trials, failures);
    return failures || !goes_on || (trials == 0 && part_of_steps().count == 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "new") == 0) {
        make_kill_control(argv[2]);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "arm") == 0) {
        map_kill_control(argv[2]);
        kills->whom = KILL_WORKER;
        arm_kills((const int[KILL_MOST]){atoi(argv[3]), -1, -1});
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "fired") == 0) {
        map_kill_control(argv[2]);
        kills->armed = false;
        return kills->kills == 0;
    }
    if (argc >= 8 && strcmp(argv[1], "run") == 0)
        return run(KILL_WORKER, argc - 2, argv + 2);
    if (argc >= 8 && strcmp(argv[1], "copiers") == 0)
        return run(KILL_COPIER, argc - 2, argv + 2);
    fprintf(stderr,
            "usage: kills new CONTROL | arm CONTROL STEP | fired CONTROL | run|copiers CONTROL "
            "GMSCTL MOUNT KEEPER EVERY AGAIN "
            "[GROUP[/NAME]...]\n");
    return 2;
}
