# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2153,SC2154 # bodies of shells; variables that helpers and tests read and set
# The page of `gmsfs web` in a browser. Needs places.bash and served.bash.

# axe.min.js of axe-core, which scripts/deps has installed; a test's HOME is another one
AXE=${GMSFS_AXE:-${XDG_CACHE_HOME:-$HOME/.cache}/gmsfs/axe/axe_playwright_python/axe.min.js}

# look STEP...: the steps of tests/tools/browser.py; sets output, lines
look() {
    requires chromium || return 1
    run_logged -0 timeout $((120 * HANG)) python3 "$ROOT/tests/tools/browser.py" --limit $((20 * HANG)) "$@"
}

# A mount `host` with a store in every state: a move that waits at $T/gate, holders, waiters, pools.
stage_states() {
    local name
    start_tiers size=256M,host_size=128M "$T/host"
    echo 'chat min=16M max=96M class=high' >"$M/pools"
    for name in idle 'used by readers' 'waited for' demoted moving; do
        committed "$name" 12000000
    done
    mkdir "$M/written" "$M/sealed" "$M/empty"
    setfattr -n user.gmsfs.pool -v chat "$M/idle"
    ctl open "$M/sealed/data" rw open "$M/sealed/allocations/kv" rwc ftruncate 9000000 \
        use 0 put shape '2x4' 0 16 open "$M/sealed/seal" w write 1
    order host demoted
    wait_until 10 at host demoted
    touch "$T/gate"
    order device demoted
    spawn "$GMSCTL" open "$M/moving/residency" w write host
    hold open "$M/used by readers/lock" r
    hold open "$M/waited for/lock" r
    spawn "$GMSCTL" open "$M/waited for/lock" rw
    hold open "$M/written/lock" rw open "$M/written/allocations/a" rwc ftruncate 20000000
}
