/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults - lets each call site of a running daemon fail once, and checks the results
 *
 *   faults new CONTROL                  makes the file that daemons are armed by
 *   faults run CONTROL GMSCTL MOUNT KEEPER WORKER keeper|worker [GROUP...]
 *
 * `run` does the deeds of deeds.h: once to learn the call sites, then once for each of them with a
 * fault there. A deed that met a fault either succeeds with all its results, or fails with an errno
 * that fits. Afterwards a whole cycle of work succeeds, and the daemon has as many descriptors,
 * blocks of the heap, bytes of the device, sessions, waiters and open files as before.
 *
 * Prints a line for each failure, with the call site, and a last line of numbers; exit status 1 if
 * there are failures. Sites are printed as addresses: addr2line -fpe build/test/gmsfs decodes them.
 */
#include "scripts.h"

#define SETTLE_MS   3000u
#define MAX_RESULTS 64

static struct {
    pid_t keeper, worker;
    uint32_t process;
} t;

/* Lists the errno names in its lines, in order. */
static size_t list_errors(const struct ran *ran, int errors[MAX_RESULTS])
{
    size_t count = 0;

    for (const char *line = ran->text; *line && count < MAX_RESULTS;) {
        size_t length = strcspn(line, "\n");
        for (int error = 1; error < 134; error++) {
            const char *name = strerrorname_np(error);
            if (name && strlen(name) == length && memcmp(name, line, length) == 0)
                errors[count++] = error;
        }
        line += length + (line[length] == '\n');
    }
    return count;
}

/* ---- the daemon's resources ----------------------------------------------------------------- */

struct holding {
    int keeper_fds, worker_fds;
    int64_t keeper_blocks, worker_blocks;
    uint64_t used_bytes, host_bytes, open_files, jobs, waiting, sessions;
};

static void look(struct holding *holding)
{
    char text[TOOL_TEXT_BYTES];
    struct tool_path metrics = tool_path("%s/metrics", script_mount);
    struct tool_path sessions = tool_path("%s/weights/sessions", script_mount);

    memset(holding, 0, sizeof *holding);
    if (tool_read_text(metrics.text, text, sizeof text) < 0)
        text[0] = '\0';
    holding->used_bytes = find_number(text, "\ngmsfs_device_used_bytes ");
    holding->host_bytes = find_number(text, "\ngmsfs_tier_used_bytes{tier=\"host\"} ");
    holding->open_files = find_number(text, "\ngmsfs_open_files ");
    holding->jobs = find_number(text, "\ngmsfs_jobs_in_flight ");
    holding->waiting = find_number(text, "\ngmsfs_allocs_waiting ");
    if (tool_read_text(sessions.text, text, sizeof text) < 0)
        strcpy(text, "?");
    for (const char *at = text; *at; at++)
        holding->sessions += *at == '\n';
    holding->keeper_fds = tool_count_fds(t.keeper, NULL);
    holding->worker_fds = tool_count_fds(t.worker, NULL);
    holding->keeper_blocks = control->living[FAULT_KEEPER];
    holding->worker_blocks = control->living[FAULT_WORKER];
}

static bool is_same(const struct holding *a, const struct holding *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void describe(const struct holding *holding, char *text, size_t size)
{
    snprintf(text, size,
             "keeper %d fds %lld blocks, worker %d fds %lld blocks, %llu bytes, %llu on the host, "
             "%llu files, "
             "%llu jobs, %llu waiting, %llu lines of sessions",
             holding->keeper_fds, (long long)holding->keeper_blocks, holding->worker_fds,
             (long long)holding->worker_blocks, (unsigned long long)holding->used_bytes,
             (unsigned long long)holding->host_bytes, (unsigned long long)holding->open_files,
             (unsigned long long)holding->jobs, (unsigned long long)holding->waiting,
             (unsigned long long)holding->sessions);
}

/* Waits for the same numbers: the kernel releases files, and the daemon frees memory, after close
 * returned. */
static bool settle(const struct holding *wanted, struct holding *now)
{
    uint64_t until_ms = tool_now_ms() + SETTLE_MS * tool_slow();

    for (unsigned pause_us = 100;; pause_us = pause_us < 20000 ? pause_us * 2 : pause_us) {
        look(now);
        if (is_same(wanted, now))
            return true;
        if (tool_now_ms() > until_ms)
            return false;
        tool_pause_us(pause_us);
    }
}

/* Waits until the numbers no longer change. */
static void settle_anywhere(struct holding *now)
{
    struct holding before;
    unsigned same = 0;

    look(&before);
    for (unsigned i = 0; i < 300 && same < 5; i++) {
        tool_pause_us(2000);
        look(now);
        same = is_same(&before, now) && now->jobs == 0 && now->open_files <= 1 ? same + 1 : 0;
        before = *now;
    }
}

static bool daemon_lives(void)
{
    char text[4096];
    struct tool_path status = tool_path("/proc/%d/status", (int)t.worker);

    return tool_read_text(status.text, text, sizeof text) > 0 && !strstr(text, "State:\tZ");
}

/* ---- deeds ------------------------------------------------------------------------------- */

static void do_deed(const struct deed *deed, const struct fault_site *site, struct ran *ran)
{
    struct deed_run run = prepare_deed(deed);

    if (site)
        arm(site, t.process);
    finish_deed(&run, ran);
    if (site) { /* files and memory are freed later */
        struct holding after;
        for (unsigned i = 0; i < 50 && !control->fired; i++) {
            look(&after);
            if (after.open_files <= 1 && after.jobs == 0 && after.sessions == 0)
                break;
            tool_pause_us(1000);
        }
    }
    control->armed = false;
}

struct learnt {
    struct holding holding; /* after the deed and a cycle */
    int errors[MAX_RESULTS];
    size_t error_count;
    int status;
    char after[TOOL_TEXT_BYTES];
};

static void print_leaks(const int32_t *before)
{
    for (size_t i = 0; i < FAULT_MAX_SITES; i++) {
        const struct fault_site *site = &control->sites[i];
        for (int by = FAULT_KEEPER; by <= FAULT_WORKER; by += FAULT_WORKER - FAULT_KEEPER) {
            int32_t now = site->living[by];
            if (now == before[i * 2 + (by == FAULT_WORKER)])
                continue;
            printf("    %+d blocks of %s\n", now - before[i * 2 + (by == FAULT_WORKER)],
                   fault_point_name((enum fault_point)site->point));
            print_site(site);
        }
    }
}

static void count_living(int32_t *living)
{
    for (size_t i = 0; i < FAULT_MAX_SITES; i++) {
        living[i * 2] = control->sites[i].living[FAULT_KEEPER];
        living[i * 2 + 1] = control->sites[i].living[FAULT_WORKER];
    }
}

/* Returns the first errno that the deed does not have without a fault; 0 if there is none. */
static int find_new_error(const struct learnt *learnt, const struct ran *ran)
{
    int errors[MAX_RESULTS];
    size_t count = list_errors(ran, errors);

    for (size_t i = 0; i < count; i++)
        if (i >= learnt->error_count || errors[i] != learnt->errors[i])
            return errors[i];
    return 0;
}

/* A refusal on `.fds` is a closed connection: the library connects again. */
static bool may_say(const struct deed *deed, int injected, int error)
{
    if (error == injected || error == ENOMEM)
        return true;
    if ((error == ENOSPC || error == ENFILE) && (injected == EMFILE || injected == ENFILE))
        return true; /* the daemon's descriptors are a bound like others, not the client's */
    if (error == ESTALE && strstr(deed->words, "acquire-export"))
        return true; /* granted, without a ticket: EXPORT gives one */
    if (error == ENODATA && strstr(deed->words, "-host"))
        return true; /* the move that should have made it failed */
    return (error == EPIPE || error == ECONNRESET) && strstr(deed->words, "connect");
}

static void judge(const struct deed *deed, const struct fault_site *site,
                  const struct learnt *learnt, const struct ran *ran)
{
    const char *point = fault_point_name((enum fault_point)site->point);
    int injected = fault_point_errno((enum fault_point)site->point);
    int error = find_new_error(learnt, ran);

    if (ran->status == -1) {
        complain("%s/%s: %s %s: hangs", deed->group, deed->name, point, strerrorname_np(injected));
    } else if (error == 0 && ran->status != learnt->status) {
        complain("%s/%s: %s %s: status %d\n%s", deed->group, deed->name, point,
                 strerrorname_np(injected), ran->status, ran->text);
    } else if (error != 0 && !may_say(deed, injected, error)) {
        complain("%s/%s: %s %s: says %s", deed->group, deed->name, point, strerrorname_np(injected),
                 strerrorname_np(error));
    } else if (error != 0) {
        told++;
        return;
    } else if (deed->after) {
        struct ran after;
        run_script(deed->after, &after);
        if (strcmp(after.text, learnt->after) == 0)
            return;
        complain("%s/%s: %s %s: it succeeded, but is not done:\n%s", deed->group, deed->name, point,
                 strerrorname_np(injected), after.text);
    } else {
        return;
    }
    print_site(site);
}

/* ---- sites that have failed ----------------------------------------------------------------- */

/* Sites that have failed, in this run or an earlier one with the same file FAULTS_TRIED: their ids
 * are the same in every run of a program. A call site that failed in one deed need not fail in all
 * others, unless FAULTS_EACH is set; with FAULTS_EVERY=N only every N-th of a deed's new sites
 * fails. */
static uint64_t tried[FAULT_MAX_SITES];
static size_t tried_count;

static void read_tried(void)
{
    const char *path = getenv("FAULTS_TRIED");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    ssize_t got = read(fd, tried, sizeof tried);
    tried_count = got > 0 ? (size_t)got / sizeof tried[0] : 0;
    close(fd);
}

static void write_tried(void)
{
    const char *path = getenv("FAULTS_TRIED");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    size_t bytes = tried_count * sizeof tried[0];

    if (path && (fd < 0 || write(fd, tried, bytes) != (ssize_t)bytes || close(fd) != 0))
        tool_die("%s: %s", path, strerror(errno));
}

static bool was_tried(const struct fault_site *site)
{
    for (size_t i = 0; i < tried_count; i++)
        if (tried[i] == site->id)
            return true;
    return false;
}

static void note_tried(const struct fault_site *site)
{
    if (tried_count < FAULT_MAX_SITES && !was_tried(site))
        tried[tried_count++] = site->id;
}

/* Returns false if the daemon is not worth further tries. */
static bool try_site(const struct deed *deed, const struct fault_site *site, struct learnt *learnt)
{
    static int32_t living[FAULT_MAX_SITES * 2];
    struct ran ran;
    struct holding now;
    char was[512], is[512];

    for (unsigned attempt = 0; attempt < 2; attempt++) {
        count_living(living);
        do_deed(deed, site, &ran);
        if (!daemon_lives()) {
            complain("%s/%s: the daemon died", deed->group, deed->name);
            print_site(site);
            return false;
        }
        if (attempt == 0 && control->fired) {
            faults++;
            note_tried(site);
            judge(deed, site, learnt, &ran);
        }
        if (!begin_anew()) {
            printf("  after %s/%s with %s\n", deed->group, deed->name,
                   fault_point_name((enum fault_point)site->point));
            print_site(site);
            return false;
        }
        if (settle(&learnt->holding, &now))
            return true;
        describe(&learnt->holding, was, sizeof was);
        /* Something may be kept for good once (a cache, a table): a leak grows each time. */
        settle_anywhere(&learnt->holding);
    }
    describe(&now, is, sizeof is);
    complain("%s/%s: %s leaks: was %s; is %s", deed->group, deed->name,
             fault_point_name((enum fault_point)site->point), was, is);
    print_site(site);
    print_leaks(living);
    return true;
}

static void wait_until_idle(void)
{
    struct holding now;

    for (unsigned i = 0; i < 2000; i++) {
        look(&now);
        if (now.open_files <= 1 && now.jobs == 0 && now.sessions == 0)
            return;
        tool_pause_us(500);
    }
}

/* Learns the call sites of the deed, its end and the resources afterwards without a fault. */
static void learn(const struct deed *deed, struct learnt *learnt, uint32_t *hits)
{
    struct ran ran, after = {0};

    for (unsigned round = 0; round < 3; round++) { /* tables grow, callers are remembered */
        for (size_t i = 0; i < FAULT_MAX_SITES; i++)
            hits[i] = control->sites[i].hits;
        do_deed(deed, NULL, &ran);
        wait_until_idle();
        for (size_t i = 0; i < FAULT_MAX_SITES; i++)
            hits[i] = control->sites[i].hits - hits[i];
        if (deed->after)
            run_script(deed->after, &after);
        if (!begin_anew())
            exit(1);
    }
    memset(learnt, 0, sizeof *learnt);
    learnt->status = ran.status;
    learnt->error_count = list_errors(&ran, learnt->errors);
    memcpy(learnt->after, after.text, sizeof after.text);
    if (getenv("FAULTS_SHOW"))
        printf("%s/%s: status %d\n%s%s", deed->group, deed->name, ran.status, ran.text, after.text);
    settle_anywhere(&learnt->holding);
}

/* The first of a deed's new sites is never left out. */
static bool is_left_out(unsigned *brought)
{
    const char *text = getenv("FAULTS_EVERY");
    int every = text && !getenv("FAULTS_EACH") ? atoi(text) : 1;

    return every > 1 && (*brought)++ % (unsigned)every != 0;
}

/* On a helper thread, which does not know its client. */
static bool is_helpers(const struct fault_site *site)
{
    return site->point >= FAULT_vmm_create && site->point <= FAULT_keep_add;
}

static bool try_deed(const struct deed *deed)
{
    static uint32_t hits[FAULT_MAX_SITES];
    static bool armed[FAULT_MAX_SITES]; /* even if it did not fail */
    static struct learnt learnt;
    unsigned before = faults, brought = 0;
    uint64_t start_ms = tool_now_ms();
    bool goes_on = true;

    learn(deed, &learnt, hits);
    for (size_t i = 0; i < FAULT_MAX_SITES && goes_on; i++) {
        const struct fault_site *site = &control->sites[i];
        if (hits[i] == 0 || !(site->processes & t.process) ||
            (!getenv("FAULTS_EACH") && !is_helpers(site) && (armed[i] || was_tried(site))))
            continue;
        armed[i] = true;
        if (is_left_out(&brought))
            note_tried(site);
        else
            goes_on = try_site(deed, site, &learnt);
    }
    printf("%s/%s: %u faults, %llu ms\n", deed->group, deed->name, faults - before,
           (unsigned long long)(tool_now_ms() - start_ms));
    fflush(stdout);
    return goes_on;
}

static bool is_wanted(const char *group, int count, char **groups)
{
    for (int i = 0; i < count; i++)
        if (strcmp(groups[i], group) == 0)
            return true;
    return count == 0;
}

static int run(int argc, char **argv)
{
    map_control(argv[0]);
    script_gmsctl = argv[1];
    script_mount = argv[2];
    t.keeper = (pid_t)atoi(argv[3]);
    t.worker = (pid_t)atoi(argv[4]);
    t.process = strcmp(argv[5], "keeper") == 0 ? FAULT_KEEPER : FAULT_WORKER;
    bool goes_on = begin_anew();
    read_tried();
    for (size_t i = 0; goes_on && i < sizeof DEEDS / sizeof DEEDS[0]; i++)
        if (is_wanted(DEEDS[i].group, argc - 6, argv + 6))
            goes_on = try_deed(&DEEDS[i]);
    write_tried();
    printf("%u faults, %u of them told, %u wrong\n", faults, told, failures);
    return failures || !goes_on || faults == 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "new") == 0) {
        make_control(argv[2]);
        return 0;
    }
    if (argc >= 8 && strcmp(argv[1], "run") == 0)
        return run(argc - 2, argv + 2);
    fprintf(stderr, "usage: faults new CONTROL | run CONTROL GMSCTL MOUNT KEEPER WORKER "
                    "keeper|worker [GROUP...]\n");
    return 2;
}
