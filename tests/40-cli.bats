#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The commands that look, lock and unmount. Loading has a file of its own, 41-load.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

# A layout to look at: one allocation of 3 MiB and two entries.
commit_something() {
    "$GMSFS" run -w "$M/weights" -- bash -euc '
        cd "$GMSFS_STORE"
        truncate -s 3M allocations/a
        printf "{\"dtype\":\"torch.bfloat16\",\"shape\":[2,256],\"stride\":[256,1]}" >metadata/t
        setfattr -n user.gmsfs.allocation -v a metadata/t
        setfattr -n user.gmsfs.offset -v 512 metadata/t
        printf hello >metadata/note'
}

# ---- the command itself ----------------------------------------------------------------------

@test "every command has a help, and says how it is used when it is used wrongly" {
    local name
    cli help
    while read -r name; do
        cli "$name" --help
        assert_match "$output" "gmsfs $name"
        cli help "$name"
        assert_match "$output" "gmsfs $name"
        [[ $name == mount ]] || {
            cli -2 "$name" --no-such-option
            assert_match "$output" "gmsfs $name: .*--no-such-option"
        }
    done < <(awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' <<<"$output")
    cli -2
    cli -2 help no-such-command
    cli -2 help load extra
    cli version
    assert_match "$output" '^gmsfs [0-9]'
}

@test "an argument that is missing or too many is a usage error" {
    cli -2 ls
    cli -2 ls a b
    cli -2 load "$T"
    cli -2 load --chunk 0 "$T" x
    cli -2 load --threads 0 "$T" x
    cli -2 load --timeout soon "$T" x
    cli -2 verify "$T"
    cli -2 run "$T"
    cli -2 run -r -w "$T" true
    cli -2 wait "$T"
    cli -2 wait "$T" SLEEPING
    cli -2 metadata
    cli -2 metadata put "$T"
    cli -2 metadata get "$T" key --allocation a
    cli -2 umount
    cli -2 load '' x
    assert_match "$output" "'': operand 1 is empty"
    cli -2 load "$T/x" ''
    assert_match "$output" "'': operand 2 is empty"
    cli -2 run '' true
    cli -2 load --trace '' "$T" x
    assert_match "$output" "option '--trace' needs a value that is not empty"
}

@test "a path that is no store is named as such by every command that needs one" {
    local command
    printf x >"$T/file"
    for command in "ls $T" "ls $T/file" "verify $T $T/file" "run $T true" "wait $T RW" \
        "metadata ls $T" "ls $T/nothing"; do
        # shellcheck disable=SC2086 # words
        cli -1 $command
        assert_match "$output" "$T"
    done
    cli -1 ls "$T"
    assert_match "$output" 'not a gmsfs store'
    cli -1 ls "$T/nothing"
    assert_match "$output" 'there is no gmsfs mount'
    start_mount
    cli -1 ls "$M/nothing"
    assert_match "$output" 'no such store'
    cli -1 ls "$M"
    assert_match "$output" "not a gmsfs store.*such as $M/weights"
    cli -1 image load "$M/weights" "$T/nowhere"
    assert_match "$output" 'check the path'
}

@test "a caller that may open no more files is told so, with the file, by every command" {
    local command n x=$T/x.safetensors
    start_mount host_size=64M
    commit_something
    cli save -q "$M/weights" "$x"
    for command in "load -q $M/weights $x" "ls $M/weights" "save -q $M/weights $T/y.safetensors" \
        "wait --timeout 0 $M/weights COMMITTED" "drain -q $M/weights" "demote -q $M/weights"; do
        for n in {4..20}; do
            # shellcheck disable=SC2086,SC2016 # words; the inner shell expands them
            run_logged bash -c 'exec 3>&- 4>&- && ulimit -n "$1" && exec "${@:2}"' _ "$n" "$GMSFS" $command
            [[ $status -ne 0 ]] || break
            assert_match "$output" "($M/weights|$x).*: this process may not open more files; raise its limit \('ulimit -n'\)"
        done
        assert_eq "$status" 0 "status of '$command' in the end"
        ((n > 4)) || fail "'$command' needs no file"
    done
}

# ---- ls, status, wait ------------------------------------------------------------------------

# bats test_tags=quick
@test "ls shows tensors and other entries, and takes no lock" {
    requires setfattr jq
    start_mount
    cli ls "$M/weights"
    assert_match "$output" 'EMPTY'
    commit_something
    cli ls "$M/weights"
    assert_match "${lines[0]}" '^TENSOR +DTYPE +SHAPE +BYTES +ALLOCATION +OFFSET$'
    assert_match "${lines[1]}" '^note +- +- +- +- +-$'
    assert_match "${lines[2]}" '^t +bfloat16 +2x256 +1024 +a +512$'
    cli ls --json "$M/weights"
    assert_eq "$(jq -c '.tensors[1] | [.tensor, .shape, .bytes, .allocation, .offset]' <<<"$output")" \
        '["t",[2,256],1024,"a",512]'
    assert_eq "$(jq -r .layout_hash <<<"$output")" "$(cat "$M/weights/layout_hash")" hash
    assert_state weights COMMITTED

    exec 5<>"$M/weights/lock"
    cli -1 ls "$M/weights"
    assert_match "$output" 'a writer is at work'
    exec 5>&-
}

@test "status shows mounts, stores, states and holders" {
    requires jq
    start_mount size=64M
    mkdir "$M/other"
    commit_something
    exec 5<"$M/weights/lock"
    cli status "$M"
    assert_match "$output" "^$M  "
    assert_match "$output" ' of 64.0 MiB used'
    assert_match "$output" $'\n  weights +RO +[0-9.]+ MiB +1 +2 +1 +- +RO [0-9]+ '
    assert_match "$output" $'\n  other +EMPTY +0 B +0 +0 +0 +-'
    cli status "$M/weights" --json
    assert_eq "$(jq -r '.[0].stores | map([.name, .state] | join("=")) | join(" ")' <<<"$output")" \
        'other=EMPTY weights=RO'
    assert_eq "$(jq -r '.[0].stores[1].sessions[0].mode' <<<"$output")" RO
    exec 5<&-
    run timeout $((20 * HANG)) "$GMSFS" status # others' mounts, too, which may be ending
    assert_match "$output" "$M"
    cli -1 status "$T"
    assert_match "$output" 'not in a gmsfs mount'
}

@test "status calls a dead mount dead and a stopped one silent, and does not hang" {
    start_mount
    local worker
    worker=$(worker_of "$KEEPER")
    kill -STOP "$worker"
    cli -1 status "$M"
    assert_match "$output" 'SILENT'
    kill -CONT "$worker"
    cli status "$M"
    kill -STOP "$KEEPER" # or it would take the mount away
    expect_death
    kill -KILL "$worker"
    wait_until 5 dead_in_status "$M"
    kill -CONT "$KEEPER"
}

dead_in_status() {
    timeout 10 "$GMSFS" status "$1" | grep -q 'DEAD\|SILENT'
}

@test "wait returns when the state comes, without spinning" {
    start_mount
    local waiter
    cli wait "$M/weights" EMPTY
    cli -3 wait --timeout 0.2 "$M/weights" COMMITTED,RO
    assert_match "$output" 'still EMPTY'
    spawn "$GMSFS" wait --timeout 20 "$M/weights" committed,RO
    waiter=$SPAWNED
    never_within 1 process_gone "$waiter"
    (($(awk '{ print $14 + $15 }' "/proc/$waiter/stat") < 20)) || fail "it spins"
    commit_something
    wait_exit -0 "$waiter"
}

# bats test_tags=quick
@test "wait fails when the store is removed" {
    start_mount
    mkdir "$M/other"
    spawn "$GMSFS" wait --timeout 20 "$M/other" RW
    sleep 0.3
    wait_until 5 rmdir "$M/other"
    wait_exit -1 "$SPAWNED"
    output_of "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" 'removed'
}

# ---- run -------------------------------------------------------------------------------------

# bats test_tags=quick
@test "run holds the lock while the command runs, and passes its status on" {
    start_mount
    cli run -w "$M/weights" -- bash -c 'cat "$GMSFS_STORE/state"; echo "$GMSFS_MODE $GMSFS_SESSION"'
    assert_match "$output" $'^RW\nRW [0-9a-f]{32}$'
    assert_state weights COMMITTED
    cli -7 run -r "$M/weights" -- bash -c 'cat "$GMSFS_STORE/state"; exit 7'
    assert_match "$output" '^RO'
    assert_state weights COMMITTED
    cli -137 run -r "$M/weights" bash -c 'kill -KILL $$'
    cli -127 run "$M/weights" -- no-such-program
    cli -126 run "$M/weights" -- /etc/passwd
}

# bats test_tags=quick
@test "run -w commits when the command succeeds, and only then" {
    start_mount
    commit_something
    local hash
    hash=$(cat "$M/weights/layout_hash")
    cli -1 run -w "$M/weights" -- bash -c 'rm "$GMSFS_STORE/metadata/note"; false'
    assert_match "$output" 'nothing was committed.*earlier layout'
    assert_state weights COMMITTED
    assert_eq "$(cat "$M/weights/layout_hash")" "$hash" hash
    cli run -w "$M/weights" -- bash -c 'rm "$GMSFS_STORE/metadata/note"'
    [[ $(cat "$M/weights/layout_hash") != "$hash" ]]
    cli -1 run -w "$M/weights" -- bash -c ': >"$GMSFS_STORE/allocations/empty"'
    assert_match "$output" 'refuses the layout'
    assert_state weights COMMITTED
}

# bats test_tags=quick
@test "run -w counts a commit by the command itself, and tells an abort" {
    start_mount
    cli run -w "$M/weights" -- bash -c 'echo 1 >"$GMSFS_STORE/commit"'
    assert_state weights COMMITTED
    cli -1 run -w "$M/weights" -- bash -c 'echo 1 >"$GMSFS_STORE/abort"'
    assert_match "$output" 'nothing of it is committed'
}

# bats test_tags=quick
@test "run -a writes where nothing is committed, else reads" {
    start_mount
    cli run -a "$M/weights" -- bash -c 'echo "mode $GMSFS_MODE"'
    assert_match "$output" 'mode RW'
    assert_state weights COMMITTED
    cli run -a "$M/weights" -- bash -c 'echo "mode $GMSFS_MODE"'
    assert_match "$output" 'mode RO'
}

# bats test_tags=quick
@test "run gives up on a lock that is not free" {
    start_mount
    exec 5<>"$M/weights/lock"
    # In a process that is no descendant of the holder.
    spawn setsid --fork "$GMSFS" run -w --nonblock "$M/weights" -- true
    exec 5>&-
    assert_state weights EMPTY
    spawn bash -c 'exec 5<>"$1/lock"; sleep 30' _ "$M/weights"
    assert_state weights RW
    cli -3 run -w --nonblock "$M/weights" -- true
    assert_match "$output" 'not free'
    local start
    start=$(now_ms)
    cli -3 run -r --timeout 0.5 "$M/weights" -- true
    (($(now_ms) - start >= 500)) || fail "gave up too early"
}

@test "a reader of an empty store is told that nothing is committed, and no holder" {
    start_mount
    cli -3 run -n "$M/weights" -- true
    assert_match "$output" 'weights is EMPTY: nothing was committed in it; .gmsfs load. does that'
    cli -3 run --timeout 0.1 "$M/weights" -- true
    assert_match "$output" 'nothing was committed in it in the time given;'
    spawn bash -c 'exec 5<>"$1/lock"; sleep 30' _ "$M/weights"
    assert_state weights RW
    cli -3 run -n "$M/weights" -- true
    assert_match "$output" "not free; 'sessions' in it names the holder"
}

@test "run passes signals on" {
    start_mount
    spawn "$GMSFS" run -w "$M/weights" -- bash -c 'trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done'
    wait_until 5 grep -q ready "$T/spawn-$SPAWNED"
    kill -TERM "$SPAWNED"
    wait_exit -9 "$SPAWNED"
    assert_state weights EMPTY
}

# bats test_tags=quick
@test "run within run joins, and the outer one commits" {
    start_mount
    cli run -w "$M/weights" -- "$GMSFS" run -w "$M/weights" -- \
        "$GMSFS" metadata put "$M/weights" key value
    assert_match "$output" 'its owner commits'
    assert_eq "$(cat "$M/weights/metadata/key")" value
    cli -1 run -r "$M/weights" -- "$GMSFS" run -w "$M/weights" -- true
    assert_match "$output" 'holds the lock for reading'
}

# ---- metadata --------------------------------------------------------------------------------

# bats test_tags=quick
@test "metadata puts, gets, lists and removes in the caller's session" {
    requires getfattr
    start_mount
    local s=$M/weights value
    commit_something
    cli -1 metadata put "$s" a/b x
    assert_match "$output" 'gmsfs run -w'
    cli -1 metadata rm "$s" note
    assert_match "$output" 'gmsfs run -w'

    # By token, then by descent alone.
    cli run -w "$s" -- "$GMSFS" metadata put "$s" a/b 'one value' --allocation a --offset 7
    cli run -w "$s" -- env -u GMSFS_SESSION "$GMSFS" metadata put "$s" .c - --allocation 0 --offset 9 \
        <<<'from input'
    cli metadata get "$s" a/b
    assert_eq "$output" 'one value'
    assert_eq "$("$GMSFS" metadata get "$s" .c | od -An -c | tr -d ' ')" 'frominput\n'
    cli metadata ls "$s"
    assert_eq "$(tr '\n' ' ' <<<"$output")" '.c a/b note t '
    cli metadata ls "$s" a/
    assert_eq "$output" a/b
    assert_eq "$(getfattr --only-values -n user.gmsfs.offset "$s/metadata/a%2Fb")" 7
    assert_eq "$(getfattr --only-values -n user.gmsfs.allocation "$s/metadata/%2Ec")" a
    assert_eq "$(getfattr --only-values -n user.gmsfs.offset "$s/metadata/%2Ec")" 9

    # Putting anew without a binding unbinds.
    for value in by-token by-descent; do
        local unset=()
        [[ $value == by-token ]] || unset=(-u GMSFS_SESSION)
        cli run -w "$s" -- env "${unset[@]}" "$GMSFS" metadata put "$s" a/b "$value"
        cli metadata get "$s" a/b
        assert_eq "$output" "$value"
        run_logged '!' getfattr -n user.gmsfs.allocation "$s/metadata/a%2Fb"
        cli run -w "$s" -- "$GMSFS" metadata put "$s" a/b x --allocation a --offset 7
    done

    cli run -w "$s" -- "$GMSFS" metadata rm "$s" a/b
    cli run -w "$s" -- env -u GMSFS_SESSION "$GMSFS" metadata rm "$s" .c
    cli -1 metadata get "$s" a/b
    assert_match "$output" "no entry 'a/b'"
    cli -1 run -w "$s" -- "$GMSFS" metadata put "$s" k v --allocation nowhere
    assert_match "$output" "no allocation 'nowhere'"
}

# bats test_tags=quick
@test "metadata refuses values that a store cannot hold" {
    start_mount
    local s=$M/weights
    cli -2 metadata get "$s" ''
    cli -2 metadata get "$s" "$(head -c 256 /dev/zero | tr '\0' k)"
    run_logged -1 bash -c 'head -c 1048577 /dev/zero | "$1" run -w "$2" -- "$1" metadata put "$2" k' \
        _ "$GMSFS" "$s"
    assert_match "$output" 'longer than'
    run_logged -0 bash -c 'head -c 1048576 /dev/zero | "$1" run -w "$2" -- "$1" metadata put "$2" k' \
        _ "$GMSFS" "$s"
    assert_eq "$("$GMSFS" metadata get "$s" k | wc -c)" 1048576
}

# ---- umount ----------------------------------------------------------------------------------

# bats test_tags=quick
@test "umount refuses while a client holds files, and names the holder" {
    start_mount
    spawn bash -c 'exec 5<>"$1/lock"; exec sleep 30' _ "$M/weights"
    assert_state weights RW
    cli -1 umount "$M"
    assert_match "$output" "busy"
    assert_match "$output" "weights +RW +held +pid $SPAWNED"
    is_mounted "$M"
    kill -KILL "$SPAWNED"
    assert_state weights EMPTY
    wait_until 5 "$GMSFS" umount "$M"
    not_mounted "$M"
    expect_death
    wait_exit -0 "$KEEPER"
}

@test "umount of root's mount refuses at once where a process only works in it" {
    start_mount
    cd "$M/weights"
    cli -1 umount "$M"
    assert_match "$output" "busy.*working directory"
    assert_match "$output" "fuser -m $M"
    run_logged -1 grep 'asked for the unmount' "$LOG"
    cd "$T"
    cli umount "$M"
    expect_death
}

@test "umount names a path that is no gmsfs mount" {
    start_mount
    cli -1 umount "$T"
    assert_match "$output" 'not a gmsfs mount'
    cli -1 umount "$M/weights"
    assert_match "$output" "in the one at $M"
    is_mounted "$M"
    cli -1 umount /proc
    cli -1 umount "$T/none"
}

@test "umount takes several, relative and odd paths, and links" {
    mkdir "$T/with space" "$T/b"
    start_mount '' "$T/with space"
    local first=$KEEPER
    start_mount '' "$T/b"
    ln -s b "$T/link"
    cd "$T"
    cli umount "./with space/" link
    not_mounted "$T/b"
    expect_death "$T/with space"
    expect_death "$T/b"
    wait_exit "$first"
    wait_exit "$KEEPER"
}
