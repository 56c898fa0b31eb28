#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Named regions of shared memory: their files, their owners, and their ends. tests/api/test_regions*.c
# tests the library's calls.
#
# bats file_tags=slow

load helpers

prepare() {
    start_weights size=64M
    ME=$(id -u)
    MINE=$M/regions/$ME
}

# Registers a region of this user over 4096 bytes of memory that no other process has.
register() { # NAME [UID]
    ctl connect "$M" region-register "${2-self}" "$1" /key memfd:4096 64 1000
}

commit_weights() {
    (
        cd "$W" || exit
        exec 3<>lock
        truncate -s 4096 allocations/a
        printf abcdefgh | dd of=allocations/a conv=notrunc status=none
        echo 1 >commit
    )
}

register_weights() { # NAME
    ctl connect "$M" region-register self "$1" weights/a none 0 8
}

region_is() { # NAME FILTER WANT
    assert_eq "$(jq -r "$2" "$MINE/$1")" "$3" "$1: $2"
}

# ---- the tree --------------------------------------------------------------------------------

@test "regions is there from the start, as an empty list" {
    assert_eq "$(stat -c '%F %a %s' "$M/regions")" 'directory 711 0'
    assert_eq "$(ls -A "$M/regions")" ''
    run_logged '!' ls "$MINE"
}

@test "a user's directory comes with the first region and goes with the last" {
    register one
    assert_eq "$(ls -A "$M/regions")" "$ME"
    assert_eq "$(stat -c '%F %a %u' "$MINE")" "directory 700 $ME"
    register two
    rm "$MINE/one"
    assert_eq "$(ls -A "$MINE")" two
    rm "$MINE/two"
    run_logged '!' stat "$MINE"
    assert_eq "$(ls -A "$M/regions")" ''
}

@test "a region's file is one JSON object of the file's size" {
    register input0
    assert_eq "$(stat -c '%F %a %s %u' "$MINE/input0")" "regular file 400 $(wc -c < <(cat "$MINE/input0")) $ME"
    assert_eq "$(jq -S -c 'del(.registered_ms)' "$MINE/input0")" \
        '{"byte_size":1000,"draining":false,"key":"/key","kind":"system","name":"input0","offset":64,"references":0,"writable":true}'
    assert_match "$(jq .registered_ms "$MINE/input0")" '^1[0-9]{12}$'
    ctl connect "$M" region-register-cuda self cu 18446744073709551584
    assert_match "$(cat "$MINE/cu")" '"byte_size": 18446744073709551584,'
    region_is cu .device_id 0
    region_is cu .kind cuda
}

@test "names are written as keys of metadata are" {
    register 'in a/b é%'
    register .hidden
    assert_eq "$(names "$MINE")" '%2Ehidden in a%2Fb é%25'
    region_is '%2Ehidden' .name .hidden
    region_is 'in a%2Fb é%25' .name 'in a/b é%'
    expect EINVAL open "$MINE/in%20a" r
}

@test "nothing is made, written, moved or changed among regions" {
    register one
    expect EEXIST mkdir "$M/regions"
    expect EPERM rename "$W" "$M/regions"
    expect EPERM rmdir "$M/regions"
    expect EPERM mkdir "$M/regions/77"
    expect EPERM mkdir "$MINE/dir"
    expect EPERM open "$MINE/new" wc
    expect EPERM rename "$MINE/one" "$MINE/two"
    expect EPERM rename "$MINE/one" "$M/weights/one"
    expect EPERM link "$MINE/one" "$MINE/two"
    expect EPERM symlink one "$MINE/two"
    expect EACCES open "$MINE/one" w
    expect EPERM truncate "$MINE/one" 0
    expect EPERM chmod "$MINE/one" 0777
    expect EPERM chmod "$MINE" 0777
    expect ENOTTY open "$MINE/one" r info
    expect ENOTTY open "$M/weights/ctl" r region 0
    assert_eq "$(ls -A "$MINE")" one
}

@test "a listing of a thousand regions is whole while others come and go" {
    spawn "$GMSCTL" connect "$M" repeat 100000 region-register-cuda self zz 1 region-unregister self 0 zz
    # shellcheck disable=SC2046 # one word each
    ctl connect "$M" $(printf 'region-register-cuda self r%04d 1 ' $(seq 1000))
    for _ in 1 2 3; do
        assert_eq "$(find "$MINE" -name 'r*' | wc -l)" 1000
    done
    rm -r "$MINE"/r* # a user's own directory cannot be removed, its content can
    assert_eq "$(find "$M/regions" -name 'r????' | wc -l)" 0
}

# ---- references ------------------------------------------------------------------------------

@test "a region that is removed in use drains, and goes with its last reference" {
    register r
    hold open "$MINE/r" r region 1
    region_is r .references 1
    rm "$MINE/r"
    region_is r .draining true
    rm "$MINE/r"
    ctl open "$MINE/r" r region 1 # later processes still find it
    assert_match "$output" 'references=2 flags=b'
    expect EEXIST connect "$M" region-register self r /key memfd:4096 0 1
    let_go "$HOLDER"
    wait_until 5 not_there "$MINE/r"
    register r
}

not_there() {
    [[ ! -e $1 ]]
}

@test "looking takes no reference" {
    register r
    ctl open "$MINE/r" r region 0 read 1000
    region_is r .references 0
    expect ENOLCK open "$MINE/r" r release
    ctl open "$MINE/r" r region 1 region 1 release region 0
    assert_match "${lines[-2]}" 'references=0'
}

@test "a holder of a region gets the descriptor that was registered, once a ticket" {
    register r
    ctl open "$MINE/r" r region 1 connect "$M" redeem last 1
    assert_match "$output" 'item rank=0 slot=0 size=1000 .* access=rw'
    expect ESTALE open "$MINE/r" r region 1 connect "$M" redeem last 1 redeem last 1
    ctl connect "$M" region-register-cuda self cu 64 open "$MINE/cu" r region 1
    assert_match "$output" "ticket=0{32}"
}

@test "an open file of a region that is gone answers ESTALE" {
    register r
    expect ESTALE open "$MINE/r" r unlink "$MINE/r" region 1
    register r
    expect ESTALE open "$MINE/r" r unlink "$MINE/r" read 10
}

# ---- allocations of stores -------------------------------------------------------------------

@test "a region over an allocation shows it, holds a reader's lock, and goes with rm" {
    commit_weights
    register_weights w
    region_is w '.store, .allocation, .key' $'weights\na\nweights/a'
    region_is w .writable false
    assert_match "$(cat "$W/sessions")" "^[0-9]+ RO held [0-9]+ $ME region\\\\040w "
    assert_eq "$(jq .regions "$W/info")" 1
    expect EAGAIN open "$W/lock" rwn
    mv "$W" "$M/other"
    region_is w .store other
    region_is w .key weights/a
    rm "$MINE/w"
    assert_state other COMMITTED
    ctl open "$M/other/lock" rwn
}

@test "a holder of a region over an allocation reads its bytes from its file" {
    commit_weights
    register_weights w
    ctl connect "$M" region-register self part weights/a none 1 2
    ctl open "$MINE/w" r region 1 pread 0 100
    assert_match "$output" $'\nabcdefgh'
    ctl open "$MINE/part" r region 1 pread 0 100 pread 1 100 pread 2 100
    assert_eq "${lines[-2]}|${lines[-1]}" 'bc|c'
    assert_match "$(cat "$MINE/w")" '"kind": "system"'
}

@test "revoking its session ends a region, even if referred to" {
    commit_weights
    register_weights w
    hold open "$MINE/w" r region 1
    id=$(cut -d' ' -f1 "$W/sessions")
    echo "revoke $id" >"$W/abort"
    run_logged '!' stat "$MINE"
    assert_state weights COMMITTED
    let_go "$HOLDER"
    assert_match "$(tail -n 1 "$M/events")" '"event":"region_ended".*"region":"w"'
}

@test "a region over an allocation waits for no writer, and nothing is left of the attempt" {
    commit_weights
    hold open "$W/lock" rw
    expect EAGAIN connect "$M" region-register self w weights/a none 0 8
    assert_eq "$(wc -l <"$W/sessions")" 1
}

# ---- owners ----------------------------------------------------------------------------------

@test "events and sessions name a region to its owner and root alone" {
    requires root
    commit_weights
    ctl connect "$M" region-register "$TEST_UID" hers weights/a none 0 8
    ctl connect "$M" region-register 0 his weights/a none 0 8
    assert_eq "$(jq -r 'select(.event == "region_registered") | .region' "$M/events" | tr '\n' ' ')" 'hers his '
    assert_eq "$(as_user cat "$M/events" | jq -r 'select(.event == "region_registered") | .region' | tr '\n' ' ')" 'hers null '
    assert_eq "$(cut -d' ' -f6 "$W/sessions" | tr '\n' ' ')" 'region\040hers region\040his '
    assert_eq "$(as_user cut -d' ' -f6 "$W/sessions" | tr '\n' ' ')" 'region\040hers region '
}

@test "a store that a user may not read is no region of his" {
    requires root
    commit_weights
    chmod 0700 "$W"
    run_logged -1 as_user "$GMSCTL" connect "$M" region-register self w weights/a none 0 8
    assert_eq "${lines[-1]}" EACCES
    expect EACCES connect "$M" region-register "$TEST_UID" w weights/a none 0 8
    ctl connect "$M" region-register self w weights/a none 0 8
}

# ---- the mount -------------------------------------------------------------------------------

@test "regions are counted in metrics, device and status" {
    register one
    ctl connect "$M" region-register-cuda self cu 64
    hold open "$MINE/one" r region 1
    rm "$MINE/one"
    metrics=$(cat "$M/metrics")
    assert_match "$metrics" 'gmsfs_regions\{kind="system"\} 1'
    assert_match "$metrics" 'gmsfs_regions\{kind="cuda"\} 1'
    assert_match "$metrics" 'gmsfs_regions_draining 1'
    assert_match "$metrics" 'gmsfs_region_references 1'
    assert_eq "$(jq -c '[.regions, .region_references]' "$M/device")" '[2,1]'
    run_logged -0 cli status "$M"
    assert_match "$output" '2 regions, 1 reference'
    assert_eq "$("$GMSFS" status --json "$M" | jq -r '.[0].stores[].name')" weights
}

@test "a drained mount takes no more regions, and a revoking drain ends those over stores" {
    commit_weights
    register one
    register_weights w
    run_logged -0 cli drain --revoke "$M"
    expect ENODEV connect "$M" region-register self more /key memfd:4096 0 1
    assert_eq "$(ls -A "$MINE")" one
    rm "$MINE/one"
}

@test "regions do not hold the mount, references do" {
    commit_weights
    register one
    register_weights w
    hold open "$MINE/one" r region 1
    run_logged '!' cli umount "$M"
    let_go "$HOLDER"
    run_logged -0 cli umount "$M"
    forget_mount "$M"
}
