/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharer - a client of libgmsfs with many small allocations, for the tests
 *
 *   sharer load STORE COUNT BYTES    writer: allocates, fills, commits
 *   sharer kept STORE COUNT KEEPER   writer: after each allocation the process KEEPER must hold two
 *                                    memfds for each allocation; aborts
 *   sharer attach STORE [COUNT]      reader: maps all, compares every allocation's bytes
 *   sharer cycle STORE N             N times attach and close: nothing may be left of it
 *   sharer sleep STORE               attaches all, goes to sleep, prints "asleep"; wakes up on a
 *                                    line from standard input and compares the bytes
 *   sharer hold STORE ro|rw          connects, prints the session's token; ends with its standard
 *                                    input; a line "commit" commits, "add" allocates
 *   sharer stay STORE                attaches all, closes every file, prints "mapped", and stays
 *                                    until it is killed
 *   sharer exec STORE FILE r|rw      opens FILE, close-on-exec as the handle is, and executes echo
 *   sharer join STORE TOKEN [BYTES]  joins: a reader attaches, a writer adds an allocation
 *
 * Each allocation is filled from its slot, so a reader knows its bytes.
 */
#include "gmsfs.h"
#include "tool.h"

#include <sys/mman.h>

#define LIMIT_MS     30000u
#define WARM_CYCLES  8
#define PATTERN_STEP 4096u /* bytes between two that are written and compared */

static gmsfs_t *handle;

static void check(int result, const char *what)
{
    if (result < 0)
        tool_die("%s: %s", what, strerror(-result));
}

static void open_store(const char *store)
{
    check(gmsfs_open(store, &handle), "gmsfs_open");
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);

    if (*end || end == text)
        tool_die("not a number: %s", text);
    return value;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static uint64_t pattern(uint64_t slot, uint64_t offset)
{
    uint64_t state = (slot << 32 ^ offset) * 0x9e3779b97f4a7c15u | 1;

    return tool_random(&state);
}

static void fill(void *ptr, uint64_t slot, uint64_t size_bytes)
{
    for (uint64_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += PATTERN_STEP)
        *(uint64_t *)((char *)ptr + at) = pattern(slot, at);
}

static void compare(const void *ptr, uint64_t slot, uint64_t size_bytes)
{
    for (uint64_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += PATTERN_STEP)
        if (*(const uint64_t *)((const char *)ptr + at) != pattern(slot, at))
            tool_die("slot %llu differs at byte %llu", (unsigned long long)slot,
                     (unsigned long long)at);
}

static void add(uint64_t size_bytes)
{
    uint64_t slot;
    void *ptr;

    check(gmsfs_allocate_handle(handle, size_bytes, "shared", NULL, &slot), "gmsfs_allocate");
    check(gmsfs_attach_mapping(handle, slot, GMSFS_ACCESS_WRITE, &ptr), "gmsfs_attach_mapping");
    fill(ptr, slot, size_bytes);
    check(gmsfs_destroy_mapping(handle, ptr), "gmsfs_destroy_mapping");
}

/* Maps everything and compares it; the mappings stay. */
static size_t attach(void)
{
    struct gmsfs_mapping *list;
    size_t count;

    check(gmsfs_attach_all(handle, GMSFS_ACCESS_READ, &list, &count), "gmsfs_attach_all");
    for (size_t i = 0; i < count; i++)
        compare(list[i].ptr, list[i].slot, list[i].size_bytes);
    free(list);
    return count;
}

/* ---- memory of this process ----------------------------------------------------------------- */

static int count_maps(const char *target)
{
    char line[PATH_MAX + 256];
    FILE *maps = fopen("/proc/self/maps", "re");
    int count = 0;

    if (!maps)
        tool_die("/proc/self/maps: %s", strerror(errno));
    while (fgets(line, sizeof(line), maps))
        if (!target || strstr(line, target))
            count++;
    fclose(maps);
    return count;
}

static void expect_memory(int mappings, int descriptors)
{
    int mapped = count_maps("memfd"), held = tool_count_fds(getpid(), "memfd");

    if (mapped != mappings || held != descriptors)
        tool_die("%d mappings and %d descriptors of memory, expected %d and %d", mapped, held,
                 mappings, descriptors);
}

/* ---- commands ------------------------------------------------------------------------------ */

static void do_load(int argc, char **argv)
{
    uint64_t count, size_bytes;

    if (argc != 2)
        tool_die("load STORE COUNT BYTES");
    count = number(argv[0]);
    size_bytes = number(argv[1]);
    check(gmsfs_connect(handle, GMSFS_MODE_RW, LIMIT_MS), "gmsfs_connect");
    for (uint64_t i = 0; i < count; i++)
        add(size_bytes);
    check(gmsfs_commit(handle, 0, NULL), "gmsfs_commit");
}

static void do_kept(int argc, char **argv)
{
    pid_t keeper;
    int base;

    if (argc != 2)
        tool_die("kept STORE COUNT KEEPER");
    keeper = (pid_t)number(argv[1]);
    check(gmsfs_connect(handle, GMSFS_MODE_RW, LIMIT_MS), "gmsfs_connect");
    base = tool_count_fds(keeper, "memfd:");
    for (int i = 1; i <= (int)number(argv[0]); i++) {
        int held;

        check(gmsfs_allocate_handle(handle, PATTERN_STEP, "kept", NULL, NULL), "gmsfs_allocate");
        held = tool_count_fds(keeper, "memfd:") - base;
        if (held != 2 * i)
            tool_die("the keeper holds %d of %d descriptors", held, 2 * i);
    }
}

static void do_attach(int argc, char **argv)
{
    size_t count;

    check(gmsfs_connect(handle, GMSFS_MODE_RO, LIMIT_MS), "gmsfs_connect");
    count = attach();
    printf("%zu\n", count);
    if (argc > 0 && count != number(argv[0]))
        tool_die("expected %s allocations", argv[0]);
    expect_memory(count_maps("memfd"), 0);
}

static void do_cycle(int argc, char **argv)
{
    struct tool_path store = tool_path("%s", argv[-1]);
    uint64_t cycles = argc == 1 ? number(argv[0]) : 0;
    int fds = 0, maps = 0;

    for (uint64_t i = 0; i < cycles; i++) {
        check(gmsfs_connect(handle, GMSFS_MODE_RO, LIMIT_MS), "gmsfs_connect");
        attach();
        gmsfs_close(handle);
        expect_memory(0, 0);
        if (i == WARM_CYCLES) {
            fds = tool_count_fds(getpid(), NULL);
            maps = count_maps(NULL);
        } else if (i > WARM_CYCLES && tool_count_fds(getpid(), NULL) != fds) {
            tool_die("%d descriptors after %llu cycles, %d before", tool_count_fds(getpid(), NULL),
                     (unsigned long long)i, fds);
        }
        open_store(store.text);
    }
    if (count_maps(NULL) > maps + 2)
        tool_die("%d mappings at the end, %d before", count_maps(NULL), maps);
}

static void do_sleep(int argc, char **argv)
{
    struct gmsfs_mapping *list;
    char line[64];
    size_t count;

    (void)argc;
    (void)argv;
    check(gmsfs_connect(handle, GMSFS_MODE_RO, LIMIT_MS), "gmsfs_connect");
    attach();
    check(gmsfs_list_mappings(handle, &list, &count), "gmsfs_list_mappings");
    check(gmsfs_unmap_all_vas(handle, 0), "gmsfs_unmap_all_vas");
    expect_memory(0, 0);
    puts("asleep");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return;
    check(gmsfs_remap_all_vas(handle, LIMIT_MS, 1), "gmsfs_remap_all_vas");
    for (size_t i = 0; i < count; i++)
        compare(list[i].ptr, list[i].slot, list[i].size_bytes);
    free(list);
    puts("awake");
}

static void do_hold(int argc, char **argv)
{
    bool rw = argc == 1 && strcmp(argv[0], "rw") == 0;
    char token_text[GMSFS_TOKEN_TEXT_BYTES], line[64];
    uint8_t token[GMSFS_TOKEN_BYTES];

    check(gmsfs_connect(handle, rw ? GMSFS_MODE_RW : GMSFS_MODE_RO, LIMIT_MS), "gmsfs_connect");
    check(gmsfs_session_token(handle, token), "gmsfs_session_token");
    gmsfs_token_format(token, token_text);
    puts(token_text);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "commit\n") == 0)
            check(gmsfs_commit(handle, 0, NULL), "gmsfs_commit");
        else if (strcmp(line, "add\n") == 0)
            add(PATTERN_STEP);
        puts("done");
        fflush(stdout);
    }
}

/* The library would unmap; a process that only closes files keeps its mappings. */
static void do_stay(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    check(gmsfs_connect(handle, GMSFS_MODE_RO, LIMIT_MS), "gmsfs_connect");
    attach();
    close_range(STDERR_FILENO + 1, ~0u, 0);
    puts("mapped");
    fflush(stdout);
    for (;;)
        pause();
}

static void do_exec(int argc, char **argv)
{
    if (argc != 2)
        tool_die("exec STORE FILE r|rw");
    if (open(argv[0], O_CLOEXEC | (strcmp(argv[1], "rw") == 0 ? O_RDWR : O_RDONLY)) < 0)
        tool_die("%s: %s", argv[0], strerror(errno));
    execl("/bin/echo", "echo", "executed", (char *)NULL);
    tool_die("exec: %s", strerror(errno));
}

static void do_join(int argc, char **argv)
{
    uint8_t token[GMSFS_TOKEN_BYTES];

    if (argc < 1)
        tool_die("join STORE TOKEN [BYTES]");
    check(gmsfs_token_parse(argv[0], token), "gmsfs_token_parse");
    check(gmsfs_join(handle, token), "gmsfs_join");
    if (gmsfs_granted_lock(handle) == GMSFS_MODE_RW)
        add(argc > 1 ? number(argv[1]) : PATTERN_STEP);
    else
        printf("%zu\n", attach());
}

static const struct {
    const char *name;
    void (*act)(int argc, char **argv); /* the arguments after the store */
} commands[] = {
    {"exec", do_exec},     {"load", do_load},   {"kept", do_kept},
    {"attach", do_attach}, {"cycle", do_cycle}, {"sleep", do_sleep},
    {"hold", do_hold},     {"join", do_join},   {"stay", do_stay},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        tool_die("usage: sharer COMMAND STORE ...");
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            open_store(argv[2]);
            commands[i].act(argc - 3, argv + 3);
            gmsfs_close(handle);
            return 0;
        }
    }
    tool_die("no command %s", argv[1]);
}
