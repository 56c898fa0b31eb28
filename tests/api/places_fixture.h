/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_fixture - a store whose bytes move between its device and the host, for tests of libgmsfs
 */
#ifndef GMSFS_TESTS_API_PLACES_FIXTURE_H
#define GMSFS_TESTS_API_PLACES_FIXTURE_H

#include <fcntl.h>

#include "api.h"

/* Writes a word to the store's file `residency`. */
__attribute__((unused)) static int order(const char *word)
{
    char path[512];
    int fd, error;

    snprintf(path, sizeof path, "%s/residency", store_path());
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    error = write(fd, word, strlen(word)) < 0 ? -errno : 0;
    close(fd);
    return error;
}

__attribute__((unused)) static struct gmsfs_info look(void)
{
    struct gmsfs_info info = {0};
    gmsfs_t *store = open_store();

    check_int(gmsfs_get_info(store, &info), 0);
    gmsfs_close(store);
    return info;
}

/* Waits until all bytes are there, and nowhere else. */
__attribute__((unused)) static void move_to(const char *word, unsigned residency)
{
    check_int(order(word), 0);
    for (int tries = 0; tries < WAIT_MS && look().residency != residency; tries++)
        usleep(1000);
    check_int(look().residency, residency);
}

#endif
