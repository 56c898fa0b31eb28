/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - `gmsfs load` and `image load` from the page cache, against a bare copy into memfds, and
 * `gmsfs load --files` against `gmsfs load`
 *
 *   load GMSFS MOUNT MODEL IMAGE     IMAGE, on tmpfs, is saved by us
 *   load GMSFS MOUNT DIRECTORY       of a model of several files: load --files against load
 *
 * Ours is the command from start to exit. The floor, with a quarter of the processors to 16
 * threads: pieces of 16 MiB, each a memfd of its own. Their pages are made first, by as many
 * threads (a daemon has to know that the memory that it gives exists), and then filled by splice(2)
 * through a pipe. Printed beside it: pages that are made as they are filled, by write(2) from a
 * mapping of the file, or by splice(2), whichever is faster. (Into a mapping, by pread(2), takes
 * twice as long: each page is cleared before it is filled.) The file is mapped anew each time, as
 * it is by a program that starts. An image is summed as it is loaded: its floor is likewise pages
 * made first, then pread(2) into a buffer, XXH3 of that, and write(2). A file that is kept is one
 * memfd: one thread makes its pages, since the kernel locks the inode for that, and for a write(2)
 * or splice(2). The floor of one large file is such a memfd, filled by one thread at a time, or by
 * pread(2) into a mapping for each piece, by several threads at once: the faster way counts.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/pages.h"
#include "base/xxh3.h"
#include "bench.h"

#define PIECE_BYTES  ((size_t)16 << 20)
#define PIECES_MAX   4096
#define THREADS_MAX  16
#define THREAD_KINDS 5 /* 1, 2, 4, 8, 16; useless counts are left out */
#define SUMMED_BYTES ((size_t)128 << 10)
#define SPLICE_BYTES ((size_t)256 << 10)
#define PIPE_BYTES   (512 << 10)
#define MAPPED_BYTES ((size_t)256 << 10)
#define STEP_BYTES   ((size_t)64 << 20)

enum way {
    BY_WRITE,
    BY_SPLICE,
    BY_SUM,      /* pread, XXH3 and write */
    MADE_SPLICE, /* by splice, once the pages are there */
    MADE_SUM,
    MADE_ONE,     /* by splice into one memfd, once its pages are there */
    MADE_ONE_MAP, /* by pread into mappings of it */
    WAYS
};

struct copy {
    int fd;
    char *file; /* mapped for reading */
    size_t bytes;
    enum way way;
    atomic_size_t next;
    int memfds[PIECES_MAX];
};

static ssize_t copy_summed(const struct copy *copy, int fd, size_t at, size_t done, size_t bytes)
{
    static _Thread_local char buffer[SUMMED_BYTES];
    static _Thread_local XXH3_state_t *sum; /* the thread's, as long as it is there */
    ssize_t got =
        pread(copy->fd, buffer, bytes < SUMMED_BYTES ? bytes : SUMMED_BYTES, (off_t)(at + done));

    if (got <= 0)
        return got;
    if (!sum && !(sum = XXH3_createState()))
        bench_die("XXH3", ENOMEM);
    if (done == 0)
        XXH3_128bits_reset(sum);
    XXH3_128bits_update(sum, buffer, (size_t)got);
    return pwrite(fd, buffer, (size_t)got, (off_t)done);
}

/* Where one piece goes. */
struct target {
    int fd;
    size_t base; /* of the piece, in the memfd */
    int ends[2]; /* of a pipe, if it is spliced */
    char *map;   /* of the piece, if it is mapped */
};

static ssize_t copy_spliced(const struct copy *copy, const struct target *target, size_t at,
                            size_t done, size_t bytes)
{
    off_t in = (off_t)(at + done), out = (off_t)(target->base + done);
    ssize_t moved, held = splice(copy->fd, &in, target->ends[1], NULL,
                                 bytes < SPLICE_BYTES ? bytes : SPLICE_BYTES, 0);

    for (ssize_t left = held; left > 0; left -= moved) {
        moved = splice(target->ends[0], NULL, target->fd, &out, (size_t)left, 0);
        if (moved <= 0)
            return -1;
    }
    return held;
}

static size_t piece_bytes(const struct copy *copy, size_t piece)
{
    size_t left = copy->bytes - piece * PIECE_BYTES;

    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static int make_memfd(const struct copy *copy, size_t piece)
{
    int fd = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC));

    bench_call("ftruncate", ftruncate(fd, (off_t)piece_bytes(copy, piece)));
    return fd;
}

static int is_one(enum way way)
{
    return way == MADE_ONE || way == MADE_ONE_MAP;
}

static int is_made_first(enum way way)
{
    return way == MADE_SPLICE || way == MADE_SUM || is_one(way);
}

static int is_spliced(enum way way)
{
    return way == BY_SPLICE || way == MADE_SPLICE || way == MADE_ONE;
}

static struct target open_target(struct copy *copy, size_t piece)
{
    struct target target;

    if (!is_made_first(copy->way))
        copy->memfds[piece] = make_memfd(copy, piece);
    target.fd = copy->memfds[is_one(copy->way) ? 0 : piece];
    target.base = is_one(copy->way) ? piece * PIECE_BYTES : 0;
    if (copy->way == MADE_ONE_MAP) {
        target.map = mmap(NULL, piece_bytes(copy, piece), PROT_READ | PROT_WRITE, MAP_SHARED,
                          target.fd, (off_t)target.base);
        if (target.map == MAP_FAILED)
            bench_die("mmap", errno);
    }
    if (is_spliced(copy->way)) {
        bench_call("pipe", pipe2(target.ends, O_CLOEXEC));
        fcntl(target.ends[1], F_SETPIPE_SZ, PIPE_BYTES);
    }
    return target;
}

static void close_target(const struct copy *copy, const struct target *target, size_t bytes)
{
    if (copy->way == MADE_ONE_MAP)
        munmap(target->map, bytes);
    if (is_spliced(copy->way)) {
        close(target->ends[0]);
        close(target->ends[1]);
    }
}

/* Makes the pages of a small part by one call, then reads into the part: while the pages of 16 MiB
 * are made, no thread can map or unmap. */
static ssize_t copy_mapped(const struct copy *copy, char *to, size_t at, size_t bytes)
{
    size_t part = bytes < MAPPED_BYTES ? bytes : MAPPED_BYTES;

    if (pages_make(to, part) < 0)
        return -1;
    return pread(copy->fd, to, part, (off_t)at);
}

static ssize_t copy_some_of(const struct copy *copy, const struct target *target, size_t at,
                            size_t done, size_t bytes)
{
    if (copy->way == BY_WRITE)
        return pwrite(target->fd, copy->file + at + done, bytes, (off_t)done);
    if (is_spliced(copy->way))
        return copy_spliced(copy, target, at, done, bytes);
    if (copy->way == MADE_ONE_MAP)
        return copy_mapped(copy, target->map + done, at + done, bytes);
    return copy_summed(copy, target->fd, at, done, bytes);
}

static void copy_piece(struct copy *copy, size_t piece)
{
    size_t at = piece * PIECE_BYTES, done = 0, bytes = piece_bytes(copy, piece);
    struct target target = open_target(copy, piece);

    while (done < bytes) {
        ssize_t got = copy_some_of(copy, &target, at, done, bytes - done);
        if (got <= 0)
            bench_die("copy", errno);
        done += (size_t)got;
    }
    close_target(copy, &target, bytes);
}

static void *copy_some(void *context)
{
    struct copy *copy = context;
    size_t piece;

    while ((piece = atomic_fetch_add(&copy->next, 1)) * PIECE_BYTES < copy->bytes)
        copy_piece(copy, piece);
    return NULL;
}

static void *make_some(void *context)
{
    struct copy *copy = context;
    size_t piece;

    while ((piece = atomic_fetch_add(&copy->next, 1)) * PIECE_BYTES < copy->bytes) {
        copy->memfds[piece] = make_memfd(copy, piece);
        bench_call("fallocate",
                   fallocate(copy->memfds[piece], 0, 0, (off_t)piece_bytes(copy, piece)));
    }
    return NULL;
}

/* In steps, as the daemon makes it. */
static void make_one(struct copy *copy)
{
    int fd = copy->memfds[0] = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC));
    size_t step;

    bench_call("ftruncate", ftruncate(fd, (off_t)copy->bytes));
    for (size_t at = 0; at < copy->bytes; at += step) {
        step = copy->bytes - at < STEP_BYTES ? copy->bytes - at : STEP_BYTES;
        bench_call("fallocate", fallocate(fd, 0, (off_t)at, (off_t)step));
    }
}

static void run_threads(struct copy *copy, int threads, void *(*run)(void *))
{
    pthread_t ids[THREADS_MAX];

    atomic_store(&copy->next, 0);
    for (int i = 0; i < threads; i++) {
        int error = pthread_create(&ids[i], NULL, run, copy);
        if (error)
            bench_die("thread", error);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

static double time_floor(struct copy *copy, int threads, enum way way)
{
    double start_us = bench_now_us(), took_us;

    copy->way = way;
    copy->file = mmap(NULL, copy->bytes, PROT_READ, MAP_SHARED, copy->fd, 0);
    if (copy->file == MAP_FAILED)
        bench_die("mmap", errno);
    if (is_one(way))
        make_one(copy);
    else if (is_made_first(way))
        run_threads(copy, threads, make_some);
    run_threads(copy, threads, copy_some);
    took_us = bench_now_us() - start_us;
    for (size_t i = 0; i == 0 || (!is_one(way) && i * PIECE_BYTES < copy->bytes); i++)
        close(copy->memfds[i]);
    munmap(copy->file, copy->bytes);
    return took_us;
}

static double time_command(const char *const arguments[])
{
    double start_us = bench_now_us();
    int status = 0;
    pid_t child = bench_call("fork", fork());

    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        dup2(quiet, STDOUT_FILENO);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    bench_call("wait", waitpid(child, &status, 0));
    if (status)
        bench_die(arguments[1], EIO);
    return bench_now_us() - start_us;
}

struct ours {
    const char *gmsfs, *mount, *model, *image;
    char store[4096];
    fsblkcnt_t free_blocks; /* of the mount, before anything was loaded */
};

static fsblkcnt_t count_free(const struct ours *ours)
{
    struct statvfs status;

    bench_call(ours->mount, statvfs(ours->mount, &status));
    return status.f_bfree;
}

/* Waits until the daemon has freed its memory in the background: the next time must not include it.
 */
static void remove_store(const struct ours *ours)
{
    bench_call(ours->store, rmdir(ours->store));
    while (count_free(ours) < ours->free_blocks)
        usleep(1000);
}

enum kind {
    LOAD,
    LOAD_FILES,
    LOAD_IMAGE,
    LOADS
};

/* Into a store that is new each time. */
static double time_load(const struct ours *ours, enum kind kind)
{
    const char *const commands[LOADS][6] = {
        [LOAD] = {ours->gmsfs, "load", ours->store, ours->model},
        [LOAD_FILES] = {ours->gmsfs, "load", "--files", ours->store, ours->model},
        [LOAD_IMAGE] = {ours->gmsfs, "image", "load", ours->store, ours->image},
    };
    double took_us;

    bench_call(ours->store, mkdir(ours->store, 0755));
    took_us = time_command(commands[kind]);
    remove_store(ours);
    return took_us;
}

/* Loads the model once, too, so everything was called before. */
static void save_image(const struct ours *ours)
{
    time_command((const char *[]){ours->gmsfs, "load", ours->store, ours->model, NULL});
    time_command((const char *[]){ours->gmsfs, "image", "save", ours->store, ours->image, NULL});
    remove_store(ours);
}

typedef double floors_us[WAYS][THREAD_KINDS][BENCH_ROUNDS];

struct floor {
    double us;
    int threads;
};

/* So few threads take long, and are never the best. */
static int first_kind(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int kind = 0;

    while (kind < THREAD_KINDS - 1 && 4 << kind < processors)
        kind++;
    return kind;
}

/* Returns the best of some ways and of all numbers of threads; prints each. */
static struct floor find_floor(const floors_us floors, enum way from, enum way to)
{
    static const char *const said[] = {"by write",
                                       "by splice",
                                       "by pread, XXH3 and write",
                                       "pages made, then splice",
                                       "pages made, then pread, XXH3 and write",
                                       "pages made, then splice, of one memfd",
                                       "pages made, then pread into mappings, of one memfd"};
    struct floor best = {0};

    for (int way = (int)from; way <= (int)to; way++)
        for (int i = first_kind(); i < THREAD_KINDS; i++) {
            double median_us = bench_median(floors[way][i]);
            fprintf(stderr, "bench: bare copy, %d threads, %s: %.0f ms\n", 1 << i, said[way],
                    median_us / 1e3);
            if (best.threads == 0 || median_us < best.us)
                best = (struct floor){median_us, 1 << i};
        }
    return best;
}

static void print_row(const char *name, const double ours_us[BENCH_ROUNDS], size_t bytes,
                      const char *beside, struct floor floor)
{
    char label[96];

    snprintf(label, sizeof label, "%s %zu MiB, page cache / bare %s, %d thr. (speed)", name,
             bytes >> 20, beside, floor.threads);
    bench_row(label, bench_median(ours_us), floor.us, 0.9, BENCH_AT_LEAST);
}

static void open_model(const char *path, struct copy *copy)
{
    struct stat status;
    char *sums = malloc(PIECE_BYTES);

    copy->fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    bench_call(path, fstat(copy->fd, &status));
    copy->bytes = (size_t)status.st_size;
    if (!sums || copy->bytes > PIECES_MAX * PIECE_BYTES)
        bench_die(path, EFBIG);
    while (read(copy->fd, sums, PIECE_BYTES) > 0) /* into the page cache */
        ;
    free(sums);
}

/* Each file is an allocation: several are made and filled at once. */
static void compare_files(const struct ours *ours)
{
    double ours_us[BENCH_ROUNDS], files_us[BENCH_ROUNDS];

    time_load(ours, LOAD_FILES); /* everything was called before */
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        ours_us[round] = time_load(ours, LOAD);
        files_us[round] = time_load(ours, LOAD_FILES);
    }
    bench_row("load --files of a model of several files / load (speed)", bench_median(files_us),
              bench_median(ours_us), 0.95, BENCH_AT_LEAST);
}

int main(int argc, char **argv)
{
    double ours_us[BENCH_ROUNDS], files_us[BENCH_ROUNDS], image_us[BENCH_ROUNDS];
    static floors_us floors;
    static struct copy copy;
    struct floor floor;
    struct ours ours;

    if (argc != 4 && argc != 5) {
        fputs("usage: load GMSFS MOUNT MODEL IMAGE | load GMSFS MOUNT DIRECTORY\n", stderr);
        return 2;
    }
    ours = (struct ours){.gmsfs = argv[1], .mount = argv[2], .model = argv[3], .image = argv[4]};
    snprintf(ours.store, sizeof ours.store, "%s/load", ours.mount);
    ours.free_blocks = count_free(&ours);
    if (!ours.image) {
        compare_files(&ours);
        return 0;
    }
    open_model(argv[3], &copy);
    save_image(&ours);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        ours_us[round] = time_load(&ours, LOAD);
        files_us[round] = time_load(&ours, LOAD_FILES);
        image_us[round] = time_load(&ours, LOAD_IMAGE);
        for (int i = WAYS * first_kind(); i < WAYS * THREAD_KINDS; i++)
            floors[i % WAYS][i / WAYS][round] =
                time_floor(&copy, 1 << i / WAYS, (enum way)(i % WAYS));
    }
    floor = find_floor(floors, BY_WRITE, BY_SPLICE);
    print_row("load", ours_us, copy.bytes, "making pages + copy",
              find_floor(floors, MADE_SPLICE, MADE_SPLICE));
    bench_row_told("  load / bare copy that makes the pages (speed)", bench_median(ours_us),
                   floor.us);
    print_row("load --files of one file", files_us, copy.bytes, "pages + copy, one memfd",
              find_floor(floors, MADE_ONE, MADE_ONE_MAP));
    bench_row_told("  load --files of one file / load (speed)", bench_median(files_us),
                   bench_median(ours_us));
    print_row("image load", image_us, copy.bytes, "pages + copy and sum",
              find_floor(floors, MADE_SUM, MADE_SUM));
    bench_row_told("  image load / bare copy and sum that makes the pages (speed)",
                   bench_median(image_us), find_floor(floors, BY_SUM, BY_SUM).us);
    return 0;
}
