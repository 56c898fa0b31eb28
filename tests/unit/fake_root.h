/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_root - a made-up machine for tests: a temporary directory to read instead of "/"
 *
 * fake_root_make, then fake_root_put for each file, fake_root_remove at the end. For unit tests of
 * readers of /proc, /sys or /etc; never touches the real ones.
 */
#ifndef GMSFS_TESTS_UNIT_FAKE_ROOT_H
#define GMSFS_TESTS_UNIT_FAKE_ROOT_H

#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAKE_PATH_BYTES 4096
#define FAKE_MIB        (UINT64_C(1) << 20)
#define FAKE_GIB        (UINT64_C(1) << 30)

__attribute__((unused)) static bool fake_root_make(char root[FAKE_PATH_BYTES])
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root, FAKE_PATH_BYTES, "%s/gmsfs-fake-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(root) != NULL;
}

/* Writes a file, with the directories above it. */
__attribute__((unused)) static bool fake_root_put(const char *root, const char *path,
                                                  const char *text)
{
    char full[2 * FAKE_PATH_BYTES];
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    file = fopen(full, "we");
    if (!file)
        return false;
    fputs(text, file);
    return fclose(file) == 0;
}

__attribute__((unused)) static bool fake_root_put_number(const char *root, const char *path,
                                                         uint64_t number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)number);
    return fake_root_put(root, path, text);
}

__attribute__((unused)) static bool fake_root_put_meminfo(const char *root, uint64_t total_bytes,
                                                          uint64_t available_bytes)
{
    char text[256];

    snprintf(text, sizeof(text),
             "MemTotal:       %llu kB\nMemFree:        1 kB\nMemAvailable:   %llu kB\n"
             "Buffers:        5 kB\n",
             (unsigned long long)(total_bytes >> 10), (unsigned long long)(available_bytes >> 10));
    return fake_root_put(root, "/proc/meminfo", text);
}

static int fake_root_remove_one(const char *path, const struct stat *st, int type,
                                struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

__attribute__((unused)) static void fake_root_remove(const char *root)
{
    nftw(root, fake_root_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
