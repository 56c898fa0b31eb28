# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # variables that tests read; and those that the helpers and bats set
#
# For tests of files that processes map (tests/tools/mapper.py).

# put NAME FILE [NAME FILE]...: an immutable commit of these allocations in $W.
put() {
    exec 5<>"$W/lock"
    while (($#)); do
        cp "$2" "$W/allocations/$1"
        shift 2
    done
    echo immutable >"$W/commit"
    exec 5>&-
    wait_until 5 state_is "$W" COMMITTED
}

random() { # BYTES FILE
    head -c "$1" /dev/urandom >"$2"
}

sum_of() { # FILE
    sha256sum <"$1" | cut -d' ' -f1
}

# map FILE: a process maps it and closes it; sets MAPPER, and ORDERS to a descriptor for mapper.py's orders.
map() {
    local fifo=$T/orders$((maps = ${maps:-0} + 1))
    mkfifo "$fifo"
    spawn python3 "$ROOT/tests/tools/mapper.py" "$1" "$fifo"
    MAPPER=$SPAWNED
    wait_until 10 grep -q mapped "$T/spawn-$MAPPER"
    exec {ORDERS}>"$fifo"
}

# put_and_map BYTES: random bytes, in $T/a, as the allocation `a`
put_and_map() {
    random "$1" "$T/a"
    put a "$T/a"
    map "$W/allocations/a"
}

# ask MAPPER ORDERS ORDER: prints its answer
ask() {
    local before
    before=$(wc -l <"$T/spawn-$1")
    echo "$3" >&"$2"
    wait_until 10 has_lines "$T/spawn-$1" "$((before + 1))"
    tail -n 1 "$T/spawn-$1"
}

has_lines() {
    [[ $(wc -l <"$1") -ge $2 ]]
}

is_unmapped() { # MAPPER ORDERS: ends
    echo end >&"$2"
    wait_exit "$1"
}

# put_file PATH ALLOCATION OFFSET BYTES: the entry of a file of a model; the caller has the writer's lock.
put_file() {
    local name="$W/metadata/gmsfs:file:$1"
    printf '{"bytes":%s}' "$4" >"$name"
    setfattr -n user.gmsfs.allocation -v "$2" "$name"
    setfattr -n user.gmsfs.offset -v "$3" "$name"
}
