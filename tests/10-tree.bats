#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# What the tree looks like and what can be done to its names: files, modes, texts, streams,
# stores, extended attributes, keys. Locks are in 20-locks.bats.
#
# shellcheck disable=SC2016 # jq programs and format strings
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers

load helpers
load gmsctl

PSEUDO_OF_TOP='device events metrics'
PSEUDO_OF_STORE='state layout_hash layout info sessions lock auto ctl commit abort'

setup() {
    common_setup
    start_mount
    W=$M/weights
}

mode_of() {
    stat -c %a "$1"
}

# ---- what is there ---------------------------------------------------------------------------

@test "the top shows the device, events, metrics, the ticket socket and one store" {
    assert_eq "$(names "$M")" '.fds device events metrics weights'
    [[ -S $M/.fds && -d $M/weights ]]
    assert_eq "$(mode_of "$M/.fds")" 666
    for file in $PSEUDO_OF_TOP; do
        assert_eq "$(mode_of "$M/$file")" 444 "mode of $file"
    done
}

@test "a store has its files, readable and writable as they can be used" {
    assert_eq "$(names "$W")" \
        'abort allocations auto commit ctl info layout layout_hash lock metadata sessions state'
    chmod 755 "$W"
    for file in state layout_hash layout info sessions; do
        assert_eq "$(mode_of "$W/$file")" 444 "mode of $file"
    done
    for file in lock auto ctl; do
        assert_eq "$(mode_of "$W/$file")" 644 "mode of $file"
    done
    for file in commit abort; do
        assert_eq "$(mode_of "$W/$file")" 200 "mode of $file"
    done
    assert_eq "$(mode_of "$W/allocations") $(mode_of "$W/metadata")" '755 755'
}

@test "names that do not exist are ENOENT everywhere" {
    for file in "$M/none" "$W/none" "$W/allocations/none" "$W/metadata/none" "$W/data" "$W/seal"; do
        expect ENOENT stat "$file"
    done
}

@test "device is JSON with identity, sizes and version" {
    assert_match "$(device_get .uuid)" '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    assert_eq "$(device_get .backend)" host
    assert_eq "$(device_get .health)" ok
    assert_eq "$(device_get .total_bytes)" $((256 << 20)) total
    assert_eq "$(device_get .used_bytes)" 0 used
    assert_eq "$(device_get .reserved_bytes)" 0 reserved
    assert_eq "$(device_get .granularity_bytes)" $((2 << 20)) granularity
    [[ -n $(device_get '.name | strings') ]]
    assert_match "$(device_get .version)" '^[0-9]+\.[0-9]+\.[0-9]+'
}

@test "device counts the memory that is in use" {
    exec 5<>"$W/lock"
    truncate -s 3M "$W/allocations/a"
    assert_eq "$(device_get .used_bytes)" $((4 << 20))
    exec 5>&-
    wait_until 5 used_is 0
}

@test "state is one word and a newline" {
    assert_eq "$(od -c -An "$W/state" | tr -d ' ')" 'EMPTY\n'
    commit_store
    assert_eq "$(od -c -An "$W/state" | tr -d ' ')" 'COMMITTED\n'
    hold open "$W/lock" r
    assert_eq "$(cat "$W/state")" RO
    let_go "$HOLDER"
    hold open "$W/lock" rw
    assert_eq "$(cat "$W/state")" RW
}

@test "layout_hash is empty, or 32 hex digits and a newline" {
    assert_eq "$(wc -c <"$W/layout_hash")" 0
    commit_store
    assert_match "$(cat "$W/layout_hash")" '^[0-9a-f]{32}$'
    assert_eq "$(wc -c <"$W/layout_hash")" 33
}

@test "layout and layout_hash are empty during RW" {
    commit_store
    hold open "$W/lock" rw
    assert_eq "$(cat "$W/layout" "$W/layout_hash" | wc -c)" 0
    let_go "$HOLDER"
    assert_state weights COMMITTED
    [[ $(cat "$W/layout" "$W/layout_hash" | wc -c) -gt 33 ]]
}

@test "the directories show the writer's working copy during RW, the committed layout otherwise" {
    commit_store
    hold open "$W/lock" rw unlink "$W/allocations/a" open "$W/allocations/b" rwc
    assert_eq "$(names "$W/allocations")" b
    assert_eq "$(names "$W/metadata")" ''
    let_go "$HOLDER"
    assert_state weights COMMITTED
    assert_eq "$(names "$W/allocations")" a
    assert_eq "$(names "$W/metadata")" key
}

@test "info is JSON about the store" {
    assert_match "$(info_of weights .id)" '^[0-9a-f]{32}$'
    assert_eq "$(info_of weights '"\(.state) \(.committed) \(.generation) \(.last_error)"')" \
        'EMPTY false 0 null'
    commit_store
    assert_eq "$(info_of weights '"\(.state) \(.committed) \(.generation) \(.readers)"')" \
        'COMMITTED true 1 0'
    assert_eq "$(info_of weights '"\(.allocations) \(.entries) \(.bytes)"')" '1 1 2097152'
    assert_eq "$(info_of weights .layout_hash)" "$(cat "$W/layout_hash")"
    hold open "$W/lock" r
    assert_eq "$(info_of weights .readers)" 1
    spawn "$GMSCTL" open "$W/lock" rw
    wait_for_waiters weights 1
    assert_eq "$(info_of weights .writers_waiting)" 1
}

@test "info shows the group of the last commit" {
    group=00112233445566778899aabbccddeeff
    ctl open "$W/ctl" rw acquire rw 0 alloc 1 1 a '' commit-group "$group"
    assert_eq "$(info_of weights .group)" "$group"
    ctl open "$W/ctl" rw acquire rw 1000 commit
    assert_eq "$(info_of weights .group)" null
}

@test "sessions lists who holds and who waits: id mode status pid uid comm since files" {
    commit_store
    assert_eq "$(cat "$W/sessions")" ''
    hold open "$W/lock" r
    spawn "$GMSCTL" open "$W/lock" rw
    waiter=$SPAWNED
    wait_for_waiters weights 1
    cat "$W/sessions"
    time='[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z'
    assert_match "$(sed -n 1p "$W/sessions")" "^[0-9]+ RO held $HOLDER 0 gmsctl $time 1\$"
    assert_match "$(sed -n 2p "$W/sessions")" "^w[0-9]+ RW waiting $waiter 0 gmsctl $time 0\$"
    assert_eq "$(wc -l <"$W/sessions")" 2
}

@test "a session's number in lock is that of the sessions table" {
    hold open "$W/lock" rw read 100
    read -r mode id < <(output_of "$HOLDER")
    assert_eq "$mode" RW
    assert_match "$(cat "$W/sessions")" "^$id RW held "
}

@test "a command's name with blanks stays one word in sessions" {
    cp "$GMSCTL" "$T/odd name\\"
    spawn "$T/odd name\\" open "$W/lock" rw say held pause
    wait_until 5 said "$SPAWNED" held
    assert_match "$(cat "$W/sessions")" ' odd\\040name\\134 '
}

# The text format as Prometheus' parser takes it: HELP and TYPE before the samples of a name, every
# sample declared, labels quoted, numbers plain.
@test "metrics is valid Prometheus text" {
    ctl mkdir "$M/odd \"name\\"
    cat "$M/metrics" >"$T/metrics"
    run_logged -0 awk '
        function bad(why) { print FNR ": " why ": " $0; failed = 1 }
        /^# HELP [a-z_]+ .+$/ { help[$3]++; if (help[$3] > 1) bad("HELP twice"); next }
        /^# TYPE [a-z_]+ (counter|gauge)$/ {
            if (!($3 in help)) bad("TYPE without HELP")
            type[$3] = $4; current = $3
            if ($4 == "counter" && $3 !~ /(_total|_generation)$/) bad("a counter without _total")
            next
        }
        /^[a-z_]+(\{[a-z_]+="([^"\\]|\\["\\n])*"(,[a-z_]+="([^"\\]|\\["\\n])*")*\})? [0-9]+(\.[0-9]+)?$/ {
            name = $0; sub(/[{ ].*/, "", name)
            if (name != current) bad("a sample outside its family")
            sub(/ [^ ]*$/, ""); if (seen[$0]++) bad("a sample twice")
            samples++
            next
        }
        { bad("no valid line") }
        END { exit failed || samples < 20 }' "$T/metrics"
    [[ $(tail -c 1 "$T/metrics" | od -An -c | tr -d ' ') == '\n' ]]
}

@test "metrics count grants, commits, aborts, waiters and exports" {
    value() { sed -n "s/^gmsfs_store_$1\(.*\) \([0-9]*\)\$/\2/p" "$M/metrics" | head -n 1; }
    commit_store
    assert_eq "$(value 'grants_total{store="weights",mode="RW"}')" 1
    assert_eq "$(value 'commits_total{store="weights"}')" 1
    assert_eq "$(value 'state{store="weights",state="COMMITTED"}')" 1
    ctl open "$W/lock" rw
    assert_state weights COMMITTED
    assert_eq "$(value 'aborts_total{store="weights"}')" 1
    hold open "$W/ctl" r acquire ro 0 export 0 0
    assert_eq "$(value 'exports_total{store="weights"}')" 1
    spawn "$GMSCTL" open "$W/lock" rw
    wait_for_waiters weights 1
    assert_eq "$(value 'waiters{store="weights"}')" 1
}

# ---- streams ---------------------------------------------------------------------------------

@test "events are JSON lines, newest last, and end" {
    commit_store
    run_logged -0 timeout 5 jq -c '[.seq, .event, .store]' "$M/events"
    assert_match "$output" '"store_created","weights"'
    assert_match "$output" '"rw_connected","weights".*"committed","weights"'
    run_logged -0 jq -s -e '[.[].seq] == ([.[].seq] | sort)' "$M/events"
    run_logged -0 jq -s -e 'all(.time_ms > 1600000000000)' "$M/events"
}

@test "events name the process, its uid and what happened" {
    hold open "$W/lock" rw
    assert_eq "$(last_event '"\(.event) \(.pid) \(.uid)"')" "rw_connected $HOLDER 0"
    let_go "$HOLDER"
    assert_state weights EMPTY
    assert_eq "$(last_event .event)" aborted
}

@test "reading events goes on after the end, and each handle has its own position" {
    exec 5<"$M/events" 6<"$M/events"
    cat <&5 >"$T/first"
    assert_eq "$(timeout 5 cat <&5)" ''
    ctl mkdir "$M/other"
    assert_eq "$(timeout 5 cat <&5 | jq -r '"\(.event) \(.store)"')" 'store_created other'
    cat <&6 >"$T/all"
    assert_eq "$(wc -l <"$T/all")" $(($(wc -l <"$T/first") + 1))
    exec 5<&- 6<&-
}

@test "a line of events that does not fit goes on at the next read" {
    exec 5<"$M/events"
    for _ in {1..400}; do
        dd bs=1 count=1 status=none <&5
    done >"$T/pieces"
    cmp "$T/pieces" <(head -c "$(wc -c <"$T/pieces")" "$M/events")
    exec 5<&-
}

@test "poll on events waits for more" {
    expect ETIMEDOUT open "$M/events" r read 100000 poll in 100
    spawn "$GMSCTL" open "$M/events" r read 100000 say waiting poll in 10000 read 1000
    wait_until 5 said "$SPAWNED" waiting
    ctl mkdir "$M/other"
    wait_exit "$SPAWNED"
    assert_eq "$status" 0
    assert_match "$(output_of "$SPAWNED")" $'\nin \n.*"store_created"'
}

@test "a reader of events that the ring overtook is told how many it lost" {
    exec 5<"$M/events"
    cat <&5 >/dev/null
    ctl repeat 1400 mkdir "$M/x" rmdir "$M/x"
    cat <&5 >"$T/rest"
    exec 5<&-
    lost=$(head -n 1 "$T/rest" | jq .lost)
    assert_match "$lost" '^[0-9]+$'
    assert_eq $((lost + $(wc -l <"$T/rest") - 1)) 2800
    run_logged -0 jq -e 'has("lost") | not' <(tail -n +2 "$T/rest")
    # One who opens it now has lost nothing.
    run_logged '!' grep -q lost "$M/events"
}

@test "poll on state says when it changes" {
    expect ETIMEDOUT open "$W/state" r read 100 poll pri 100
    spawn "$GMSCTL" open "$W/state" r read 100 say waiting poll pri 10000 pread 0 100
    wait_until 5 said "$SPAWNED" waiting
    hold open "$W/lock" rw
    spawned=$SPAWNED
    wait_exit "${SPAWNS[0]}"
    assert_eq "$status" 0
    assert_match "$(output_of "${SPAWNS[0]}")" $'EMPTY\nwaiting\npri \nRW'
    let_go "$spawned"
}

@test "poll on state is ready at once if it changed since this handle read it" {
    exec 5<"$W/state"
    cat <&5
    hold open "$W/lock" rw
    ctl fd 5 poll pri 0
    exec 5<&-
}

@test "the text of a file is fixed at the first read and anew at offset 0" {
    exec 5<"$W/state"
    ctl fd 5 pread 0 2
    assert_eq "$output" EM
    hold open "$W/lock" rw
    ctl fd 5 pread 2 100
    assert_eq "$output" PTY
    ctl fd 5 pread 0 100
    assert_eq "$output" RW
    exec 5<&-
}

@test "a text that is read in small pieces is one text" {
    commit_store
    for file in "$M/metrics" "$W/info" "$W/layout" "$M/device"; do
        dd if="$file" bs=7 status=none >"$T/pieces"
        [[ $(wc -c <"$T/pieces") -gt 14 ]]
    done
    cmp "$T/pieces" "$M/device"
}

# ---- what cannot be done ---------------------------------------------------------------------

@test "pseudo-files cannot be removed or renamed" {
    for file in $PSEUDO_OF_TOP; do
        expect EPERM unlink "$M/$file"
        expect EPERM rename "$M/$file" "$M/other"
    done
    for file in $PSEUDO_OF_STORE; do
        expect EPERM unlink "$W/$file"
        expect EPERM rename "$W/$file" "$W/other"
    done
    for file in allocations metadata; do
        expect EPERM rmdir "$W/$file"
        expect EPERM rename "$W/$file" "$W/other"
    done
    expect EPERM unlink "$M/.fds"
}

@test "links, symlinks, pipes, sockets and other files are EPERM" {
    for dir in "$M" "$W" "$W/allocations" "$W/metadata"; do
        expect EPERM link "$M/device" "$dir/new"
        expect EPERM symlink text "$dir/new"
        expect EPERM mkfifo "$dir/new"
        expect EPERM bind "$dir/new"
    done
    for dir in "$M" "$W"; do
        expect EPERM open "$dir/new" wc
        expect EPERM mknod "$dir/new"
    done
    for dir in "$W" "$W/allocations" "$W/metadata"; do
        expect EPERM mkdir "$dir/new"
    done
}

@test "the wrong direction of an open is EACCES, for root too" {
    for file in device events metrics; do
        expect EACCES open "$M/$file" w
        expect EACCES open "$M/$file" rw
    done
    for file in state layout_hash layout info sessions; do
        expect EACCES open "$W/$file" w
        expect EACCES open "$W/$file" rwt
    done
    for file in commit abort; do
        expect EACCES open "$W/$file" r
        expect EACCES open "$W/$file" rw
    done
}

@test "a pseudo-file has no size, owner or mode of its own to be set" {
    expect EPERM chmod "$W/state" 0777
    expect EPERM truncate "$W/lock" 0
    expect_message EPERM chown 1 "$W/ctl"
}

# ---- stores ----------------------------------------------------------------------------------

@test "mkdir makes a store of its own, rmdir removes it" {
    mkdir "$M/other"
    assert_eq "$(cat "$M/other/state")" EMPTY
    [[ $(info_of other .id) != "$(info_of weights .id)" ]]
    hold open "$M/other/lock" rw
    assert_state weights EMPTY
    assert_state other RW
    let_go "$HOLDER"
    rmdir "$M/other"
    [[ ! -e $M/other ]]
    expect ENOENT rmdir "$M/other"
}

@test "mkdir of a name that is taken is EEXIST" {
    for name in weights device events metrics .fds; do
        expect EEXIST mkdir "$M/$name"
    done
}

@test "rmdir removes a committed store with its memory" {
    commit_store
    rmdir "$W"
    assert_eq "$(names "$M")" '.fds device events metrics'
    wait_until 5 used_is 0
}

@test "rmdir of a store that is used is EBUSY" {
    commit_store
    hold open "$W/lock" r
    expect EBUSY rmdir "$W"
    let_go "$HOLDER"
    hold open "$W/lock" rw
    spawn "$GMSCTL" open "$W/lock" rw
    wait_for_waiters weights 1
    expect EBUSY rmdir "$W"
}

@test "files without a session do not keep a store: afterwards they are ESTALE" {
    exec 5<"$W/ctl" 6<"$W/state"
    rmdir "$W"
    expect ESTALE fd 5 info
    expect ESTALE fd 5 acquire ro 0
    expect ESTALE fd 6 pread 0 10
    exec 5<&- 6<&-
}

@test "a store's name is any that a directory may have, in UTF-8" {
    for name in 'a b' 'ünï' '.hidden' $'new\nline' "$(printf 'x%.0s' {1..255})" '%25' "'\"\\"; do
        mkdir "$M/$name"
        assert_eq "$(cat "$M/$name/state")" EMPTY
        rmdir "$M/$name"
    done
    expect ENAMETOOLONG mkdir "$M/$(printf 'x%.0s' {1..256})"
    expect EINVAL mkdir "$M/"$'\xff'
    jq -s . "$M/events" >/dev/null
}

@test "mv renames a store, and its sessions follow it" {
    commit_store
    id=$(info_of weights .id)
    spawn "$GMSCTL" open "$W/lock" r open "$W/allocations/a" r say held until "$T/moved" read 9 \
        use 0 info
    wait_until 5 said "$SPAWNED" held
    mv "$W" "$M/renamed"
    assert_eq "$(info_of renamed .id)" "$id"
    assert_state renamed RO
    touch "$T/moved"
    wait_exit "$SPAWNED"
    assert_match "$(output_of "$SPAWNED")" "committed.*store=$id"
    [[ ! -e $W ]]
    assert_state renamed COMMITTED
}

@test "a store can be replaced under its readers by RENAME_EXCHANGE" {
    commit_store
    mkdir "$M/weights.next"
    commit_store weights.next
    old=$(info_of weights .id) new=$(info_of weights.next .id)
    spawn "$GMSCTL" open "$W/lock" r open "$W/allocations/a" r say held until "$T/moved" read 9 \
        use 0 info say moved pause
    wait_until 5 said "$SPAWNED" held
    ctl exchange "$W" "$M/weights.next"
    assert_eq "$(info_of weights .id) $(info_of weights.next .id)" "$new $old"
    assert_state weights COMMITTED
    assert_state weights.next RO
    touch "$T/moved"
    wait_until 5 said "$SPAWNED" moved
    assert_match "$(output_of "$SPAWNED")" 'committed'
    assert_match "$(output_of "$SPAWNED")" "store=$old"
    let_go "$SPAWNED"
    assert_state weights.next COMMITTED
}

@test "mv onto a store: NOREPLACE is EEXIST, a full one is ENOTEMPTY, an empty one goes" {
    commit_store
    mkdir "$M/other"
    expect EEXIST noreplace "$M/other" "$W"
    expect ENOTEMPTY rename "$M/other" "$W"
    ctl rename "$W" "$M/other"
    assert_state other COMMITTED
    assert_eq "$(names "$M")" ".fds device events metrics other"
    expect ENOENT exchange "$M/other" "$M/none"
}

@test "a store moves only within the top" {
    mkdir "$M/other"
    expect EXDEV rename "$M/other" "$W/other"
    expect EXDEV rename "$M/other" "$W/metadata/other"
}

@test "a removed store is ESTALE for whoever still has a directory of it open" {
    mkdir "$M/other"
    cd "$M/other"
    rmdir "$M/other"
    run_logged '!' cat state
    cd /
}

@test "a change of owner, group and mode holds for all files of the store" {
    requires root
    commit_store
    chown 1234:5678 "$W"
    chmod 750 "$W"
    for file in "$W" "$W/lock" "$W/state" "$W/allocations" "$W/allocations/a" "$W/metadata/key"; do
        assert_eq "$(stat -c %u:%g "$file")" 1234:5678 "owner of $file"
    done
    assert_eq "$(mode_of "$W")" 750
    assert_eq "$(mode_of "$W/allocations")" 750
    assert_eq "$(mode_of "$W/lock") $(mode_of "$W/state") $(mode_of "$W/commit")" '640 440 200'
    assert_eq "$(mode_of "$W/allocations/a")" 640
    assert_eq "$(mode_of "$M/device")" 444
    assert_eq "$(stat -c %u "$M/device")" 0
}

@test "the kernel enforces a store's mode" {
    requires root
    as_user cat "$W/state"
    run_logged '!' as_user "$GMSCTL" open "$W/lock" rw
    assert_match "$output" EACCES
    chown "$TEST_UID" "$W"
    run_logged -0 as_user "$GMSCTL" open "$W/lock" rw
    chmod 700 "$W"
    chown 0 "$W"
    run_logged '!' as_user cat "$W/state"
    assert_match "$output" 'Permission denied'
    run_logged '!' as_user rmdir "$W"
    run_logged '!' as_user mkdir "$M/other"
}

@test "a mkdir by another user makes their store, with the mode that they ask for" {
    requires root
    mkdir -m 700 "$M/private"
    assert_eq "$(mode_of "$M/private")" 700
    assert_eq "$(mode_of "$M/private/lock") $(mode_of "$M/private/state")" '600 400'
    run_logged '!' as_user ls "$M/private"
}

# ---- sizes -----------------------------------------------------------------------------------

@test "df shows the device" {
    read -r size used available < <(df -B1 --output=size,used,avail "$M" | tail -n 1)
    assert_eq "$size $used $available" "$((256 << 20)) 0 $((256 << 20))"
    exec 5<>"$W/lock"
    truncate -s 1 "$W/allocations/a"
    assert_eq "$(df -B1 --output=used "$M" | tail -n 1 | tr -d ' ')" $((2 << 20))
    exec 5>&-
}

@test "du shows what allocations cost, ls what was asked for" {
    exec 5<>"$W/lock"
    truncate -s 3000000 "$W/allocations/a"
    touch "$W/allocations/empty"
    assert_eq "$(du -B1 "$W/allocations/a" | cut -f1)" $((4 << 20))
    assert_eq "$(du -B1 --apparent-size "$W/allocations/a" | cut -f1)" 3000000
    assert_eq "$(stat -c '%s %b' "$W/allocations/empty")" '0 0'
    assert_eq "$(du -s -B1 "$W/allocations" | cut -f1)" $((4 << 20))
    exec 5>&-
}

@test "allocations are aligned to the granularity of the mount" {
    start_mount granularity=64K
    exec 5<>"$M/weights/lock"
    truncate -s 65537 "$M/weights/allocations/a"
    assert_eq "$(stat -c '%s %b' "$M/weights/allocations/a")" '65537 256'
    exec 5>&-
}

# ---- extended attributes -----------------------------------------------------------------------

@test "an allocation tells rank, slot, tag and aligned size" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 1 3 x0 '' free 1 alloc 2097153 1 y kind commit
    cd "$W/allocations"
    assert_eq "$(getfattr --absolute-names --only-values -n user.gmsfs.rank y)" 2
    assert_eq "$(getfattr --only-values -n user.gmsfs.slot y)" 3
    assert_eq "$(getfattr --only-values -n user.gmsfs.tag y)" kind
    assert_eq "$(getfattr --only-values -n user.gmsfs.aligned_size y)" $((4 << 20))
    assert_eq "$(getfattr --only-values -n user.gmsfs.rank x2)" 1
    run_logged -0 getfattr -d -m - y
    for name in rank slot tag aligned_size; do
        assert_match "$output" "user.gmsfs.$name="
    done
    cd /
}

@test "an entry tells its allocation and offset, and the writer may set both" {
    exec 5<>"$W/lock"
    truncate -s 4096 "$W/allocations/a"
    printf v >"$W/metadata/k"
    setfattr -n user.gmsfs.allocation -v a "$W/metadata/k"
    setfattr -n user.gmsfs.offset -v 4095 "$W/metadata/k"
    ctl getxattr "$W/metadata/k" user.gmsfs.allocation getxattr "$W/metadata/k" user.gmsfs.offset
    assert_eq "$output" "$(printf 'a\n4095')"
    echo 1 >"$W/commit"
    exec 5>&-
    ctl open "$W/lock" r open "$W/ctl" r
    ctl getxattr "$W/metadata/k" user.gmsfs.allocation
    assert_eq "$output" a
}

@test "attributes that cannot be: unknown ENODATA, bad values EINVAL, outside a session ENOLCK" {
    commit_store
    expect ENODATA getxattr "$W/allocations/a" user.gmsfs.none
    expect ENODATA getxattr "$W/allocations/a" user.other
    expect ENODATA getxattr "$W/state" user.gmsfs.rank
    expect ENODATA getxattr "$W" security.selinux
    expect ENOLCK setxattr "$W/allocations/a" user.gmsfs.tag x
    expect ENOLCK setxattr "$W/metadata/key" user.gmsfs.offset 1
    exec 5<>"$W/lock"
    expect EINVAL setxattr "$W/metadata/key" user.gmsfs.offset x
    expect EINVAL setxattr "$W/metadata/key" user.gmsfs.offset -1
    expect EINVAL setxattr "$W/metadata/key" user.gmsfs.allocation none
    expect EINVAL setxattr "$W/allocations/a" user.gmsfs.tag hex:ff
    expect EPERM setxattr "$W/allocations/a" user.gmsfs.rank 1
    ctl setxattr "$W/allocations/a" user.gmsfs.tag 'a tag'
    ctl getxattr "$W/allocations/a" user.gmsfs.tag
    assert_eq "$output" 'a tag'
    exec 5>&-
}

# ---- keys ------------------------------------------------------------------------------------

@test "keys are encoded as file names: percent, slash, NUL and a leading dot" {
    ctl open "$W/ctl" rw acquire rw 0 put 'a/b' 1 none 0 put 'a%b' 2 none 0 \
        put hex:610062 3 none 0 put .a.b 4 none 0 put a.b 5 none 0 put .. 6 none 0 \
        put 'a b' 7 none 0 put 'ü' 8 none 0 put % 9 none 0 commit
    assert_eq "$(names "$W/metadata")" '%25 %2E. %2Ea.b a b a%00b a%25b a%2Fb a.b ü'
    assert_eq "$(cat "$W/metadata/a%2Fb" "$W/metadata/a%25b" "$W/metadata/a%00b" \
        "$W/metadata/%2Ea.b" "$W/metadata/a.b" "$W/metadata/%2E." "$W/metadata/%25")" 1234569
}

@test "a key made as a file is read back by its bytes" {
    exec 5<>"$W/lock"
    printf x >"$W/metadata/%2Emodel%2Flayer%00%25"
    ctl open "$W/ctl" rw fd 5 get hex:2e6d6f64656c2f6c617965720025
    assert_match "$output" 'value=x'
    exec 5>&-
}

@test "every other spelling of a key is EINVAL" {
    exec 5<>"$W/lock"
    for name in % %2 %% %2f %2e %zz %41 a%2Eb a%20b %2F%2 .a . .. x%; do
        case $name in . | ..) continue ;; esac
        expect EINVAL open "$W/metadata/$name" wc
        expect EINVAL stat "$W/metadata/$name"
    done
    expect EINVAL open "$W/metadata/"$'\xff' wc
    expect EINVAL open "$W/metadata/"$'\xc3' wc
    expect EINVAL open "$W/metadata/"$'\xed\xa0\x80' wc
    exec 5>&-
}

@test "every byte but NUL and slash in a name either makes that key or is EINVAL" {
    words=()
    for i in {1..255}; do
        [[ $i -ne 47 ]] || continue
        printf -v name '%b' "a\\x$(printf %02x "$i")"
        words+=(try open "$W/metadata/$name" wc try close)
    done
    exec 5<>"$W/lock"
    run_logged -0 "$GMSCTL" "${words[@]}"
    # 128 bytes that are no UTF-8, and the percent sign; for each also the close of a closed file.
    assert_eq "$(grep -c EINVAL <<<"$output")" 129
    assert_eq "$(find "$W/metadata" -type f -printf . | wc -c)" 125
    exec 5>&-
}

@test "an encoded key has at most 255 bytes" {
    long=$(printf 'k%.0s' {1..255})
    exec 5<>"$W/lock"
    ctl open "$W/metadata/$long" wc write x
    assert_eq "$(cat "$W/metadata/$long")" x
    expect ENAMETOOLONG open "$W/metadata/${long}k" wc
    ctl fd 5 put "${long:0:252}/" y none 0
    expect ENAMETOOLONG fd 5 put "${long:0:253}/" y none 0
    expect EINVAL fd 5 put '' y none 0
    exec 5>&-
}

@test "metadata files: what is written is the value, whole and at once" {
    exec 5<>"$W/lock"
    printf first >"$W/metadata/k"
    assert_eq "$(cat "$W/metadata/k")" first
    printf 2nd >"$W/metadata/k"
    assert_eq "$(cat "$W/metadata/k")" 2nd
    printf +more >>"$W/metadata/k"
    assert_eq "$(cat "$W/metadata/k")" 2nd+more
    truncate -s 3 "$W/metadata/k"
    assert_eq "$(cat "$W/metadata/k")" 2nd
    mv "$W/metadata/k" "$W/metadata/l"
    assert_eq "$(names "$W/metadata")" l
    cp "$W/metadata/l" "$W/metadata/m"
    rm "$W/metadata/l"
    echo 1 >"$W/commit"
    exec 5>&-
    assert_eq "$(names "$W/metadata") $(cat "$W/metadata/m")" 'm 2nd'
}

@test "reading metadata takes no lock" {
    commit_store
    spawn "$GMSCTL" open "$W/metadata/key" r say held pause
    wait_until 5 said "$SPAWNED" held
    assert_eq "$(cat "$W/state")" COMMITTED
    ctl open "$W/lock" rwn
}

@test "directories list every name once, however many there are" {
    words=()
    for i in {1000..2499}; do words+=(put "key-$i" v none 0); done
    ctl open "$W/ctl" rw acquire rw 0 alloc 1 40 a0 '' "${words[@]}" commit
    assert_eq "$(find "$W/metadata" -name 'key-*' | sort -u | wc -l)" 1500
    assert_eq "$(find "$W/metadata" -name 'key-*' | wc -l)" 1500
    assert_eq "$(find "$W/allocations" -type f | wc -l)" 40
}
