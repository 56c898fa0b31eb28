/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FRAME_BYTES      1024u /* more than the frame of thread_give_back_stack */
#define PAGE_BYTES       (uintptr_t) sysconf(_SC_PAGESIZE)
#define PROMPT_SLICE_NS  100000u /* the kernel's shortest slice */
#define RESETS_ON_FORK   1u
#define POLICY_OF_OTHERS 0u

/* struct sched_attr of Linux 5.3; the headers of the C library and of the kernel conflict. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
    uint32_t least, most;
};

static bool read_scheduling(struct scheduling *scheduling)
{
    return syscall(SYS_sched_getattr, 0, scheduling, sizeof *scheduling, 0) == 0 &&
           scheduling->policy == POLICY_OF_OTHERS;
}

void thread_give_back_stack(void)
{
    uintptr_t end = (uintptr_t)__builtin_frame_address(0) - FRAME_BYTES;
    pthread_attr_t attributes;
    void *stack;
    size_t bytes;

    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &stack, &bytes) == 0)
        madvise(stack, end / PAGE_BYTES * PAGE_BYTES - (uintptr_t)stack, MADV_DONTNEED);
    pthread_attr_destroy(&attributes);
}

void thread_be_prompt(void)
{
    struct scheduling now = {0};

    if (!read_scheduling(&now))
        return;
    struct scheduling wanted = {.size = sizeof wanted,
                                .policy = now.policy,
                                .flags = RESETS_ON_FORK,
                                .nice = now.nice,
                                .runtime_ns = PROMPT_SLICE_NS};
    syscall(SYS_sched_setattr, 0, &wanted, 0);
}

/* Kernels without slices report 0. */
bool thread_is_prompt(void)
{
    struct scheduling now = {0};

    return read_scheduling(&now) && now.runtime_ns == PROMPT_SLICE_NS;
}

void thread_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t detached;

    pthread_attr_init(&attributes);
    if (stack_bytes)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    if (!thread)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread ? thread : &detached, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -error;
}

unsigned thread_count_processors(void)
{
    cpu_set_t usable;

    if (sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) > 0)
        return (unsigned)CPU_COUNT(&usable);
    return 1;
}
