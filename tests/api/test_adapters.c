/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 100 adapters take turns on a device that has room for 32 of them, used 10,000 times (GMSFS_USES)
 * by Zipf's law: each use finds its adapter there if, and only if, a simulator of least recently
 * used says so.
 *
 * The mount is that of 57-api.bats: each adapter has a spare, and none has a minimum stay.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "api.h"

#define ADAPTERS      100u
#define ROOM          32u
#define USUAL_USES    10000u
#define ADAPTER_BYTES (2u << 20)

static gmsfs_t *adapters[ADAPTERS];
static uint64_t random_state = 5;

static const char *adapter_path(unsigned adapter)
{
    static char path[600];

    snprintf(path, sizeof path, "%s.lora%u", store_path(), adapter);
    return path;
}

static unsigned get_residency(unsigned adapter)
{
    struct gmsfs_info info = {0};

    require(gmsfs_get_info(adapters[adapter], &info) == 0);
    return info.residency;
}

static void order_to_host(unsigned adapter)
{
    char path[640];
    int fd;

    snprintf(path, sizeof path, "%s/residency", adapter_path(adapter));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    require(check_int(write(fd, "host", 4) < 0 ? -errno : 0, 0));
    close(fd);
    for (int tries = 0; tries < WAIT_MS && get_residency(adapter) != GMSFS_RESIDENCY_HOST; tries++)
        usleep(1000);
    require(get_residency(adapter) == GMSFS_RESIDENCY_HOST);
}

/* Publishes an adapter with its number as contents. */
static void publish_adapter(unsigned adapter)
{
    uint64_t slot = 0;
    void *ptr = NULL;
    gmsfs_t *writer = NULL;

    require(mkdir(adapter_path(adapter), 0755) == 0);
    require(gmsfs_open(adapter_path(adapter), &writer) == 0);
    require(gmsfs_set_slab_bytes(writer, 0) == 0);
    require(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS) == 0);
    require(gmsfs_create_mapping(writer, ADAPTER_BYTES, "lora", &slot, &ptr) == 0);
    memset(ptr, (int)adapter, ADAPTER_BYTES);
    require(gmsfs_commit(writer, 0, NULL) == 0);
    gmsfs_close(writer);
    require(gmsfs_open(adapter_path(adapter), &adapters[adapter]) == 0);
    order_to_host(adapter);
}

/* A use counts by its millisecond, so no two uses may share one. */
static void pass_millisecond(void)
{
    struct timespec next;

    clock_gettime(CLOCK_REALTIME, &next);
    next.tv_nsec += 1000000 - next.tv_nsec % 1000000;
    if (next.tv_nsec == 1000000000) {
        next.tv_nsec = 0;
        next.tv_sec++;
    }
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &next, NULL) == EINTR)
        ;
}

/* Returns whether it was on the device. */
static int use(unsigned adapter)
{
    int hit = (get_residency(adapter) & GMSFS_RESIDENCY_DEVICE) != 0;

    require(gmsfs_connect(adapters[adapter], GMSFS_MODE_RO, WAIT_MS) == 0);
    require(get_residency(adapter) & GMSFS_RESIDENCY_DEVICE);
    require(gmsfs_disconnect(adapters[adapter]) == 0);
    pass_millisecond();
    return hit;
}

/* ---- the simulator ------------------------------------------------------------------------- */

static unsigned draw_adapter(void)
{
    static double sums[ADAPTERS];
    unsigned adapter = 0;
    double at;

    for (unsigned i = 0; sums[ADAPTERS - 1] == 0 && i < ADAPTERS; i++)
        sums[i] = (i > 0 ? sums[i - 1] : 0) + 1.0 / (i + 1);
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    at = (double)(random_state % (1u << 30)) / (1u << 30) * sums[ADAPTERS - 1];
    while (sums[adapter] < at)
        adapter++;
    return adapter;
}

/* Keeps the list of adapters by their last use, the latest first. Returns whether this one was
 * among the first. */
static int simulate(unsigned adapter)
{
    static unsigned list[ROOM + 1], length;
    unsigned at = 0;
    int hit;

    while (at < length && list[at] != adapter)
        at++;
    hit = at < length;
    if (!hit && length < ROOM)
        length++;
    if (!hit)
        at = length - 1;
    memmove(list + 1, list, at * sizeof *list);
    list[0] = adapter;
    return hit;
}

TAP_TEST(uses_hit_when_a_simulator_of_lru_does_to_the_use)
{
    const char *wanted = getenv("GMSFS_USES");
    unsigned hits = 0, uses = wanted ? (unsigned)strtoul(wanted, NULL, 10) : USUAL_USES;

    for (unsigned i = 0; i < ADAPTERS; i++)
        publish_adapter(i);
    for (unsigned i = 0; i < uses; i++) {
        unsigned adapter = draw_adapter();
        int hit = simulate(adapter);

        if (!check_int(use(adapter), hit)) {
            fprintf(stderr, "# use %u, of adapter %u\n", i, adapter);
            break;
        }
        hits += (unsigned)hit;
    }
    check(hits > uses / 2 && hits < uses * 9 / 10);
    printf("# %u of %u uses hit\n", hits, uses);
    for (unsigned i = 0; i < ADAPTERS; i++)
        gmsfs_close(adapters[i]);
}
