/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_make.h"

#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_open.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STORE_MODE  0777 /* less the umask */
#define TRIES       100u /* while the end of our own use of it is still on its way */
#define TRY_WAIT_NS 10000000

/* A command fills at most as many stores at once. Written before it counts, for a handler reads it.
 */
static char made[GMSFS_GROUP_MAX][PATH_MAX];
static atomic_uint made_count;

static int make(const char *path)
{
    unsigned count = atomic_load(&made_count);

    if (count == GMSFS_GROUP_MAX || strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (mkdir(path, STORE_MODE) < 0)
        return errno == EEXIST ? 0 : -errno; /* somebody else was quicker: it is not ours */
    strcpy(made[count], path);
    atomic_store(&made_count, count + 1);
    return 0;
}

int store_open_or_make(const char *path, gmsfs_t **handle)
{
    int error = gmsfs_open(path, handle);

    if (error != -ENOENT || !store_could_be(path))
        return error ? store_open(path, handle) : 0;
    error = make(path);
    if (error) {
        store_explain(path, "make the store", error);
        return error;
    }
    return store_open(path, handle);
}

void store_make_keep(void)
{
    atomic_store(&made_count, 0);
}

void store_make_undo(void)
{
    const struct timespec wait = {.tv_nsec = TRY_WAIT_NS};

    for (unsigned i = atomic_exchange(&made_count, 0); i > 0; i--)
        for (unsigned tries = 0; tries < TRIES && rmdir(made[i - 1]) < 0 && errno == EBUSY; tries++)
            nanosleep(&wait, NULL);
}
