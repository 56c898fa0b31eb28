#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# gmsfs governor over engines as it meets them: processes with the store mapped, asked and told over
# HTTP, which take turns on a device that holds one of their models.
#
# shellcheck disable=SC2153,SC2154 # SUM is of places.bash, PORT of python.bash
# bats file_tags=slow

load helpers
load places
load python

prepare() {
    python_setup
    requires curl
    python_with json
    python_preload
    start_tiers size=12M,host_size=64M,min_stay=0
    declare -gA SUMS=() PORTS=() PIDS=()
}

have() { # MODEL: a store, and an engine that is awake over it
    committed "$1" $((8 << 20))
    engine "$1"
    PIDS[$1]=$SPAWNED PORTS[$1]=$PORT
    SUMS[$1]=$(asked "$PORT")
    assert_eq "${SUMS[$1]}  -" "$SUM" 'the sum of its mapping'
}

tell() { # MODEL PATH
    curl -sf -o "$T/told" -X POST "http://127.0.0.1:${PORTS[$1]}/$2"
}

govern() { # in the background
    local model url
    echo 'interval 200ms; cooldown 0' >"$T/conf"
    for model in code batch; do
        url=http://127.0.0.1:${PORTS[$model]}
        printf "model %s store=%s class=%s idle=500ms metrics=%s/metrics sleep='%s %s/sleep' wake='%s %s/wake_up'\n" \
            "$model" "$model" "${CLASS[$model]}" "$url" 'curl -sf -X POST' "$url" 'curl -sf -X POST' "$url"
    done >>"$T/conf"
    spawn "$GMSFS" governor -c "$T/conf" "$M"
    GOVERNOR=$SPAWNED
}

serves() { # MODEL REQUESTS
    grep -qx "vllm:num_requests_running{.*} $2.0" < <(curl -sf "http://127.0.0.1:${PORTS[$1]}/metrics")
}

moves_to() { # PLACE MODEL
    grep -q "^moving $1" "$M/$2/residency"
}

is_right() { # MODEL: every byte that its engine has mapped, where it was
    assert_eq "$(asked "${PORTS[$1]}")" "${SUMS[$1]}" "bytes of $1"
}

@test "engines take turns by their metrics, over the death of the governor and of one of them" {
    local -A CLASS=([code]=critical [batch]=batch)
    have code
    tell code sleep
    cli demote -q "$M/code"
    have batch
    tell batch ask/3

    touch "$T/gate" # batch is being copied out when the governor dies
    govern
    tell code ask/4
    wait_until 10 moves_to host batch
    kill -9 "$GOVERNOR"
    wait_until 10 process_gone "$GOVERNOR"
    rm "$T/gate"
    govern
    wait_until 20 serves code 4
    is_right code
    at host batch

    tell code end
    wait_until 20 serves batch 3 # in its turn, where it waited
    is_right batch
    at host code

    kill -9 "${PIDS[code]}"
    wait_until 10 process_gone "${PIDS[code]}"
    begin_engine code "${PORTS[code]}" # comes when there is room
    wait_until 10 grep -q ' waiting ' "$M/code/sessions"
    is_right batch
    tell batch end
    wait_until 20 test -s "$T/port-code"
    tell code ask/2
    wait_until 10 serves code 2
    is_right code
    at host batch
}
