#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Common tools on the files of a mount: tools that trust the size of stat(2), and tools that read by
# sendfile(2), splice(2) or mmap(2), see the bytes of read(2).
#
# shellcheck disable=SC2016 # bodies of shells
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set
# bats file_tags=slow

load helpers
load python

prepare() {
    start_weights size=64M
    commit_store
}

# Every file that shows a text, but `events`.
list_texts() {
    printf '%s\n' "$M"/{device,metrics,pools} "$W"/{state,residency,layout_hash,layout,info,sessions}
}

# The files whose text stays the same on an idle mount.
list_quiet_texts() {
    list_texts | grep -v -e '/device$' -e '/metrics$'
}

# Each file of these must equal the output of `cat`, by COMMAND FILE.
all_come_whole() { # COMMAND...
    local file
    while read -r file; do
        cat "$file" >"$T/want"
        run_logged -0 timeout $((20 * HANG)) bash -c '"${@:2}" "$1" >"$GMSFS_TEST_DIR/got"' _ "$file" "$@"
        cmp "$T/want" "$T/got" || fail "${file##*/} is another text by: $*"
    done < <(list_quiet_texts)
    run_logged -0 timeout $((20 * HANG)) bash -c '"${@:2}" "$1" >"$GMSFS_TEST_DIR/got"' _ "$M/metrics" "$@"
    assert_eq "$(tail -n 1 "$T/got" | cut -d '{' -f 1)" "$(tail -n 1 "$M/metrics" | cut -d '{' -f 1)" 'last line'
    assert_eq "$(tr -dc '\0' <"$T/got" | wc -c)" 0 'bytes that are 0'
}

# The same of a COMMAND FROM TO that copies.
all_are_copied() { # COMMAND...
    all_come_whole bash -c 'rm -f "$GMSFS_TEST_DIR/copy"
        "$@" "$GMSFS_TEST_DIR/copy" >&2 && cat "$GMSFS_TEST_DIR/copy"' _ "$@"
}

@test "stat tells the length of every text" {
    local file
    while read -r file; do
        assert_eq "$(stat -c %s "$file")" "$(wc -c < <(cat "$file"))" "size of ${file##*/}"
    done < <(list_texts)
    hold open "$W/lock" r
    for file in state sessions info; do
        assert_eq "$(stat -c %s "$W/$file")" "$(wc -c < <(cat "$W/$file"))" "size of $file"
    done
    let_go "$HOLDER"
    for file in lock auto; do
        assert_eq "$(stat -c %s "$W/$file")" "$(wc -c < <(cat "$W/$file"))" "size of $file"
    done
}

@test "the size follows each change at once" {
    exec 4<"$W/state"
    assert_eq "$(stat -L -c %s /proc/self/fd/4)" 10 # COMMITTED
    hold open "$W/lock" rw
    assert_eq "$(stat -c %s "$W/state") $(stat -L -c %s /proc/self/fd/4)" '3 3'
    assert_eq "$(cat <&4)" RW
    assert_eq "$(stat -c '%s' "$W/layout" "$W/layout_hash" | xargs)" '0 0'
    let_go "$HOLDER"
    exec 4<&-
}

@test "GNU tools read every text" {
    all_come_whole cat
    assert_eq "$(grep -c '' "$W/info")" "$(wc -l < <(cat "$W/info"))"
    all_come_whole head -c 1000000
    all_are_copied cp
    all_are_copied cp --sparse=always
    all_are_copied install -m 600
    assert_eq "$(wc -c <"$W/info")" "$(wc -c < <(cat "$W/info"))"
    run_logged -0 tar -C "$W" -cf "$T/tar" state info layout sessions
    assert_eq "$(tar -xOf "$T/tar" state)" COMMITTED
}

@test "BusyBox's tools read every text" {
    requires busybox
    all_come_whole busybox cat
    all_are_copied busybox cp
    assert_eq "$(busybox wc -c <"$W/info")" "$(wc -c < <(cat "$W/info"))"
    assert_eq "$(busybox grep -c '' "$W/info")" "$(wc -l < <(cat "$W/info"))"
}

# A reader that follows `events` by COMMAND shows new events.
follows() { # COMMAND...
    spawn "$@" "$M/events"
    wait_until 20 shows "$SPAWNED" committed
    ctl mkdir "$M/first.$SPAWNED" rmdir "$M/first.$SPAWNED"
    wait_until 20 shows "$SPAWNED" store_removed "first.$SPAWNED"
    ctl mkdir "$M/then.$SPAWNED"
    wait_until 20 shows "$SPAWNED" store_created "then.$SPAWNED"
    kill "$SPAWNED"
}

shows() { # PID EVENT [STORE]
    output_of "$1" | grep -q "\"event\":\"$2\",\"store\":\"${3-}"
}

@test "tail -f follows events" {
    follows tail -n 5 -f
    follows tail -n 5 -F
    follows tail -c +1 -f
}

@test "BusyBox's tail -f follows events" {
    requires busybox
    follows busybox tail -n 5 -f
}

@test "uutils' tools read every text" {
    requires coreutils
    all_come_whole coreutils cat
    all_are_copied coreutils cp
    assert_eq "$(coreutils wc -c <"$W/info")" "$(wc -c < <(cat "$W/info"))"
}

@test "Python copies every text" {
    all_are_copied python3 -c 'import shutil, sys; shutil.copyfile(*sys.argv[-2:])'
    all_are_copied python3 -c 'import shutil, sys; shutil.copy2(*sys.argv[-2:])'
}

@test "rsync copies every text" {
    requires rsync
    all_are_copied rsync -t
    all_are_copied rsync --inplace --checksum
}

@test "curl reads every text by file://" {
    requires curl
    all_come_whole bash -c 'curl -sSf "file://${!#}"' _
}

@test "Node copies every text" {
    requires node
    all_are_copied node -e 'require("fs").copyFileSync(...process.argv.slice(-2))'
}

@test "Java copies every text" {
    requires java javac
    cat >"$T/Copy.java" <<'JAVA'
import java.io.*;
import java.nio.file.*;
class Copy {
    public static void main(String[] paths) throws IOException {
        Files.copy(Path.of(paths[0]), Path.of(paths[1]));
    }
}
JAVA
    javac -d "$T" "$T/Copy.java"
    all_are_copied java -cp "$T" Copy
}

@test "Go copies every text" {
    requires go
    cat >"$T/copy.go" <<'GO'
package main

import ("io"; "os")

func main() {
	from, err := os.Open(os.Args[1])
	if err != nil { panic(err) }
	to, err := os.Create(os.Args[2])
	if err != nil { panic(err) }
	if _, err = io.Copy(to, from); err != nil { panic(err) }
}
GO
    GOCACHE=$T/go go build -o "$T/copy" "$T/copy.go"
    all_are_copied "$T/copy"
}

@test "sendfile and splice read events" {
    assert_eq "$(python3 - "$M/events" <<'PY'
import os, sys
fd, pipe = os.open(sys.argv[1], os.O_RDONLY), os.pipe()
def splice_all():
    out = b""
    while got := os.splice(fd, pipe[1], 1000):
        out += os.read(pipe[0], got)
    return out
first = splice_all()
os.mkdir(os.path.dirname(sys.argv[1]) + "/more")
assert os.fstat(fd).st_size > len(first)
assert first + splice_all() == open(sys.argv[1], "rb").read()
print("whole")
PY
    )" whole
}

@test "sendfile and splice read every text, also where its size was never asked for" {
    cat >"$T/splice.py" <<'PY'
import os, sys
pipe = os.pipe()
from_fd = os.open(sys.argv[-1], os.O_RDONLY)
out = b""
while got := os.splice(from_fd, pipe[1], 65536):
    out += os.read(pipe[0], got)
os.lseek(from_fd, 0, os.SEEK_SET)
to = os.memfd_create("to")
while os.sendfile(to, from_fd, None, 1 << 20):
    pass
assert os.pread(to, 1 << 20, 0) == out, "sendfile and splice differ"
os.write(1, out)
PY
    all_come_whole python3 "$T/splice.py"
}

@test "a text that is mapped privately is one version, and none can be shared" {
    cat >"$T/map.py" <<'PY'
import errno, mmap, os, sys
fd = os.open(sys.argv[-1], os.O_RDONLY)
size = os.fstat(fd).st_size
try:
    mmap.mmap(fd, size or 1, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    sys.exit("a shared mapping of a text")
except OSError as error:
    assert error.errno == errno.ENODEV, error
except ValueError: # Python refuses to map an empty file
    pass
if size:
    os.write(1, mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)[:])
PY
    all_come_whole python3 "$T/map.py"
}

@test "fstat's size of a file that was just opened is that of its first read" {
    run_logged -0 python3 - "$M/metrics" "$M/device" "$W/info" <<'PY'
import os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    assert os.fstat(fd).st_size == len(os.read(fd, 1 << 20)), path
PY
}

@test "a read shows the text of its moment, regardless of earlier answers" {
    run_logged -0 python3 - "$W" <<'PY'
import json, os, sys
def read(fd):
    return json.loads(os.read(fd, 1 << 20))
fd = os.open(sys.argv[1] + "/info", os.O_RDONLY)
os.fstat(fd)
os.rename(sys.argv[1], sys.argv[1] + "2")
os.rename(sys.argv[1] + "2", sys.argv[1])
holder = os.open(sys.argv[1] + "/lock", os.O_RDONLY)
assert read(fd)["readers"] == 1
PY
}

# Enough lines that they fill more than a page.
fill_pools() {
    local i
    for i in {1..80}; do
        echo "pool$i min=0 max=1M"
    done >"$M/pools"
}

@test "pages of two versions of a text are never put together" {
    fill_pools
    run_logged -0 python3 - "$M/pools" <<'PY'
import errno, os, sys
pipe = os.pipe()
def take(fd, most):
    try:
        got = os.splice(fd, pipe[1], most)
    except OSError as error:
        assert error.errno == errno.EINVAL, error
        return None
    return os.read(pipe[0], got) if got else b""
first, whole = os.open(sys.argv[1], os.O_RDONLY), open(sys.argv[1], "rb").read()
first = os.open(sys.argv[1], os.O_RDONLY)
begin = take(first, 4096)
assert begin == whole[:4096]
with open(sys.argv[1], "w") as pools:
    pools.write("".join("pool%d max=%dM\n" % (i, 100 + i) for i in range(1, 81)))
second = os.open(sys.argv[1], os.O_RDONLY)
new = b""
while more := take(second, 5000):
    new += more
assert new == open(sys.argv[1], "rb").read() and new != whole
rest = take(first, 65536)
assert rest is None or whole.startswith(begin + rest), rest
# A reader that reads on gets the rest of the version that it began with.
if rest is None:
    assert begin + os.read(first, 1 << 20) == whole
PY
}

@test "parts of a text that only some users may see do not come through the kernel's pages" {
    requires root
    chmod 755 "$W"
    ctl connect "$M" region-register self secret-name weights/a none 0 8
    run_logged -0 python3 - "$W/sessions" "$TEST_UID" <<'PY'
import errno, os, sys
path, uid = sys.argv[1], int(sys.argv[2])
pipe = os.pipe()
assert "secret-name" in open(path).read()
ours = os.open(path, os.O_RDONLY)
child = os.fork()
if child == 0:
    os.setgid(uid)
    os.setuid(uid)
    fd = os.open(path, os.O_RDONLY)
    for attempt in range(2):
        os.lseek(fd, 0, os.SEEK_SET)
        text = os.read(fd, 65536)
        assert b"secret-name" not in text
        try:
            got = os.splice(fd, pipe[1], 65536, offset_src=0)
            assert b"secret-name" not in (os.read(pipe[0], got) if got else b"")
        except OSError as error:
            assert error.errno == errno.EINVAL
        try:
            os.splice(ours, pipe[1], 65536, offset_src=0)
        except OSError as error:
            assert error.errno == errno.EINVAL
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
fd = os.open(path, os.O_RDONLY)
try:
    os.splice(fd, pipe[1], 65536)
    sys.exit("pages of names that are for some alone")
except OSError as error:
    assert error.errno == errno.EINVAL
PY
}

# Reads by a program of the writer's session, after it wrote to the memory by its mapping.
@test "sendfile and mmap never show bytes that a mapping has overwritten" {
    requires no-sanitizer # Python loads the library
    python_setup
    cat >"$T/stale.py" <<'PY'
import ctypes, errno, mmap, os, shutil, signal, sys
import gmsfs
store = os.environ["GMSFS_STORE"]
path = store + "/allocations/b"
open(path, "ab").close()
os.truncate(path, 2 << 20)
writer, reader = os.open(path, os.O_RDWR), os.open(path, os.O_RDONLY)
os.pwrite(writer, b"A" * 4096, 0)
def send():
    out = os.memfd_create("out")
    try:
        os.sendfile(out, reader, 0, 4096)
    except OSError as error:
        assert error.errno == errno.EINVAL, error
        return os.pread(reader, 4, 0)
    return os.pread(out, 4, 0)
def mapped():
    child = os.fork()
    if child == 0:
        pages = mmap.mmap(reader, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        os._exit(0 if pages[:4] == b"A" * 4 else 1)
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WTERMSIG(status) == signal.SIGBUS, status
assert send() == b"AAAA"
mapped()
session = gmsfs.open(store, "rw", token=os.environ["GMSFS_SESSION"])
ctypes.memset(session.buffers()[-1].address, ord("B"), 4096)
assert os.pread(reader, 4, 0) == b"BBBB"
assert send() == b"BBBB"
shutil.copyfile(path, sys.argv[1])
assert open(sys.argv[1], "rb").read(4096) == b"B" * 4096
PY
    run_logged -0 timeout $((60 * HANG)) "$GMSFS" run -w "$W" -- python3 "$T/stale.py" "$T/copy"
}

@test "a reader's sendfile, splice and private mapping show the bytes" {
    run_logged -0 python3 - "$W/allocations/a" "$W/metadata/key" <<'PY'
import mmap, os, sys
for path in sys.argv[1:]:
    want = open(path, "rb").read()
    fd, to, pipe = os.open(path, os.O_RDONLY), os.memfd_create("to"), os.pipe()
    while os.sendfile(to, fd, None, 1 << 20):
        pass
    assert os.pread(to, 2 << 20, 0) == want
    os.lseek(fd, 0, os.SEEK_SET)
    got = os.splice(fd, pipe[1], 4096)
    assert os.read(pipe[0], got) == want[:got] and got == min(4096, len(want))
    pages = mmap.mmap(fd, len(want), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    assert pages[:] == want
PY
}

@test "an allocation unlinked or replaced while it is open answers ESTALE, and its memory is free" {
    cat >"$T/gone.py" <<'PY'
import errno, json, os, time
store = os.environ["GMSFS_STORE"]
def used():
    return json.load(open(store + "/../device"))["used_bytes"]
def make(name):
    fd = os.open(store + "/allocations/" + name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    return fd
def check_gone(call, *errnos):
    try:
        call()
    except OSError as error:
        assert error.errno in errnos, error
        return
    raise AssertionError(call)
unlinked, replaced, kept = make("unlinked"), make("replaced"), make("kept")
before = used()
os.unlink(store + "/allocations/unlinked")
os.rename(store + "/allocations/kept", store + "/allocations/replaced")
for fd in unlinked, replaced:
    check_gone(lambda: os.pread(fd, 1, 0), errno.ESTALE)
    check_gone(lambda: os.pwrite(fd, b"x", 0), errno.ESTALE)
    check_gone(lambda: os.fstat(fd), errno.ESTALE, errno.ENOENT)
while used() > before - (2 << 20): # it is being given back
    time.sleep(0.01)
os.pwrite(kept, b"kept", 0)
assert open(store + "/allocations/replaced", "rb").read(4) == b"kept"
PY
    run_logged -0 timeout $((60 * HANG)) "$GMSFS" run -w "$W" -- python3 "$T/gone.py"
}
