/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static bool knows_slices(void)
{
    struct utsname system;
    int major = 0, minor = 0;

    require(uname(&system) == 0);
    require(sscanf(system.release, "%d.%d", &major, &minor) == 2);
    return major > 6 || (major == 6 && minor >= 12);
}

static void *look(void *argument)
{
    *(bool *)argument = thread_is_prompt();
    return NULL;
}

TAP_TEST(short_slices_are_the_threads_own)
{
    bool of_another = true;
    pthread_t thread;
    int status;

    check(!thread_is_prompt());
    thread_be_prompt();
    check_int(thread_is_prompt(), knows_slices());
    require(thread_start(&thread, 0, look, &of_another) == 0);
    pthread_join(thread, NULL);
    check(!of_another);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0)
        _exit(thread_is_prompt());
    require(waitpid(child, &status, 0) == child);
    check_int(status, 0);
}

#define USED_BYTES (12u << 10)

/* Returns the number of resident pages of the caller's stack, from `bytes` below this frame on. */
static unsigned count_resident(size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = ((uintptr_t)__builtin_frame_address(0) - 2 * page) / page * page;
    unsigned char pages[8];
    unsigned count = 0;

    require(bytes / page <= sizeof pages);
    require(mincore((void *)(end - bytes), bytes, pages) == 0);
    for (size_t i = 0; i < bytes / page; i++)
        count += pages[i] & 1;
    return count;
}

/* AddressSanitizer has arrays of functions in other memory. */
__attribute__((noinline, no_sanitize("address"))) static void use_stack(void)
{
    volatile char used[USED_BYTES + (12u << 10)];

    for (size_t i = 0; i < sizeof used; i += 1024)
        used[i] = 1;
}

static void *give_back(void *argument)
{
    unsigned *counts = argument;

    use_stack();
    counts[0] = count_resident(USED_BYTES);
    thread_give_back_stack();
    counts[1] = count_resident(USED_BYTES);
    return NULL;
}

TAP_TEST(a_thread_gives_the_memory_of_its_stack_back)
{
    unsigned counts[2] = {0, 1};
    pthread_t thread;

    require(thread_start(&thread, 256u << 10, give_back, counts) == 0);
    pthread_join(thread, NULL);
    check_int(counts[0], USED_BYTES / (unsigned)sysconf(_SC_PAGESIZE));
    check_int(counts[1], 0);
}
