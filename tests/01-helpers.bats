#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The helpers and tests/run tell the truth: failures are seen to fail, and nothing survives.
#
# shellcheck disable=SC2016 # bodies of programs
# shellcheck disable=SC2034 # variables that the helpers read
# bats file_tags=slow

load helpers

# A stand-in for the daemon, of which only its life and its log matter here.
fake_daemon() { # BODY
    printf '#!/bin/bash\n%s\n' "$1" >"$T/gmsfs"
    chmod +x "$T/gmsfs"
    GMSFS=$T/gmsfs
    machine_has() { true; }
    mount_answers() { [[ -e $T/answers ]]; }
    unmount_once() { rm -f "$T/answers"; }
}

# As `run !`, for commands that must see this shell's own children.
refused() {
    if "$@" 2>"$T/refusal"; then
        fail "succeeded, expected to fail: $*"
    fi
}

# A test file of its own, run by bats with these helpers; its TAP is in $output. Tests are
# written as %test there, for bats rewrites every line that begins with the real word.
inner_bats() {
    {
        echo "load $ROOT/tests/helpers"
        sed 's/^%test/@test/'
    } >"$T/inner.bats"
    run_logged env -u BATS_TEST_TIMEOUT TMPDIR="$T" bats --tap "$T/inner.bats"
}

@test "run_logged checks the exit status after it showed the output" {
    run run_logged -0 sh -c 'echo seen; exit 3'
    [[ $status -ne 0 && $output == *seen* && $output == *'expected 0'* ]]
    run run_logged -3 sh -c 'exit 3'
    [[ $status -eq 0 ]]
    run run_logged ! true
    [[ $status -ne 0 ]]
    run run_logged sh -c 'exit 3'
    [[ $status -eq 0 ]]
}

@test "assertions fail when they should" {
    run ! assert_eq a b
    run ! assert_match abc '^b'
    assert_eq a a
    assert_match abc '^a'
}

@test "requires skips a test for tools that are missing, and GMSFS_MUST_RUN makes it a failure" {
    inner_bats <<'INNER'
%test "skipped" { requires no-such-tool; false; }
%test "demanded" { GMSFS_MUST_RUN=fuse,no-such-tool; requires no-such-tool; true; }
%test "there" { requires bash; }
INNER
    assert_match "${lines[1]}" '^ok 1 .*# skip no no-such-tool here'
    assert_match "$output" 'not ok 2 '
    assert_match "$output" 'GMSFS_MUST_RUN demands no-such-tool'
    assert_match "$output" $'\nok 3 there'
}

@test "no test skips but through requires" {
    run_logged ! grep -rnE --include='*.bats' --exclude=01-helpers.bats '(^|[ ;&|(])skip( |$)' "$ROOT/tests"
    assert_eq "$output" '' 'skips of their own'
}

@test "wait_until returns when it is so, and fails when it never is" {
    (sleep 0.3 && touch "$T/there") 3>&- &
    wait_until 5 test -e "$T/there"
    run ! wait_until 0 false
    [[ $output == *'still not so'* ]]
    run ! never_within 1 true
    never_within 0 false
}

@test "wait_until fails at once when the daemon died" {
    fake_daemon 'sleep 1000'
    touch "$T/answers"
    start_mount
    kill -KILL "$KEEPER"
    start=$(now_ms)
    run ! wait_until 30 false
    [[ $output == *'daemon died'* ]]
    (($(now_ms) - start < 5000))
    expect_death
}

@test "a daemon that does not start is noticed early, and its log is shown" {
    fake_daemon 'echo why >&2; exit 1'
    start=$(now_ms)
    run ! start_mount
    [[ $output == *why* ]]
    (($(now_ms) - start < 5000))
}

@test "stop_mount wants a clean exit status and a clean log" {
    fake_daemon "while [[ -e $T/answers ]]; do sleep 0.05; done; echo fine"
    touch "$T/answers"
    start_mount
    stop_mount

    fake_daemon "while [[ -e $T/answers ]]; do sleep 0.05; done; exit 4"
    touch "$T/answers"
    start_mount
    refused stop_mount
    grep 'exit status 4' "$T/refusal"

    fake_daemon "while [[ -e $T/answers ]]; do sleep 0.05; done; echo 'x.c:1: runtime error: y'"
    touch "$T/answers"
    start_mount
    refused stop_mount
    grep 'shows a bug' "$T/refusal"
    : >"$LOG"
}

@test "teardown kills the processes that a test started, with descendants, and removes its files" {
    inner_bats <<'INNER'
%test "leaves much" {
    spawn sleep 4321
    setsid -f sleep 4322 3>&- 4>&-
    touch "$T/file"
    echo "$T" >&3
    false
}
INNER
    assert_match "$output" 'not ok 1 leaves much'
    run ! grep -lzsE '^432[12]$' /proc/[0-9]*/cmdline
    run ! compgen -G "$T/t.*"
}

@test "spawn keeps output and exit status" {
    spawn sh -c 'echo out; exit 7'
    wait_exit -7 "$SPAWNED"
    assert_eq "$(output_of "$SPAWNED")" out
}

@test "assert_state reads the state, by name and by path" {
    M=$T
    mkdir "$T/weights"
    echo EMPTY >"$T/weights/state"
    assert_state weights EMPTY 0
    assert_state "$T/weights" EMPTY 0
    run ! assert_state weights RW 0
    [[ $output == *'is EMPTY, expected RW'* ]]
}

# ---- tests/run -------------------------------------------------------------------------------

program() { # NAME BODY
    printf '#!/bin/bash\n%s\n' "$2" >"$T/$1"
    chmod +x "$T/$1"
}

runner() {
    run_logged "$@" env -u BATS_TEST_TIMEOUT -u SANITIZE tests/run "${programs[@]}"
}

@test "tests/run counts, and fails when a test fails" {
    cd "$ROOT"
    program good 'echo 1..3; echo ok 1 - a; echo "ok 2 - b # SKIP no"; echo ok 3 - c'
    program bad 'echo ok 1 - a; echo not ok 2 - b; echo "# because"; echo 1..2; exit 1'
    programs=("$T/good")
    runner -0
    assert_eq "${lines[-1]}" '2 passed, 0 failed, 1 skipped'
    programs=("$T/good" "$T/bad")
    runner -1
    assert_eq "${lines[-1]}" '3 passed, 1 failed, 1 skipped'
    [[ $output == *because* ]]
}

@test "tests/run sees crashes, broken plans and silence" {
    cd "$ROOT"
    program crash 'echo 1..3; echo ok 1 - a; kill -SEGV $$'
    program exits 'echo 1..1; echo ok 1 - a; exit 2'
    program mute 'exit 0'
    program none 'echo 1..0'
    programs=("$T/crash" "$T/exits" "$T/mute" "$T/none")
    runner -1
    assert_eq "${lines[-1]}" '2 passed, 4 failed, 0 skipped'
}

@test "tests/run ends tests that hang, and reports leftovers" {
    cd "$ROOT"
    program hang 'echo 1..1; setsid sleep 5432'
    program leave 'echo 1..1; echo ok 1 - a; setsid -f sleep 5433 >/dev/null 2>&1'
    programs=("$T/hang" "$T/leave")
    UNIT_TIMEOUT=1 GMSFS_TEST_SLOW=1 runner -1
    [[ $output == *'timed out'* && $output == *'left a process behind'* ]]
    run ! grep -lzsE '^543[23]$' /proc/[0-9]*/cmdline
}

@test "tests/run --quick leaves out the slow tests, and --slow runs only them" {
    cd "$ROOT"
    # bats would take an @ here for a test of this file, and a tag for one of the next test.
    sed 's/^%#/#/; s/^%/@/' >"$T/some.bats" <<'BATS'
%test "every time" { true; }
%# bats test_tags=slow
%test "rarely" { false; }
%# bats test_tags=slow:fake
%test "rarely on the fake" { true; }
%# bats test_tags=host,slow
%test "rarely, and not on the fake" { true; }
BATS
    printf '# bats file_tags=slow,fake,slow:cuda\n@test "a" { true; }\n@test "b" { true; }\n' >"$T/all.bats"
    printf '# bats test_tags=quick\n@test "c" { true; }\n' | cat "$T/all.bats" - >"$T/most.bats"
    counts '2 passed, 0 failed' --quick some.bats
    counts '1 passed, 1 failed' --slow some.bats
    counts '3 passed, 1 failed' some.bats
    counts '1 passed, 0 failed' --quick fake:some.bats
    counts '1 passed, 1 failed' --slow fake:some.bats
    counts '2 passed, 1 failed' fake:some.bats
    counts '0 passed, 0 failed' --quick all.bats
    counts '2 passed, 0 failed' --slow fake:all.bats
    counts '1 passed, 0 failed' --quick most.bats
    counts '2 passed, 0 failed' --slow most.bats
    counts '0 passed, 0 failed' --quick cuda:most.bats
    counts '3 passed, 0 failed' --slow cuda:most.bats
}

counts() { # COUNTS [--quick | --slow] [KIND:]FILE
    local want=$1 file=${*: -1} kind=''
    shift
    [[ $file != *:* ]] || kind=${file%%:*}:
    # shellcheck disable=SC2046 # names of variables
    run_logged env $(compgen -e BATS | sed 's/^/-u/') -u SANITIZE tests/run "${@:1:$#-1}" "$kind$T/${file#*:}"
    assert_eq "${lines[-1]}" "$want, 0 skipped" "$*"
}

@test "tests/run tells which files take the most processor time, before its last line" {
    local i
    cd "$ROOT"
    programs=()
    for i in {1..11}; do
        program "p$i" 'echo 1..1; echo ok 1 - a'
        programs+=("$T/p$i")
    done
    program burns "timeout 3 bash -c 'while :; do :; done'; echo 1..1; echo ok 1 - a"
    programs+=("$T/burns")
    runner -0
    assert_eq "${lines[-1]}" '12 passed, 0 failed, 0 skipped'
    assert_match "${lines[-12]}" 'CPU, .* in 12 files; the most costly are:$'
    assert_match "${lines[-11]}" "s of CPU, .*: $T/burns\$"
}

# Else a namespace that a test makes has a copy of the mount, which so outlives its own test.
@test "tests/run keeps mounts of other files, and reports mounts that it left" {
    requires root mountns
    cd "$ROOT"
    program mounts 'mkdir "$TMPDIR/m" && mount -t tmpfs kept-apart "$TMPDIR/m" && touch "$1/there"
        echo 1..1; for ((i = 0; i < 600; i++)); do [[ ! -e $1/seen ]] || { echo ok 1 - a; exit; }; sleep 0.1; done'
    program looks 'echo 1..1; for ((i = 0; i < 600; i++)); do [[ ! -e $1/there ]] || break; sleep 0.1; done
        ! grep kept-apart /proc/self/mountinfo && echo ok 1 - a; touch "$1/seen"'
    sed -i "2s|^|set -- $T; |" "$T/mounts" "$T/looks"
    programs=("$T/mounts" "$T/looks")
    JOBS=2 runner -1
    assert_match "$output" 'not ok - left a mount behind'
    assert_eq "${lines[-1]}" '2 passed, 1 failed, 0 skipped'
}

@test "make test TESTS= builds what these need alone, and installs nothing" {
    requires make
    cd "$ROOT"
    unset MAKEFLAGS MAKELEVEL
    run_logged -0 make -n test TESTS='test_lock test_layout' O="$T/build"
    assert_match "$output" 'scripts/deps --no-install build'
    assert_match "$output" "-o $T/build/tests/unit/test_layout "
    [[ $output != *tests/unit/test_core* && $output != *tests/tools/* && $output != *bench/* ]]
    run_logged -0 make -n test TESTS='test_lock 00-smoke' FILTER='a reader' O="$T/build"
    assert_match "$output" 'scripts/deps --no-install test'
    assert_match "$output" "-o $T/build/tests/tools/gmsctl "
    assert_match "$output" 'tests/run .*--filter "[$]FILTER".* test_lock 00-smoke'
    [[ $output == *tests/unit/test_lock* && $output != *tests/unit/test_core* && $output != *bench/* ]]
}

@test "make test runs the quick tests, make check all of them" {
    requires make
    cd "$ROOT"
    unset MAKEFLAGS MAKELEVEL ONLY
    run_logged -0 bash -c 'make -n test | grep -E "^(scripts/deps|O=)"; make -n check | grep ^O=; make -n check ONLY=slow | grep ^O='
    assert_eq "${lines[0]}" 'scripts/deps test'
    assert_match "${lines[1]}" 'tests/run --quick'
    assert_match "${lines[2]}" 'tests/run *$'
    assert_match "${lines[3]}" 'tests/run --slow$'
}

@test "compile_commands.json has a command for each C file that compiles it" {
    requires make
    cd "$ROOT"
    unset MAKEFLAGS MAKELEVEL
    make --no-print-directory -nB V=1 O="$T/build" tests | scripts/compile-commands >"$T/commands"
    jq -r '.[].file' "$T/commands" | grep -v "^$T" | LC_ALL=C sort >"$T/files"
    printf '%s\n' src/*/*.c libgmsfs/*.c examples/*.c tests/{unit,api,tools,fault,fake_cuda}/*.c |
        LC_ALL=C sort | LC_ALL=C comm -23 - "$T/files" >"$T/lacking"
    assert_eq "$(<"$T/lacking")" ''
    mkdir -p "$T/build/obj/src/fsm"
    bash -c "$(jq -r '.[] | select(.file == "src/fsm/lock.c").command' "$T/commands") -fsyntax-only"
}

@test "scripts/deps --no-install says what is missing and how it is installed" {
    cd "$ROOT"
    mkdir "$T/bin"
    ln -s "$(type -P bash)" "$(type -P cat)" "$(type -P env)" "$T/bin"
    run_logged -1 env PATH="$T/bin" O="$T/build" bash scripts/deps --no-install build
    assert_match "$output" 'scripts/deps build.* installs what is missing.* make'
}

@test "tests/run counts sanitizer reports that were not printed" {
    cd "$ROOT"
    program silent 'p=${ASAN_OPTIONS##*log_path=}; echo ERROR: found >"${p%%:*}.1"
        echo 1..1; echo ok 1 - a'
    run_logged -1 env SANITIZE=address tests/run "$T/silent"
    [[ $output == *'ERROR: found'* ]]
    assert_eq "${lines[-1]}" '1 passed, 1 failed, 0 skipped'
}
