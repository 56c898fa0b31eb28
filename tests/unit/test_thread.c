/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "tap.h"

#include <stdlib.h>
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
