#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The tree's look: files, modes, texts, streams, and refused operations.
#
# shellcheck disable=SC2016 # jq programs and format strings
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers
# bats file_tags=slow

load helpers

PSEUDO_OF_TOP='device events metrics'
PSEUDO_OF_STORE='state residency layout_hash layout pieces info sessions lock auto ctl data commit seal abort'

prepare() { start_weights; }

# ---- content of the tree ---------------------------------------------------------------------

# bats test_tags=quick
@test "the top shows the device, events, metrics, the ticket socket and one store" {
    assert_eq "$(names "$M")" '.fds device events metrics pools regions weights'
    [[ -S $M/.fds && -d $M/weights ]]
    assert_eq "$(mode_of "$M/.fds")" 666
    for file in $PSEUDO_OF_TOP; do
        assert_eq "$(mode_of "$M/$file")" 444 "mode of $file"
    done
}

# bats test_tags=quick
@test "a store has its files, readable and writable as they can be used" {
    assert_eq "$(names "$W")" \
        'abort allocations auto commit ctl data info layout layout_hash lock metadata pieces residency seal sessions state'
    chmod 755 "$W"
    for file in state layout_hash layout pieces info sessions; do
        assert_eq "$(mode_of "$W/$file")" 444 "mode of $file"
    done
    for file in lock auto ctl data; do
        assert_eq "$(mode_of "$W/$file")" 644 "mode of $file"
    done
    for file in commit seal abort; do
        assert_eq "$(mode_of "$W/$file")" 200 "mode of $file"
    done
    assert_eq "$(mode_of "$W/allocations") $(mode_of "$W/metadata")" '755 755'
}

@test "names that do not exist are ENOENT everywhere" {
    for file in "$M/none" "$W/none" "$W/allocations/none" "$W/metadata/none" "$W/dat" "$W/seals"; do
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

# bats test_tags=quick
@test "layout and layout_hash are empty during RW" {
    commit_store
    hold open "$W/lock" rw
    assert_eq "$(cat "$W/layout" "$W/layout_hash" | wc -c)" 0
    let_go "$HOLDER"
    assert_state weights COMMITTED
    [[ $(cat "$W/layout" "$W/layout_hash" | wc -c) -gt 33 ]]
}

# bats test_tags=quick
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

# bats test_tags=host
@test "INFO tells how long layout is, and 0 where there is none to read" {
    ctl open "$W/ctl" r info
    assert_match "$output" ' layout_bytes=0 '
    commit_store
    ctl open "$W/ctl" r info
    assert_match "$output" " layout_bytes=$(wc -c <"$W/layout") "
    hold open "$W/lock" rw
    ctl open "$W/ctl" r info
    assert_match "$output" ' layout_bytes=0 '
}

# bats test_tags=quick
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

@test "sessions lists holders and waiters: id mode status pid uid comm since files" {
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
# bats test_tags=quick
@test "metrics is valid Prometheus text" {
    ctl mkdir "$M/odd \"name\\"
    cat "$M/metrics" >"$T/metrics"
    run_logged -0 awk '
        function bad(why) { print FNR ": " why ": " $0; failed = 1 }
        /^# HELP [a-z_]+ .+$/ { help[$3]++; if (help[$3] > 1) bad("HELP twice"); next }
        /^# TYPE [a-z_]+ (counter|gauge|histogram)$/ {
            if (!($3 in help)) bad("TYPE without HELP")
            type[$3] = $4; current = $3
            if ($4 == "counter" && $3 !~ /_total$/) bad("a counter without _total")
            next
        }
        /^[a-z_]+(\{[a-z_]+="([^"\\]|\\["\\n])*"(,[a-z_]+="([^"\\]|\\["\\n])*")*\})? [0-9]+(\.[0-9]+)?$/ {
            name = $0; sub(/[{ ].*/, "", name)
            if (type[current] == "histogram") sub(/_(bucket|sum|count)$/, "", name)
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

# bats test_tags=quick
@test "events are JSON lines, newest last, and end" {
    commit_store
    run_logged -0 timeout $((5 * HANG)) jq -c '[.seq, .event, .store]' "$M/events"
    assert_match "$output" '"store_created","weights"'
    assert_match "$output" '"rw_connected","weights".*"committed","weights"'
    run_logged -0 jq -s -e '[.[].seq] == ([.[].seq] | sort)' "$M/events"
    run_logged -0 jq -s -e 'all(.time_ms > 1600000000000)' "$M/events"
}

# bats test_tags=quick
@test "events name the process, its uid and its deed" {
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

@test "a listing comes in parts, so that no client waits for all of it" {
    local i bytes
    exec 5<>"$W/lock"
    for i in {1..200}; do
        : >"$W/metadata/$(printf '%0255d' "$i")"
    done
    bytes=$("$GMSCTL" getdents "$W/metadata" 1000000 | head -n 1)
    ((bytes > 0 && bytes <= 32768)) || fail "$bytes bytes of names at once" # one page before Linux 6.14
    assert_eq "$(find "$W/metadata" -type f | wc -l)" 200
    exec 5>&-
}

@test "a read of events is short, so that no client waits for all of them" {
    ctl repeat 200 mkdir "$M/x" rmdir "$M/x"
    assert_eq "$(dd if="$M/events" bs=1M count=1 status=none | wc -c)" 16384
    assert_eq "$(dd if="$M/events" bs=1M status=none | wc -c)" "$(stat -c %s "$M/events")"
}

@test "poll on events waits for more" {
    expect ETIMEDOUT open "$M/events" r read 100000 poll in 100
    spawn "$GMSCTL" open "$M/events" r read 100000 say waiting poll in 10000 read 1000
    wait_until 5 said "$SPAWNED" waiting
    ctl mkdir "$M/other"
    wait_exit -0 "$SPAWNED"
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
    # A reader that begins at the first byte has lost all events before the oldest.
    run_logged -0 jq -s -e '.[0].lost == .[1].seq - 1' "$M/events"
}

@test "an offset in events is a byte of all that there ever was" {
    local from size
    stat -c '%s %Y' "$M/events" >"$T/before"
    cp "$M/events" "$T/copy"
    ctl repeat 400 mkdir "$M/x" rmdir "$M/x"
    cmp -n "$(wc -c <"$T/copy")" "$T/copy" "$M/events"
    size=$(stat -c %s "$M/events")
    assert_eq "$(wc -c < <(cat "$M/events"))" "$size"
    ctl repeat 400 mkdir "$M/x" rmdir "$M/x"
    from=$(jq .events_from "$M/device")
    [[ $from -gt 0 && $from -lt $size ]] || fail "events begin at $from"
    size=$(stat -c %s "$M/events")
    tail -c +$((from + 1)) "$M/events" >"$T/kept"
    assert_eq "$(wc -c <"$T/kept")" $((size - from))
    run_logged -0 jq -s -e '.[0].seq > 1 and (map(has("lost")) | any | not)' "$T/kept"
    # Below that: the number of lost events, and then the events that remain.
    cat "$M/events" >"$T/all"
    assert_eq "$(head -n 1 "$T/all")" "{\"lost\":$(($(head -n 1 "$T/kept" | jq .seq) - 1))}"
    cmp <(tail -n +2 "$T/all") "$T/kept"
    run_logged -0 awk -v size="$size" '$1 < size { exit 0 } { exit 1 }' "$T/before"
}

@test "the bytes of events are as many for every reader" {
    requires root
    ctl connect "$M" region-register self "$(printf 'x%.0s' {1..100})" /key memfd:4096 0 1000
    ctl connect "$M" region-register self short /key2 memfd:4096 0 1000
    assert_eq "$(as_user cat "$M/events" | wc -c)" "$(stat -c %s "$M/events")"
    run_logged -0 grep -c '"region":"short"' "$M/events"
    run_logged -1 bash -c 'grep -e xxx -e short <<<"$1"' _ "$(as_user cat "$M/events")"
    as_user cat "$M/events" | jq -s -e 'length > 2' >/dev/null
}

@test "poll on state says when it changes" {
    expect ETIMEDOUT open "$W/state" r read 100 poll pri 100
    spawn "$GMSCTL" open "$W/state" r read 100 say waiting poll pri 10000 pread 0 100
    wait_until 5 said "$SPAWNED" waiting
    hold open "$W/lock" rw
    spawned=$SPAWNED
    wait_exit -0 "${SPAWNS[0]}"
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

# bats test_tags=quick
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
    dd if="$M/metrics" bs=7 status=none >"$T/pieces" # counts each look
    diff <(sed 's/ [^ ]*$//' "$T/pieces") <(sed 's/ [^ ]*$//' "$M/metrics")
    for file in "$W/info" "$W/layout" "$M/device"; do
        wait_until 5 is_one_text "$file"
    done
}

is_one_text() { # FILE; it may change between the two looks
    dd if="$1" bs=7 status=none >"$T/pieces"
    [[ $(wc -c <"$T/pieces") -gt 14 ]] && cmp "$T/pieces" "$1"
}

# ---- refused operations ----------------------------------------------------------------------

# bats test_tags=quick
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

# bats test_tags=quick
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

# bats test_tags=quick
@test "the wrong direction of an open is EACCES, for root too" {
    for file in device events metrics; do
        expect EACCES open "$M/$file" w
        expect EACCES open "$M/$file" rw
    done
    for file in state layout_hash layout info sessions; do
        expect EACCES open "$W/$file" w
        expect EACCES open "$W/$file" rwt
    done
    for file in commit seal abort; do
        expect EACCES open "$W/$file" r
        expect EACCES open "$W/$file" rw
    done
    expect EACCES open "$W/data" r
}

@test "a pseudo-file has no size, owner or mode of its own to be set" {
    expect EPERM chmod "$W/state" 0777
    expect EPERM truncate "$W/lock" 0
    expect_message EPERM chown 1 "$W/ctl"
}

@test "entries removed during a listing are gone in the end, however small the buffer of readdir" {
    local bytes
    exec 5<>"$W/lock"
    for bytes in 512 2048 32768; do
        for i in {1..1000}; do
            echo >"$W/metadata/key-$i"
        done
        run_logged -0 "$GMSCTL" empty "$W/metadata" "$bytes"
        assert_eq "$(field removed)" 1000
        assert_eq "$(ls "$W/metadata")" ''
    done
    exec 5>&-
}

@test "a listed directory shows every name that stays once, while others come and go" {
    exec 5<>"$W/lock"
    for i in {1..500}; do
        echo >"$W/metadata/stays-$i"
        echo >"$W/metadata/goes-$i"
    done
    find "$W/metadata" -name 'stays-*' -printf '%f\n' >"$T/listed" &
    for i in {1..500}; do
        rm "$W/metadata/goes-$i"
        echo >"$W/metadata/comes-$i"
    done
    wait $!
    exec 5>&-
    assert_eq "$(sort "$T/listed" | uniq | wc -l)" 500
    assert_eq "$(wc -l <"$T/listed")" 500
}
