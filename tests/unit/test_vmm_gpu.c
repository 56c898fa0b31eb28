/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU backend of the test's own: the functions that every driver gets from gpu.c, without CUDA
 * and NVML. */
#include "vmm/gpu.h"

#include "vmm_fixture.h"

#include <sys/mman.h>

static struct {
    unsigned creates, closes, opens, source_closes, starts, stops;
    int create_error;  /* of all calls from now on */
    unsigned failures; /* so many of them; 0: all */
    int open_error, listen_error;
    enum monitor_word word;
    uint64_t free_bytes;
    struct health *health; /* where events go */
} world;

static struct health health;
static struct measurement measurement;
static struct vmm_device device;

/* ---- a driver ------------------------------------------------------------------------------- */

static int driver_create(void *context, uint64_t bytes, int *fd)
{
    check(context == &world);
    world.creates++;
    if (world.create_error && (world.failures == 0 || world.creates <= world.failures))
        return world.create_error;
    *fd = memfd_create("other", MFD_CLOEXEC);
    return *fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0 ? 0 : -errno;
}

static void driver_close(void *context)
{
    check(context == &world);
    world.closes++;
}

/* ---- its management library ------------------------------------------------------------------ */

static int source_open(const uint8_t uuid[16], void **state, char *why, size_t why_bytes)
{
    check_int(uuid[0], 7);
    world.opens++;
    snprintf(why, why_bytes, "it is not installed");
    *state = &world;
    return world.open_error;
}

static void source_close(void *state)
{
    check(state == &world);
    world.source_closes++;
}

static enum monitor_word source_ask(void *state, uint64_t *free_bytes)
{
    check(state == &world);
    *free_bytes = world.free_bytes;
    return world.word;
}

static int source_listen(void *state, void **events, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "it tells none");
    if (!world.listen_error)
        *events = state;
    return world.listen_error;
}

static int source_start(void *events, struct health *to)
{
    check(events == &world);
    world.starts++;
    world.health = to;
    return 0;
}

static void source_stop(void *events)
{
    check(events == &world);
    world.stops++;
}

static const struct monitor_source source = {
    .name = "OTHERML",
    .open = source_open,
    .close = source_close,
    .ask = source_ask,
    .listen = source_listen,
    .start = source_start,
    .stop = source_stop,
};

static const struct gpu_driver driver = {
    .name = "other",
    .tool = "other-smi",
    .create = driver_create,
    .close = driver_close,
    .source = &source,
};

static const struct gpu_driver driver_alone = {
    .name = "other", .tool = "other-smi", .create = driver_create, .close = driver_close};

/* ---- opening and closing --------------------------------------------------------------------- */

static int try_open_other(const struct gpu_driver *which, uint64_t granularity_bytes)
{
    struct vmm_options options = {.copier_idle_ms = 1000};

    health_init(&health);
    measurement_init(&measurement);
    device = (struct vmm_device){
        .health = &health,
        .measurement = &measurement,
        .uuid = {7},
        .granularity_bytes = granularity_bytes,
        .total_bytes = 64 * MIB,
        .physical_bytes = 64 * MIB,
        .pci_id = "0000:42:00.0",
    };
    return gpu_open("", &options, which, &world, false, &device, error, sizeof(error));
}

static void open_other(const struct gpu_driver *which)
{
    memset(&world, 0, sizeof(world));
    world.word = MONITOR_THERE;
    world.free_bytes = 60 * MIB;
    require(try_open_other(which, 2 * MIB) == 0);
}

static void close_other(void)
{
    gpu_close(&device);
    measurement_destroy(&measurement);
    health_destroy(&health);
    check_int(world.closes, 1);
    check_int(world.stops, world.starts);
}

TAP_TEST(another_drivers_memory_is_a_piece_like_any)
{
    struct vmm_piece piece = {.fd = -1, .fd_readonly = -1};

    open_other(&driver);
    check_int(gpu_create(&device, 4 * MIB, true, &piece), 0);
    check(piece.fd >= 0 && piece.fd == piece.fd_readonly && piece.serial != 0);
    check_int(size_of(piece.fd), 4 * MIB);
    piece.sealed = true;
    gpu_release(&device, &piece);
    close(piece.fd);
    close_other();
    check_int(world.source_closes, 1);
}

TAP_TEST(another_drivers_spool_is_host_memory)
{
    struct vmm_piece piece = {.fd = -1, .fd_readonly = -1};
    char text[6] = "";

    open_other(&driver);
    check_int(gpu_create(&device, 2 * MIB, false, &piece), 0);
    check_int(world.creates, 0);
    piece.aligned_bytes = 2 * MIB;
    check_int(gpu_write(&device, &piece, "hello", 5, 1 * MIB), 0);
    check_int(gpu_read(&device, &piece, text, 5, 1 * MIB), 0);
    check_str(text, "hello");
    gpu_release(&device, &piece);
    close(piece.fd);
    close(piece.fd_readonly);
    close_other();
}

TAP_TEST(its_management_library_is_asked_and_heard)
{
    struct vmm_health news;
    uint64_t free_bytes;

    open_other(&driver);
    check(measurement_get(&measurement, &free_bytes));
    check_int(free_bytes, 60 * MIB);
    check_int(gpu_measure(&device), 0);
    check_int(world.starts, 1);
    health_report_suspect(world.health, "a cosmic ray");
    check(health_take(&health, &news));
    check_str(news.why, "a cosmic ray");
    close_other();
}

TAP_TEST(loss_is_told_in_the_name_of_the_library_that_says_so)
{
    struct vmm_piece piece;
    struct vmm_health news;

    open_other(&driver);
    world.create_error = -ENODEV;
    world.word = MONITOR_GONE;
    check_int(gpu_create(&device, 2 * MIB, true, &piece), -ENODEV);
    check_int(world.creates, 1);
    check(health_take(&health, &news));
    check(news.lost);
    check_str(news.why, "OTHERML says that the GPU is lost");
    close_other();
}

TAP_TEST(a_driver_without_a_library_is_believed_when_asked_twice)
{
    struct vmm_piece piece;
    struct vmm_health news;

    open_other(&driver_alone);
    check(gpu_measure(&device) < 0);
    world.create_error = -ENODEV;
    world.failures = 1;
    check_int(gpu_create(&device, 2 * MIB, true, &piece), 0);
    check_int(world.creates, 2);
    check(!health_take(&health, &news));
    piece.sealed = true;
    gpu_release(&device, &piece);
    close(piece.fd);
    world.failures = 0;
    check_int(gpu_create(&device, 2 * MIB, true, &piece), -ENODEV);
    check(health_take(&health, &news));
    check(news.lost);
    check_int(world.opens, 0);
    close_other();
}

TAP_TEST(a_library_that_cannot_be_opened_is_done_without)
{
    memset(&world, 0, sizeof(world));
    world.open_error = -ENODEV;
    require(try_open_other(&driver, 2 * MIB) == 0);
    check(gpu_measure(&device) < 0);
    close_other();
    memset(&world, 0, sizeof(world));
    world.listen_error = -EOPNOTSUPP;
    require(try_open_other(&driver, 2 * MIB) == 0);
    check_int(gpu_measure(&device), 0);
    check_int(world.starts, 0);
    close_other();
}

TAP_TEST(after_a_failure_the_context_is_still_the_callers)
{
    memset(&world, 0, sizeof(world));
    check_int(try_open_other(&driver, 3), -EINVAL);
    check(error[0] != '\0');
    check_int(world.closes, 0);
    measurement_destroy(&measurement);
    health_destroy(&health);
}
