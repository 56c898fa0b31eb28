# SPDX-License-Identifier: Apache-2.0
# The mounts and variables that the programs of tests/api need.
# shellcheck shell=bash disable=SC2153,SC2154 # M is start_mount's, status is set by bats

# start_api NAME: mounts, with stores that only this program uses. Some fill the device, and need
# its news soon.
start_api() {
    case $1 in
    adapters) # room for 32 of 2 MiB; the others are at the host, where all of them have a copy
        start_mount size=64M,host_size=208M,min_stay=0
        # The place of a store is decided alike in all kinds of memory: these get fewer turns.
        [[ $BACKEND == host && -z ${SANITIZE-} ]] || export GMSFS_USES=2000
        ;;
    graph_cuda)
        fake_gpus "devices 2" "memory 1024"
        start_mount device=1,alloc_timeout=10,size=512M
        ;;
    graph_sleep) # a wake lacks memory in vain; the program waits for freed memory itself
        start_mount alloc_timeout=0.5
        ;;
    group | group_reserve | group_wait) start_api_group ;;
    group_evict) # two mounts, each with room for the stores of one group, where nothing stays
        start_mount size=24M,host_size=64M,min_stay=0 "$T/one"
        start_mount size=24M,host_size=64M,min_stay=0 "$T/two"
        export GMSFS_TEST_ONE=$T/one GMSFS_TEST_TWO=$T/two
        ;;
    group_places) # two mounts, each with room for the store of one group
        start_mount size=24M,host_size=64M,keep_copy=no "$T/one"
        start_mount size=24M,host_size=64M,keep_copy=no "$T/two"
        export GMSFS_TEST_ONE=$T/one GMSFS_TEST_TWO=$T/two
        ;;
    cuda) # a store of the second GPU, so that no ordinal is right by chance
        fake_gpus "devices 2" "memory 1024"
        start_mount device=1,alloc_timeout=10
        ;;
    places) # a demoted store must have no other copy: the program reads where the bytes are
        start_mount size=64M,host_size=32M,keep_copy=no
        ;;
    places_cuda)
        fake_gpus "devices 2" "memory 1024"
        start_mount device=1,size=256M,host_size=64M,keep_copy=no
        ;;
    retarget) # two of the larger stores do not fit on the device together
        start_mount size=24M "$T/elsewhere"
        start_mount size=24M,host_size=64M,keep_copy=no,alloc_timeout=2
        export GMSFS_TEST_ELSEWHERE=$T/elsewhere/weights
        ;;
    retarget_cuda)
        fake_gpus "devices 2" "memory 1024"
        start_mount device=0,size=64M "$T/elsewhere"
        start_mount device=1,size=64M "$T/beside"
        start_mount device=1,size=64M,host_size=64M,keep_copy=no
        export GMSFS_TEST_ELSEWHERE=$T/elsewhere/weights GMSFS_TEST_BESIDE=$T/beside/weights
        ;;
    stopped)
        start_mount "" "$T/elsewhere"
        start_mount
        GMSFS_TEST_WORKER=$(worker_of "$KEEPER")
        export GMSFS_TEST_ELSEWHERE=$T/elsewhere/weights GMSFS_TEST_WORKER
        ;;
    wait) # waits for memory are ended by their makers: the mount's own bound is far away
        start_mount size=64M,alloc_timeout=60
        ;;
    *) start_mount alloc_timeout=10 ;; # a program may need memory that it has just freed
    esac
    export GMSFS_TEST_STORE=$M/weights
}

# Two mounts with two stores each, and one more.
start_api_group() {
    local at stores=()
    for at in one two three; do
        start_mount size=64M,alloc_timeout=10 "$T/$at"
        stores+=("$T/$at/weights")
    done
    mkdir "$T/one/more" "$T/two/more"
    GMSFS_TEST_GROUP=$(IFS=: && echo "${stores[*]}:$T/one/more:$T/two/more")
    export GMSFS_TEST_GROUP
    start_mount alloc_timeout=10
}

# ---- under kills ------------------------------------------------------------------------------

KILLS=6

# Kills every mount's worker, as soon as it serves again after the last time.
kill_workers() {
    local at
    for at in "${!KEEPER_OF[@]}"; do
        [[ $(grep -c ' serves, ' "${LOG_OF[$at]}") -ge ${KILLED[$at]-0} ]] || continue
        KILLED[$at]=$((${KILLED[$at]-0} + 1))
        kill -KILL "$(worker_of "${KEEPER_OF[$at]}")"
    done
}

# pause_for MS PID: or until the process is gone
pause_for() {
    local end_ms=$(($(now_ms) + $1))
    until (($(now_ms) >= end_ms)) || process_gone "$2"; do
        sleep 0.03
    done
}

# api_killed NAME [-TEST]: without this one of its tests, until its mounts together lost $KILLS
# workers, 30 to 100 ms apart: longer if workers are slow, because the deaths of workers that have
# not served yet count against the requests they had; and twice as long each time while the program
# ends no test, because a request that workers served at six deaths in a minute is refused.
api_killed() {
    local -A KILLED=()
    local kills=0 at factor=1 ended seen
    start_api "$1"
    while [[ $kills -lt $KILLS ]]; do
        spawn "$BUILD/tests/api/test_$1" "${@:2}"
        seen=0
        until process_gone "$SPAWNED"; do
            kill_workers
            ended=$(output_of "$SPAWNED" | wc -l)
            factor=$((ended == seen ? 2 * factor : 1))
            seen=$ended
            pause_for $(((RANDOM % 70 + 30) * SLOW * factor)) "$SPAWNED"
        done
        wait_exit -0 "$SPAWNED"
        kills=0
        for at in "${!KILLED[@]}"; do
            kills=$((kills + ${KILLED[$at]}))
        done
    done
}
