/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many_waiters - COUNT threads that open PATH read-only, and wait for that as long as it takes
 *
 *   many_waiters PATH COUNT
 *
 * Ends when all have it open.
 */
#include "tool.h"

#include <fcntl.h>
#include <pthread.h>

#define MAX_THREADS 4000
#define STACK_BYTES 65536

static const char *path;

static void *wait_for_open(void *unused)
{
    (void)unused;
    if (open(path, O_RDONLY | O_CLOEXEC) < 0)
        tool_die("open %s: %s", path, strerror(errno));
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MAX_THREADS];
    int count = argc == 3 ? atoi(argv[2]) : 0;
    pthread_attr_t attr;

    if (count < 1 || count > MAX_THREADS)
        tool_die("many_waiters PATH COUNT");
    path = argv[1];
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], &attr, wait_for_open, NULL);
        if (error)
            tool_die("thread %d: %s", i, strerror(error));
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
