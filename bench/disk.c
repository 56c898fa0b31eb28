/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk - `gmsfs save`, `image save`, and `load` past the page cache, against the disk itself
 *
 *   disk GMSFS STORE MODEL DIR [gpu]
 *
 * Ours is the time that the commands print: from the first byte to the last one on the disk or in
 * memory, without lock, context and metadata; the command's whole time goes to stderr. The floor
 * is one file of as many bytes in DIR, by bare parallel calls, the best of 1 to 16 threads and of
 * the ways that the file system has, and fsync(2). With `gpu` saving is held against the slower of
 * that and bare copies from the device into pinned memory. A tmpfs is no disk to load from.
 */
#include <sys/stat.h>
#include <sys/wait.h>

#include "disk.h"
#include "gpu.h"

#define LIMIT_SAVE   0.9
#define LIMIT_LOAD   0.95
#define OUTPUT_BYTES 4096
#define PATH_BYTES   4096
#define PINNED_BYTES ((size_t)64 << 20)
#define PART_BYTES   ((size_t)4 << 20)

struct disk_bench {
    const char *gmsfs, *store;
    char file[PATH_BYTES], image[PATH_BYTES], floor[PATH_BYTES];
    size_t bytes;
};

/* ---- ours ---------------------------------------------------------------------------------- */

/* Returns the number before " GB/s" in the last line that has it. */
static double parse_rate(const char *output)
{
    const char *found = NULL, *at = output;

    while ((at = strstr(at, " GB/s")))
        found = at++;
    while (found && found > output && found[-1] != ' ')
        found--;
    return found ? strtod(found, NULL) : 0;
}

/* Runs a command to its end and stores its output. */
static void run_command(const char *const arguments[], char output[OUTPUT_BYTES])
{
    int pair[2], status = 0;
    size_t length = 0;
    ssize_t got;
    pid_t child;

    bench_call("pipe", pipe2(pair, O_CLOEXEC));
    child = bench_call("fork", fork());
    if (child == 0) {
        dup2(pair[1], STDOUT_FILENO);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    close(pair[1]);
    while ((got = read(pair[0], output + length, OUTPUT_BYTES - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(pair[0]);
    bench_call("wait", waitpid(child, &status, 0));
    if (status)
        bench_die(arguments[1], EIO);
}

/* As long as these bytes take at the rate that the command tells. */
static double time_command(const struct disk_bench *bench, const char *label,
                           const char *const arguments[])
{
    char output[OUTPUT_BYTES];
    double start_us = bench_now_us(), took_us, rate;

    run_command(arguments, output);
    took_us = bench_now_us() - start_us;
    rate = parse_rate(output);
    fprintf(stderr, "bench: %s: %.2f GB/s, the command %.2f s\n", label, rate, took_us / 1e6);
    if (rate <= 0)
        bench_die("the command tells no rate", EPROTO);
    return (double)bench->bytes / rate / 1e3;
}

static double time_save(struct disk_bench *bench)
{
    const char *const arguments[] = {bench->gmsfs, "save", bench->store, bench->file, NULL};

    unlink(bench->file);
    return time_command(bench, "save", arguments);
}

static void remove_image(struct disk_bench *bench)
{
    const char *const arguments[] = {"/bin/rm", "-rf", bench->image, NULL};
    char output[OUTPUT_BYTES];

    run_command(arguments, output);
}

static double time_image_save(struct disk_bench *bench)
{
    const char *const arguments[] = {bench->gmsfs, "image",      "save",
                                     bench->store, bench->image, NULL};
    double took_us;

    remove_image(bench);
    took_us = time_command(bench, "image save", arguments);
    remove_image(bench);
    return took_us;
}

static double time_load(struct disk_bench *bench)
{
    const char *const arguments[] = {bench->gmsfs, "load",      "--direct=always",
                                     bench->store, bench->file, NULL};

    return time_command(bench, "load", arguments);
}

/* ---- from the device ----------------------------------------------------------------------- */

/* As many bytes as the model has, in parts, into the same pinned buffer over and over. */
static double time_device_round(const struct gpu *gpu, drv_pointer from, char *pinned,
                                struct drv_stream *stream, size_t bytes)
{
    double start_us = bench_now_us();

    for (size_t done = 0; done < bytes; done += PART_BYTES)
        gpu_check(gpu, "cuMemcpyDtoHAsync",
                  gpu->drv->cuMemcpyDtoHAsync_v2(pinned + done % PINNED_BYTES,
                                                 from + done % PINNED_BYTES, PART_BYTES, stream));
    gpu_check(gpu, "cuStreamSynchronize", gpu->drv->cuStreamSynchronize(stream));
    return bench_now_us() - start_us;
}

static double time_device(size_t bytes)
{
    double rounds_us[BENCH_ROUNDS];
    struct drv_stream *stream;
    drv_pointer from;
    struct gpu gpu;
    void *pinned;

    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    gpu_check(&gpu, "cuMemAlloc", gpu.drv->cuMemAlloc_v2(&from, PINNED_BYTES));
    gpu_check(&gpu, "cuMemHostAlloc", gpu.drv->cuMemHostAlloc(&pinned, PINNED_BYTES, 0));
    gpu_check(&gpu, "cuStreamCreate", gpu.drv->cuStreamCreate(&stream, 1));
    for (int round = 0; round < BENCH_ROUNDS; round++)
        rounds_us[round] = time_device_round(&gpu, from, pinned, stream, bytes);
    gpu_check(&gpu, "cuStreamDestroy", gpu.drv->cuStreamDestroy_v2(stream));
    gpu_check(&gpu, "cuMemFreeHost", gpu.drv->cuMemFreeHost(pinned));
    gpu_check(&gpu, "cuMemFree", gpu.drv->cuMemFree_v2(from));
    gpu_check(&gpu, "cuDevicePrimaryCtxRelease", gpu.drv->cuDevicePrimaryCtxRelease_v2(gpu.device));
    fprintf(stderr, "bench: bare device to pinned memory: %.2f GB/s\n",
            (double)bytes / bench_median(rounds_us) / 1e3);
    return bench_median(rounds_us);
}

/* ---- the rows ------------------------------------------------------------------------------ */

/* floor_us: of the disk, or of the device where that is slower. */
static void print_save(const struct disk_bench *bench, const char *label, const double *ours_us,
                       double disk_us, double device_us, const struct disk_run *run)
{
    char text[96];

    if (device_us > disk_us)
        snprintf(text, sizeof text, "%s %zu MiB / bare device to host (speed)", label,
                 bench->bytes >> 20);
    else
        snprintf(text, sizeof text, "%s %zu MiB / bare write, %s, %d thr. (speed)", label,
                 bench->bytes >> 20, disk_way_name(run->way), run->threads);
    bench_row(text, bench_median(ours_us), device_us > disk_us ? device_us : disk_us, LIMIT_SAVE,
              BENCH_AT_LEAST);
}

static void bench_saving(struct disk_bench *bench, const char *dir, double device_us)
{
    double save_us[BENCH_ROUNDS], image_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS], disk_us;
    struct disk_run run = {.path = bench->floor,
                           .bytes = bench->bytes,
                           .block_bytes = DISK_BLOCK_BYTES,
                           .is_write = 1};

    disk_choose(&run, disk_is_tmpfs(dir) ? 1u << DISK_CACHED | 1u << DISK_MAPPED
                                         : 1u << DISK_DIRECT | 1u << DISK_CACHED);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_us[round] = disk_time(&run);
        unlink(bench->floor);
        image_us[round] = time_image_save(bench);
        save_us[round] = time_save(bench);
    }
    disk_us = bench_median(floor_us);
    print_save(bench, "save", save_us, disk_us, device_us, &run);
    print_save(bench, "image save", image_us, disk_us, device_us, &run);
}

/* Loads the saved file, and reads it for the floor. */
static void bench_loading(struct disk_bench *bench)
{
    double load_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    struct disk_run run = {
        .path = bench->file, .bytes = bench->bytes, .block_bytes = DISK_BLOCK_BYTES};
    char label[96];

    disk_choose(&run, 1u << DISK_DIRECT);
    time_load(bench); /* fresh memory costs more, once */
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_us[round] = disk_time(&run);
        load_us[round] = time_load(bench);
    }
    snprintf(label, sizeof label, "load %zu MiB, disk / bare O_DIRECT reads, %d threads (speed)",
             bench->bytes >> 20, run.threads);
    bench_row(label, bench_median(load_us), bench_median(floor_us), LIMIT_LOAD, BENCH_AT_LEAST);
}

int main(int argc, char **argv)
{
    static struct disk_bench bench;
    char output[OUTPUT_BYTES];
    struct stat status;

    if (argc < 5 || argc > 6 || (argc == 6 && strcmp(argv[5], "gpu") != 0)) {
        fputs("usage: disk GMSFS STORE MODEL DIR [gpu]\n", stderr);
        return 2;
    }
    bench.gmsfs = argv[1];
    bench.store = argv[2];
    snprintf(bench.file, sizeof bench.file, "%s/saved.safetensors", argv[4]);
    snprintf(bench.image, sizeof bench.image, "%s/image", argv[4]);
    snprintf(bench.floor, sizeof bench.floor, "%s/floor", argv[4]);
    bench_call(argv[3], stat(argv[3], &status));
    bench.bytes = (size_t)status.st_size / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
    run_command((const char *[]){argv[1], "load", "-q", argv[2], argv[3], NULL}, output);
    bench_saving(&bench, argv[4], argc == 6 ? time_device(bench.bytes) : 0);
    if (!disk_is_tmpfs(argv[4]))
        bench_loading(&bench);
    unlink(bench.file);
    return 0;
}
