/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/privileges.h"

#include "base/log.h"
#include "daemon/mountinfo.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

/* For looking at any file by its path, and for more descriptors in flight than RLIMIT_NOFILE. */
#define AT_REST (BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYS_RESOURCE))
/* For seeing the processes of others where /proc hides them; else not permitted (for_callers). */
#define SEES_HIDDEN BIT(CAP_SYS_PTRACE)
/* For mounting and for registering files of memory, for writing the audit and binding GMS's sockets
 * in directories of other users, also sticky ones, and for narrowing the capabilities that a worker
 * can gain. */
#define RAISED (BIT(CAP_SYS_ADMIN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_SETPCAP))

static bool is_keeper; /* true in its just forked children too */

struct sets {
    uint64_t effective, permitted, inheritable;
};

static bool get_sets(struct sets *sets)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (syscall(SYS_capget, &head, data) != 0)
        return false;
    *sets = (struct sets){data[0].effective | (uint64_t)data[1].effective << 32,
                          data[0].permitted | (uint64_t)data[1].permitted << 32,
                          data[0].inheritable | (uint64_t)data[1].inheritable << 32};
    return true;
}

static void set_sets(const struct sets *sets)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        data[i] =
            (struct __user_cap_data_struct){.effective = (uint32_t)(sets->effective >> 32 * i),
                                            .permitted = (uint32_t)(sets->permitted >> 32 * i),
                                            .inheritable = (uint32_t)(sets->inheritable >> 32 * i)};
    if (syscall(SYS_capset, &head, data) != 0)
        log_warning("cannot give up capabilities: %s", strerror(errno));
}

/* Where /proc hides the processes of others, only this capability lets the worker find callers, and
 * the keeper find out whether a worker is dead or has left a process behind: even root's own
 * processes are hidden, because a worker can have capabilities that are not in effect here. */
static uint64_t for_callers(const struct sets *sets)
{
    bool has = sets->permitted & SEES_HIDDEN;

    return has && mountinfo_hides_processes() ? SEES_HIDDEN : 0;
}

/* Drops the other capabilities from the bounding set. An ordinary user cannot, and has none to
 * drop; nothing is lost, because fusermount3, which runs with its setuid bit, needs them all. */
static void narrow_bounds(uint64_t kept)
{
    for (int i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        if (!(kept & BIT(i)) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) != 0)
            return;
}

static void use(uint64_t wanted)
{
    struct sets sets;

    if (!get_sets(&sets) || sets.effective == (sets.permitted & wanted))
        return;
    sets.effective = sets.permitted & wanted;
    set_sets(&sets);
}

static void keep_only(uint64_t kept, uint64_t effective)
{
    struct sets sets;

    if (!get_sets(&sets))
        return;
    kept |= for_callers(&sets);
    narrow_bounds(kept);
    sets.permitted &= kept;
    sets.inheritable &= kept;
    sets.effective = sets.permitted & effective;
    set_sets(&sets);
}

void privileges_begin_keeper(void)
{
    keep_only(AT_REST | RAISED, AT_REST | SEES_HIDDEN);
    is_keeper = true;
}

void privileges_raise(void)
{
    if (is_keeper)
        use(AT_REST | RAISED | SEES_HIDDEN);
}

void privileges_rest(void)
{
    if (is_keeper)
        use(AT_REST | SEES_HIDDEN);
}

bool privileges_may_register(void)
{
    struct sets sets;

    return get_sets(&sets) && (sets.permitted & BIT(CAP_SYS_ADMIN));
}

void privileges_become_worker(bool writes_anywhere)
{
    privileges_raise();
    keep_only(AT_REST | (writes_anywhere ? BIT(CAP_DAC_OVERRIDE) : 0), UINT64_MAX);
    is_keeper = false;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        log_warning("cannot give up privileges of programs that are started: %s", strerror(errno));
}
