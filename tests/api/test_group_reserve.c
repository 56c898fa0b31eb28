/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores as one: memory that is reserved together with their locks. */
#include "group_fixture.h"

/* ---- memory ------------------------------------------------------------------------------- */

#define MIB  (UINT64_C(1) << 20)
#define MOST (40 * MIB) /* of a device with 64 MiB: enough for one of them */

/* Two groups that share devices but no store. */
struct twins {
    size_t stores[2][MAX_STORES];
    size_t count;
};

static struct twins find_twins(void)
{
    struct stat status[MAX_STORES];
    struct twins twins = {0};

    if (!store_count)
        find_stores();
    for (size_t i = 0; i < store_count; i++)
        require(stat(stores[i].path, &status[i]) == 0);
    for (size_t i = 0; i < store_count; i++)
        for (size_t j = i + 1; j < store_count; j++)
            if (status[i].st_dev == status[j].st_dev) {
                bool swap = twins.count % 2;
                twins.stores[swap][twins.count] = i;
                twins.stores[!swap][twins.count++] = j;
            }
    require(twins.count == 2);
    return twins;
}

/* Some stores of an engine, with a reservation for each. */
struct loader {
    gmsfs_t *handles[MAX_STORES];
    uint64_t bytes[MAX_STORES];
    size_t count;
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    pthread_t thread;
    int result;
};

static void loader_open(struct loader *loader, const size_t *indices, size_t count, uint64_t bytes)
{
    *loader = (struct loader){.count = count, .mode = GMSFS_MODE_RW, .timeout_ms = 4 * WAIT_MS};
    for (size_t i = 0; i < count; i++) {
        require(gmsfs_open(stores[indices[i]].path, &loader->handles[i]) == 0);
        loader->bytes[i] = bytes;
    }
}

static int loader_connect(struct loader *loader, uint64_t timeout_ms)
{
    return gmsfs_connect_group_reserve(loader->handles, loader->count, loader->mode, timeout_ms,
                                       loader->bytes);
}

static void loader_close(struct loader *loader)
{
    for (size_t i = 0; i < loader->count; i++)
        gmsfs_close(loader->handles[i]);
}

static void *loader_run(void *argument)
{
    struct loader *loader = argument;

    loader->result = loader_connect(loader, loader->timeout_ms);
    return NULL;
}

static void loader_start(struct loader *loader)
{
    require(pthread_create(&loader->thread, NULL, loader_run, loader) == 0);
}

static int loader_end(struct loader *loader)
{
    pthread_join(loader->thread, NULL);
    return loader->result;
}

/* By device: the order in which memory is tried. */
static size_t later_of(size_t a, size_t b)
{
    struct stat one, other;

    require(stat(stores[a].path, &one) == 0 && stat(stores[b].path, &other) == 0);
    if (one.st_dev != other.st_dev)
        return one.st_dev > other.st_dev ? a : b;
    return a > b ? a : b;
}

static uint64_t total_bytes(size_t index)
{
    struct statvfs device;

    require(statvfs(stores[index].path, &device) == 0);
    return device.f_blocks * device.f_frsize;
}

static uint64_t free_bytes(size_t index)
{
    struct statvfs device;

    require(statvfs(stores[index].path, &device) == 0);
    return device.f_bavail * device.f_frsize;
}

/* The daemon frees reservations when their sessions end, and freed memory soon after. */
static bool comes_free(size_t index, uint64_t bytes)
{
    for (int i = 0; i < 4 * WAIT_MS && free_bytes(index) != bytes; i++)
        usleep(1000);
    return check_int(free_bytes(index), bytes);
}

TAP_TEST(memory_is_set_aside_with_all_locks_and_drawn_from)
{
    struct twins twins = find_twins();
    struct loader loader;
    uint64_t before[MAX_STORES];
    uint64_t slot;

    empty_group();
    for (size_t i = 0; i < twins.count; i++)
        check(comes_free(twins.stores[0][i], 64 * MIB));
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    loader.bytes[1] = 0;
    for (size_t i = 0; i < twins.count; i++)
        before[i] = free_bytes(twins.stores[0][i]);
    check_int(loader_connect(&loader, WAIT_MS), 0);
    for (size_t i = 0; i < twins.count; i++) {
        check_int(gmsfs_granted_lock(loader.handles[i]), GMSFS_MODE_RW);
        check_int(free_bytes(twins.stores[0][i]), before[i] - loader.bytes[i]);
    }
    check_int(gmsfs_allocate_handle(loader.handles[0], 2 * MIB, "t", NULL, &slot), 0);
    check_int(free_bytes(twins.stores[0][0]), before[0] - MOST);
    loader_close(&loader);
    check(comes_free(twins.stores[0][0], before[0]));
}

TAP_TEST(memory_for_a_group_that_makes_no_sense_is_refused)
{
    struct twins twins = find_twins();
    size_t both[2] = {twins.stores[0][0], twins.stores[1][0]};
    struct loader loader;

    empty_group();
    loader_open(&loader, both, 2, MOST);
    /* Each fits on the device, both together never. */
    check_int(loader_connect(&loader, GMSFS_TIMEOUT_FOREVER), -ENOMEM);
    loader.bytes[1] = UINT64_MAX;
    check_int(loader_connect(&loader, GMSFS_TIMEOUT_FOREVER), -ENOMEM);
    loader.bytes[1] = 0;
    loader.mode = GMSFS_MODE_RO;
    check_int(loader_connect(&loader, 0), -EINVAL);
    loader_close(&loader);
    check(all_free());
}

TAP_TEST(what_a_group_has_committed_counts_as_there_for_who_replaces_it)
{
    struct twins twins = find_twins();
    struct loader loader;
    uint64_t slot;

    empty_group();
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    for (int turn = 0; turn < 2; turn++) {
        check_int(loader_connect(&loader, 2 * WAIT_MS), 0);
        for (size_t i = 0; i < twins.count; i++) {
            check_int(gmsfs_clear_all_handles(loader.handles[i]), 0);
            check_int(gmsfs_allocate_handle(loader.handles[i], MOST, "t", NULL, &slot), 0);
        }
        check_int(gmsfs_commit_group(loader.handles, loader.count, 0, NULL), 0);
    }
    loader_close(&loader);
    empty_group();
}

/* Free memory goes to the store that has nothing to replace, in either order of asking. */
TAP_TEST(two_stores_of_a_full_device_are_replaced_when_one_has_lost_its_own)
{
    struct twins twins = find_twins();
    size_t both[2] = {twins.stores[0][0], twins.stores[1][0]};
    struct loader loader;
    uint64_t slot;

    for (size_t i = 0; i < 2; i++) {
        empty_group();
        loader_open(&loader, &both[i], 1, 32 * MIB);
        check_int(loader_connect(&loader, 2 * WAIT_MS), 0);
        check_int(gmsfs_allocate_handle(loader.handles[0], 32 * MIB, "t", NULL, &slot), 0);
        check_int(gmsfs_commit_group(loader.handles, 1, 0, NULL), 0);
        loader_close(&loader);
        check(comes_free(both[0], total_bytes(both[0]) - 32 * MIB));
        loader_open(&loader, both, 2, 32 * MIB);
        check_int(loader_connect(&loader, 0), 0);
        for (size_t k = 0; k < 2; k++) {
            check_int(gmsfs_clear_all_handles(loader.handles[k]), 0);
            check_int(gmsfs_allocate_handle(loader.handles[k], 32 * MIB, "t", NULL, &slot), 0);
        }
        check_int(gmsfs_commit_group(loader.handles, 2, 0, NULL), 0);
        loader_close(&loader);
    }
    empty_group();
}

TAP_TEST(who_reads_a_whole_group_needs_no_memory)
{
    struct twins twins = find_twins();
    struct loader loader, other;
    uint64_t before;

    publish_group(1, NULL);
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    loader_open(&other, twins.stores[1], twins.count, MOST);
    check_int(loader_connect(&loader, WAIT_MS), 0);
    before = free_bytes(twins.stores[0][0]);
    other.mode = GMSFS_MODE_RW_OR_RO;
    check_int(loader_connect(&other, 0), 0);
    check_int(gmsfs_granted_lock(other.handles[0]), GMSFS_MODE_RO);
    /* The former bytes may still be on their way back. */
    check(free_bytes(twins.stores[0][0]) >= before);
    loader_close(&other);
    loader_close(&loader);
}

TAP_TEST(a_group_that_lacks_memory_holds_nothing_while_it_waits)
{
    struct twins twins = find_twins();
    struct loader first, second;

    empty_group();
    for (size_t at = 0; at < twins.count; at++) {
        uint64_t others = total_bytes(twins.stores[0][!at]);

        for (size_t i = 0; i < twins.count; i++)
            check(comes_free(twins.stores[0][i], total_bytes(twins.stores[0][i])));
        loader_open(&first, &twins.stores[0][at], 1, MOST);
        loader_open(&second, twins.stores[1], twins.count, MOST);
        check_int(loader_connect(&first, WAIT_MS), 0);
        check_int(loader_connect(&second, 0), -ENOMEM);
        check_int(loader_connect(&second, 100), -ETIMEDOUT);
        loader_start(&second);
        wait_waiting(twins.stores[1][at], 1, 0);
        check_int(free_bytes(twins.stores[0][!at]), others);
        for (size_t i = 0; i < twins.count; i++)
            check_int(try_lock(twins.stores[1][i], GMSFS_MODE_RW), 0);
        loader_close(&first);
        check_int(loader_end(&second), 0);
        check_int(free_bytes(twins.stores[0][!at]), others - MOST);
        loader_close(&second);
    }
}

/* Room for each of them, and not for both: a wait for one alone would find it all the time. */
TAP_TEST(two_stores_of_one_device_are_waited_for_together)
{
    struct twins twins = find_twins();
    size_t both[2] = {twins.stores[0][0], twins.stores[1][0]};
    struct loader loader;
    unsigned long waiter, newest;
    gmsfs_t *third = NULL;
    char path[600];
    size_t later = later_of(both[0], both[1]);

    empty_group();
    snprintf(path, sizeof path, "%s/../third", stores[both[0]].path);
    require(mkdir(path, 0755) == 0);
    require(gmsfs_open(path, &third) == 0);
    require(gmsfs_connect_reserve(third, GMSFS_MODE_RW, WAIT_MS, 30 * MIB) == 0);
    loader_open(&loader, both, 2, 24 * MIB);
    loader_start(&loader);
    waiter = wait_waiting(later, 1, 0);
    for (int i = 0; i < 20; i++)
        check_int(try_lock(both[0] + both[1] - later, GMSFS_MODE_RW), 0);
    check_int(count_waiting(later, &newest), 1);
    check_int(newest, waiter);
    gmsfs_close(third);
    check_int(loader_end(&loader), 0);
    loader_close(&loader);
    check_int(rmdir(path), 0);
}

TAP_TEST(who_waits_for_memory_to_write_reads_what_is_whole_by_then)
{
    struct twins twins = find_twins();
    struct loader holder, either, loader;
    const size_t *waited = twins.stores[1];
    size_t first = later_of(waited[0], waited[1]) == waited[0] ? waited[1] : waited[0];

    empty_group();
    loader_open(&holder, twins.stores[0], twins.count, MOST);
    loader_open(&either, twins.stores[1], twins.count, MOST);
    loader_open(&loader, twins.stores[1], twins.count, 0);
    check_int(loader_connect(&holder, WAIT_MS), 0);
    either.mode = GMSFS_MODE_RW_OR_RO;
    loader_start(&either);
    wait_waiting(first, 1, 0);
    check_int(loader_connect(&loader, WAIT_MS), 0); /* without a reservation, so it passes */
    for (size_t i = 0; i < loader.count; i++)
        fill_store(loader.handles[i], 1);
    check_int(gmsfs_commit_group(loader.handles, loader.count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(loader_end(&either), 0);
    check_int(gmsfs_granted_lock(either.handles[0]), GMSFS_MODE_RO);
    loader_close(&loader);
    loader_close(&either);
    loader_close(&holder);
}

static void *take_memory_in_turns(void *argument)
{
    struct loader *loader = argument;

    for (int i = 0; i < 25 && !loader->result; i++) {
        loader->result = loader_connect(loader, 12 * WAIT_MS);
        for (size_t j = 0; j < loader->count && !loader->result; j++)
            loader->result = gmsfs_disconnect(loader->handles[j]);
    }
    return NULL;
}

TAP_TEST(groups_on_devices_that_hold_only_one_of_them_take_turns)
{
    struct twins twins = find_twins();
    struct loader loaders[4];

    empty_group();
    for (int i = 0; i < 4; i++) {
        loader_open(&loaders[i], twins.stores[i % 2], twins.count, MOST);
        require(pthread_create(&loaders[i].thread, NULL, take_memory_in_turns, &loaders[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        check_int(loader_end(&loaders[i]), 0);
        loader_close(&loaders[i]);
    }
    check(all_free());
}

TAP_TEST(a_group_that_is_killed_leaves_neither_locks_nor_memory)
{
    struct twins twins = find_twins();
    struct loader holder, next;
    int status = 0;
    pid_t child;

    empty_group();
    for (int waits = 0; waits < 2; waits++) {
        loader_open(&holder, &twins.stores[0][1], 1, waits ? MOST : 0);
        check_int(loader_connect(&holder, WAIT_MS), 0);
        fflush(stdout);
        child = fork();
        if (child == 0) {
            struct loader loader;
            loader_open(&loader, twins.stores[1], twins.count, MOST);
            loader_connect(&loader, GMSFS_TIMEOUT_FOREVER);
            pause();
        }
        if (waits)
            wait_waiting(twins.stores[1][1], 1, 0);
        else
            check(comes_free(twins.stores[1][1], 24 * MIB));
        kill(child, SIGKILL);
        check(waitpid(child, &status, 0) == child);
        loader_close(&holder);
        loader_open(&next, twins.stores[1], twins.count, MOST);
        check_int(loader_connect(&next, 2 * WAIT_MS), 0);
        loader_close(&next);
    }
}
