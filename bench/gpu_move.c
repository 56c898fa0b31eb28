/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_move - stores between GPU and host memory, against bare copies and the other necessary calls
 *
 *   gpu_move MOUNT COUNT BYTES OTHERS
 *
 * The mount has a host tier of twice a store. Two stores of COUNT allocations of BYTES:
 * the first goes to the host without a copy there, rests a moment, in which the copier pins
 * the copy, and comes back for a reader. Then one goes up and the other one down, alone and at
 * once. At last the first, which has its copy, goes and comes again and again.
 *
 * Floors are of the same run. Copying: as many bytes as one large copy from or to pinned memory
 * moves in that time. Making memory: the bare create and export calls; as many pages of memfds by 8
 * threads. Freeing: the close of as many descriptors, in turn with ours. A close takes one time or
 * twice that, by chance, for any caller; so the quickest of many are compared.
 *
 * OTHERS COUNT BYTES is a program that prints "NAME SLEEP_US WAKE_US" for each other way that it
 * finds to let as much leave the device and come back; or NAME and a word for the missing time's
 * cause: then the row shows the published time, of other hardware.
 */
#include <gmsfs.h>
#include <pthread.h>
#include <sys/mman.h>

#include "gpu_copies.h"
#include "places.h"

#define PAGE_THREADS 8
#define REST_US      1500000
#define FREE_ROUNDS  15
#define TEXT_BYTES   128
#define FREE_MOST_US 10e3 /* of so many bytes, and of more in proportion */
#define FREE_BYTES   ((uint64_t)16 << 30)

struct stores {
    char mount[PLACES_PATH_BYTES], first[PLACES_PATH_BYTES], second[PLACES_PATH_BYTES];
    size_t count;
    uint64_t bytes;
};

static double since(double start_us)
{
    return bench_now_us() - start_us;
}

/* ---- ours ---------------------------------------------------------------------------------- */

/* A copy on the host; of the other store's, `left_bytes` stay. */
static void drop_copy(const struct stores *stores, const char *store, uint64_t left_bytes)
{
    places_move(store, "-host", "device");
    places_wait_number(stores->mount, "host_used_bytes", left_bytes);
}

struct promotion {
    double granted_us, mapped_us;
};

/* Promotes for a waiting reader. */
static struct promotion promote(const struct stores *stores)
{
    struct promotion took;
    double start_us;
    gmsfs_t *store;
    size_t mapped;

    bench_check(stores->first, gmsfs_open(stores->first, &store));
    start_us = bench_now_us();
    places_order(stores->first, "device");
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, PLACES_TIMEOUT_MS));
    took.granted_us = since(start_us);
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, &mapped));
    took.mapped_us = since(start_us);
    if (mapped != stores->count)
        bench_die("attach: another number of allocations", EPROTO);
    gmsfs_close(store);
    places_wait_at(stores->first, "device host");
    return took;
}

/* Until it is on the host alone. */
static double demote(const struct stores *stores)
{
    double start_us = bench_now_us(), took_us;

    places_move(stores->first, "host", "host");
    took_us = since(start_us);
    places_wait_number(stores->mount, "used_bytes",
                       stores->count * stores->bytes); /* the other's */
    return took_us;
}

/* Times a demotion of a store with a copy until its memory is free: the user waits for that last,
 * and nothing else is looked at meanwhile. */
static double demote_and_free(const struct stores *stores)
{
    double start_us = bench_now_us(), took_us;

    places_order(stores->first, "host");
    places_wait_number(stores->mount, "used_bytes", stores->count * stores->bytes);
    took_us = since(start_us);
    places_wait_at(stores->first, "host");
    return took_us;
}

/* ---- floors -------------------------------------------------------------------------------- */

struct page_maker {
    pthread_t thread;
    int fd;
    uint64_t bytes;
};

static void *make_pages(void *argument)
{
    const struct page_maker *maker = argument;

    bench_call("fallocate", fallocate(maker->fd, 0, 0, (off_t)maker->bytes));
    return NULL;
}

/* Each thread in a memfd of its own: in one, the kernel would let them wait for each other. */
static double time_pages(uint64_t all_bytes)
{
    struct page_maker makers[PAGE_THREADS];
    double start_us = bench_now_us(), took_us;

    for (int i = 0; i < PAGE_THREADS; i++) {
        makers[i].fd = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC));
        makers[i].bytes = all_bytes / PAGE_THREADS;
        if (pthread_create(&makers[i].thread, NULL, make_pages, &makers[i]))
            bench_die("thread", EAGAIN);
    }
    for (int i = 0; i < PAGE_THREADS; i++)
        pthread_join(makers[i].thread, NULL);
    took_us = since(start_us);
    for (int i = 0; i < PAGE_THREADS; i++)
        close(makers[i].fd);
    return took_us;
}

/* The medians. */
struct floors {
    double up_us, down_us, create_us, pages_us;
};

static struct floors measure_floors(const struct gpu *gpu, const struct stores *stores)
{
    uint64_t all_bytes = stores->count * stores->bytes;
    double up_us[BENCH_ROUNDS], down_us[BENCH_ROUNDS], create_us[BENCH_ROUNDS];
    double pages_us[BENCH_ROUNDS];
    int *fds = calloc(stores->count, sizeof *fds);
    struct gpu_copies copies = {.gpu = gpu};

    if (!fds)
        bench_die("floors", ENOMEM);
    gpu_copies_prepare(&copies, all_bytes);
    for (int round = -1; round < BENCH_ROUNDS; round++) {
        int to = round < 0 ? 0 : round; /* everything was called once */

        up_us[to] = gpu_copies_time(&copies, 1, all_bytes);
        down_us[to] = gpu_copies_time(&copies, 0, all_bytes);
        create_us[to] = gpu_time_create(gpu, fds, stores->count, stores->bytes);
        gpu_time_close(fds, stores->count);
        pages_us[to] = time_pages(all_bytes);
    }
    gpu_copies_end(&copies);
    free(fds);
    return (struct floors){bench_median(up_us), bench_median(down_us), bench_median(create_us),
                           bench_median(pages_us)};
}

/* ---- the rows ------------------------------------------------------------------------------ */

struct rounds {
    double first[BENCH_ROUNDS], granted[BENCH_ROUNDS], mapped[BENCH_ROUNDS];
    double up[BENCH_ROUNDS], down[BENCH_ROUNDS], both[BENCH_ROUNDS];
};

/* One store, there and back; afterwards it is on the device alone. */
static void time_moves(const struct stores *stores, struct rounds *rounds, int round)
{
    struct promotion took;

    rounds->first[round] = demote(stores);
    usleep(REST_US);
    took = promote(stores);
    rounds->granted[round] = took.granted_us;
    rounds->mapped[round] = took.mapped_us;
    drop_copy(stores, stores->first, 0);
}

/* The first is copied down while the second, which is on the host, comes up. */
static void time_both(const struct stores *stores, struct rounds *rounds, int round)
{
    uint64_t one_bytes = stores->count * stores->bytes;
    double start_us;

    places_move(stores->second, "host", "host");
    usleep(REST_US);
    start_us = bench_now_us();
    places_move(stores->second, "device", "device host");
    rounds->up[round] = since(start_us);
    start_us = bench_now_us();
    places_move(stores->first, "+host", "device host");
    rounds->down[round] = since(start_us);
    drop_copy(stores, stores->first, one_bytes);

    places_move(stores->second, "host", "host");
    usleep(REST_US);
    start_us = bench_now_us();
    places_order(stores->first, "+host");
    places_order(stores->second, "device");
    places_wait_at(stores->second, "device host");
    places_wait_at(stores->first, "device host");
    rounds->both[round] = since(start_us);
    drop_copy(stores, stores->first, one_bytes);
    drop_copy(stores, stores->second, 0);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The quickest of many. */
struct frees {
    double ours_us, bare_us;
};

static struct frees time_frees(const struct gpu *gpu, const struct stores *stores)
{
    int *fds = calloc(stores->count, sizeof *fds);
    struct frees quickest = {1e9, 1e9};

    if (!fds)
        bench_die("frees", ENOMEM);
    demote(stores);
    usleep(REST_US);
    for (int round = 0; round < FREE_ROUNDS; round++) {
        double ours_us, bare_us;

        gpu_time_create(gpu, fds, stores->count, stores->bytes);
        bare_us = gpu_time_close(fds, stores->count);
        promote(stores);
        ours_us = demote_and_free(stores);
        quickest.ours_us = ours_us < quickest.ours_us ? ours_us : quickest.ours_us;
        quickest.bare_us = bare_us < quickest.bare_us ? bare_us : quickest.bare_us;
    }
    free(fds);
    return quickest;
}

static void print_moves(const struct stores *stores, const struct rounds *rounds,
                        const struct floors *floors)
{
    char label[96];

    fprintf(stderr, "bench: pinned copy up %.1f ms, down %.1f; create %.1f, pages %.1f\n",
            floors->up_us / 1e3, floors->down_us / 1e3, floors->create_us / 1e3,
            floors->pages_us / 1e3);
    snprintf(label, sizeof label, "promote %zu x %llu MiB / create + pinned copy (speed)",
             stores->count, (unsigned long long)stores->bytes >> 20);
    bench_row(label, bench_median(rounds->granted), floors->create_us + floors->up_us, 0.95,
              BENCH_AT_LEAST);
    bench_row("  until a reader has it mapped / pinned copy (speed)", bench_median(rounds->mapped),
              floors->up_us, 0.90, BENCH_AT_LEAST);
    bench_row("  first demotion / slower of pinned copy, pages (speed)",
              bench_median(rounds->first), larger(floors->down_us, floors->pages_us), 0.85,
              BENCH_AT_LEAST);
}

static void print_frees(const struct stores *stores, const struct frees *frees)
{
    uint64_t all_bytes = stores->count * stores->bytes;

    bench_row("  demote a store with a copy / close of its descriptors", frees->ours_us,
              frees->bare_us, 1.2, BENCH_AT_MOST);
    bench_row_within("  demote a store with a copy, in all", frees->ours_us,
                     FREE_MOST_US * larger(1, (double)all_bytes / (double)FREE_BYTES));
}

static void print_both(const struct rounds *rounds)
{
    double up_us = bench_median(rounds->up), down_us = bench_median(rounds->down);

    fprintf(stderr, "bench: moves alone: up %.1f ms, down %.1f\n", up_us / 1e3, down_us / 1e3);
    bench_row("  one up, one down / the slower of them alone", bench_median(rounds->both),
              larger(up_us, down_us), 1.25, BENCH_AT_MOST);
}

/* ---- others -------------------------------------------------------------------------------- */

/* Times published by their users and makers, of other hardware. */
struct published {
    const char *name, *sleep, *wake;
};

static const struct published all_published[] = {
    {"torch_memory_saver", "9.70 s (vime#442)", "4.85 s, 0.62 s with the backup kept (its #86)"},
    {"vllm", "10.57 s for 22 GiB (#48337)", "2.19 s (#48337)"},
};

static void tell_published(const char *name, const char *why)
{
    for (size_t i = 0; i < sizeof all_published / sizeof *all_published; i++) {
        const struct published *published = &all_published[i];

        if (strcmp(published->name, name) == 0)
            printf("  %s is %s here; published, other hardware: sleep %s, wake %s\n", name, why,
                   published->sleep, published->wake);
    }
    fflush(stdout);
}

static void compare_other(const char *name, double ours_us, double theirs_us, const char *ours,
                          const char *theirs)
{
    char label[TEXT_BYTES];

    snprintf(label, sizeof label, "  %s / %s: %s", ours, name, theirs);
    bench_row(label, ours_us, theirs_us, 1, BENCH_AT_MOST);
}

static void compare_others(const char *program, const struct stores *stores, double sleep_us,
                           double wake_us)
{
    char command[PLACES_PATH_BYTES], name[64], sleep[32], wake[32], *end;
    FILE *output;

    snprintf(command, sizeof command, "'%s' %zu %llu", program, stores->count,
             (unsigned long long)stores->bytes);
    output = popen(command, "r");
    if (!output)
        bench_die(program, errno);
    while (fscanf(output, "%63s %31s %31s", name, sleep, wake) == 3) {
        double theirs_us = strtod(sleep, &end);

        if (*end) {
            tell_published(name, sleep);
            continue;
        }
        compare_other(name, sleep_us, theirs_us, "demote a store with a copy", "sleep");
        compare_other(name, wake_us, strtod(wake, NULL), "until it is mapped", "wake");
    }
    pclose(output);
}

int main(int argc, char **argv)
{
    static struct rounds rounds;
    struct stores stores = {0};
    struct floors floors;
    struct frees frees;
    struct gpu gpu;

    if (argc != 5) {
        fputs("usage: gpu_move MOUNT COUNT BYTES OTHERS\n", stderr);
        return 2;
    }
    stores.count = bench_number(argv[2]);
    stores.bytes = bench_number(argv[3]);
    snprintf(stores.mount, sizeof stores.mount, "%s", argv[1]);
    snprintf(stores.first, sizeof stores.first, "%s/first", argv[1]);
    snprintf(stores.second, sizeof stores.second, "%s/second", argv[1]);
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    floors = measure_floors(&gpu, &stores); /* while nothing of ours is there */
    places_fill(stores.first, stores.count, stores.bytes);
    places_fill(stores.second, stores.count, stores.bytes);
    time_moves(&stores, &rounds, 0); /* the copier is warm */
    for (int round = 0; round < BENCH_ROUNDS; round++)
        time_moves(&stores, &rounds, round);
    print_moves(&stores, &rounds, &floors);
    for (int round = 0; round < BENCH_ROUNDS; round++)
        time_both(&stores, &rounds, round);
    print_both(&rounds);
    frees = time_frees(&gpu, &stores);
    print_frees(&stores, &frees);
    places_fill(stores.first, 0, 0);
    places_fill(stores.second, 0, 0);
    places_wait_number(stores.mount, "used_bytes", 0);
    places_wait_number(stores.mount, "host_used_bytes", 0);
    compare_others(argv[4], &stores, frees.ours_us, bench_median(rounds.mapped));
    return 0;
}
