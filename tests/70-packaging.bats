#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Files beside the program: completion, systemd's units, the container's entry point.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # for inner shells

load helpers
load served

# complete_words WORD...: bash's completions of the last word, sorted, a line each
complete_words() {
    run_logged -0 env GMSFS="$GMSFS" timeout $((20 * HANG)) bash -euc '
        PATH=$(dirname "$GMSFS"):$PATH
        source packaging/completion/gmsfs
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _gmsfs
        [[ ${#COMPREPLY[@]} -eq 0 ]] || printf "%s\n" "${COMPREPLY[@]}" | sort' complete "$@"
}

@test "completion offers every command that help lists" {
    local name
    cd "$ROOT"
    complete_words gmsfs ''
    for name in mount umount upgrade status load save verify sum ls run wait metadata drain fence \
        image copy clear-suspect triton promote demote governor web top log journal; do
        grep -qx "$name" <<<"$output" || fail "$name is not offered"
    done
    complete_words gmsfs um
    assert_eq "$output" umount
    complete_words gmsfs image lo
    assert_eq "$output" load
}

@test "completion offers the options of a command's own help" {
    cd "$ROOT"
    complete_words gmsfs save --sh
    assert_eq "$output" --shard-size
    complete_words gmsfs run --t
    assert_eq "$output" --timeout
    complete_words gmsfs demote --to h
    assert_eq "$output" host
    complete_words gmsfs drain --then d
    assert_eq "$output" demote
    complete_words gmsfs drain --then demote --to d
    assert_eq "$output" disk
}

@test "completion offers stores and mounts, and no command's words where there is no such command" {
    cd "$ROOT"
    start_mount
    complete_words gmsfs ls "$M/w"
    assert_eq "$output" "$M/weights"
    complete_words gmsfs umount "$M"
    assert_eq "$output" "$M"
    complete_words gmsfs web --insecure "$M"
    assert_eq "$output" "$M"
    complete_words gmsfs governor --once "$M"
    assert_eq "$output" "$M"
    complete_words gmsfs fence --abort token "$M"
    assert_eq "$output" "$M"
    complete_words gmsfs clear-suspect "$M"
    assert_eq "$output" "$M"$'\n'"$M/weights"
    complete_words gmsfs no-such-command --
    assert_eq "$output" ''
}

@test "completion goes on where a mount is dead or hangs" {
    local frozen
    cd "$ROOT"
    start_mount
    frozen=$(worker_of "$(keeper_of "$M")")
    kill -STOP "$frozen"
    start_mount
    complete_words gmsfs ls "$M/w"
    kill -CONT "$frozen"
    assert_eq "$output" "$M/weights"
}

@test "completion offers a name with a command or a quote in it as it is to be typed, and runs nothing" {
    cd "$ROOT"
    start_mount
    mkdir "$M/it's" "$M/\$(touch ran; echo x)"
    complete_words gmsfs ls "$M/"
    assert_eq "$output" "$(printf '%q\n' "$M/it's" "$M/\$(touch ran; echo x)" "$M/weights" | sort)"
    [[ ! -e ran ]]
}

@test "systemd accepts every unit" {
    requires systemd-analyze
    local unit
    mkdir "$T/units"
    for unit in "$ROOT"/packaging/systemd/gmsfs*; do
        sed "s|@BINDIR@/gmsfs|$GMSFS|" "$unit" >"$T/units/${unit##*/}"
    done
    cd "$T/units"
    for unit in gmsfs.target gmsfs-gpu@0.service gmsfs@mnt-gms-host.service \
        gmsfs-triton@mnt-gms-host.service gmsfs-governor@mnt-gms-host.service gmsfs-web@mnt-gms-host.service; do
        [[ $unit != *@* ]] || cp "${unit%%@*}@.service" "$unit"
        # The manual's pages are not installed where this runs, and systemd would look for them.
        run_logged -0 systemd-analyze verify --man=no "./$unit"
    done
}

@test "units of mounts keep descriptors, start again at a kill, and look into no mount before that" {
    local unit
    for unit in gmsfs@.service gmsfs-gpu@.service; do
        grep -qx 'FileDescriptorStoreMax=16385' "$ROOT/packaging/systemd/$unit"
        grep -qx 'Restart=on-failure' "$ROOT/packaging/systemd/$unit"
        grep -qx 'KillMode=mixed' "$ROOT/packaging/systemd/$unit"
    done
    start_mount
    kill -STOP "$(worker_of "$KEEPER")"
    before_start() {
        local line
        line=$(sed -n 's/^ExecStartPre=-//p' "$ROOT/packaging/systemd/gmsfs@.service")
        eval "timeout 5 ${line//%f/$1}"
    }
    run_logged before_start "$M"
    kill -CONT "$(worker_of "$KEEPER")"
    assert_eq "$status" 0 'exit status'
    run_logged -0 before_start "$T/new/one"
    [[ -d $T/new/one ]]
}

# Becomes the entry point: for `run` and `spawn`, which fork.
entrypoint() {
    exec env PATH="${GMSFS%/*}:$PATH" GMSFS_ROOT="$T/root" GMSFS_MOUNTS="$MOUNT_LINES" GMSFS_STATE="$T/state-${POD-}" \
        "$ROOT/packaging/container/entrypoint" "$@"
}

entry_answers() { # NAME
    [[ -n $(timeout 5 cat "$T/root/$1/device" 2>/dev/null) ]]
}

entry_keeper_changed() { # NAME OLD
    local now
    now=$(keeper_of "$T/root/$1")
    [[ -n $now && $now != "$2" ]] && entry_answers "$1"
}

# start_entrypoint NAME...: mounts of host memory, one for each name; sets ENTRY, its pid
start_entrypoint() {
    local name
    requires fuse || return 1
    MOUNT_LINES=$(printf '%s backend=host,size=64M\n' "$@")$'\n' # as a YAML block ends
    mkdir "$T/root"
    spawn entrypoint
    ENTRY=$SPAWNED
    for name in "$@"; do
        wait_until 10 entry_answers "$name" || {
            output_of "$ENTRY" >&2
            return 1
        }
    done
}

end_entrypoint() {
    kill "$ENTRY"
    wait_exit -0 "$ENTRY" 20
}

@test "the container's entry point serves every mount, and SIGTERM unmounts them all" {
    start_entrypoint one two
    run_logged -0 entrypoint check
    end_entrypoint
    not_mounted "$T/root/one"
    not_mounted "$T/root/two"
    run_logged ! entrypoint check
    assert_match "$output" "no mount answers at $T/root/one"
}

@test "the container's entry point starts a daemon that died again, and leaves the others alone" {
    start_entrypoint one two
    local one two
    one=$(keeper_of "$T/root/one")
    two=$(keeper_of "$T/root/two")
    mkdir "$T/root/two/mine"
    kill -KILL "$one"
    wait_until 20 entry_keeper_changed one "$one"
    assert_eq "$(keeper_of "$T/root/two")" "$two" "the keeper of the other mount"
    [[ -d $T/root/two/mine ]]
    end_entrypoint
}

# next_entrypoint NAME: another container's, which takes the mounts over; sets ENTRY, its pid, and POD
next_entrypoint() {
    POD=$1
    spawn entrypoint
    ENTRY=$SPAWNED
    wait_until 10 entry_is_ready
}

entry_is_ready() {
    (entrypoint check)
}

entry_says() { # PID REGEX
    output_of "$1" | grep -qE "$2"
}

@test "a second container takes the mounts over with their content, and the end of the first one ends none" {
    local first
    start_entrypoint one two
    first=$ENTRY
    mkdir "$T/root/one/mine"
    exec 5<"$T/root/two/weights/ctl"
    next_entrypoint second
    [[ -d $T/root/one/mine ]]
    wait_until 10 entry_says "$first" 'another container has .*/one now'
    wait_until 10 entry_says "$first" 'another container has .*/two now'
    POD='' run_logged -0 entrypoint check # it is none that has failed
    kill "$first"
    wait_exit -0 "$first" 5
    run_logged -0 entrypoint check
    [[ -d $T/root/one/mine ]]
    exec 5<&-
    end_entrypoint
    not_mounted "$T/root/one"
    not_mounted "$T/root/two"
}

@test "a second container that ends first gives the mount back" {
    local first
    start_entrypoint one
    first=$ENTRY
    mkdir "$T/root/one/mine"
    next_entrypoint second
    wait_until 10 test -p "$T/root/.one.next"
    end_entrypoint
    POD='' ENTRY=$first
    wait_until 10 entry_is_ready
    [[ -d $T/root/one/mine ]]
    [[ ! -e $T/root/.one.next ]]
    end_entrypoint
    not_mounted "$T/root/one"
}

@test "a container that cannot take a mount over is not ready, and leaves it to the other one" {
    local first second
    start_entrypoint one
    first=$ENTRY
    mkdir "$T/bin"
    cp "$GMSFS" "$T/bin/gmsfs"
    echo journal 77 77 >"$T/bin/gmsfs.abi"
    POD=second GMSFS=$T/bin/gmsfs spawn entrypoint
    second=$SPAWNED
    wait_until 10 entry_says "$second" "is another container's, and stays so"
    POD=second run_logged -1 entrypoint check
    assert_match "$output" 'another container has the mount'
    run_logged -0 entrypoint check
    kill "$second"
    wait_exit "$second"
    run_logged -0 entrypoint check
    ENTRY=$first
    end_entrypoint
}

@test "the service for another nginx is what gmsfs web prints, and nginx takes it" {
    requires nginx
    local conf=$ROOT/packaging/nginx/gmsfs.conf words
    read -ra words < <(sed -n 's/^#   gmsfs web --print/--print/p' "$conf")
    ((${#words[@]} == 4)) || fail "the file's head does not tell how it is made"
    run_logged -0 "$GMSFS" web "${words[@]}"
    diff <(sed '1,/^$/d' "$conf") - <<<"$output"
    write_nginx try "$conf"
    run_logged -0 nginx -t -e stderr -c "$T/try.conf"
}

@test "Kubernetes' schemas take every file" {
    requires kubernetes-validate
    local file
    for file in "$ROOT"/packaging/kubernetes/*.yaml; do
        [[ $file != */kustomization.yaml ]] || continue
        run_logged -0 kubernetes-validate --strict "$file"
    done
    while read -r file; do
        [[ -r $ROOT/packaging/kubernetes/$file ]]
    done < <(sed -n 's/^  - //p' "$ROOT/packaging/kubernetes/kustomization.yaml")
}

@test "the engine's pod trusts the nodes' authority in the pull, and the system's in the load from the hub" {
    local file=$ROOT/packaging/kubernetes/engine.yaml
    unset CURL_CA_BUNDLE
    mkdir "$T/bin"
    printf '%s\n' '#!/bin/sh' 'echo "$1 ${CURL_CA_BUNDLE-}"' '[ "$1" = load ]' >"$T/bin/gmsfs"
    chmod +x "$T/bin/gmsfs"
    assert_eq "$(grep -c 'name: CURL_CA_BUNDLE' "$file")" 0 'of both commands'
    # The scalar of args, which YAML folds into a line.
    sed -n '/^ *- .*gmsfs pull/,/^ *env:/{/env:/!p}' "$file" | sed 's/^ *- //' | tr -s '\n ' ' ' >"$T/command"
    GMSFS_STORE=/store MODEL=hf://a/b PATH=$T/bin:$PATH run_logged -0 sh "$T/command"
    assert_eq "$output" $'pull /etc/gmsfs/ca/ca.crt\nload ' 'authorities'
}

@test "the container's entry point waits for all mounts, then serves them" {
    requires nginx curl
    local port server
    port=$(free_port)
    start_entrypoint one
    MOUNT_LINES=$MOUNT_LINES$'two backend=host,size=64M\n'
    spawn entrypoint web --user nobody --listen "127.0.0.1:$port"
    server=$SPAWNED
    never_within 2 curl -sf "http://127.0.0.1:$port/one/device"
    start_mount size=64M "$T/root/two"
    wait_until 10 curl -sf -o "$T/device" "http://127.0.0.1:$port/two/device"
    jq -e '.health == "ok"' "$T/device"
    run_logged -0 curl -sf "http://127.0.0.1:$port/ui/mounts.json"
    assert_eq "$output" '["one", "two"]'
    kill "$server"
    wait_exit "$server"
    expect_death "$M"
    kill -KILL "$KEEPER" "$(worker_of "$KEEPER")" # a dead mount keeps no other one from being served
    wait_until_any 10 process_gone "$KEEPER"
    spawn entrypoint web --user nobody --listen "127.0.0.1:$port"
    server=$SPAWNED
    wait_until 10 curl -sf -o "$T/device" "http://127.0.0.1:$port/one/device"
    run_logged -0 curl -sf "http://127.0.0.1:$port/ui/mounts.json"
    assert_eq "$output" '["one", "two"]'
    kill "$server"
    wait_exit "$server"
    umount -l "$M"
    MOUNT_LINES=${MOUNT_LINES%two*}
    end_entrypoint
}

@test "an update of the DaemonSet starts a pod beside the old one" {
    local strategy
    strategy=$(sed -n '/^  updateStrategy:/,/^  template:/p' "$ROOT/packaging/kubernetes/daemonset.yaml" | tr -d ' ')
    assert_eq "$strategy" "$(printf '%s\n' updateStrategy: type:RollingUpdate rollingUpdate: maxSurge:1 maxUnavailable:0 template:)"
}

@test "the container's entry point names missing requirements to find GPUs" {
    MOUNT_LINES=''
    requires no-nvidia
    run_logged ! entrypoint
    assert_match "$output" "name the mounts in GMSFS_MOUNTS"
    run_logged ! entrypoint check
    assert_match "$output" "name the mounts in GMSFS_MOUNTS"
}

@test "the alerts are valid, come when they should, and go" {
    requires promtool
    cd "$ROOT/packaging/prometheus"
    run_logged -0 promtool check rules gmsfs.rules.yml
    run_logged -0 promtool test rules gmsfs.test.yml
    # Each alert has a history in which it comes.
    sed -n 's/^ *- alert: //p' gmsfs.rules.yml | sort >"$T/alerts"
    awk '/alertname:/ { name = $NF } /exp_alerts:/ { print name }' gmsfs.test.yml | sort -u >"$T/tested"
    run_logged -0 diff "$T/alerts" "$T/tested"
    sed -n '/^```yaml$/,/^```$/p' README.md | sed '/^```/d' >"$T/prometheus.yml"
    cp gmsfs.rules.yml "$T/"
    run_logged -0 promtool check config "$T/prometheus.yml"
}

@test "alerts and dashboard ask for metrics that a mount has" {
    start_mount size=16M,host_size=16M,audit="$T/audit"
    {
        sed -n 's/^ *expr: //p' "$ROOT/packaging/prometheus/gmsfs.rules.yml"
        jq -er '[.. | .expr? // empty] | if length > 20 then .[] else error("too few") end' "$ROOT/packaging/grafana/gmsfs.json"
    } >"$T/exprs"
    grep -oE 'gmsfs_[a-z_]+' "$T/exprs" | sort -u >"$T/wanted"
    sed -nE 's/^(gmsfs_[a-z_]+)[{ ].*/\1/p; s/^# TYPE (gmsfs_[a-z_]+) (counter|gauge)$/\1/p' "$M/metrics" | sort -u >"$T/there"
    (($(wc -l <"$T/wanted") > 20))
    run_logged -0 comm -23 "$T/wanted" "$T/there"
    assert_eq "$output" ''
    # The label's values that they name are some that there are.
    grep -q '^gmsfs_device_health{health="ok"} 1$' "$M/metrics"
}
