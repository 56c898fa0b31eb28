/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_racer - two engines race for the same stores, and die
 *
 *   group_racer ROUNDS STORE...
 *       In each round two engines take all stores at once (RW_OR_RO). An engine is a process with a
 *       rank, another process, for each store, which fills it with the engine's own byte. Engines
 *       are killed while they load, between two of their commits, or at any moment; some rounds
 *       begin with a store that has been committed alone. Each engine that finishes must see one
 *       group and one engine's bytes in all stores, and all engines of a round the same. In the
 *       last round no engine dies, one loads and the other reads.
 *   group_racer connect RO|RW|RW_OR_RO TIMEOUT_MS STORE...
 *       Takes and releases the locks; prints the granted mode, or the name of the errno.
 */
#include "tool.h"

#include <gmsfs.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MAX_STORES 32
#define ENGINES    2
#define BYTES      ((size_t)256 << 10)
#define LIMIT_MS   60000u
#define LONGEST_US 60000u /* until an engine is killed */
#define FOREIGN    255    /* the byte of a store that was committed alone */
#define LAST_FILL  250

enum fate {
    LIVES,
    DIES_LOADING,
    DIES_COMMITTING,
    IS_KILLED,
    FATES
};

struct engine {
    pid_t pid; /* also of its process group */
    enum fate fate;
    int fill;
    size_t dies_after; /* commits, or ranks */
    /* Set by the process. */
    atomic_int seen_fill; /* at its end; 0 before that */
    atomic_int commits;
    uint8_t seen_group[16];
};

struct race {
    struct engine engines[ENGINES];
};

static struct race *race;
static const char *stores[MAX_STORES];
static size_t store_count;

static void must(int result, const char *what, const char *store)
{
    if (result != 0)
        tool_die("%s %s: %s", what, store ? store : "", strerror(-result));
}

static void open_all(gmsfs_t **handles)
{
    for (size_t i = 0; i < store_count; i++)
        must(gmsfs_open(stores[i], &handles[i]), "open", stores[i]);
}

static void close_all(gmsfs_t **handles)
{
    for (size_t i = 0; i < store_count; i++)
        gmsfs_close(handles[i]);
}

/* ---- an engine ----------------------------------------------------------------------------- */

static void fill_store(gmsfs_t *handle, int fill)
{
    void *ptr;

    must(gmsfs_clear_all_handles(handle), "clear", NULL);
    must(gmsfs_set_slab_bytes(handle, 0), "set_slab_bytes", NULL);
    must(gmsfs_create_mapping(handle, BYTES, "t", NULL, &ptr), "allocate", NULL);
    memset(ptr, fill, BYTES);
}

/* Returns the byte that fills all of a store's memory. */
static int read_store(gmsfs_t *handle, const char *store)
{
    struct gmsfs_mapping *list;
    const unsigned char *bytes;
    size_t count;
    int fill;

    must(gmsfs_attach_all(handle, GMSFS_ACCESS_READ, &list, &count), "attach", store);
    if (count != 1 || list[0].size_bytes != BYTES)
        tool_die("%s has %zu allocations", store, count);
    bytes = list[0].ptr;
    fill = bytes[0];
    for (size_t i = 1; i < BYTES; i++)
        if (bytes[i] != fill)
            tool_die("%s: byte %zu is %d, and the first %d", store, i, bytes[i], fill);
    must(gmsfs_destroy_mapping(handle, list[0].ptr), "unmap", store);
    free(list);
    return fill;
}

/* Checks, under RO locks on all, that they are one group with one engine's bytes. Returns the
 * byte. */
static int check_whole(gmsfs_t **handles, uint8_t group[16])
{
    struct gmsfs_info info;
    int fill = 0;

    for (size_t i = 0; i < store_count; i++) {
        int here = read_store(handles[i], stores[i]);
        must(gmsfs_get_info(handles[i], &info), "look at", stores[i]);
        if (i == 0) {
            fill = here;
            memcpy(group, info.group, 16);
        }
        if (here != fill || memcmp(group, info.group, 16) != 0)
            tool_die("a mix: %s has %d, %s has %d", stores[0], fill, stores[i], here);
    }
    return fill;
}

static void be_rank(const struct engine *self, size_t index, const uint8_t token[16])
{
    gmsfs_t *handle;

    must(gmsfs_open(stores[index], &handle), "open", stores[index]);
    must(gmsfs_join(handle, token), "join", stores[index]);
    if (self->fate == DIES_LOADING && index == self->dies_after)
        kill(0, SIGKILL);
    fill_store(handle, self->fill);
    gmsfs_close(handle);
    exit(0);
}

static void load(const struct engine *self, gmsfs_t **handles)
{
    int status;

    for (size_t i = 0; i < store_count; i++) {
        uint8_t token[GMSFS_TOKEN_BYTES];
        must(gmsfs_session_token(handles[i], token), "token of", stores[i]);
        pid_t pid = fork();
        if (pid < 0)
            tool_die("fork: %s", strerror(errno));
        if (pid == 0)
            be_rank(self, i, token);
    }
    for (size_t i = 0; i < store_count; i++)
        if (wait(&status) < 0 || status != 0)
            tool_die("a rank ended with status %#x", (unsigned)status);
}

/* Does the same as gmsfs_commit_group, but dies on the way. */
static void commit_and_die(const struct engine *self, gmsfs_t **handles)
{
    uint8_t id[16];

    memset(id, self->fill, sizeof(id));
    for (size_t i = 0; i < self->dies_after; i++)
        must(gmsfs_commit(handles[i], GMSFS_COMMIT_GROUP, id), "commit", stores[i]);
    kill(0, SIGKILL);
}

static void be_engine(struct engine *self)
{
    gmsfs_t *handles[MAX_STORES];

    open_all(handles);
    must(gmsfs_connect_group(handles, store_count, GMSFS_MODE_RW_OR_RO, LIMIT_MS * tool_slow()),
         "connect the group", NULL);
    for (size_t i = 1; i < store_count; i++)
        if (gmsfs_granted_lock(handles[i]) != gmsfs_granted_lock(handles[0]))
            tool_die("not the same grant");
    if (gmsfs_granted_lock(handles[0]) == GMSFS_MODE_RW) {
        load(self, handles);
        if (self->fate == DIES_COMMITTING)
            commit_and_die(self, handles);
        must(gmsfs_commit_group(handles, store_count, GMSFS_COMMIT_STAY, NULL), "commit", NULL);
        atomic_fetch_add(&self->commits, 1);
    }
    atomic_store(&self->seen_fill, check_whole(handles, self->seen_group));
    close_all(handles);
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void start(struct engine *engine, enum fate fate, int fill, size_t dies_after)
{
    pid_t pid;

    *engine = (struct engine){.fate = fate, .fill = fill, .dies_after = dies_after};
    pid = fork();
    if (pid < 0)
        tool_die("fork: %s", strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);
        alarm((unsigned)(LIMIT_MS / 1000 * tool_slow()));
        be_engine(engine);
        exit(0);
    }
    setpgid(pid, pid);
    engine->pid = pid;
}

/* Returns 1 if it was killed on purpose. None of its processes lives after this. */
static int end(struct engine *engine)
{
    int status;

    if (waitpid(engine->pid, &status, 0) != engine->pid)
        tool_die("waitpid: %s", strerror(errno));
    kill(-engine->pid, SIGKILL);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && engine->fate != LIVES)
        return 1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        tool_die("an engine ended with status %#x", (unsigned)status);
    return 0;
}

/* Commits one store alone, so that the others are not its group any more. */
static void spoil(const char *store)
{
    gmsfs_t *handle;

    must(gmsfs_open(store, &handle), "open", store);
    must(gmsfs_connect(handle, GMSFS_MODE_RW, LIMIT_MS * tool_slow()), "connect", store);
    fill_store(handle, FOREIGN);
    must(gmsfs_commit(handle, 0, NULL), "commit", store);
    gmsfs_close(handle);
}

/* Checks that the engines that finished have seen the same, and that it is still there. */
static void check_round(int killed)
{
    const struct engine *seen = NULL;
    gmsfs_t *handles[MAX_STORES];
    uint8_t group[16];

    for (size_t i = 0; i < ENGINES; i++) {
        const struct engine *engine = &race->engines[i];
        if (!atomic_load(&engine->seen_fill))
            continue;
        if (seen && (seen->seen_fill != engine->seen_fill ||
                     memcmp(seen->seen_group, engine->seen_group, 16) != 0))
            tool_die("one engine has seen %d, the other %d", seen->seen_fill, engine->seen_fill);
        seen = engine;
    }
    if (!seen && killed < ENGINES)
        tool_die("an engine has seen nothing");
    if (!seen)
        return;
    open_all(handles);
    must(gmsfs_connect_group(handles, store_count, GMSFS_MODE_RO, LIMIT_MS * tool_slow()),
         "read the group", NULL);
    if (check_whole(handles, group) != seen->seen_fill || memcmp(group, seen->seen_group, 16) != 0)
        tool_die("the stores have changed since an engine saw them");
    close_all(handles);
}

static int run_round(int round, bool is_last, uint64_t *random)
{
    int killed = 0;

    if (is_last || tool_below(random, 2) != 0)
        spoil(stores[tool_below(random, store_count)]);
    for (int i = 0; i < ENGINES; i++) {
        enum fate fate = is_last ? LIVES : (enum fate)tool_below(random, FATES);
        size_t after = fate == DIES_COMMITTING ? 1 + tool_below(random, store_count - 1)
                                               : tool_below(random, store_count);
        start(&race->engines[i], fate, 1 + (round * ENGINES + i) % LAST_FILL, after);
    }
    for (int i = 0; i < ENGINES; i++) {
        if (race->engines[i].fate != IS_KILLED)
            continue;
        tool_pause_us((unsigned)tool_below(random, LONGEST_US));
        kill(-race->engines[i].pid, SIGKILL);
    }
    for (int i = 0; i < ENGINES; i++)
        killed += end(&race->engines[i]);
    check_round(killed);
    return killed;
}

static void run_race(int rounds)
{
    const char *seed = getenv("GMSFS_TEST_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 0) | 1 : tool_now_ns() | 1;
    int killed = 0, commits = 0, last = 0;

    printf("seed %llu\n", (unsigned long long)random);
    fflush(stdout);
    race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (race == MAP_FAILED)
        tool_die("mmap: %s", strerror(errno));
    for (int round = 0; round < rounds; round++) {
        killed += run_round(round, round == rounds - 1, &random);
        last = 0;
        for (int i = 0; i < ENGINES; i++)
            last += atomic_load(&race->engines[i].commits);
        commits += last;
    }
    printf("%d rounds, %d commits, %d engines killed\n", rounds, commits, killed);
    if (last != 1)
        tool_die("%d engines loaded in the last round, expected 1", last);
}

/* ---- one connection ------------------------------------------------------------------------ */

static int run_connect(const char *wish, const char *timeout_ms)
{
    enum gmsfs_mode mode = strcmp(wish, "RO") == 0   ? GMSFS_MODE_RO
                           : strcmp(wish, "RW") == 0 ? GMSFS_MODE_RW
                                                     : GMSFS_MODE_RW_OR_RO;
    gmsfs_t *handles[MAX_STORES];
    int r;

    open_all(handles);
    r = gmsfs_connect_group(handles, store_count, mode, strtoull(timeout_ms, NULL, 10));
    if (r)
        puts(strerrorname_np(-r));
    else
        puts(gmsfs_granted_lock(handles[0]) == GMSFS_MODE_RW ? "RW" : "RO");
    close_all(handles);
    return 0;
}

int main(int argc, char **argv)
{
    bool is_connect = argc > 4 && strcmp(argv[1], "connect") == 0;
    int first = is_connect ? 4 : 2;

    if (argc <= first || argc - first > MAX_STORES || (!is_connect && argc - first < 2))
        tool_die("usage: group_racer ROUNDS STORE... | connect MODE TIMEOUT_MS STORE...");
    for (int i = first; i < argc; i++)
        stores[store_count++] = argv[i];
    if (is_connect)
        return run_connect(argv[2], argv[3]);
    run_race(atoi(argv[1]));
    return 0;
}
