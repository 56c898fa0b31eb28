/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retarget_fixture - several stores side by side, of which a handle maps one at a time
 */
#ifndef GMSFS_TESTS_API_RETARGET_FIXTURE_H
#define GMSFS_TESTS_API_RETARGET_FIXTURE_H

#include <sys/stat.h>

#include "places_fixture.h"

/* `a` is the store of api.h, ELSEWHERE one of another mount, BESIDE one of another mount of the
 * same device; the others are neighbours of `a`, made if they do not exist. */
#define ELSEWHERE 'z'
#define BESIDE    'y'

__attribute__((unused)) static const char *path_of(char which)
{
    static _Thread_local char path[512];

    if (which == 'a')
        return store_path();
    if (which == ELSEWHERE) {
        require(getenv("GMSFS_TEST_ELSEWHERE") != NULL);
        return getenv("GMSFS_TEST_ELSEWHERE");
    }
    if (which == BESIDE) {
        require(getenv("GMSFS_TEST_BESIDE") != NULL);
        return getenv("GMSFS_TEST_BESIDE");
    }
    snprintf(path, sizeof path, "%s.%c", store_path(), which);
    require(mkdir(path, 0755) == 0 || errno == EEXIST);
    return path;
}

__attribute__((unused)) static gmsfs_t *open_one(char which)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(path_of(which), &store) == 0);
    check_int(gmsfs_set_slab_bytes(store, 0), 0);
    return store;
}

__attribute__((unused)) static struct gmsfs_info look_at(char which)
{
    struct gmsfs_info info = {0};
    gmsfs_t *store = open_one(which);

    check_int(gmsfs_get_info(store, &info), 0);
    gmsfs_close(store);
    return info;
}

__attribute__((unused)) static int order_of(char which, const char *word)
{
    char path[560];
    int fd, error;

    snprintf(path, sizeof path, "%s/residency", path_of(which));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    error = write(fd, word, strlen(word)) < 0 ? -errno : 0;
    close(fd);
    return error;
}

__attribute__((unused)) static void wait_for_place(char which, unsigned residency)
{
    for (int tries = 0; tries < WAIT_MS && look_at(which).residency != residency; tries++)
        usleep(1000);
    check_int(look_at(which).residency, residency);
}

__attribute__((unused)) static void demote(char which)
{
    check_int(order_of(which, "host"), 0);
    wait_for_place(which, GMSFS_RESIDENCY_HOST);
}

#endif
