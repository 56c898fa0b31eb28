/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the look-up of a user's groups. This file is the machine's user database: it has many
 * groups, is slow, or fails. */
#include "tap.h"
#include "triton/groups.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <time.h>
#include <unistd.h>

enum {
    FEW = 100000,
    MANY,
    SLOW,
    OTHER,
    NAMELESS,
    FAILING,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t goes_on = PTHREAD_COND_INITIALIZER;
static bool is_held;
static unsigned asked;

static void hold(bool held)
{
    pthread_mutex_lock(&mutex);
    is_held = held;
    pthread_cond_broadcast(&goes_on);
    pthread_mutex_unlock(&mutex);
}

/* In place of the C library's. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *bytes, size_t size, struct passwd **found)
{
    (void)bytes;
    (void)size;
    pthread_mutex_lock(&mutex);
    asked++;
    while (uid == SLOW && is_held)
        pthread_cond_wait(&goes_on, &mutex);
    pthread_mutex_unlock(&mutex);
    static char many[] = "many", few[] = "few";
    *found = uid == NAMELESS ? NULL : entry;
    entry->pw_name = uid == MANY ? many : few;
    entry->pw_gid = uid;
    return uid == FAILING ? EIO : 0;
}

int getgrouplist(const char *name, gid_t gid, gid_t *groups, int *count)
{
    int there = strcmp(name, "many") == 0 ? 1000 : 2, room = *count;

    for (int i = 0; i < there && i < room; i++)
        groups[i] = gid + (gid_t)i;
    *count = there;
    return there <= room ? there : -1;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Returns the number of groups, or a negative errno. */
static int count(uint32_t uid)
{
    struct groups groups;
    int error = groups_find(uid, &groups), found = (int)groups.count;

    if (!error)
        check_int(groups.gid, uid);
    for (int i = 0; i < found; i++)
        check_int(groups.list[i], uid + (uint32_t)i);
    groups_free(&groups);
    return error ? error : found;
}

TAP_TEST(all_groups_are_returned)
{
    check_int(count(FEW), 2);
    check_int(count(MANY), 1000);
}

TAP_TEST(an_answer_is_cached_for_a_while)
{
    count(FEW);
    count(NAMELESS);
    unsigned before = asked;
    check_int(count(FEW), 2);
    check_int(count(NAMELESS), -ENOENT);
    check_int(asked, before);
}

TAP_TEST(a_failure_is_not_an_unknown_user_and_is_asked_again)
{
    check_int(count(FAILING), -EIO);
    unsigned before = asked;
    check_int(count(FAILING), -EIO);
    check_int(asked, before + 1);
}

TAP_TEST(a_directory_that_does_not_answer_is_waited_for_once_and_not_for_long)
{
    hold(true);
    uint64_t start = now_ms();
    check_int(count(SLOW), -ETIMEDOUT);
    uint64_t end = now_ms();
    check(end - start >= GROUPS_WAIT_MS - 10);
    check(end - start < 5 * GROUPS_WAIT_MS);
    for (int i = 0; i < 20; i++)
        check_int(count(SLOW), -ETIMEDOUT);
    check_int(count(FEW), 2); /* from the cache */
    check(now_ms() - end < GROUPS_WAIT_MS);
    hold(false);
    int found = -ETIMEDOUT;
    for (int i = 0; i < 1000 && found == -ETIMEDOUT; i++) {
        usleep(10000);
        found = count(SLOW);
    }
    check_int(found, 2);
    check_int(count(OTHER), 2); /* an unknown user waits again */
}
