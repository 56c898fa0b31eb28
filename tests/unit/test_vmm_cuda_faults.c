/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a GPU over the fake driver, when driver, device or NVML fail, hang or have bad news. */
#include "vmm_cuda_fixture.h"

/* ---- faults ---------------------------------------------------------------------------------- */

/* Threads of the watch have one open for a moment now and then. */
static bool has_descriptors(int count)
{
    for (int tries = 0; tries < MEASURE_TRIES && count_descriptors() != count; tries++)
        usleep(10000);
    return count_descriptors() == count;
}

static int count_quiet_descriptors(void)
{
    int count = count_descriptors();

    for (int same = 0; same < 5;) {
        int now;
        usleep(2000);
        now = count_descriptors();
        same = now == count ? same + 1 : 0;
        count = now < count ? now : count;
    }
    return count;
}

/* One call fails with `result`: the request gets `expected`, and nothing stays behind. */
static void check_fault(const char *call, unsigned result, int expected)
{
    int descriptors = count_quiet_descriptors();
    struct vmm_piece piece;
    char control[128];

    snprintf(control, sizeof(control), "memory 64\nfail %s %u 1 1\n", call, result);
    require(fake_cuda_control(control));
    check_int(vmm_create(vmm, 64 * MIB, true, &piece), expected);
    check_int(piece.fd, -1);
    check(has_descriptors(descriptors));
    check_int(vmm_create(vmm, 64 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
}

TAP_AFTER_EACH(close_gpu)

TAP_TEST(error_of_the_driver_harms_the_request_alone)
{
    open_gpu("memory 64\n");
    check_fault("cuMemCreate", 2, -ENOMEM);
    check_fault("cuMemCreate", 999, -EIO);
    check_fault("cuMemCreate", 1, -EIO);
    check_fault("cuMemExportToShareableHandle", 2, -ENOMEM);
    check_fault("cuMemExportToShareableHandle", 304, -EIO);
}

/* Returns the text that `act` writes to stderr. */
static const char *log_of(void (*act)(void))
{
    static char text[1 << 20];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    size_t got;

    require(file != NULL && saved >= 0);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    act();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    return text;
}

static unsigned count_lines(const char *text, const char *word)
{
    unsigned count = 0;

    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

#define STORM 500u

static void fail_often(void)
{
    struct vmm_piece piece;

    open_gpu("fail cuMemCreate 999 2\n");
    for (unsigned i = 0; i < STORM; i++)
        check_int(vmm_create(vmm, 2 * MIB, true, &piece), -EIO);
    close_gpu();
}

/* However slow the machine is, it is no line for each. */
TAP_TEST(a_storm_of_errors_is_some_lines_and_a_count)
{
    const char *log = log_of(fail_often);
    const char *at = strstr(log, " were left out");
    unsigned logged = count_lines(log, "cuMemCreate"), left_out = 0;

    require(at != NULL);
    while (at > log && strncmp(at, "device cuda: ", 13) != 0)
        at--;
    check_int(sscanf(at, "device cuda: %u more", &left_out), 1);
    check(logged >= 10 && logged <= STORM / 5);
    check(left_out > 0 && left_out <= STORM - logged);
    check(strstr(log, "are not logged") != NULL);
}

TAP_TEST(device_that_vanished_is_enodev)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("lost 0\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
}

static struct vmm_health news;
static _Atomic unsigned calls;

static void on_news(void *context)
{
    (void)context;
    calls++;
}

/* Waits for health news. */
static bool wait_for_news(void)
{
    for (int tries = 0; tries < MEASURE_TRIES; tries++) {
        if (vmm_take_health(vmm, &news))
            return true;
        usleep(10000);
    }
    return false;
}

TAP_TEST(errors_of_memory_are_news_and_those_of_programs_are_not)
{
    open_gpu("");
    require(fake_cuda_control("xid 0 13\nxid 0 31\nxid 0 63\nxid 0 48\n"));
    check(wait_for_news());
    check(news.suspect && !news.lost);
    check_str(news.why, "Xid 48: uncorrectable memory error");
    check(!vmm_take_health(vmm, &news));
    require(fake_cuda_control("xid 0 13\nxid 0 31\nxid 0 63\nxid 0 48\necc 0\n"));
    check(wait_for_news());
    check_str(news.why, "uncorrectable memory error (ECC)");
}

TAP_TEST(a_storm_is_one_call_until_the_news_are_taken)
{
    char storm[4096] = "";

    open_gpu("");
    calls = 0;
    vmm_on_health(vmm, on_news, NULL);
    for (int i = 0; i < 60; i++)
        strcat(storm, "xid 0 95\n");
    strcat(storm, "xid 0 79\n");
    require(fake_cuda_control(storm));
    for (int tries = 0; tries < MEASURE_TRIES && calls == 0; tries++)
        usleep(10000);
    do
        check(wait_for_news());
    while (!news.lost);
    check_str(news.why, "Xid 79: the GPU has fallen off the bus");
    check(calls <= 61);
    vmm_on_health(vmm, NULL, NULL);
}

TAP_TEST(news_from_before_somebody_listens_are_told)
{
    open_gpu("xid 0 48\n");
    calls = 0;
    for (int tries = 0; tries < MEASURE_TRIES && calls == 0; tries++) {
        vmm_on_health(vmm, on_news, NULL);
        usleep(10000);
    }
    check(calls > 0);
    check(vmm_take_health(vmm, &news));
    vmm_on_health(vmm, NULL, NULL);
}

TAP_TEST(one_call_that_says_no_device_is_no_loss)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("fail cuMemCreate 46 1 1\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    check(!vmm_take_health(vmm, &news));
    /* NVML sees it all the same. */
    require(fake_cuda_control("fail cuMemCreate 46\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
    check(!vmm_take_health(vmm, &news));
}

TAP_TEST(where_nvml_is_silent_the_driver_is_believed_when_asked_twice)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("fail cuMemCreate 46\nfail nvmlDeviceGetMemoryInfo 999\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
    check(vmm_take_health(vmm, &news));
    check(news.lost && !news.suspect);
}

TAP_TEST(nvml_that_says_once_that_the_gpu_is_lost_is_asked_again)
{
    open_gpu("");
    require(fake_cuda_control("fail nvmlEventSetWait_v2 15 1 3\nxid 0 48\n"));
    check(wait_for_news());
    check(news.suspect && !news.lost);
    require(fake_cuda_control("lost 0\n"));
    check(wait_for_news());
    check(news.lost);
    check_str(news.why, "NVML says that the GPU is lost");
}

TAP_TEST(a_gpu_that_tells_no_events_is_served_without)
{
    struct vmm_piece piece;

    open_gpu("fail nvmlDeviceRegisterEvents 3\n");
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    check_free(1024 * MIB);
    close_gpu();
    open_gpu(""); /* its watch is still ending when the next one begins */
    close_gpu();
    /* No ECC, but Xids. */
    open_gpu("fail nvmlDeviceRegisterEvents 3 1 1\nslow nvmlDeviceRegisterEvents 50\nxid 0 48\n");
    check(wait_for_news());
}

static void open_under_hanging_nvml(void)
{
    struct vmm_info info;
    struct vmm_piece piece;

    open_gpu("slow nvmlInit_v2 3600000\n");
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_measure(vmm);
    vmm_get_info(vmm, &info);
    check(!info.knows_others);
    vmm_destroy(vmm, &piece);
    close_gpu();
}

TAP_TEST(opening_does_not_wait_for_a_library_that_hangs)
{
    check(strstr(log_of(open_under_hanging_nvml), "NVML has not answered") != NULL);
}

TAP_TEST(library_that_cannot_be_started_is_said_and_done_without)
{
    struct vmm_piece piece;

    open_gpu("fail nvmlInit_v2 999\n");
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
}

TAP_TEST(sizes_beyond_any_device_are_enomem)
{
    struct vmm_piece piece;

    open_gpu("");
    check_int(vmm_create(vmm, UINT64_MAX, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, INT64_MAX, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, UINT64_C(1) << 46, true, &piece), -ENOMEM);
}
