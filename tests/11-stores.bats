#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Operations on names: stores, sizes, extended attributes, keys.
#
# shellcheck disable=SC2016 # jq programs and format strings
# shellcheck disable=SC2153 # HOLDER and SPAWNED come from helpers
# bats file_tags=slow

load helpers

prepare() { start_weights; }

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

# bats test_tags=quick
@test "mkdir of a name that is taken is EEXIST" {
    for name in weights device events metrics pools regions .fds; do
        expect EEXIST mkdir "$M/$name"
    done
}

# bats test_tags=quick
@test "rmdir removes a committed store with its memory" {
    commit_store
    rmdir "$W"
    assert_eq "$(names "$M")" '.fds device events metrics pools regions'
    wait_until 5 used_is 0
}

# bats test_tags=quick
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

# bats test_tags=quick
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

# bats test_tags=quick
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

# bats test_tags=quick
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

# bats test_tags=quick
@test "mv onto a store: NOREPLACE is EEXIST, a full one is ENOTEMPTY, an empty one goes" {
    commit_store
    mkdir "$M/other"
    expect EEXIST noreplace "$M/other" "$W"
    expect ENOTEMPTY rename "$M/other" "$W"
    ctl rename "$W" "$M/other"
    assert_state other COMMITTED
    assert_eq "$(names "$M")" ".fds device events metrics other pools regions"
    expect ENOENT exchange "$M/other" "$M/none"
}

@test "a store moves only within the top" {
    mkdir "$M/other"
    expect EXDEV rename "$M/other" "$W/other"
    expect EXDEV rename "$M/other" "$W/metadata/other"
}

# bats test_tags=quick
@test "a removed store is ESTALE for processes that have a directory of it open" {
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

# bats test_tags=quick
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

@test "mkdir makes a store with the mode that it asks for; others may not make any" {
    requires root
    mkdir -m 700 "$M/private"
    assert_eq "$(mode_of "$M/private")" 700
    assert_eq "$(mode_of "$M/private/lock") $(mode_of "$M/private/state")" '600 400'
    run_logged '!' as_user ls "$M/private"
    expect_message EACCES as_user mkdir "$M/theirs"
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

@test "du shows the cost of allocations, ls the requested size" {
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

# bats test_tags=quick
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
    commit_5
    ctl open "$W/lock" r open "$W/ctl" r
    ctl getxattr "$W/metadata/k" user.gmsfs.allocation
    assert_eq "$output" a
}

@test "an entry that is bound to no allocation has offset 0, and takes no other" {
    exec 5<>"$W/lock"
    truncate -s 4096 "$W/allocations/a"
    printf v >"$W/metadata/k"
    expect EINVAL setxattr "$W/metadata/k" user.gmsfs.offset 8
    setfattr -n user.gmsfs.offset -v 0 "$W/metadata/k"
    setfattr -n user.gmsfs.allocation -v a "$W/metadata/k"
    setfattr -n user.gmsfs.offset -v 8 "$W/metadata/k"
    setfattr -n user.gmsfs.allocation -v - "$W/metadata/k"
    ctl getxattr "$W/metadata/k" user.gmsfs.offset
    assert_eq "$output" 0
    exec 5>&-
    assert_state weights EMPTY
    expect EINVAL open "$W/ctl" rw acquire rw 0 put k v none 8
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

# bats test_tags=quick
@test "metadata files: the written bytes are the value, whole and at once" {
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
    commit_5
    assert_eq "$(names "$W/metadata") $(cat "$W/metadata/m")" 'm 2nd'
}

@test "reading metadata takes no lock" {
    commit_store
    spawn "$GMSCTL" open "$W/metadata/key" r say held pause
    wait_until 5 said "$SPAWNED" held
    assert_eq "$(cat "$W/state")" COMMITTED
    ctl open "$W/lock" rwn
}

@test "METADATA_GET shows the directory's content, to outsiders too" {
    commit_store
    hold open "$W/ctl" rw acquire rw 0 put key changed none 0 put fresh new none 0
    assert_eq "$(names "$W/metadata") $(cat "$W/metadata/key")" 'fresh key changed'
    ctl open "$W/ctl" r get key get fresh
    assert_match "$output" 'value=changed'
    assert_match "$output" 'value=new'
    let_go "$HOLDER"
    ctl open "$W/ctl" r get key
    assert_match "$output" 'value=value'
}

@test "LIST shows the directory's content, to outsiders too, by rank or from a slot on" {
    exec 5<>"$W/lock"
    ctl fd 5 alloc 10 3 x0 tag free 1 alloc 3000000 1 last ''
    ctl open "$W/state" r list 0 0 0
    assert_eq "$output" "$(
        echo 'count=3 more=0 allocations=3'
        echo 'allocation rank=0 slot=0 size=10 aligned=2097152 tag=tag name=x0'
        echo 'allocation rank=1 slot=2 size=10 aligned=2097152 tag=tag name=x2'
        echo 'allocation rank=2 slot=3 size=3000000 aligned=4194304 tag= name=last'
    )"
    ctl open "$W/ctl" r list 1 0 1
    assert_match "$output" $'^count=1 more=1 allocations=3\nallocation rank=1 slot=2 '
    ctl open "$W/ctl" r list 1 1 0
    assert_match "$output" $'^count=2 more=0 allocations=3\nallocation rank=1 slot=2 '
    exec 5>&-
    assert_state weights EMPTY 5
    ctl open "$W/ctl" r list 0 0 0
    assert_eq "$output" 'count=0 more=0 allocations=0'
}

@test "pages of LIST are of one layout: after a change the next one is EAGAIN" {
    tag=$(printf 'tag%.0s' {1..80}) # so that few fit on a page
    ctl open "$W/ctl" rw acquire rw 0 alloc 1 100 a0 "$tag" commit list 0 0 0
    assert_match "$output" 'count=([0-9]+) more=1 allocations=100'
    page=${BASH_REMATCH[1]}
    ctl open "$W/ctl" rw list 0 0 0 acquire rw 0 list-on "$page" 0 0 commit
    assert_match "$output" "rank=$page slot=$page "
    for change in 'free 99' clear 'alloc 1 1 new tag commit' commit; do
        # shellcheck disable=SC2086 # words
        expect EAGAIN open "$W/ctl" rw acquire rw 5000 list 0 0 0 $change list-on "$page" 0 0
    done
    expect EAGAIN open "$W/lock" rw list 0 0 0 setxattr "$W/allocations/new" user.gmsfs.tag other \
        list-on "$page" 0 0
    expect EAGAIN open "$W/lock" rw list 0 0 0 rename "$W/allocations/new" "$W/allocations/newer" \
        list-on "$page" 0 0
}

@test "LIST tells another writer's work from that of a writer that was rolled back" {
    ctl open "$W/ctl" rw acquire rw 0 alloc 1 3 a0 tag commit
    # Two writers, each with one change of the same layout.
    expect EAGAIN open "$W/ctl" rw acquire rw 5000 free 0 list 0 0 1 abort acquire rw 5000 free 2 \
        list-on 1 0 1
    expect EAGAIN open "$W/ctl" rw acquire rw 5000 free 0 list 0 0 1 abort list-on 1 0 1
}

# ---- many stores -----------------------------------------------------------------------------

# Microseconds for 200 locks and unlocks of this store, the least of three.
time_locks() { # STORE
    local least=0 from us round i
    for ((round = 0; round < 3; round++)); do
        from=${EPOCHREALTIME/[.,]/}
        for ((i = 0; i < 200; i++)); do
            exec 9<>"$M/$1/lock"
            exec 9>&-
        done
        us=$((${EPOCHREALTIME/[.,]/} - from))
        ((least > 0 && least < us)) || least=$us
    done
    echo "$least"
}

@test "4,096 stores are made, listed, locked and removed, and a lock among them costs no more than alone" {
    local alone among names=(s{0001..4095})
    alone=$(time_locks weights)
    mkdir "${names[@]/#/$M/}"
    expect ENOSPC mkdir "$M/more"
    assert_eq "$(find "$M" -mindepth 1 -maxdepth 1 -name 's[0-9]*' -printf '%f\n' | sort)" \
        "$(printf '%s\n' "${names[@]}")"
    rmdir "$M/s4095"
    mkdir "$M/s4095" # the bound is of those that there are
    assert_eq "$(cat "$M"/s*0/state | sort | uniq -c | tr -s ' ')" ' 409 EMPTY'
    among=$(time_locks s2048)
    echo "# alone $alone us, among 4,096 $among us" >&3
    ((among < 3 * alone))
    hold open "$M/s3000/lock" rw
    assert_state s3000 RW
    expect EBUSY rmdir "$M/s3000"
    let_go "$HOLDER"
    rmdir "${names[@]/#/$M/}"
    assert_eq "$(names "$M")" '.fds device events metrics pools regions weights'
}
