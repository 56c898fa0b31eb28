#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Names that others chose: harmless on a terminal, and exact in a pipe.
#
# bats file_tags=slow

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

EVIL=$'e\e[31mx\u202ey\u009bz' # colours, the other direction of writing, C1

# on_terminal ARGUMENT...: runs gmsfs with its output, standard error too, on a terminal; in $T/shown
on_terminal() {
    local words
    printf -v words '%q ' timeout $((30 * HANG)) "$GMSFS" "$@"
    : >"$T/shown"
    SHELL=$BASH script -qec "stty cols 200; $words" "$T/shown" </dev/null >/dev/null 3>&- 4>&- || true
    sed -i '1d;$d;s/\r\?\x1b\[[KJ]//g' "$T/shown" # what script(1) says, and what erases a bar
    printf '$ gmsfs %s\n' "$*"
    cat -v "$T/shown"
}

# is_harmless: the output has nothing that a terminal obeys but ends of lines, and the text is still there
is_harmless() {
    local bytes
    bytes=$(cat "$T/shown")
    [[ $bytes != *$'\e'* && $bytes != *$'\u202e'* && $bytes != *$'\u009b'* ]] || fail "not harmless: $*"
    [[ $bytes == *'e?[31mx'*z* || ${bytes,,} == *e'\u001b[31mx\u202ey\u009bz'* ]] || fail "not shown: $*"
}

shown_harmless() {
    on_terminal "$@"
    is_harmless "$*"
}

write_model() { # FILE NAME...: a tensor of two bytes for each name
    python3 - "$@" <<'PY'
import json, os, struct, sys
names = [os.fsencode(name).decode() for name in sys.argv[2:]]
header = json.dumps({name: {"dtype": "U8", "shape": [2], "data_offsets": [2 * i, 2 * i + 2]}
                     for i, name in enumerate(names)}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header +
                              b"".join(b"%02d" % i for i in range(len(names))))
PY
}

@test "names of tensors, keys, stores and files are printed harmless to a terminal" {
    requires script python3
    start_mount
    local store=$M/$EVIL words
    mkdir "$store"
    write_model "$T/$EVIL.safetensors" "$EVIL" plain
    shown_harmless load "$store" "$T/$EVIL.safetensors"
    shown_harmless ls "$store"
    shown_harmless ls --json "$store"
    shown_harmless metadata ls "$store"
    shown_harmless sum "$store"
    shown_harmless sum --json "$store"
    shown_harmless verify "$store" "$T/$EVIL.safetensors"
    shown_harmless status "$M"
    shown_harmless status --json "$M"
    shown_harmless save "$store" "$T/$EVIL.saved.safetensors"
    shown_harmless image save "$store" "$T/$EVIL.image"
    shown_harmless image ls "$T/$EVIL.image"
    shown_harmless image ls --json "$T/$EVIL.image"
    shown_harmless image load "$store" "$T/$EVIL.image"
    shown_harmless clear-suspect "$store"
    shown_harmless journal "$M"
    shown_harmless promote "$store"
    shown_harmless demote --to none "$store"
    shown_harmless load "$store" "$T/$EVIL.safetensors"
    shown_harmless run -w "$store" -- false
    shown_harmless load --group --force "$store=$T/$EVIL.safetensors"
}

@test "the names of a mount and of its holders are harmless on a terminal" {
    requires script
    start_mount '' "$T/$EVIL"
    mkdir "$M/$EVIL"
    cp "$(type -P bash)" "$T/bin-$EVIL"
    shown_harmless drain "$M"
    shown_harmless drain --undo "$M"
    shown_harmless log "$T/$EVIL.gone" debug
    shown_harmless fence "$M" # there is nothing to checkpoint
    shown_harmless triton --http none --grpc "unix:$T/$EVIL.gone/s" "$M"
    shown_harmless governor --once -c "$T/$EVIL.conf" "$M"
    spawn "$T/bin-$EVIL" -c 'exec 5<>"$1/lock"; read -r </dev/zero' _ "$M/$EVIL"
    wait_until 5 grep -q held "$M/$EVIL/sessions"
    shown_harmless status "$M"
    shown_harmless drain --timeout 0.1 "$M"
    shown_harmless umount "$M"
    shown_harmless mount -o backend=host,size=1M "$M/none"
    shown_harmless mount --takeover "$T/bin-$EVIL"
    on_terminal status --json "$M"
    is_harmless status
    kill -KILL "$SPAWNED"
}

@test "a value is harmless on a terminal, with its lines and tabs, and exact in a pipe" {
    requires script
    start_mount
    local value=$'line\tone\n'$EVIL
    "$GMSFS" run -w "$M/weights" -- "$GMSFS" metadata put "$M/weights" key "$value"
    shown_harmless metadata get "$M/weights" key
    assert_eq "$(head -n 1 "$T/shown" | tr -d '\r')" $'line\tone' 'first line'
    assert_eq "$("$GMSFS" metadata get "$M/weights" key)" "$value" value
}

@test "keys are exact in a pipe" {
    start_mount
    "$GMSFS" run -w "$M/weights" -- "$GMSFS" metadata put "$M/weights" "$EVIL" x
    assert_eq "$("$GMSFS" metadata ls "$M/weights")" "$EVIL" key
}

@test "sum prints any name as xxhsum and sha256sum do, so that different names are different lines" {
    requires xxhsum python3
    start_mount
    local names=($'tab\there' $'tab\x01here' $'tab\ehere' $'new\nline' $'return\rhere' 'back\slash' 'back\\slash'
        $'del\x7f' "$EVIL" $'both\\\n\t') name i=0
    mkdir "$T/files"
    for name in "${names[@]}"; do
        printf '%02d' "$((i++))" >"$T/files/$name"
    done
    write_model "$T/m.safetensors" "${names[@]}"
    "$GMSFS" load -q "$M/weights" "$T/m.safetensors"
    "$GMSFS" sum "$M/weights" | sort >"$T/ours"
    # Of xxhsum only newer ones escape names; sha256sum always has.
    cd "$T/files"
    for name in *; do
        sha256sum -- "$name" | sed -E "s/^(\\\\?)[0-9a-f]*/\\1$(xxhsum -q -H2 <"$name" | cut -c 1-32)/"
    done | sort >"$T/theirs"
    diff <(cat -A "$T/ours") <(cat -A "$T/theirs")
}
