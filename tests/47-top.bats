#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# `gmsfs top` in a terminal of tmux: its screens as text, against what the mount says; its keys; mounts that
# end or hang under it; and the terminal that it leaves behind.

# shellcheck disable=SC2016 # shells within shells have variables of their own

load helpers

prepare() { TMUX_AT=(tmux -S "$T/tmux" -f /dev/null); }

teardown() {
    [[ ! -S $T/tmux ]] || "${TMUX_AT[@]}" kill-server 2>/dev/null || true
    common_teardown
}

# open_terminal COLUMNSxROWS COMMAND...: runs it in a terminal of that size, by a shell that remains, and
# tells the exit status.
open_terminal() {
    requires tmux || return 1
    local size=$1
    shift
    env LC_ALL=C.UTF-8 "${TMUX_AT[@]}" new-session -d -x "${size%x*}" -y "${size#*x}" \
        bash --norc -c 'stty -g >"$1/modes-before"; echo the shell before; "${@:2}"; status=$?
            stty -g >"$1/modes-after"; echo "the shell after: $status"; sleep 1000' _ "$T" "$@" 3>&- 4>&-
}

# close_terminal: the next terminal is of another server, so this one's has to be gone.
close_terminal() {
    local server
    server=$("${TMUX_AT[@]}" display-message -p '#{pid}')
    "${TMUX_AT[@]}" kill-server
    wait_until 10 process_gone "$server"
}

# open_top COLUMNSxROWS [ARGUMENT...]
open_top() {
    local size=$1
    shift
    open_terminal "$size" "$GMSFS" top -d 0.1 "$@"
    shows 'gmsfs top|needs'
}

screen() {
    "${TMUX_AT[@]}" capture-pane -p "$@"
}

keys() {
    "${TMUX_AT[@]}" send-keys "$@"
}

screen_has() {
    grep -qE -- "$1" < <(screen)
}

screen_lacks() {
    ! screen_has "$1"
}

# shows REGEX: a line of the screen soon matches.
shows() {
    wait_until_any 5 screen_has "$1" || {
        screen
        return 1
    }
}

top_pid() {
    pgrep -xf "$GMSFS top -d 0.1.*" -P "$("${TMUX_AT[@]}" display-message -p '#{pane_pid}')"
}

# make_store NAME SIZE: commits one allocation.
make_store() {
    [[ -d $M/$1 ]] || mkdir "$M/$1"
    (
        exec 5<>"$M/$1/lock"
        truncate -s "$2" "$M/$1/allocations/a"
        echo 1 >"$M/$1/commit"
    )
}

first_letters() { # of the rows of the table: the lines behind its titles, to the first empty one
    screen | sed -n '/^STORE[ v^]/,/^ *$/p' | sed 1d | cut -c 1 | tr -d '\n '
}

order_is() {
    [[ $(first_letters) == "$1" ]]
}

@test "top shows what the mount says, in 80 x 24" {
    requires jq
    start_mount size=64M,host_size=32M
    make_store weights 4M
    make_store other 8M
    open_top 80x24 "$M"
    shows '^m0 +device \[#+\.+\] 12.0 MiB of 64.0 MiB, 52.0 MiB free$'
    assert_eq "$(device_get .used_bytes)" $((12 << 20))
    shows '^ +host +\[\.+\] 0 B of 32.0 MiB, 32.0 MiB free$'
    shows '^other +COMMITTED +8.0 MiB device +0 +0 +[0-9]+ s default$'
    shows '^weights +COMMITTED +4.0 MiB device +0 +0 +[0-9]+ s default$'
    shows '^ [0-9:]{8}  m0/other  committed  session [0-9]+  pid [0-9]+ bash$'
    hold open "$M/weights/ctl" r acquire ro 0
    keys Down
    shows '^ weights  1 holder, 0 waiters '
    shows "^ +[0-9]+ RO +held +pid $HOLDER +uid 0 +[0-9]+ s gmsctl\$"
    shows '^weights +RO .* 1 +0 +- default$'
    mkdir "$M/new" # by the interval
    shows '^new +EMPTY '
    keys q
    shows '^the shell after: 0$'
    screen_has '^the shell before$'
    assert_eq "$(<"$T/modes-after")" "$(<"$T/modes-before")" 'modes of the terminal'
}

@test "top sorts, filters, and follows the size of its terminal" {
    start_mount size=64M
    make_store weights 4M
    make_store b 8M
    make_store a 2M
    open_top 80x24 "$M"
    wait_until 5 order_is bwa
    keys F6
    wait_until 5 order_is abw
    keys / ei
    wait_until 5 order_is w
    keys Enter Escape
    wait_until 5 order_is abw
    "${TMUX_AT[@]}" resize-window -x 50 -y 12
    shows '^ \? help q quit / filter <> sort Tab sessions r rev$'
    wait_until 5 screen_lacks ' events '
    shows '^weights '
    "${TMUX_AT[@]}" resize-window -x 39 -y 12
    shows '^needs 40 x 10, has 39 x 12$'
    "${TMUX_AT[@]}" resize-window -x 120 -y 30
    shows ' events .UTC.'
    keys '?'
    shows '^ D +drain the store'
}

@test "top shows pools against their budgets" {
    start_mount size=64M
    echo 'chat min=8M max=16M class=high' >"$M/pools"
    make_store weights 4M
    setfattr -n user.gmsfs.pool -v chat "$M/weights"
    open_top 80x24 "$M"
    shows '^weights +COMMITTED'
    keys P
    shows '^chat +high +4.0 MiB +8.0 MiB +16.0 MiB \[###\.+\]$'
    shows '^default +standard +0 B +- +no limit$'
    shows '^no store moves$'
    keys P
    shows '^weights +COMMITTED'
}

@test "top asks before it revokes, and a no changes nothing" {
    start_mount size=64M
    make_store weights 4M
    hold open "$M/weights/ctl" r acquire ro 0
    open_top 80x24 "$M"
    shows '^weights +RO '
    keys r
    shows "^ revoke session [0-9]+ \(RO, pid $HOLDER gmsctl\) of weights\? y/N"
    keys n
    wait_until 5 screen_lacks 'y/N'
    assert_state weights RO
    keys r y
    shows 'weights: [0-9]+ is revoked$'
    assert_state weights COMMITTED
    shows '^weights +COMMITTED '
    shows '  revoked  '
}

@test "top demotes, promotes and drains, and says what the command says" {
    start_mount size=64M,host_size=64M,min_stay=0
    make_store weights 4M
    open_top 100x24 "$M"
    shows '^weights '
    keys d
    shows '^ demote weights to host\? y/N'
    keys y
    shows '^weights +COMMITTED +4.0 MiB host '
    shows "^ $M/weights moves to host\$"
    keys p y
    shows '^weights +COMMITTED +4.0 MiB device'
    hold open "$M/weights/ctl" r acquire ro 0
    keys D y
    shows '^weights +RO draining '
    keys D
    shows '^ end the drain of weights\? y/N'
    keys y
    shows 'the drain was cancelled|is open again'
    shows '^weights +RO  '
}

@test "top has the rights of its user, and says which user has them" {
    requires root
    start_mount size=64M,host_size=64M,allow_other
    make_store weights 4M
    open_terminal 240x24 "${AS_USER[@]}" "$GMSFS" top -d 0.1 "$M"
    shows '^weights +COMMITTED'
    keys d y
    shows 'gmsfs demote: .*weights: permission denied: only .* can move it'
    keys D y
    shows 'gmsfs drain: .*weights: permission denied: only .* can drain it'
    hold open "$M/weights/ctl" r acquire ro 0
    shows '^weights +RO '
    keys r y
    shows 'gmsfs top: .*weights: permission denied: only .* can revoke a session of it'
    assert_state weights RO
}

@test "top shows a mount that died under it, with the way out, and goes on with another" {
    start_mount size=32M
    local dead=$M
    start_mount size=32M
    open_top 80x24 "$dead" "$M"
    shows '^m0/weights +EMPTY'
    shows '^m1/weights +EMPTY'
    expect_death "$dead"
    kill -KILL "$(worker_of "${KEEPER_OF[$dead]}")" "${KEEPER_OF[$dead]}"
    shows "^m0 +DEAD: its daemon has ended; clear it away with 'gmsfs umount -l"
    screen | tr -d '\n' | grep -q "$dead'"
    wait_until_any 5 screen_lacks '^m0/weights'
    screen_has '^m1/weights +EMPTY'
    "$GMSFS" umount -l "$dead"
    wait_until 5 screen_lacks 'DEAD'
    shows 'it was unmounted'
    make_store weights 4M
    shows '^(m1/)?weights +COMMITTED'
}

# bats test_tags=slow
@test "top shows a mount that hangs as silent, answers keys meanwhile, and starts one look alone" {
    start_mount size=32M
    local worker
    worker=$(worker_of "$KEEPER")
    open_top 100x24 "$M"
    shows '^weights +EMPTY'
    kill -STOP "$worker"
    shows '^m0 +SILENT: no answer within 3 s'
    assert_eq "$(pgrep -c -P "$(top_pid)")" 2 'children: the look, and the events'
    keys '?'
    shows '^ keys; '
    keys q
    kill -CONT "$worker"
    shows '^weights +EMPTY'
    kill -STOP "$worker"
    keys q
    shows '^the shell after: 0$'
    kill -CONT "$worker"
}

@test "a signal ends top and leaves the terminal as it was" {
    start_mount size=32M
    local signal
    for signal in TERM ABRT HUP; do
        open_top 80x24 "$M"
        shows '^weights +EMPTY'
        kill -"$signal" "$(top_pid)"
        shows "^the shell after: $((128 + $(kill -l "$signal")))\$"
        screen_has '^the shell before$' || fail 'the other screen is still shown'
        assert_eq "$(<"$T/modes-after")" "$(<"$T/modes-before")" 'modes of the terminal'
        assert_eq "$("${TMUX_AT[@]}" display-message -p '#{alternate_on} #{cursor_flag}')" '0 1'
        close_terminal
    done
}

# What the manual says for SIGKILL.
@test "after SIGKILL of top, reset mends the terminal" {
    start_mount size=32M
    open_terminal 80x24 bash -c '"$1" top -d 0.1 "$2"; stty -a >"$3"; reset; stty -a >"$4"; echo mended' _ \
        "$GMSFS" "$M" "$T/broken" "$T/mended"
    shows '^weights +EMPTY'
    kill -KILL "$(pgrep -oxf "$GMSFS top -d 0.1 $M")"
    shows '^mended$'
    assert_match "$(tr '\n' ' ' <"$T/broken")" ' -icanon .* -echo '
    assert_match "$(tr '\n' ' ' <"$T/mended")" ' icanon .* echo '
    assert_eq "$("${TMUX_AT[@]}" display-message -p '#{cursor_flag}')" 1 'a cursor is shown'
}

@test "top can be stopped and goes on" {
    requires tmux
    start_mount size=32M
    env PS1='ready> ' LC_ALL=C.UTF-8 "${TMUX_AT[@]}" new-session -d -x 80 -y 24 bash --norc 3>&- 4>&-
    shows '^ready>'
    keys "$GMSFS top -d 0.1 $M" Enter
    shows '^weights +EMPTY'
    keys C-z
    shows 'Stopped'
    mkdir "$M/other"
    keys fg Enter
    shows '^other +EMPTY'
    kill -STOP "$(pgrep -oxf "$GMSFS top -d 0.1 $M")"
    wait_until 5 screen_has 'Stopped'
    keys fg Enter
    shows '^other +EMPTY'
    keys C-c
    wait_until 5 screen_lacks '^other'
}

@test "top needs no colours, and takes none with NO_COLOR" {
    start_mount size=32M
    make_store weights 4M
    local terminal
    for terminal in 'TERM=vt100' 'NO_COLOR=1'; do
        open_terminal 80x24 env "$terminal" "$GMSFS" top "$M"
        shows '^m0 +device \[#+\.+\] 4.0 MiB of 32.0 MiB, 28.0 MiB free'
        shows '^weights +COMMITTED +4.0 MiB device'
        ! grep -qE $'\e\\[([0-9;]*;)?[34][0-7]m' < <(screen -e) || fail "colours with $terminal"
        keys q
        shows '^the shell after: 0$'
        close_terminal
    done
    open_terminal 80x24 "$GMSFS" top "$M"
    shows '^weights +COMMITTED'
    grep -qE $'\e\\[([0-9;]*;)?[34][0-7]m' < <(screen -e) || fail 'no colours at all'
}

@test "names with odd characters stay text in top" {
    start_mount size=32M
    mkdir "$M/"$'\e[31mred\a' "$M/"$'e\u0301\u6a21' "$M/"$'a\u202eb'
    open_top 80x24 "$M"
    shows '^\?\[31mred\? +EMPTY +0 B - '
    shows $'^e\u0301\u6a21 +EMPTY +0 B - '
    shows '^a\?+b +EMPTY +0 B - '
    close_terminal
    open_terminal 80x24 env LC_ALL=C "$GMSFS" top "$M"
    shows '^e\?\? +EMPTY +0 B - '
}

@test "without a terminal top names the command for pipes" {
    start_mount size=32M
    run_logged -1 "$GMSFS" top "$M" </dev/null
    assert_match "$output" "standard input is not a terminal; 'gmsfs status --watch' is for pipes"
    open_terminal 120x24 bash -c '"$1" top "$2" | cat' _ "$GMSFS" "$M"
    shows "standard output is not a terminal; 'gmsfs status --watch' is for pipes"
    close_terminal
    open_terminal 160x24 env TERM=never-made "$GMSFS" top "$M"
    shows "the terminal 'never-made' is not known here; set TERM to another one"
    close_terminal
    open_terminal 160x24 env TERM=dumb "$GMSFS" top "$M"
    shows "the terminal 'dumb' cannot move its cursor; set TERM to another one, or use 'gmsfs status --watch'"
    shows '^the shell after: 1$'
    close_terminal
    run_logged -1 "$GMSFS" top "$T"
    assert_match "$output" "$T: not in a gmsfs mount; 'gmsfs status' lists the mounts"
    run_logged -2 "$GMSFS" top -d x
    run_logged -2 "$GMSFS" top -d 0
    assert_match "$output" "--delay '0': 0.1 seconds are the least"
}

@test "without ncurses top names the package, and the command that needs none" {
    requires mountns root
    start_mount size=32M
    local library
    library=$(realpath "$(ldconfig -p | awk '$1 == "libncursesw.so.6" { print $NF; exit }')")
    open_terminal 200x24 unshare --mount bash -c 'mount --bind /dev/null "$1" && exec "$2" top "$3"' _ \
        "$library" "$GMSFS" "$M"
    shows "libncursesw.so.6 is not installed.*apt-get install libncursesw6.*'gmsfs status --watch'"
    shows '^the shell after: 1$'
}

@test "the manual has every key of top with the words of its help" {
    local help manual
    help=$("$GMSFS" top --help | awk 'on { keys = substr($0, 3, 12); sub(/ +$/, "", keys)
        print keys "|" substr($0, 16) } /^Keys:$/ { on = 1 }')
    manual=$(awk '
        /^\.It Ic / { if (keys) print keys "|" text; keys = substr($0, 8); gsub(/ , /, ", ", keys); sub(/\\&/, "", keys)
                      text = ""; next }
        keys && /^\.El/ { print keys "|" text; exit }
        keys { text = text (text ? " " : "") $0 }' "$ROOT/man/gmsfs-top.1")
    assert_eq "$manual" "$help" 'keys of the manual'
    [[ $(wc -l <<<"$help") -gt 10 ]]
}
