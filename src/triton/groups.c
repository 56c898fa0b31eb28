/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/groups.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK_BYTES  (256u << 10) /* for the client library of a user directory */
#define PASSWD_BYTES 16384u
#define FIRST_ROOM   64
#define MAX_GROUPS   65536 /* NGROUPS_MAX of Linux */
#define MAX_USERS    256u  /* in the cache */
#define MAX_LOOKUPS  4u    /* at a time */

struct user {
    uint32_t uid;
    bool is_asked, is_known; /* asked: a thread is looking it up */
    int error;
    struct groups groups;
    uint64_t found_ms;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered;
static struct user users[MAX_USERS];
static unsigned lookups;
static bool is_overdue; /* the last wait ended without an answer */

/* ---- the lookup ------------------------------------------------------------------------------ */

static int list_groups(const struct passwd *entry, struct groups *groups)
{
    for (int room = FIRST_ROOM; room <= MAX_GROUPS; room *= 2) {
        gid_t *grown = realloc(groups->list, (size_t)room * sizeof *grown);
        int count = room;
        if (!grown)
            return -ENOMEM;
        groups->list = grown;
        if (getgrouplist(entry->pw_name, entry->pw_gid, grown, &count) >= 0) {
            groups->count = (size_t)count;
            return 0;
        }
    }
    return -E2BIG;
}

/* The errors by which POSIX allows getpwuid_r to say that there is no such user. */
static bool is_unknown(int number)
{
    return number == ENOENT || number == ESRCH || number == EBADF || number == EPERM;
}

static int look_up(uint32_t uid, struct groups *groups)
{
    char bytes[PASSWD_BYTES];
    struct passwd entry, *found = NULL;
    int number = getpwuid_r(uid, &entry, bytes, sizeof bytes, &found);

    if (is_unknown(number) || (number == 0 && !found))
        return -ENOENT;
    if (number)
        return -number;
    groups->gid = entry.pw_gid;
    return list_groups(&entry, groups);
}

static void *run_lookup(void *argument)
{
    struct user *user = argument;
    struct groups groups = {0};
    int error = look_up(user->uid, &groups); /* find_place does not reuse the entry meanwhile */

    if (error)
        groups_free(&groups);
    SCOPED_LOCK(&mutex);
    groups_free(&user->groups);
    user->groups = groups;
    user->error = error;
    user->is_asked = false;
    user->is_known = true;
    user->found_ms = clock_now_ms();
    lookups--;
    is_overdue = false;
    pthread_cond_signal(&answered);
    return NULL;
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Returns the user's entry, or a free one, or the oldest. NULL: a thread is looking up each of
 * them. */
static struct user *find_place(uint32_t uid)
{
    struct user *best = NULL;

    for (size_t i = 0; i < MAX_USERS; i++) {
        struct user *user = &users[i];
        if ((user->is_asked || user->is_known) && user->uid == uid)
            return user;
        if (!user->is_asked && (!best || user->found_ms < best->found_ms))
            best = user;
    }
    if (best) {
        groups_free(&best->groups);
        *best = (struct user){.uid = uid};
    }
    return best;
}

static int start_lookup(struct user *user)
{
    if (lookups == MAX_LOOKUPS)
        return -ETIMEDOUT;
    user->is_asked = true;
    int error = thread_start(NULL, STACK_BYTES, run_lookup, user);
    if (error)
        user->is_asked = false;
    else
        lookups++;
    return error;
}

static void await(const struct user *user)
{
    uint64_t end_ms = clock_now_ms() + (is_overdue ? 0 : GROUPS_WAIT_MS);
    const struct timespec end = {.tv_sec = (time_t)(end_ms / 1000),
                                 .tv_nsec = (long)(end_ms % 1000) * 1000000};
    int error = 0;

    while (user->is_asked && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&answered, &mutex, &end);
    is_overdue = user->is_asked;
}

static bool is_fresh(const struct user *user)
{
    return user->is_known && (user->error == 0 || user->error == -ENOENT) &&
           clock_now_ms() - user->found_ms < GROUPS_KEPT_MS;
}

static int refresh(struct user *user)
{
    int error = user->is_asked ? 0 : start_lookup(user);

    if (error)
        return error;
    await(user);
    return user->is_asked ? -ETIMEDOUT : user->error;
}

/* The caller holds the mutex. */
static int find(uint32_t uid, struct groups *groups)
{
    struct user *user = find_place(uid);
    int error = !user ? -ETIMEDOUT : is_fresh(user) ? user->error : refresh(user);

    if (error)
        return error;
    *groups = (struct groups){.gid = user->groups.gid, .count = user->groups.count};
    if (groups->count == 0)
        return 0;
    groups->list = malloc(groups->count * sizeof *groups->list);
    if (!groups->list)
        return -ENOMEM;
    memcpy(groups->list, user->groups.list, groups->count * sizeof *groups->list);
    return 0;
}

static void make_condition(void)
{
    thread_init_condition(&answered);
}

int groups_find(uint32_t uid, struct groups *groups)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    *groups = (struct groups){0};
    pthread_once(&once, make_condition);
    SCOPED_LOCK(&mutex);
    return find(uid, groups);
}

void groups_free(struct groups *groups)
{
    free(groups->list);
    *groups = (struct groups){0};
}
