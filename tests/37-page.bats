#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The page of `gmsfs web` (web/): its pure modules in node, and the whole of it in Chromium, which
# `make check-web` asks for.
#
# shellcheck disable=SC2016 # scripts of pages
# shellcheck disable=SC2034,SC2153,SC2154 # variables that the helpers read and set
# bats file_tags=slow

load helpers
load places
load served
load page

prepare() {
    served_setup
    SHOTS=${GMSFS_SHOTS:-$T}
}

teardown() {
    rm -f "$T/gate"
    served_teardown
}

# bats test_tags=quick
@test "the pure modules of the page read what mounts say, and hostile bytes" {
    requires node
    run_logged -0 node --test "$ROOT"/tests/web/
}

# bats test_tags=quick
@test "the page has no script, style or address of another host in its HTML" {
    ! grep -E '<script>|<style| style=| on[a-z]+=|https?://' "$ROOT/web/index.html" || fail 'its policy forbids them'
    ! grep -E "https?://|import .* from ['\"][^.]|innerHTML|outerHTML|insertAdjacentHTML|document.write|eval\(" "$ROOT"/web/*.js |
        grep -v 'http://www.w3.org/2000/svg' || fail 'the page is of this tree alone, and no text becomes markup'
}

# In time of a processor, so that a busy machine changes nothing: what the loop has left is what others get of it.
@test "ten pages that look at 4,096 stores take the loop less than 4 % of its time" {
    local worker before ticks opened own begin_ms used_ms took_ms
    requires node nginx
    start_mount size=16M
    seq 4095 | (cd "$M" && xargs mkdir)
    serve "$M"
    spawn node "$ROOT/bench/pages.mjs" "$SERVED" "${M##*/}" 10
    local pages=$SPAWNED
    cpu() { awk '{ print $14 + $15 }' "/proc/$worker/stat"; }
    opens() { sed -n 's/^gmsfs_requests_total{kind="open"} //p' "$M/metrics"; }
    worker=$(worker_of "$KEEPER")
    ticks=$(getconf CLK_TCK)
    opened=0
    # Each page reads `device`, `metrics` and `events` first; this test's own opens count too.
    for ((own = 1; opened - own < 30; own++)); do
        ((own < 60 * HANG)) || fail "after $own looks the pages have opened $opened files"
        sleep 2
        opened=$(opens)
    done
    before=("$opened" "$(cpu)")
    begin_ms=$(date +%s%3N)
    for ((own = 1, opened = 0; opened - own < 10; own++)); do
        ((own < 60 * HANG)) || fail "the pages open nothing more"
        sleep 12
        opened=$(($(opens) - before[0]))
    done
    used_ms=$((($(cpu) - before[1]) * 1000 / ticks)) took_ms=$(($(date +%s%3N) - begin_ms))
    process_lives "$pages" || fail "the pages ended: $(output_of "$pages")"
    kill "$pages"
    ((opened * 1000 <= 10 * 4 * took_ms)) || fail "they opened $opened files in $took_ms ms"
    ((used_ms * 25 < took_ms * SLOW)) || fail "they took $used_ms ms of $took_ms ms"
}

# ---- in Chromium -------------------------------------------------------------------------------

PICTURE='Object.fromEntries([...document.querySelectorAll("[data-tier]")].map((bar) => [bar.dataset.tier, {
    total: +bar.dataset.total, used: +bar.dataset.used,
    sum: [...bar.querySelectorAll(".area")].reduce((sum, area) => sum + +area.dataset.bytes, 0),
    stores: Object.fromEntries([...bar.querySelectorAll("[data-kind=store]")].map((area) => [area.dataset.store, +area.dataset.bytes])),
    widths: [...bar.querySelectorAll(".area")].every((area) => Math.abs(area.getBoundingClientRect().width -
        bar.querySelector(".areas").clientWidth * area.dataset.bytes / bar.dataset.total) < 1) }]))'
ROWS='Object.fromEntries([...document.querySelectorAll("tr[data-store]")].map((row) => [row.dataset.store,
    [row.querySelector("[data-state]").dataset.state, +row.querySelector("[data-bytes]").dataset.bytes]]))'

@test "the picture's numbers are those of device and info, with stores in every state" {
    local name want
    requires browser
    stage_states
    serve "$M"
    look size '1180x1010' open "$SERVED/ui/" wait 'document.querySelectorAll("tr[data-store] progress").length === 2' \
        eval "$PICTURE" eval "$ROWS" eval 'document.querySelector("tr[data-store=\"waited for\"]").innerText' \
        wait 'document.querySelector("polyline").points.length > 2' shot "$SHOTS/page-light.png" \
        size '1180x1010 dark' shot "$SHOTS/page-dark.png" size 390x844 shot "$SHOTS/page-phone.png" \
        eval 'document.documentElement.scrollWidth' quiet home
    jq -e --slurpfile device "$M/device" '.device.total == $device[0].total_bytes and .device.used == $device[0].used_bytes
        and .host.total == $device[0].host_total_bytes and .host.used == $device[0].host_used_bytes
        and .device.sum == .device.total and .host.sum == .host.total and .device.widths and .host.widths
        and (.host.stores | keys) == ["demoted"]' <<<"${lines[0]}"
    for name in "$M"/*/info; do
        name=$(basename "$(dirname "$name")")
        [[ $name != regions ]] || continue
        want=$(jq -c '[.state, .bytes]' "$M/$name/info")
        assert_eq "$(jq -c --arg name "$name" '.[$name]' <<<"${lines[1]}")" "$want" "row of $name"
        [[ $name == demoted ]] || jq -e --arg name "$name" --argjson want "$want" \
            '(.device.stores[$name] // 0) == $want[1]' <<<"${lines[0]}"
    done
    assert_match "${lines[2]}" '1, the oldest since [0-9]+ s'
    assert_eq "${lines[3]}" 390 'width of the page on a telephone'
}

@test "a store's view tells facts, holders, waiters, layout and entries, by the keyboard alone" {
    requires browser
    stage_states
    serve "$M"
    look open "$SERVED/ui/" wait 'document.querySelector("[data-store=sealed] button")' \
        eval 'document.getElementById("filter").focus()' type sealed wait 'document.querySelectorAll("tr[data-store]").length === 1' \
        key Tab key Tab key Tab wait 'document.activeElement.id === "sort-host-name"' \
        key Tab key Tab key Tab key Tab key Tab key Tab key Enter \
        wait 'document.querySelector("#store[open] #entry-filter")' eval 'document.getElementById("store").innerText' \
        wait 'document.activeElement.id === "close"' key Escape wait '!document.querySelector("#store[open]")' \
        wait 'document.activeElement.id === "store/host/sealed"' shot "$SHOTS/page-focus.png" \
        eval 'document.querySelector("#filter").value = ""; document.querySelector("#filter").dispatchEvent(new Event("input"))' \
        eval 'document.getElementById("store/host/waited%20for").click()' wait 'document.querySelectorAll("#store tbody tr").length > 1' \
        eval 'document.getElementById("store").innerText' shot "$SHOTS/page-store.png" quiet home
    assert_match "${lines[1]}" "$(cat "$M/sealed/layout_hash")"
    assert_match "${lines[1]}" 'LAYOUT_COMMITTED.*1 allocation, 1 entry.*shape.*2x4'
    assert_match "${lines[4]}" 'holds.*RO.*gmsctl \([0-9]+\).*waits.*RW.*gmsctl \([0-9]+\)'
}

@test "names with every odd character stay text" {
    local name names=('<img src=x onerror=alert(1)>' '"quo"ted'\''' $'new\nline' $'right\u202eleft' 'a%2Fb' '<script>alert(3)<' '{${x}}' '#?&=+ ;' 'ünï🙂')
    requires browser
    start_mount size=256M "$T/host"
    for name in "${names[@]}"; do
        mkdir "$M/$name"
    done
    bash -c 'exec 9<>"$1/lock"; head -c 3000000 /dev/zero >"$1/allocations/<b>a"; echo "<img src=y onerror=alert(2)>" >"$1/metadata/<i>k"
        echo 1 >"$1/commit"' _ "$M/${names[0]}"
    serve "$M"
    look open "$SERVED/ui/" wait "document.querySelectorAll('tr[data-store]').length === $((${#names[@]} + 1))" \
        eval '[...document.querySelectorAll("tr[data-store]")].map((row) => row.dataset.store)' \
        eval '[...document.querySelectorAll("tr[data-store] .name")].map((name) => name.textContent).join("|")' \
        eval 'document.querySelector("tr[data-store^=\"<img\"] button").click()' wait 'document.querySelector("#store[open] #entry-filter")' \
        eval 'document.getElementById("store").innerText' \
        eval 'document.querySelectorAll("img, #mounts script, #store b, #store i, #mounts i").length' \
        eval 'document.getElementById("close").click()' \
        eval 'document.querySelector("tr[data-store=\"a%2Fb\"] button").click()' \
        wait 'document.querySelector("#store[open]")?.innerText.includes("EMPTY")' sh 'sleep 1' \
        eval 'document.querySelectorAll("#store .alarm").length' shot "$SHOTS/page-odd.png" quiet home
    for name in "${names[@]}"; do
        jq -e --arg name "$name" 'index($name) != null' <<<"${lines[0]}"
    done
    assert_match "${lines[1]}" 'new\\\\u000aline'
    assert_match "${lines[1]}" 'right\\\\u202eleft'
    assert_match "${lines[3]}" '<i>k.*<img src=y onerror=alert\(2\)>'
    assert_eq "${lines[4]}" 0 'elements that a name made'
    assert_eq "${lines[7]}" 0 'complaints about a%2Fb'
}

@test "a user sees what the server's user may read, and a client that is not trusted is told what it does not see" {
    requires browser
    start_mount size=256M "$T/host"
    committed private 3000000
    printf 'hidden' >"$M/weights/metadata/none" 2>/dev/null || :
    chmod 700 "$M/private"
    serve "$M"
    look open "$SERVED/ui/" wait 'document.querySelector("[data-store=private] button")' \
        eval 'document.querySelector("[data-store=private] button").click()' wait 'document.querySelector("#store .alarm")' \
        sh 'sleep 1' eval 'document.getElementById("store").innerText' home
    assert_match "${lines[1]}" 'its file layout cannot be read \(status 403\)'
    [[ ${lines[1]} != *'Layout:'* ]] || fail 'the layout is shown'
    stop_serving
    SERVE_AT=0.0.0.0 serve --insecure "$M"
    look open "http://any.localhost:$PORT/ui/" wait 'document.querySelector("[data-store=weights] button")' \
        eval 'document.querySelector("summary").click()' wait 'document.querySelector("details[open]")' \
        eval 'document.querySelector("details").innerText' eval 'document.querySelector("[data-store=weights] button").click()' \
        wait 'document.querySelector("#store dl")' eval 'document.getElementById("store").innerText' \
        shot "$SHOTS/page-untrusted.png" quiet-but '/host/(events|weights/info|weights/sessions)$' home
    assert_match "${lines[1]}" 'Not shown here: events, holders and waiters by name'
    assert_match "${lines[3]}" 'Not shown here: events, holders and waiters by name'
    assert_match "${lines[3]}" 'EMPTY'
}

@test "suspect memory of a GPU, and memory of other programs" {
    requires browser fake-gpu
    fake_gpus 'devices 1'
    start_mount size=256M "$T/gpu0"
    committed weights 5000000
    serve "$M"
    look open "$SERVED/ui/" wait 'document.querySelector("[data-tier=device]")' eval "$PICTURE" \
        sh "echo 'xid 0 48' >'$T/gpus/control.new' && mv '$T/gpus/control.new' '$T/gpus/control'" \
        wait 'document.querySelector("tr[data-store=weights]").innerText.includes("suspect")' \
        eval 'document.querySelector(".title").innerText' shot "$SHOTS/page-suspect.png" quiet home
    jq -e --slurpfile device "$M/device" '.device.total == $device[0].total_bytes and .device.sum == .device.total' <<<"${lines[0]}"
    assert_match "${lines[1]}" 'the device is suspect: Xid 48: uncorrectable memory error'
}

# stage_two: mounts `live` and `other`, both shown
stage_two() {
    start_mount size=256M "$T/live"
    LIVE=$M
    start_mount size=256M "$T/other"
    committed one 3000000
    serve "$LIVE" "$M"
}
TWO='document.querySelectorAll("[data-tier]").length === 2'

@test "the ranks of a group are one model, and the sums of a store are a picture" {
    local model
    requires browser
    stage_two
    model=$("$ROOT/scripts/make-model" --out "$T/model" --size 40M | tail -n 1)
    run_logged -0 "$GMSFS" load --group "$LIVE/rank0=$model" "$M/rank1=$model"
    M=$LIVE committed one 3000000
    cat "$LIVE/one/pieces" "$M/one/pieces" >"$T/pieces"
    serve "$LIVE" "$M"
    look open "$SERVED/ui/" wait 'document.querySelector("[data-by=group]")' \
        eval '[...document.querySelectorAll("#placement tbody tr")].map((row) => row.innerText.replace(/\s+/g, " "))' \
        eval 'document.getElementById("store/live/rank0").click()' wait 'document.querySelector("#ask-sums")' \
        eval 'document.getElementById("ask-sums").click()' wait 'document.querySelectorAll("#store .sums .area").length > 2' \
        eval '[...document.querySelectorAll("#store .sums .area")].map((area) => area.dataset.sum)' \
        eval '[...document.querySelectorAll("#store .sums .area")].every((area) => area.getBoundingClientRect().width > 5 &&
            getComputedStyle(area).backgroundColor !== "rgba(0, 0, 0, 0)")' shot "$SHOTS/page-sums.png" quiet-but 'ERR_EMPTY_RESPONSE.*/info$' home
    jq -e '.[0] | test("^rank0, rank1 one load \\(group\\) rank0 COMMITTED, 40.* MiB, device rank1 COMMITTED, 40.* MiB, device$")' <<<"${lines[0]}"
    jq -e '.[1] | test("^one same name, other load or contents ")' <<<"${lines[0]}"
    assert_eq "$(jq -r '.[]' <<<"${lines[3]}")" "$(awk '$1 == "piece" { print $5 }' "$LIVE/rank0/pieces")" 'sums of the picture'
    assert_eq "${lines[4]}" true 'areas with a colour'
}
OTHER='document.querySelector("[data-mount=other] .trouble")'

@test "a mount that died is shown as such, with the way out, while a live one goes on" {
    local worker
    requires browser
    stage_two
    worker=$(worker_of "$KEEPER")
    expect_death
    look open "$SERVED/ui/" wait "$TWO" sh "kill -KILL $KEEPER $worker; mkdir $LIVE/new" wait "$OTHER" \
        eval "$OTHER.innerText" wait 'document.querySelector("[data-mount=live] [data-store=new]")' \
        eval 'document.querySelector("[data-mount=live] .trouble")' shot "$SHOTS/page-dead.png" \
        quiet-but '/other/[a-z]+$' home
    assert_match "${lines[0]}" "other: its file [a-z]+ cannot be read \(status 503\).*The mount's daemon has gone.*gmsfs umount -l"
    assert_eq "${lines[1]}" null 'trouble of the live mount'
    forget_mount "$T/other"
}

@test "a mount that hangs is shown as such within seconds, the live one goes on, and both when it answers again" {
    local worker number
    requires browser
    stage_two
    for number in {1..12}; do # for their ids the page asks in two looks
        M=$LIVE committed "l$number" 100000
        committed "o$number" 100000
    done
    worker=$(worker_of "$KEEPER")
    look open "$SERVED/ui/" wait "$TWO" sh "kill -STOP $KEEPER $worker; mkdir $LIVE/new" wait "$OTHER" \
        eval "$OTHER.innerText" wait 'document.querySelector("[data-mount=live] [data-store=new]")' sh "mkdir $LIVE/newer; sleep 10" \
        wait 'document.querySelector("[data-mount=live] [data-store=newer]")' \
        eval 'document.querySelector("[data-mount=live] .trouble")' shot "$SHOTS/page-hung.png" \
        sh "kill -CONT $KEEPER $worker" wait "!$OTHER" quiet home || { kill -CONT "$KEEPER" "$worker"; return 1; }
    assert_match "${lines[0]}" 'no answer within 5 s'
    assert_eq "${lines[1]}" null 'trouble of the live mount'
}

@test "4,096 stores are there in 2 s, and can be searched and sorted" {
    requires browser
    start_mount size=256M "$T/host"
    (cd "$M" && seq -f 's%g' 1 4095 | xargs mkdir)
    committed s77 3000000
    serve "$M"
    local there=(open "$SERVED/ui/" wait 'document.querySelectorAll("tr[data-store]").length === 50' eval 'Math.round(performance.now())')
    look "${there[@]}" "${there[@]}" "${there[@]}" \
        eval '[performance.getEntriesByType("resource").length, document.querySelectorAll("*").length]' \
        eval 'document.querySelector("[data-mount] caption").innerText' \
        eval 'document.getElementById("filter").value = "s4095";
            const start = performance.now(); document.getElementById("filter").dispatchEvent(new Event("input"));
            [document.querySelectorAll("tr[data-store]").length, Math.round(performance.now() - start)]' \
        quiet home
    local best
    best=$(printf '%s\n' "${lines[@]:0:3}" | sort -n | head -n 1)
    jq -e '.[0] <= 20 and .[1] <= 2000' <<<"${lines[3]}" || fail "requests, elements: ${lines[3]}"
    assert_match "${lines[4]}" '4096 stores, 50 shown'
    ((best < 2000 * HANG)) || fail "the stores were there after $best ms"
    assert_eq "$(jq '.[0]' <<<"${lines[5]}")" 1 'stores found'
    (($(jq '.[1]' <<<"${lines[5]}") < 500 * HANG)) || fail "a search took ${lines[5]} ms"
    echo "# 4,096 stores after $best ms, a search in $(jq '.[1]' <<<"${lines[5]}") ms" >&3
}

@test "axe finds nothing serious in the page, a store's view, and a mount that died" {
    local worker axe
    requires browser axe
    stage_states
    start_mount size=256M "$T/other"
    worker=$(worker_of "$KEEPER")
    serve "$T/host" "$M"
    expect_death
    axe='axe.run().then((found) => found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) =>
        [one.id, one.help, ...one.nodes.map((node) => node.html)]))'
    look open "$SERVED/ui/" wait "$TWO || document.querySelectorAll('[data-tier]').length === 3" run "$AXE" eval "$axe" \
        size '1000x800 dark' eval "$axe" eval 'document.querySelector("summary").click()' \
        sh "kill -KILL $KEEPER $worker" wait "$OTHER" eval "$axe" size 390x844 eval "$axe" \
        eval 'document.getElementById("store/host/sealed").click()' wait 'document.querySelector("#store[open] #entry-filter")' eval "$axe"
    forget_mount "$T/other"
    assert_eq "${lines[0]} ${lines[1]} ${lines[3]} ${lines[4]} ${lines[6]}" '[] [] [] [] []' 'findings of axe'
}
