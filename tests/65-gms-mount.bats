#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The mount's part in serving GMS clients: options, and the making and removal of sockets.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

UUID=GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334455
OTHER_UUID=GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334456
# A V0 client's first message, as its own encoder writes it: a writer that waits as long as it takes.
HANDSHAKE=0000003183a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277aa74696d656f75745f6d73c0
# The same of V1.
HANDSHAKE_V1=0000003883a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277b165787065637465645f6964656e74697479c0

prepare() {
    GMS=$T/gms
    mkdir "$GMS"
    unset GMS_SOCKET_DIR
}

# start_gms [OPTIONS [DIRECTORY]]: a mount with sockets in $GMS.
start_gms() {
    start_mount "size=16M,gms,uuid=$UUID,gms_dir=$GMS${1:+,$1}" "${2-}"
}

# refused STATUS REASON OPTIONS: no mount comes of it, and one line says why.
refused() {
    mkdir -p "$T/refused"
    run_logged "-$1" timeout $((20 * HANG)) "$GMSFS" mount -f -o "backend=$BACKEND,size=16M,$3" "$T/refused"
    assert_match "$output" "$2"
    not_mounted "$T/refused"
}

sockets_of() { # UUID ORDINAL: the names that clients look for
    printf '%s\n' "gms_$1_weights.sock" "gms_$1_kv_cache.sock" "gms_$2_weights.sock" "gms_$2_kv_cache.sock"
}

files_are() { # NAMES: all names in $GMS, with those of hidden files
    [[ $(find "$GMS" -mindepth 1 -printf '%f\n' | sort) == "$(sort <<<"$1")" ]]
}

assert_files() { # NAMES
    files_are "$1" || fail "there are: $(ls -A "$GMS")"
}

listens() { # PATH
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$1"
}

leave_dead() { # PATH
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$1"
}

# say_hello PATH [HANDSHAKE]: a client that asks for the writer's lock, tells whether it was answered, and
# when it was sent away; sets CLIENT
say_hello() {
    spawn python3 -u -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    length = int.from_bytes(s.recv(4, socket.MSG_WAITALL), "big")
    answer = s.recv(length, socket.MSG_WAITALL)
    print("answered" if length and len(answer) == length else "refused")
    print("closed" if s.recv(1) == b"" else "more")
except (BrokenPipeError, ConnectionResetError):
    print("refused")' "$1" "${2-$HANDSHAKE}"
    CLIENT=$SPAWNED
}

# hold_session PATH [HANDSHAKE]: the same, and it was granted
hold_session() {
    say_hello "$@"
    wait_until 10 grep -q answered "$T/spawn-$CLIENT"
}

sockets_held_by() { # PID
    readlink "/proc/$1/fd/"* 2>/dev/null | grep -c '^socket:' || true
}

holds_sockets() { # PID COUNT
    [[ $(sockets_held_by "$1") -eq $2 ]]
}

# ---- options ---------------------------------------------------------------------------------

@test "an option that means nothing, or nothing without gms, is named with the right one" {
    BACKEND=host
    refused 2 "option gms_dir=$GMS: is for GMS clients: give the option gms, too" "uuid=$UUID,gms_dir=$GMS"
    refused 2 'option gms_keep: is for GMS clients: give the option gms, too' gms_keep
    refused 2 'option gms_ordinal=GPU-1: expected a number from 0 to 255' gms,gms_ordinal=GPU-1
    refused 2 'option gms_mode=9: expected an octal mode from 0 to 777' gms,gms_mode=9
    refused 2 'option gms_dir=run: expected an absolute path' gms,gms_dir=run
    refused 2 'option gms=yes: there is no such option' gms=yes
    run_logged -0 "$GMSFS" mount --help
    assert_match "$output" 'gms_dir=DIR'
}

@test "host memory needs the UUID that clients are to look for" {
    BACKEND=host
    refused 2 "option gms: clients look for a GPU's UUID, and host memory has none: give uuid=GPU-" \
        "gms,gms_dir=$GMS"
    assert_files ''
}

@test "a GPU has its own UUID, and is found by it" {
    fake_gpus 'devices 2'
    start_mount "size=16M,device=1,gms,gms_dir=$GMS,gms_ordinal=7"
    assert_files "$(sockets_of "GPU-$(device_get .uuid)" 7)"
    refused 1 'uuid=: a GPU has its own' "gms,gms_dir=$GMS,uuid=$UUID"
}

@test "the ordinal is the index of the device, where none is given" {
    fake_gpus 'devices 2'
    start_mount "size=16M,device=1,gms,gms_dir=$GMS"
    assert_files "$(sockets_of "GPU-$(device_get .uuid)" 1)"
}

@test "without gms there are no sockets and no kv_cache, with any environment" {
    GMS_SOCKET_DIR=$GMS start_mount size=16M
    assert_files ''
    [[ -d $M/weights && ! -e $M/kv_cache ]]
}

@test "with gms both stores are there from the start, with the owners of the options" {
    requires root
    start_gms uid=1234,gid=4321
    assert_eq "$(stat -c '%u %g %a' "$M/kv_cache")" "$(stat -c '%u %g %a' "$M/weights")"
    assert_eq "$(stat -c '%u %g' "$M/kv_cache")" '1234 4321'
    assert_state kv_cache EMPTY
}

# ---- where the sockets are -------------------------------------------------------------------

@test "each domain has a socket for each protocol, and each has a listener" {
    local name
    start_gms
    assert_files "$(sockets_of "$UUID" 0)"
    for name in $(sockets_of "$UUID" 0); do
        assert_eq "$(stat -c '%F %a' "$GMS/$name")" 'socket 600' "$name"
        listens "$GMS/$name"
        grep -qF "serves GMS clients at $GMS/$name" "$LOG"
    done
    stop_mount
    assert_files ''
}

@test "without gms_dir the environment says where, as for the clients" {
    mkdir "$T/tmp"
    GMS_SOCKET_DIR=$GMS TMPDIR=$T/tmp start_mount "size=16M,gms,uuid=$UUID"
    assert_files "$(sockets_of "$UUID" 0)"
    stop_mount
    GMS_SOCKET_DIR='' TMPDIR=$T/none TEMP=$GMS TMP=$T/tmp start_mount "size=16M,gms,uuid=$UUID"
    assert_files "$(sockets_of "$UUID" 0)"
}

@test "a mount with impossible sockets fails, and the message names path, cause and way out" {
    local long=$T/dddddddddddddddddddddddddddddddddddddddddddddddddd
    refused 1 "not mounted: cannot make the GMS socket $T/none/gms_${UUID}_weights.sock: No such file or directory \(make its directory: mkdir -p $T/none\)" \
        "gms,uuid=$UUID,gms_dir=$T/none"
    mkdir "$long"
    refused 1 "the GMS socket $long/gms_${UUID}_weights.sock: its path has [0-9]+ bytes, and a socket's has 107 at most; name a shorter directory by gms_dir=" \
        "gms,uuid=$UUID,gms_dir=$long"
    : >"$T/file"
    refused 1 'Not a directory' "gms,uuid=$UUID,gms_dir=$T/file"
}

@test "a directory that one may not write to is no mount" {
    requires user-fuse
    chmod 755 "$GMS"
    mkdir -m 777 "$T/m"
    run_logged -1 as_user timeout $((20 * HANG)) "$GMSFS" mount -f -o "backend=host,size=16M,gms,uuid=$UUID,gms_dir=$GMS" "$T/m"
    assert_match "$output" "cannot make the GMS socket $GMS/gms_${UUID}_weights.sock: Permission denied \(user $TEST_UID needs a directory that it may write to; name one by gms_dir="
    not_mounted "$T/m"
}

# ---- existing files --------------------------------------------------------------------------

@test "a second mount for the same GPU is refused, and the first goes on" {
    start_gms
    refused 1 "GMS already running at $GMS/gms_${UUID}_weights.sock: end it, or give this mount a directory of its own" \
        "gms,gms_ordinal=1,uuid=$UUID,gms_dir=$GMS"
    refused 1 "GMS already running at $GMS/gms_0_weights.sock" "gms,uuid=$OTHER_UUID,gms_dir=$GMS"
    assert_files "$(sockets_of "$UUID" 0)"
    listens "$GMS/gms_${UUID}_weights.sock"
    start_mount "size=16M,gms,gms_ordinal=1,uuid=$OTHER_UUID,gms_dir=$GMS"
    assert_files "$(sockets_of "$UUID" 0; sockets_of "$OTHER_UUID" 1)"
    stop_mount
    assert_files "$(sockets_of "$UUID" 0)"
}

@test "a file that is no socket is left alone, also the target of a link" {
    echo mine >"$GMS/gms_0_weights.sock"
    refused 1 "$GMS/gms_0_weights.sock is a file and not a GMS socket, so it is left alone: remove it, or" \
        "gms,uuid=$UUID,gms_dir=$GMS"
    assert_eq "$(cat "$GMS/gms_0_weights.sock")" mine
    leave_dead "$T/dead"
    ln -sf "$T/dead" "$GMS/gms_0_weights.sock"
    refused 1 "$GMS/gms_0_weights.sock is a symbolic link and not a GMS socket" "gms,uuid=$UUID,gms_dir=$GMS"
    [[ -L $GMS/gms_0_weights.sock && -S $T/dead ]]
    rm "$GMS/gms_0_weights.sock"
    mkdir "$GMS/gms_0_weights.sock"
    refused 1 "$GMS/gms_0_weights.sock is a directory and not a GMS socket" "gms,uuid=$UUID,gms_dir=$GMS"
    assert_files gms_0_weights.sock
}

@test "a mount that fails later leaves no sockets" {
    GMSFS_FAULT=fuse_session_mount:errno=EPERM:in=keeper refused 1 "cannot mount at $T/refused" \
        "gms,uuid=$UUID,gms_dir=$GMS"
    assert_files ''
}

# ---- removal ---------------------------------------------------------------------------------

@test "they are gone with the mount, however it ends" {
    start_gms
    expect_death
    kill -TERM "$KEEPER"
    wait_exit -0 "$KEEPER"
    assert_files ''

    start_gms
    expect_death
    cli umount "$M"
    assert_files ''

    start_gms
    kill_last_worker
    wait_exit -1 "$KEEPER"
    assert_files ''
}

@test "they are gone when the mount is, also while a process stays in it" {
    requires root
    start_gms
    spawn bash -c 'exec 3<"$1/device" && echo there && exec sleep 60' _ "$M"
    wait_until 5 grep -q there "$T/spawn-$SPAWNED"
    umount -l "$M"
    expect_death
    wait_until 5 files_are ''
    process_lives "$KEEPER"
    local first=$KEEPER
    start_gms
    listens "$GMS/gms_0_weights.sock"
    kill "$SPAWNED"
    wait_exit "$first"
    assert_files "$(sockets_of "$UUID" 0)"
}

@test "a keeper that is killed leaves dead ones, which the next mount replaces" {
    local first worker
    start_gms
    first=$KEEPER worker=$(worker_of "$KEEPER")
    expect_death
    kill -KILL "$first"
    wait_exit "$first"
    wait_until 5 process_gone "$worker"
    assert_files "$(sockets_of "$UUID" 0)"
    run_logged ! listens "$GMS/gms_0_weights.sock"
    umount -l "$M" || fusermount3 -uz "$M"
    start_gms
    assert_files "$(sockets_of "$UUID" 0)"
    listens "$GMS/gms_0_weights.sock"
}

# ---- connections -----------------------------------------------------------------------------

@test "the keeper holds a client's connection as long as it is there, and counts no memory for it" {
    local before worker_before
    start_gms
    before=$(sockets_held_by "$KEEPER")
    worker_before=$(sockets_held_by "$(worker_of "$KEEPER")")
    hold_session "$GMS/gms_${UUID}_weights.sock"
    holds_sockets "$KEEPER" $((before + 1))
    holds_sockets "$(worker_of "$KEEPER")" $((worker_before + 1))
    kill "$CLIENT"
    wait_until 5 holds_sockets "$KEEPER" "$before"
    wait_until 5 holds_sockets "$(worker_of "$KEEPER")" "$worker_before"
    hold_session "$GMS/gms_${UUID}_weights.sock"
    expect_death
    kill -TERM "$KEEPER"
    wait_exit -0 "$KEEPER"
    grep -q '0 allocations (0 B) given back' "$LOG"
}

@test "a client's identity can be seen in its session" {
    start_gms
    hold_session "$GMS/gms_${UUID}_weights.sock"
    assert_match "$(cat "$M/weights/sessions")" "RW held $CLIENT $UID "
    grep -q python3 "$M/weights/sessions"
}

said_hello() { # PID
    grep -qE '^(answered|refused)$' "$T/spawn-$1"
}

@test "where a thread or memory lacks for it a client is sent away, and nothing of it stays" {
    local fault before worker_before
    for fault in keep_add:after=0 helpers_submit:after={0,1,2,3}; do
        GMSFS_FAULT=$fault:errno=ENOMEM:in=worker start_gms
        before=$(sockets_held_by "$KEEPER")
        worker_before=$(sockets_held_by "$(worker_of "$KEEPER")")
        for _ in 1 2; do
            say_hello "$GMS/gms_${UUID}_weights.sock"
            wait_until 10 said_hello "$CLIENT"
            kill "$CLIENT" 2>/dev/null || true
            wait_until 5 holds_sockets "$KEEPER" "$before"
            wait_until 5 holds_sockets "$(worker_of "$KEEPER")" "$worker_before"
        done
        hold_session "$GMS/gms_${UUID}_weights.sock"
        stop_mount
    done
}

@test "clients hold no mount, though another one is connected to its tickets" {
    start_gms
    hold_session "$GMS/gms_0_kv_cache.sock" "$HANDSHAKE_V1"
    spawn "$BUILD/tests/tools/gmsctl" connect "$M" say held pause
    wait_until 5 grep -q held "$T/spawn-$SPAWNED"
    stop_mount
    wait_exit "$CLIENT"
    assert_match "$(output_of "$CLIENT")" closed
}

@test "clients hold up no end, and hear of it" {
    start_gms
    hold_session "$GMS/gms_${UUID}_weights.sock"
    expect_death
    kill -TERM "$KEEPER"
    wait_exit -0 "$KEEPER" 4 # it would wait five seconds for hung clients
    run_logged ! grep -E 'hang|killed' "$LOG"
    wait_exit "$CLIENT"
    assert_match "$(output_of "$CLIENT")" closed
}
