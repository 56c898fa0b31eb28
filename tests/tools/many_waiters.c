/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many_waiters - COUNT threads that ask for the reader's lock of STORE, and wait as long as it
 * takes
 *
 *   many_waiters STORE COUNT
 *
 * Ends when all have it.
 */
#include "gmsfs_abi.h"
#include "tool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/ioctl.h>

#define MAX_THREADS 4000
#define STACK_BYTES 65536

static const char *store;

static void *wait_for_lock(void *unused)
{
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RO, .timeout_ms = GMSFS_TIMEOUT_FOREVER};
    int fd = open(tool_path("%s/ctl", store).text, O_RDONLY | O_CLOEXEC);
    (void)unused;
    if (fd < 0 || ioctl(fd, GMSFS_IOC_ACQUIRE, &acquire) < 0)
        tool_die("the lock of %s: %s", store, strerror(errno));
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MAX_THREADS];
    int count = argc == 3 ? atoi(argv[2]) : 0;
    pthread_attr_t attr;

    if (count < 1 || count > MAX_THREADS)
        tool_die("many_waiters STORE COUNT");
    store = argv[1];
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], &attr, wait_for_lock, NULL);
        if (error)
            tool_die("thread %d: %s", i, strerror(error));
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
