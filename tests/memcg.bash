# SPDX-License-Identifier: Apache-2.0
# For tests of a daemon whose memory has a limit, by memory cgroups, v1 or v2.
# shellcheck shell=bash disable=SC2034 # MEMCG, MEMCG_PROCS, MOUNT_VIA are for tests

# Prints the directory in which memory cgroups can be made; nothing if there is none.
memcg_parent() {
    local at own
    own=$(sed -n 's/^[0-9]*:memory:\(.*\)/\1/p' /proc/self/cgroup)
    for at in "/sys/fs/cgroup/memory$own" /sys/fs/cgroup/memory; do
        [[ -z $own || ! -w $at/memory.limit_in_bytes && ! -w $at/cgroup.procs ]] || { echo "$at" && return; }
    done
    for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
        grep -qsw memory "$at/cgroup.subtree_control" && echo "$at" && return
    done
    return 1
}

can_limit_memory() {
    local parent
    [[ $EUID -eq 0 ]] && parent=$(memcg_parent) && mkdir "$parent/gmsfs-probe.$$" 2>/dev/null &&
        rmdir "$parent/gmsfs-probe.$$"
}

# memcg_make MIB: sets MEMCG to a new cgroup with this limit and without swap; the next start_mount
# is in it.
memcg_make() {
    local parent
    parent=$(memcg_parent)
    MEMCG=$parent/gmsfs-test.$$.$BATS_TEST_NUMBER
    mkdir "$MEMCG"
    memcg_limit "$1"
    # shellcheck disable=SC2016 # the inner shell expands them
    MOUNT_VIA=(bash -c 'echo $$ >"$1/cgroup.procs" && exec "${@:2}"' - "$MEMCG")
}

memcg_limit() { # MIB
    MEMCG_MIB=$1
    if [[ -e $MEMCG/memory.max ]]; then
        echo 0 >"$MEMCG/memory.swap.max" 2>/dev/null || true
        echo $(($1 << 20)) >"$MEMCG/memory.max"
    else
        echo $(($1 << 20)) >"$MEMCG/memory.memsw.limit_in_bytes" 2>/dev/null || true # before a higher limit
        echo $(($1 << 20)) >"$MEMCG/memory.limit_in_bytes"
        echo $(($1 << 20)) >"$MEMCG/memory.memsw.limit_in_bytes" 2>/dev/null || true # after a lower one
    fi
}

memcg_usage() { # bytes
    cat "$MEMCG/memory.usage_in_bytes" 2>/dev/null || cat "$MEMCG/memory.current"
}

memcg_is_full() { # but for 3 MiB
    (($(memcg_usage) + (3 << 20) > MEMCG_MIB << 20))
}

memcg_kills() { # how many processes of it the kernel has killed
    sed -n 's/^oom_kill //p' "$MEMCG/memory.oom_control" "$MEMCG/memory.events" 2>/dev/null
}

memcg_remove() { # after the mount's end
    [[ -z ${MEMCG-} ]] || wait_until_any 10 rmdir "$MEMCG" 2>/dev/null
}
