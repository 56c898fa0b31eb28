# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What this machine has, and what tests need of it. helpers.bash reads this file.

# requires THING...: skips the test unless all are there. A thing named in GMSFS_MUST_RUN
# (a list, or "all") fails the test instead of skipping it.
requires() {
    local thing
    for thing in "$@"; do
        machine_has "$thing" && continue
        case " ${GMSFS_MUST_RUN//,/ } " in
        *" $thing "* | *' all '*) fail "GMSFS_MUST_RUN demands $thing, which is not here" ;;
        *) skip "no $thing here" ;;
        esac
        return 1
    done
}

machine_has() {
    case $1 in
    fuse) can_mount_fuse ;;
    root) [[ $EUID -eq 0 ]] ;;
    userns) unshare --user --map-root-user true 2>/dev/null ;;
    mountns) unshare --mount true 2>/dev/null ;;
    netns) unshare --net true 2>/dev/null ;;
    pidns) unshare --pid --fork true 2>/dev/null ;;
    user-fuse) [[ $EUID -eq 0 && -n $(type -P setpriv) && -u $(type -P fusermount3) ]] &&
        as_user bash -c ': <>/dev/fuse' 2>/dev/null ;;
    sdt) echo '#include <sys/sdt.h>' | ${CC:-cc} -E - >/dev/null 2>&1 ;; # the build had it, too
    hooked-printf) ! grep -q __vasprintf_chk "$GMSFS" ;; # fortified calls pass the tests' hooks by
    tracing) bpftrace -e 'BEGIN { exit() }' >/dev/null 2>&1 ;; # by this kernel
    history) [[ $(git -C "$ROOT" rev-parse --is-shallow-repository 2>/dev/null) == false ]] ;;
    direct-io) can_write_directly ;;
    memory-cgroup) can_limit_memory ;; # memcg.bash
    gpu) [[ ${GMSFS_GPU-} == real ]] ;;
    fake-gpu) [[ ${GMSFS_GPU-} != real ]] ;; # two GPUs and a file that counts the calls
    no-nvidia) ! { compgen -G '/dev/nvidia[0-9]*' || type -P nvidia-smi; } >/dev/null ;;
    passthrough) can_pass_through ;; # files that the kernel serves from memory itself
    fusectl) grep -qw fusectl /proc/filesystems ;;
    x86_64) [[ $(uname -m) == x86_64 ]] ;;
    torch | transformers | safetensors) "${GMSFS_TEST_PYTHON:-python3}" -c "import $1" 2>/dev/null ;;
    engines) [[ -n ${GMSFS_ENGINES-} ]] ;; # `make check-engines` asks for them: each takes a minute to start
    nodes) [[ -n ${GMSFS_NODES-} ]] ;; # `make check-nodes` asks for them
    tap) unshare --net ip tuntap add dev tap0 mode tap 2>/dev/null ;; # in this kernel, and allowed
    browser) [[ -n ${GMSFS_BROWSER-} && -n $(type -P chromium) ]] ;; # `make check-web` asks for it
    axe) [[ -r ${AXE-} ]] ;; # tests/page.bash
    package-index) # pip's; a package of 2 MB shows that it answers
        timeout 60 python3 -m pip -q download --no-deps --dest "$T/pip" pip >/dev/null 2>&1
        ;;
    no-sanitizer) [[ -z ${SANITIZE-} ]] ;; # they read /proc
    unnamed-files) can_make_unnamed ;;
    slices) [[ $(uname -m) == x86_64 && $(read_slice $$) != 0 ]] ;; # Linux 6.12
    tritonclient) [[ -r ${GMSFS_TRITONCLIENT:-${XDG_CACHE_HOME:-$HOME/.cache}/gmsfs/tritonclient}/wanted.txt ]] ;;
    nginx) PATH=$PATH:/usr/sbin type -P nginx >/dev/null ;;
    *) type -P "$1" >/dev/null ;;
    esac
}

# Prints the slice of a thread in ns, from sched_getattr(2); 0 if this kernel has none.
read_slice() { # TID
    python3 -c 'import ctypes, struct, sys
attr = ctypes.create_string_buffer(56)
assert ctypes.CDLL(None).syscall(315, int(sys.argv[1]), attr, 56, 0) == 0
print(struct.unpack_from("<Q", attr, 24)[0])' "$1"
}

# Succeeds if files in $T can be read and written past the page cache. Newer tmpfs allow it although
# they are the cache.
can_write_directly() {
    [[ $(stat -f -c %T "$T") != tmpfs ]] &&
        dd if=/dev/zero of="$T/direct-io" bs=4096 count=1 oflag=direct status=none 2>/dev/null
}

# Succeeds if files without a name can be made in $T (O_TMPFILE).
can_make_unnamed() {
    python3 -c 'import os, sys; os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR)' "$T" 2>/dev/null
}

can_mount_fuse() {
    local sys_admin_bit=21 caps
    { : <>/dev/fuse; } 2>/dev/null || return 1
    caps=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
    ((0x$caps >> sys_admin_bit & 1)) || type -P fusermount3 >/dev/null
}

# Linux 6.9, and CAP_SYS_ADMIN in the first user namespace.
can_pass_through() {
    local major minor
    IFS=.- read -r major minor _ < <(uname -r)
    ((major > 6 || (major == 6 && minor >= 9))) && [[ $EUID -eq 0 ]] && can_mount_fuse &&
        [[ $(tr -s ' ' </proc/self/uid_map) == ' 0 0 4294967295' ]]
}
