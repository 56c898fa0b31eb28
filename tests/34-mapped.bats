#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Files of immutable layouts are mapped: with the memory of the store itself where the kernel can, else with
# pages of its cache. gmsfs(5), Mapped files, tells what these tests show.
#
# shellcheck disable=SC2004,SC2030,SC2031,SC2034,SC2153 # variables that the helpers and bats read and set
# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers
load mapped

# page_of FILE PROCESS: the page that FILE has first in the memory of this size that the process has
kept_page() { # PROCESS BYTES
    python3 - "$@" <<'END'
import mmap, os, sys
sys.argv[1:], (pid, size) = [], (sys.argv[1], int(sys.argv[2]))
for fd in os.listdir(f"/proc/{pid}/fd"):
    path = f"/proc/{pid}/fd/{fd}"
    if os.readlink(path).startswith("/memfd:gmsfs ") and os.stat(path).st_size == size:
        memory = mmap.mmap(os.open(path, os.O_RDONLY), size, mmap.MAP_SHARED, mmap.PROT_READ)
        assert memory[0] >= 0
        maps = [line for line in open("/proc/self/maps") if "memfd:gmsfs" in line]
        with open("/proc/self/pagemap", "rb") as pages:
            pages.seek(int(maps[0].split("-")[0], 16) // 4096 * 8)
            print(int.from_bytes(pages.read(8), sys.byteorder) & ((1 << 55) - 1))
        break
END
}

@test "two processes that map a file have the store's own pages, counted once" {
    local first second
    requires passthrough
    start_weights
    put_and_map 4194304
    first=("$MAPPER" "$ORDERS")
    map "$W/allocations/a"
    second=("$MAPPER" "$ORDERS")
    assert_eq "$(ask "${first[@]}" sum)" "$(sum_of "$T/a")" 'the first mapping'
    assert_eq "$(ask "${second[@]}" sum)" "$(sum_of "$T/a")" 'the second mapping'
    assert_eq "$(ask "${first[@]}" pss)" '4096 2048' 'Rss and Pss of the first'
    assert_eq "$(ask "${second[@]}" pss)" '4096 2048' 'Rss and Pss of the second'
    assert_eq "$(ask "${first[@]}" page)" "$(kept_page "$KEEPER" 4194304)" 'the page'
    is_unmapped "${first[@]}"
    is_unmapped "${second[@]}"
}

# has_bytes_of FILE WANTED: the same bytes, by read, cp, sendfile and mmap.
has_bytes_of() {
    assert_eq "$(stat -c %s "$1")" "$(stat -c %s "$2")" 'the size'
    cmp "$2" "$1"
    cp "$1" "$T/copy"
    cmp "$2" "$T/copy"
    python3 - "$1" "$2" <<'END'
import mmap, os, sys
fd, wanted = os.open(sys.argv[1], os.O_RDONLY), open(sys.argv[2], "rb").read()
out = os.memfd_create("out")
assert os.sendfile(out, fd, 0, 1 << 24) == len(wanted)
assert os.pread(out, 1 << 24, 0) == wanted
assert os.pread(fd, 1 << 24, 0) == wanted and os.pread(fd, 10, len(wanted)) == b""
for flags in mmap.MAP_SHARED, mmap.MAP_PRIVATE:
    if not wanted:  # as for any file
        try:
            mmap.mmap(fd, 0, flags, mmap.PROT_READ)
            sys.exit("an empty file was mapped")
        except ValueError:
            continue
    memory = mmap.mmap(fd, len(wanted), flags, mmap.PROT_READ)
    assert memory[:] == wanted
    whole = mmap.mmap(fd, 0, flags, mmap.PROT_READ)  # as long as the file says
    assert whole[:] == wanted
END
}

@test "allocations of every length have their bytes, by read, sendfile, cp and mmap" {
    local bytes files=()
    start_weights
    for bytes in 1 4095 4096 4097 2097152 2097153; do
        random "$bytes" "$T/$bytes"
        files+=("f$bytes" "$T/$bytes")
    done
    put "${files[@]}"
    for bytes in 1 4095 4096 4097 2097152 2097153; do
        has_bytes_of "$W/allocations/f$bytes" "$T/$bytes"
    done
}

@test "files of a model of every length have their bytes" {
    local bytes
    requires passthrough
    start_weights
    mkdir "$T/model"
    for bytes in 0 1 4095 4096 4097 2097152 2097153 4194304 4194305; do
        random "$bytes" "$T/model/f$bytes"
    done
    cli load -q --files "$W" "$T/model"
    for bytes in 0 1 4095 4096 4097 2097152 2097153 4194304 4194305; do
        has_bytes_of "$W/files/f$bytes" "$T/model/f$bytes"
    done
}

count_read() { # bytes that the daemon has read for clients
    sed -n 's/^gmsfs_read_bytes_total //p' "$M/metrics"
}

# is_read_by_kernel FILE WANTED: the same bytes, and the daemon reads none of them.
is_read_by_kernel() {
    local before
    before=$(count_read)
    has_bytes_of "$@"
    assert_eq "$(count_read)" "$before" "what the daemon read of $1"
}

@test "the kernel reads a file that is an allocation, of every length" {
    local bytes
    requires passthrough
    start_weights
    for bytes in 1 4095 4096 4097 2097152 2097153; do
        random "$bytes" "$T/f$bytes"
        cli load -q --files "$M/m$bytes" "$T/f$bytes"
        is_read_by_kernel "$M/m$bytes/files/f$bytes" "$T/f$bytes"
    done
    used_is $((7 * 2097152)) # as ever
}

@test "the kernel reads such a file also at a next worker, promoted, copied, and of an image" {
    requires passthrough root
    mkdir -p "$T/spill"
    start_weights "size=64M,spill=$T/spill,spill_size=64M"
    random 2097153 "$T/f"
    cli load -q --files "$W" "$T/f"
    kill_worker
    is_read_by_kernel "$W/files/f" "$T/f"
    take_over
    is_read_by_kernel "$W/files/f" "$T/f"
    cli demote --to disk "$W"
    cmp "$T/f" "$W/files/f"
    cli promote "$W"
    is_read_by_kernel "$W/files/f" "$T/f"
    cli image save "$W" "$T/image"
    cli image load --immutable "$M/image" "$T/image"
    is_read_by_kernel "$M/image/files/f" "$T/f"
    cli copy --immutable "$W" "$M/copy"
    is_read_by_kernel "$M/copy/files/f" "$T/f"
}

@test "an allocation that was written is read by the kernel once it was promoted" {
    requires passthrough root
    mkdir -p "$T/spill"
    start_weights "size=64M,spill=$T/spill,spill_size=64M"
    random 5000 "$T/a"
    put a "$T/a"
    cmp "$T/a" "$W/allocations/a"
    assert_eq "$(count_read)" 5000 'what the daemon read before'
    cli demote --to disk "$W"
    cli promote "$W"
    is_read_by_kernel "$W/allocations/a" "$T/a"
}

@test "a writer replaces the store under mappings: they keep the old bytes, and the memory stays charged" {
    local old used
    requires passthrough
    start_weights size=16M
    random 6291456 "$T/a"
    random 4194304 "$T/b"
    put a "$T/a"
    map "$W/allocations/a"
    old=("$MAPPER" "$ORDERS")
    put a "$T/b"
    cmp "$T/b" "$W/allocations/a"
    wait_until 5 device_is .mapped_bytes 6291456
    used_is $((6291456 + 4194304))
    assert_match "$("$GMSFS" status "$M")" ' used, 6.0 MiB of it still mapped from former layouts'
    run_logged '!' "$GMSFS" run -w "$W" -- fallocate -l 12M "$W/allocations/c" # never over the size
    map "$W/allocations/a"
    assert_eq "$(ask "${old[@]}" sum)" "$(sum_of "$T/a")" 'the old mapping'
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/b")" 'the new mapping'
    is_unmapped "${old[@]}"
    wait_until 10 used_is 4194304
    device_is .mapped_bytes 0
    is_unmapped "$MAPPER" "$ORDERS"
}

@test "a worker that is killed: mappings and open files stay good, and dropped memory stays charged" {
    requires passthrough
    start_weights
    random 4194304 "$T/a"
    random 2097152 "$T/b"
    put a "$T/a"
    map "$W/allocations/a"
    exec 6<"$W/allocations/a"
    kill_worker
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the mapping'
    cmp "$T/a" - <&6
    cmp "$T/a" "$W/allocations/a" # beside the former worker's open file
    exec 6<&-
    put a "$T/b"
    wait_until 5 device_is .mapped_bytes 4194304
    kill_worker
    used_is $((4194304 + 2097152))
    device_is .mapped_bytes 4194304
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the mapping after its store was replaced'
    is_unmapped "$MAPPER" "$ORDERS"
    wait_until 10 used_is 2097152
}

@test "an upgrade and a takeover: openers go on with the same registration" {
    requires passthrough
    start_weights
    put_and_map 4194304
    exec 6<"$W/allocations/a"
    cli upgrade "$M"
    cmp "$T/a" "$W/allocations/a" # beside the open file: another number would be EIO
    take_over
    cmp "$T/a" "$W/allocations/a"
    cmp "$T/a" - <&6
    exec 6<&-
    put a "$T/a"
    wait_until 5 device_is .mapped_bytes 4194304
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the mapping'
    is_unmapped "$MAPPER" "$ORDERS"
    wait_until 10 used_is 4194304
}

@test "a keeper that is killed, with a manager that holds its descriptors: mappings and openers go on" {
    local manager=$T/manager former
    requires passthrough
    mkdir -p "$manager"
    printf '#!/bin/sh\nexec python3 %q %q 1000 %q "$@"\n' \
        "$ROOT/tests/tools/descriptor_store.py" "$manager" "$GMSFS" >"$T/managed"
    chmod 755 "$T/managed"
    GMSFS=$T/managed start_weights
    put_and_map 4194304
    exec 6<"$W/allocations/a"
    cmp "$T/a" "$W/allocations/a"
    former=$(<"$manager/main")
    kill -KILL "$former"
    wait_until 20 grep -q ': resumed (' "$LOG"
    cmp "$T/a" "$W/allocations/a" # beside the open file
    cmp "$T/a" - <&6
    exec 6<&-
    put a "$T/a"
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the mapping'
    is_unmapped "$MAPPER" "$ORDERS"
    wait_until 10 used_is 4194304
}

@test "a keeper that is killed for good: mappings and open files stay good, a new open is refused" {
    requires passthrough
    start_weights
    put_and_map 4194304
    exec 6<"$W/allocations/a"
    expect_death
    kill -KILL "$KEEPER"
    wait_until_any 5 process_gone "$KEEPER"
    wait_until_any 5 is_refused "$W/allocations/a"
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the mapping'
    python3 -c 'import os; os.write(1, os.pread(6, 1 << 23, 0))' >"$T/copy" # no stat(2), which fails
    cmp "$T/a" "$T/copy"
    exec 6<&-
    is_unmapped "$MAPPER" "$ORDERS"
}

is_refused() { # FILE
    ! cat "$1"
}

@test "umount of a mount with a mapping names the process" {
    requires passthrough
    start_weights
    put_and_map 4194304
    cli -1 umount "$M"
    assert_match "$output" "$MAPPER"
    is_unmapped "$MAPPER" "$ORDERS"
    wait_until 5 cli umount "$M"
    expect_death
}

@test "many opens and mappings leave no file, no registration and no memory" {
    local before
    requires passthrough
    start_weights
    random 4194304 "$T/a"
    put a "$T/a"
    cat "$W/allocations/a" >"$T/copy"
    before=$(find "/proc/$KEEPER/fd" "/proc/$(worker_of "$KEEPER")/fd" | wc -l)
    python3 - "$W/allocations/a" 10000 <<'END'
import mmap, os, sys
for _ in range(int(sys.argv[2])):
    fd = os.open(sys.argv[1], os.O_RDONLY)
    memory = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(fd)
    memory.close()
END
    wait_until 5 metric_is gmsfs_open_files 0
    assert_eq "$(find "/proc/$KEEPER/fd" "/proc/$(worker_of "$KEEPER")/fd" | wc -l)" "$before" 'open files'
    for _ in {1..20}; do
        put a "$T/a"
        cmp "$T/a" "$W/allocations/a"
    done
    wait_until 5 used_is 4194304
    assert_eq "$(find "/proc/$KEEPER/fd" "/proc/$(worker_of "$KEEPER")/fd" | wc -l)" "$before" 'open files at last'
}

@test "demoted to a disk and promoted, a file is mapped again beside an old mapping" {
    local old
    requires passthrough root
    mkdir -p "$T/spill"
    start_weights "size=16M,spill=$T/spill,spill_size=64M"
    put_and_map 4194304
    old=("$MAPPER" "$ORDERS")
    cli demote --to disk "$W"
    wait_until 5 device_is .mapped_bytes 4194304
    cmp "$T/a" "$W/allocations/a"
    cli promote "$W"
    map "$W/allocations/a"
    assert_eq "$(ask "${old[@]}" sum)" "$(sum_of "$T/a")" 'the old mapping'
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the new mapping'
    is_unmapped "${old[@]}"
    wait_until 10 device_is .mapped_bytes 0
    is_unmapped "$MAPPER" "$ORDERS"
}

@test "a file of a model that is a whole allocation has the store's pages; one that is a part has the cache's" {
    requires passthrough
    start_weights
    assert_eq "$(jq .mapping_obstacle "$M/device")" null
    assert_match "$("$GMSFS" status "$M")" ' ok  mapping shared'
    random 4194304 "$T/a"
    exec 5<>"$W/lock"
    cp "$T/a" "$W/allocations/a"
    put_file whole a 0 4194304
    put_file part a 4096 5000
    echo immutable >"$W/commit"
    exec 5>&-
    wait_until 5 state_is weights COMMITTED
    map "$W/files/whole"
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/a")" 'the whole'
    assert_eq "$(ask "$MAPPER" "$ORDERS" page)" "$(kept_page "$KEEPER" 4194304)" 'the page'
    is_unmapped "$MAPPER" "$ORDERS"
    tail -c +4097 "$T/a" | head -c 5000 >"$T/part"
    map "$W/files/part"
    assert_eq "$(ask "$MAPPER" "$ORDERS" sum)" "$(sum_of "$T/part")" 'the part'
    is_unmapped "$MAPPER" "$ORDERS"
    cmp "$T/part" "$W/files/part"
    cmp "$T/a" "$W/files/whole"
}

@test "memory stays charged while a client of another user has a descriptor of it, from before or after the commit" {
    local client when
    requires root
    start_weights
    random 4194304 "$T/a"
    chmod 777 "$W"
    for when in before after; do
        if [[ $when == before ]]; then
            spawn as_user "$GMSCTL" open "$W/ctl" rw acquire rw 5000 clear alloc 4194304 1 a '' export 0 0 \
                connect "$M" redeem last 1 commit-flags 16 say held until "$T/$when"
        else
            spawn as_user "$GMSCTL" open "$W/ctl" r acquire ro 5000 export 0 0 connect "$M" redeem last 1 \
                disconnect say held until "$T/$when"
        fi
        client=$SPAWNED
        wait_until 10 said "$client" held
        [[ $when == before ]] || echo "revoke $(awk '{ print $1; exit }' "$W/sessions")" >"$W/abort"
        ctl open "$W/ctl" rw acquire rw 5000 clear commit
        wait_until 5 device_is .mapped_bytes 4194304
        used_is 4194304
        touch "$T/$when"
        wait_exit "$client"
        wait_until 10 used_is 0
        [[ $when == after ]] || put a "$T/a"
    done
}

@test "an ordinary user's mount maps from the kernel's cache" {
    requires user-fuse /usr/bin/python3
    MOUNT_VIA=("${AS_USER[@]}")
    start_weights
    chmod 777 "$T"
    random 4194305 "$T/a"
    chmod 644 "$T/a"
    as_user bash -c 'exec 5<>"$1/lock"; cp "$2" "$1/allocations/a"; echo immutable >"$1/commit"' _ "$W" "$T/a"
    wait_until 5 as_user grep -q COMMITTED "$W/state"
    assert_match "$(as_user jq -r .mapping_obstacle "$M/device")" 'CAP_SYS_ADMIN'
    assert_match "$(as_user "$GMSFS" status "$M")" ' ok  mapping not shared \(.*root has to mount'
    as_user /usr/bin/python3 - "$W/allocations/a" "$T/a" <<'END'
import mmap, os, sys
wanted = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_RDONLY)
assert mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)[:] == wanted
assert os.pread(fd, 1 << 24, 0) == wanted
END
    as_user cmp "$T/a" "$W/allocations/a"
    wait_until 5 as_user "$GMSFS" umount "$M"
    expect_death
}

@test "an open file of a revoked reader whose memory is gone keeps others out until it is closed" {
    requires passthrough
    mkdir -p "$T/spill"
    start_weights "size=16M,spill=$T/spill,spill_size=64M"
    random 4194304 "$T/a"
    put a "$T/a"
    exec 6<"$W/allocations/a"
    cmp "$T/a" - <&6
    echo "revoke $(awk '{ print $1; exit }' "$W/sessions")" >"$W/abort"
    cli demote --to disk "$W"
    cli promote "$W"
    run_logged '!' cat "$W/allocations/a"
    assert_match "$output" 'busy'
    exec 6<&-
    wait_until 5 cmp "$T/a" "$W/allocations/a"
}

# race STORE BYTES: opens allocations/a as soon as the writer has closed a duplicate of its lock file, which makes the
# open wait for some ms; in these, the writer commits. Prints how that ended, and keeps the file open.
race() {
    exec python3 - "$@" <<'END'
import os, sys, time
store, start = sys.argv[1], os.pipe()
if os.fork() == 0:  # the writer
    lock = os.open(store + "/lock", os.O_RDWR)
    with open(store + "/allocations/a", "wb") as file:
        file.write(bytes(int(sys.argv[2])))
    commit = os.open(store + "/commit", os.O_WRONLY)
    os.close(os.dup(lock))
    os.write(start[1], b"x")
    time.sleep(0.0005)
    os.write(commit, b"immutable")
    os._exit(0)
os.read(start[0], 1)
try:
    os.open(store + "/allocations/a", os.O_RDONLY)
except OSError as error:
    sys.exit(f"refused: {error}")
print("opened", flush=True)
time.sleep(600)
END
}

@test "a reader that waits for the writer's immutable commit has the store's pages, as later ones" {
    local i racer bytes=2097152 # each store has a size of its own, which tells its memory
    requires passthrough
    start_weights
    for i in {1..10}; do
        mkdir "$M/store$i"
        spawn race "$M/store$i" $((bytes += 2097152))
        racer=$SPAWNED
        wait_until 10 grep -q . "$T/spawn-$racer"
        grep -q opened "$T/spawn-$racer" && break
    done
    grep -q opened "$T/spawn-$racer"
    map "$M/store$i/allocations/a"
    assert_eq "$(ask "$MAPPER" "$ORDERS" page)" "$(kept_page "$KEEPER" "$bytes")" 'the page'
    is_unmapped "$MAPPER" "$ORDERS"
}
