/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_hand - operations of a program with a context on a store in GPU memory, for shell tests
 *
 *   gpu_hand open                            open the driver without a context, and stay; "opened"
 *   gpu_hand fill STORE COUNT BYTES SEED     allocate, write a pattern, commit; prints "filled"
 *   gpu_hand linger STORE COUNT BYTES SEED   the same, and stays, mapped and without a lock
 *   gpu_hand write STORE COUNT BYTES SEED    the same without the commit, and stays; "written"
 *   gpu_hand check STORE SEED                attach as a reader, read everything back, compare
 *   gpu_hand hold STORE SEED                 the same, and stays until it is killed
 *   gpu_hand sleep STORE SEED SEED CUE       check the first, unmap all, wait until the file CUE
 *                                            is there, wake at the same addresses, check the second
 *   gpu_hand trespass STORE                  a reader tries to write; prints the driver's error
 *   gpu_hand peek STORE COUNT BYTES          allocate, and read back: all zero?
 *   gpu_hand cycles STORE N BYTES SEED       N times: load, commit, attach, check, sleep, wake
 *
 * Device 0 of this process. The bytes of rank R under SEED are those of a generator seeded with
 * both, so one process can check the bytes of another.
 */
#include "cuda/driver.h"
#include "tool.h"

#include <gmsfs.h>

static const struct drv *drv;

static void driver_check(const char *call, enum drv_result result)
{
    if (result != DRV_SUCCESS)
        tool_die("%s: %s", call, drv_error_name(drv, result));
}

static void check(const char *what, int result)
{
    if (result < 0)
        tool_die("%s: %s", what, strerror(-result));
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0);

    if (end == text || *end)
        tool_die("'%s' is no number", text);
    return value;
}

static void open_driver(void)
{
    char error[256];

    if (drv_open(&drv, error, sizeof error))
        tool_die("%s", error);
}

static void enter_context(void)
{
    struct drv_context *context;
    drv_device device;

    driver_check("cuDeviceGet", drv->cuDeviceGet(&device, 0));
    driver_check("cuDevicePrimaryCtxRetain", drv->cuDevicePrimaryCtxRetain(&context, device));
    driver_check("cuCtxSetCurrent", drv->cuCtxSetCurrent(context));
}

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static void *buffer_of(uint64_t bytes)
{
    void *buffer = malloc(bytes);

    if (!buffer)
        tool_die("no memory for %llu bytes", (unsigned long long)bytes);
    return buffer;
}

static void make_pattern(uint64_t *words, uint64_t bytes, uint64_t seed, uint64_t rank)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + rank + 1;

    for (uint64_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = tool_random(&state);
}

static gmsfs_t *open_store(const char *path, enum gmsfs_mode mode)
{
    gmsfs_t *store;

    check(path, gmsfs_open(path, &store));
    if (mode != GMSFS_MODE_NONE)
        check("connect", gmsfs_connect(store, mode, 60000 * tool_slow()));
    return store;
}

/* ---- writing and comparing ------------------------------------------------------------------ */

static void write_all(gmsfs_t *store, uint64_t count, uint64_t bytes, uint64_t seed)
{
    uint64_t *words = buffer_of(bytes);
    uint64_t first;

    check("clear", gmsfs_clear_all_handles(store));
    check("allocate",
          gmsfs_allocate_handles(store, (uint32_t)count, bytes, "weights", NULL, 0, &first));
    for (uint64_t i = 0; i < count; i++) {
        void *at;
        check("attach", gmsfs_attach_mapping(store, first + i, GMSFS_ACCESS_WRITE, &at));
        make_pattern(words, bytes, seed, i);
        driver_check("cuMemcpyHtoD",
                     drv->cuMemcpyHtoD_v2((drv_pointer)(uintptr_t)at, words, bytes));
    }
    free(words);
}

static void load(gmsfs_t *store, uint64_t count, uint64_t bytes, uint64_t seed, unsigned flags)
{
    write_all(store, count, bytes, seed);
    check("commit", gmsfs_commit(store, flags, NULL));
}

static void compare(const struct gmsfs_mapping *maps, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = maps[i].size_bytes;
        void *want = buffer_of(bytes), *got = buffer_of(bytes);

        make_pattern(want, bytes, seed, i);
        driver_check("cuMemcpyDtoH",
                     drv->cuMemcpyDtoH_v2(got, (drv_pointer)(uintptr_t)maps[i].ptr, bytes));
        if (memcmp(want, got, bytes) != 0)
            tool_die("rank %zu differs from the bytes of seed %llu", i, (unsigned long long)seed);
        free(want);
        free(got);
    }
}

static struct gmsfs_mapping *attach(gmsfs_t *store, size_t *count)
{
    struct gmsfs_mapping *maps;

    check("attach_all", gmsfs_attach_all(store, GMSFS_ACCESS_READ, &maps, count));
    return maps;
}

/* ---- acts ----------------------------------------------------------------------------------- */

static void act_fill(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RW);

    load(store, number(arguments[1]), number(arguments[2]), number(arguments[3]), 0);
    gmsfs_close(store);
    say("filled");
}

static void act_linger(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RW);

    load(store, number(arguments[1]), number(arguments[2]), number(arguments[3]), 0);
    say("filled");
    for (;;)
        pause();
}

static void act_write(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RW);

    write_all(store, number(arguments[1]), number(arguments[2]), number(arguments[3]));
    say("written");
    for (;;)
        pause();
}

static void act_check(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RO);
    size_t count;
    struct gmsfs_mapping *maps = attach(store, &count);

    compare(maps, count, number(arguments[1]));
    free(maps);
    gmsfs_close(store);
    say("equal");
}

static void act_hold(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RO);
    size_t count;
    struct gmsfs_mapping *maps = attach(store, &count);

    compare(maps, count, number(arguments[1]));
    say("equal");
    for (;;)
        pause();
}

static void act_sleep(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RO);
    uint64_t generation, deadline_ms = tool_now_ms() + 60000 * tool_slow();
    struct gmsfs_mapping *maps, *woken;
    size_t count, again;
    int r;

    maps = attach(store, &count);
    compare(maps, count, number(arguments[1]));
    generation = gmsfs_generation(store);
    check("unmap_all", gmsfs_unmap_all_vas(store, 0));
    say("asleep");
    while (access(arguments[3], F_OK) < 0) {
        if (tool_now_ms() > deadline_ms)
            tool_die("no process made %s", arguments[3]);
        tool_pause_us(5000);
    }
    r = gmsfs_remap_all_vas(store, 60000 * tool_slow(), 0);
    if (r == -ESTALE) {
        say("stale");
        free(maps);
        gmsfs_close(store);
        return;
    }
    check("remap_all", r);
    check("list", gmsfs_list_mappings(store, &woken, &again));
    if (again != count)
        tool_die("%zu mappings before, %zu after", count, again);
    for (size_t i = 0; i < count; i++) {
        if (woken[i].ptr != maps[i].ptr)
            tool_die("rank %zu was at %p and is at %p", i, maps[i].ptr, woken[i].ptr);
    }
    compare(woken, count, number(arguments[2]));
    printf("awake, %llu commits later\n",
           (unsigned long long)(gmsfs_generation(store) - generation));
    free(maps);
    free(woken);
    gmsfs_close(store);
}

static void act_trespass(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RO);
    size_t count;
    struct gmsfs_mapping *maps = attach(store, &count);
    uint64_t word = 0;
    enum drv_result result =
        drv->cuMemcpyHtoD_v2((drv_pointer)(uintptr_t)maps[0].ptr, &word, sizeof word);

    if (result == DRV_SUCCESS)
        tool_die("a reader could write");
    printf("refused: %s\n", drv_error_name(drv, result));
    free(maps);
    gmsfs_close(store);
}

static void act_peek(char **arguments)
{
    gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RW);
    uint64_t count = number(arguments[1]), bytes = number(arguments[2]), first;
    unsigned char *got = buffer_of(bytes);

    check("allocate",
          gmsfs_allocate_handles(store, (uint32_t)count, bytes, "peek", NULL, 0, &first));
    for (uint64_t i = 0; i < count; i++) {
        void *at;
        check("attach", gmsfs_attach_mapping(store, first + i, GMSFS_ACCESS_WRITE, &at));
        driver_check("cuMemcpyDtoH", drv->cuMemcpyDtoH_v2(got, (drv_pointer)(uintptr_t)at, bytes));
        if (got[0] || memcmp(got, got + 1, bytes - 1) != 0)
            tool_die("allocation %llu is not zero", (unsigned long long)i);
    }
    free(got);
    gmsfs_close(store);
    say("zero");
}

static void act_cycles(char **arguments)
{
    uint64_t bytes = number(arguments[2]), seed = number(arguments[3]);

    for (uint64_t left = number(arguments[1]); left > 0; left--) {
        gmsfs_t *store = open_store(arguments[0], GMSFS_MODE_RW);
        struct gmsfs_mapping *maps;
        size_t count;

        load(store, 2, bytes, seed + left, GMSFS_COMMIT_STAY);
        gmsfs_close(store);
        store = open_store(arguments[0], GMSFS_MODE_RO);
        maps = attach(store, &count);
        check("unmap_all", gmsfs_unmap_all_vas(store, 0));
        check("remap_all", gmsfs_remap_all_vas(store, 60000 * tool_slow(), 1));
        compare(maps, count, seed + left);
        free(maps);
        gmsfs_close(store);
    }
    say("cycled");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int arguments;
        void (*act)(char **arguments);
    } acts[] = {
        {"fill", 4, act_fill},         {"linger", 4, act_linger}, {"write", 4, act_write},
        {"check", 2, act_check},       {"hold", 2, act_hold},     {"sleep", 4, act_sleep},
        {"trespass", 1, act_trespass}, {"peek", 3, act_peek},     {"cycles", 4, act_cycles},
    };

    open_driver();
    if (argc == 2 && strcmp(argv[1], "open") == 0) {
        say("opened");
        pause();
    }
    for (size_t i = 0; argc > 1 && i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(argv[1], acts[i].name) == 0 && argc - 2 == acts[i].arguments) {
            enter_context();
            acts[i].act(argv + 2);
            return 0;
        }
    }
    tool_die(
        "usage: gpu_hand open|fill|linger|write|check|hold|sleep|trespass|peek|cycles STORE ...");
}
