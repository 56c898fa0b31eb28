/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/* Measuring the memory of a GPU that other processes hold: no caller waits for NVML, and all get
 * its answer. */
#include "vmm_cuda_fixture.h"

#include <pthread.h>

#define HANGING "slow nvmlDeviceGetMemoryInfo 3600000\n"
#define SLOW    "slow nvmlDeviceGetMemoryInfo 300\n"
#define SHARERS 8
#define MANY    1000

static _Atomic unsigned calls;

static void on_measurement(void *context)
{
    (void)context;
    calls++;
}

static void open_listening(const char *control)
{
    open_gpu(control);
    calls = 0;
    vmm_on_measurement(vmm, on_measurement, NULL);
}

static uint64_t known_free_bytes(void)
{
    struct vmm_info info;

    vmm_get_info(vmm, &info);
    return info.knows_others ? info.free_bytes : UINT64_MAX;
}

static void wait_for_calls(unsigned count)
{
    for (int tries = 0; tries < MEASURE_TRIES && calls < count; tries++)
        usleep(10000);
    check_int(calls, count);
}

static void wait_for_free(uint64_t bytes)
{
    for (int tries = 0; tries < MEASURE_TRIES && known_free_bytes() != bytes; tries++)
        usleep(10000);
    check_int(known_free_bytes(), bytes);
}

TAP_AFTER_EACH(close_gpu)

TAP_TEST(opening_measures_for_the_first_time)
{
    open_gpu("memory 64\nothers 2\n");
    check_int(known_free_bytes(), 62 * MIB);
}

TAP_TEST(a_measurement_is_over_when_the_call_comes)
{
    open_listening("memory 64\nothers 2\n");
    for (unsigned round = 1; round <= 20; round++) {
        char control[64];

        snprintf(control, sizeof(control), "memory 64\nothers %u\n", round);
        require(fake_cuda_control(control));
        check(vmm_measure(vmm));
        wait_for_calls(round);
        check_int(known_free_bytes(), (64 - round) * MIB);
    }
}

TAP_TEST(until_a_slow_answer_comes_the_last_number_is_told)
{
    open_listening("memory 64\nothers 2\n");
    require(fake_cuda_control("memory 64\nothers 8\n" SLOW));
    check(vmm_measure(vmm));
    check_int(calls, 0);
    check_int(known_free_bytes(), 62 * MIB);
    wait_for_calls(1);
    check_int(known_free_bytes(), 56 * MIB);
}

static void *measure_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < MANY; i++)
        check(vmm_measure(vmm));
    return NULL;
}

TAP_TEST(who_asks_meanwhile_shares_the_answer)
{
    pthread_t threads[SHARERS];

    open_listening("memory 64\nothers 2\n");
    require(fake_cuda_control("memory 64\nothers 8\nslow nvmlDeviceGetMemoryInfo 2000\n"));
    for (int i = 0; i < SHARERS; i++)
        require(pthread_create(&threads[i], NULL, measure_often, NULL) == 0);
    for (int i = 0; i < SHARERS; i++)
        pthread_join(threads[i], NULL);
    check_int(calls, 0);
    wait_for_calls(1);
    check_int(known_free_bytes(), 56 * MIB);
    require(fake_cuda_control("memory 64\nothers 4\n"));
    check(vmm_measure(vmm));
    wait_for_calls(2);
    wait_for_free(60 * MIB);
    check_int(calls, 2);
}

/* A waiting call would not return before this program's end. */
TAP_TEST(a_library_that_hangs_keeps_nobody_waiting)
{
    struct vmm_piece piece;

    open_listening("memory 64\nothers 2\n");
    require(fake_cuda_control("memory 64\nothers 8\n" HANGING));
    for (int i = 0; i < MANY; i++)
        check(vmm_measure(vmm));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    check_int(known_free_bytes(), 62 * MIB);
    check_int(calls, 0);
    close_gpu();
    check_int(calls, 0);
}

TAP_TEST(an_answer_that_is_an_error_is_told_and_leaves_the_number)
{
    open_listening("memory 64\nothers 2\n");
    require(fake_cuda_control("memory 64\nothers 8\nfail nvmlDeviceGetMemoryInfo 999\n"));
    check(vmm_measure(vmm));
    wait_for_calls(1);
    check_int(known_free_bytes(), 62 * MIB);
}

TAP_TEST(no_call_comes_to_who_no_longer_listens)
{
    open_listening("memory 64\nothers 2\n");
    require(fake_cuda_control("memory 64\nothers 8\n" SLOW));
    check(vmm_measure(vmm));
    vmm_on_measurement(vmm, NULL, NULL);
    wait_for_free(56 * MIB);
    check_int(calls, 0);
    vmm_on_measurement(vmm, on_measurement, NULL); /* earlier measurements are not reported */
    check_int(calls, 0);
}

TAP_TEST(an_answer_that_comes_after_closing_is_told_to_nobody)
{
    open_listening("memory 64\n");
    require(fake_cuda_control("memory 64\nslow nvmlDeviceGetMemoryInfo 1500\n"));
    check(vmm_measure(vmm));
    close_gpu(); /* waits a second for the thread */
    usleep(1000000);
    check_int(calls, 0);
}

TAP_TEST(where_nobody_can_be_asked_it_is_said_at_once)
{
    open_listening("fail nvmlInit_v2 999\n");
    check(!vmm_measure(vmm));
    check_int(known_free_bytes(), UINT64_MAX);
    close_gpu();
    open_host(64 * MIB);
    vmm_on_measurement(vmm, on_measurement, NULL);
    check(!vmm_measure(vmm));
    check_int(known_free_bytes(), UINT64_MAX);
    close_gpu();
    check_int(calls, 0);
}

TAP_TEST(memory_that_cannot_be_made_has_the_device_measured)
{
    struct vmm_piece piece;

    open_listening("memory 64\nothers 2\n");
    for (unsigned others = 50; others < 60; others++) {
        char control[64];

        snprintf(control, sizeof(control), "memory 64\nothers %u\n", others);
        require(fake_cuda_control(control));
        check_int(vmm_create(vmm, 32 * MIB, true, &piece), -ENOMEM);
        wait_for_free((64 - others) * MIB);
    }
    check_int(calls, 0); /* no question was asked */
}

TAP_TEST(a_library_that_opens_late_answers_what_was_asked_meanwhile)
{
    open_listening("memory 64\nothers 2\nslow nvmlInit_v2 4000\n");
    check(vmm_measure(vmm));
    check_int(known_free_bytes(), UINT64_MAX);
    wait_for_calls(1);
    check_int(known_free_bytes(), 62 * MIB);
}

TAP_TEST(a_library_that_fails_late_ends_what_was_asked_meanwhile)
{
    open_listening("slow nvmlInit_v2 4000\nfail nvmlInit_v2 999\n");
    check(vmm_measure(vmm));
    wait_for_calls(1);
    check(!vmm_measure(vmm));
    check_int(known_free_bytes(), UINT64_MAX);
}
