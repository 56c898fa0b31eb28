#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# files/model.safetensors or files/model.gguf of a store that keeps no files of its own: made of its
# tensors when it is read.
#
# shellcheck disable=SC2016 # shells within shells have variables of their own
# shellcheck disable=SC2034,SC2153 # variables that the helpers read and set

load helpers

start() { # [OPTIONS]
    start_weights "${1:-size=64M}"
    F=$W/files/model.safetensors
}

# make_gguf [OPTION...]: sets MODEL, and F to the file that its store shows
make_gguf() {
    requires python3 || return 1
    MODEL=$T/m.gguf F=$W/files/model.gguf
    python3 "$ROOT/tests/tools/make_gguf.py" "$MODEL" "$@"
}

# gguf_of VALUES TENSORS [OPTION]: the same, of Python's lists
gguf_of() {
    requires python3 || return 1
    MODEL=$T/m.gguf F=$W/files/model.gguf
    python3 - "$ROOT/tests/tools" "$MODEL" "$@" <<'EOF'
import sys
sys.path.insert(0, sys.argv[1])
import make_gguf
open(sys.argv[2], "wb").write(eval(f"make_gguf.model({', '.join(sys.argv[3:])})"))
EOF
}

# shows_gguf [OPTION...]: the store of the model, loaded so, shows the model.
shows_gguf() {
    cli load -q "$@" "$W" "$MODEL"
    assert_eq "$(reason)" model.gguf info
    assert_eq "$(names "$W/files")" model.gguf
    cmp "$F" "$MODEL" || fail 'not the bytes that were loaded'
    same_as_saved
}

# put_tensor NAME ALLOCATION OFFSET VALUE: an entry; the caller has the writer's lock.
put_tensor() {
    local name=$W/metadata/$1
    printf %s "$4" >"$name"
    [[ $2 != - ]] || return 0
    setfattr -n user.gmsfs.allocation -v "$2" "$name"
    setfattr -n user.gmsfs.offset -v "$3" "$name"
}

# same_as_saved: the file is the one that `gmsfs save` writes, and as long as it is said to be.
same_as_saved() {
    local saved=$T/saved.${F##*.}
    cli save -q "$W" "$saved"
    cmp "$F" "$saved" || fail 'not the saved bytes'
    assert_eq "$(stat -c %s "$F")" "$(stat -c %s "$saved")" size
}

# reads_alike FILE: the made file in reads of any size, by mmap and by sendfile.
reads_alike() {
    run_logged -0 python3 - "$F" "$1" "$T/sent" <<'EOF'
import mmap, os, random, sys
made, saved = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
size = os.fstat(saved).st_size
random.seed(3)
for _ in range(300):
    offset, length = random.randrange(size + 10), random.choice((1, 10, 4096, 100000, 1 << 20, 3 << 20))
    want, got = os.pread(saved, length, offset), os.pread(made, length, offset)
    assert want == got, (offset, length, len(want), len(got))
with mmap.mmap(made, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapping:
    assert mapping[:] == os.pread(saved, size, 0)
try:
    mmap.mmap(made, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    sys.exit("mapped shared")
except OSError as error:
    assert error.errno == 19, error
out = os.open(sys.argv[3], os.O_RDWR | os.O_CREAT)
at = 0
while at < size:
    at += os.sendfile(out, made, at, size - at)
assert os.pread(out, size + 1, 0) == os.pread(saved, size, 0)
EOF
}

reason() {
    info_of weights '.made_file // .made_file_reason'
}

# bats test_tags=quick
@test "a store of tensors shows the file that gmsfs save writes" {
    requires python3
    start
    make_model 4M
    cli load -q "$W" "$MODEL"
    assert_eq "$(names "$W/files")" model.safetensors
    assert_eq "$(stat -c '%a %F' "$F")" '444 regular file'
    assert_eq "$(reason)" model.safetensors info
    same_as_saved
    cp "$F" "$T/copy"
    cmp "$T/copy" "$T/saved.safetensors"
    cli verify "$W" "$F"
    mkdir "$M/again"
    cli load -q "$M/again" "$F"
    assert_eq "$("$GMSFS" sum "$M/again")" "$("$GMSFS" sum "$W")" sums
    assert_state weights COMMITTED
}

# bats test_tags=quick
@test "an open file of tensors holds the reader's lock, and cannot be changed" {
    requires python3
    start
    make_model 1M
    cli load -q "$W" "$MODEL"
    hold open "$F" r read 100
    assert_state weights RO
    expect EAGAIN open "$W/lock" rwn
    let_go "$HOLDER"
    hold open "$W/lock" rw
    expect EAGAIN open "$F" r
    let_go "$HOLDER"
    wait_until 5 assert_state weights COMMITTED
    expect EACCES open "$F" rw
    expect EACCES open "$F" w
    run ! rm "$F"
    run ! truncate -s 0 "$F"
    run ! mv "$F" "$W/files/other"
    run_logged "$GMSFS" run -w "$W" -- cat "$F" # the tensors may change under it
    assert_match "$output" 'Resource temporarily unavailable'
    same_as_saved
}

@test "a revoked reader gets no more of the header" {
    requires python3
    start
    make_model 1M
    cli load -q "$W" "$MODEL"
    run_logged -0 python3 - "$W" "$F" <<'EOF'
import errno, os, sys
store, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
assert len(os.pread(fd, 8, 0)) == 8
for line in open(store + "/sessions"):
    fields = line.split()
    if fields[3] == str(os.getpid()):
        open(store + "/abort", "w").write("revoke " + fields[0])
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
try:
    print(os.pread(fd, 8, 0))
    sys.exit("the header was read")
except OSError as error:
    assert error.errno == errno.ESTALE, error
EOF
}

# Tensors of all kinds of places: several allocations, gaps, bytes in common, none, up to the end of an
# allocation; more in one read than the daemon reads at once.
commit_odd() { # SMALL: number of small allocations
    python3 - "$W" "$1" <<'EOF'
import os, random, sys
store = sys.argv[1]
random.seed(5)
lock = os.open(store + "/lock", os.O_RDWR)
def allocation(name, size):
    open(f"{store}/allocations/{name}", "wb").write(random.randbytes(size))
def tensor(name, where, offset, size):
    path = f"{store}/metadata/{name}"
    open(path, "w").write('{"dtype":"torch.uint8","shape":[%d]}' % size)
    os.setxattr(path, "user.gmsfs.allocation", where.encode())
    os.setxattr(path, "user.gmsfs.offset", str(offset).encode())
for i in range(int(sys.argv[2])):
    allocation(f"small{i:03}", i + 1)
    tensor(f"small.{i}", f"small{i:03}", i // 2, i + 1 - i // 2)
allocation("large", 3 << 20)
at = 5
for i in range(300):
    size = random.choice((0, 1, 7, 4096, 9000))
    tensor(f"part.{i}", "large", at, size)
    at += size + random.choice((0, 0, 3, 60))
tensor("tied.a", "large", 100, 5000)
tensor("tied.b", "large", 100, 5000)
tensor("within", "large", 200, 300)
tensor("end", "large", (3 << 20) - 700000, 700000)
open(store + "/metadata/__metadata__", "w").write('{ "format": "pt", "\\u00e9\\/":"a\\"\\n\\u0001\\ud83d\\ude00" }')
open(store + "/metadata/other", "w").write("no tensor")
open(store + "/commit", "w").write("1")
os.close(lock)
EOF
}

@test "tensors in many places are one file, in reads of any size, by mmap and by sendfile" {
    requires python3
    start size=64M,granularity=4K
    commit_odd 200
    same_as_saved
    reads_alike "$T/saved.safetensors"
}

# bats test_tags=quick
@test "where no file can be made, it is not there, and info says why" {
    requires jq
    start
    local row
    assert_eq "$(reason)" null 'an empty store'
    while IFS='|' read -r name where offset value why; do
        exec 9<>"$W/lock"
        find "$W/metadata" -type f -delete
        [[ -e $W/allocations/a ]] || head -c 10 /dev/zero >"$W/allocations/a"
        put_tensor good a 0 '{"dtype":"torch.int8","shape":[10]}'
        [[ $name != alone ]] || rm "$W/metadata/good"
        [[ $name == alone ]] || put_tensor "$name" "$where" "$offset" "$value"
        echo 1 >"$W/commit"
        exec 9>&-
        assert_eq "$(reason)" "$why" "$name"
        [[ $why != model.gguf ]] || assert_eq "$(names "$W/files")" model.gguf
        run_logged ls "$F"
        if [[ $why == model.safetensors ]]; then
            assert_eq "$status" 0 "$name"
        else
            assert_eq "$status" 2 "$name"
        fi
        row=1
    done <<EOF
fine|a|2|{"dtype":"torch.int16","shape":[4]}|model.safetensors
to-the-end|a|0|{"dtype":"torch.int8","shape":[10]}|model.safetensors
beyond|a|1|{"dtype":"torch.int8","shape":[10]}|'beyond': it reaches beyond its allocation's size
quantized|a|0|{"dtype":"torch.qint8","shape":[1]}|'quantized': its dtype is none that safetensors has
view|a|0|{"dtype":"torch.int8","shape":[2,3],"stride":[1,2]}|'view': its strides are not those of a contiguous tensor
__metadata__|-|0|{"a":1}|'__metadata__': it is not a JSON object of at most 1,024 strings
__metadata__|-|0|{"a":"1","a":"2"}|'__metadata__': it is not a JSON object of at most 1,024 strings
__metadata__|a|0|{"format":"safetensors","bytes":5}|'__metadata__': it lies in an allocation, because it is longer than 1 MiB
__gguf__|-|0|{"alignment":32,"keys":[],"version":3}|model.gguf
__gguf__|-|0|{}|'__gguf__': it does not describe a GGUF file
alone|-|0||it has no tensors
gmsfs:file:x|-|0|{"bytes":0}|null
EOF
    assert_eq "$row" 1 rows
    assert_eq "$(names "$W/files")" x
}

# bats test_tags=quick
@test "a file of tensors is the same after a worker has died, open ones too" {
    requires python3
    start
    make_model 2M
    cli load -q "$W" "$MODEL"
    cli save -q "$W" "$T/saved.safetensors"
    spawn "$GMSCTL" open "$F" r read 1000 say begun until "$T/go" pread 100 3000 close
    wait_until 5 said "$SPAWNED" begun
    kill_worker
    cmp "$F" "$T/saved.safetensors"
    touch "$T/go"
    wait_exit -0 "$SPAWNED"
    assert_eq "$(reason)" model.safetensors
}

@test "a file of tensors in GPU memory has the same bytes" {
    requires python3
    fake_gpus 'devices 1' 'memory 256' 'lazy 1'
    start size=256M
    commit_odd 60
    same_as_saved
    make_model 8M
    cli load -q "$W" "$MODEL"
    same_as_saved
}

@test "a store of many tensors shows its file, up to a bound" {
    requires python3
    start size=64M
    python3 - "$T/many.safetensors" 60000 <<'EOF'
import json, struct, sys
count = int(sys.argv[2])
text = json.dumps({f"t{i:06}": {"dtype": "U8", "shape": [3], "data_offsets": [3 * i, 3 * i + 3]} for i in range(count)}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + bytes(i % 251 for i in range(3 * count)))
EOF
    cli load -q "$W" "$T/many.safetensors"
    same_as_saved
}

# bats test_tags=quick
@test "the reference implementation opens the file of a store's tensors" {
    requires safetensors
    start size=64M,granularity=4K
    commit_odd 20
    cli save -q "$W" "$T/saved.safetensors"
    run_logged -0 "${GMSFS_TEST_PYTHON:-python3}" - "$F" "$T/saved.safetensors" <<'EOF'
import safetensors, sys
want = dict(safetensors.deserialize(open(sys.argv[2], "rb").read()))
assert dict(safetensors.deserialize(open(sys.argv[1], "rb").read())) == want
with safetensors.safe_open(sys.argv[1], framework="numpy") as file:
    assert set(file.keys()) == set(want)
    for name in file.keys():
        assert file.get_tensor(name).tobytes() == bytes(want[name]["data"]), name
EOF
}

# ---- GGUF ------------------------------------------------------------------------------------

# The list of tokens is longer than an entry, so it lies in an allocation.
# bats test_tags=quick
@test "a store of a GGUF file shows that file, byte for byte" {
    start
    make_gguf
    shows_gguf
    assert_eq "$(stat -c '%a %F' "$F")" '444 regular file'
    assert_match "$(cat "$W/metadata/gguf:tokenizer.ggml.tokens")" '"format":"gguf"'
    reads_alike "$MODEL"
    cli verify "$W" "$F"
    mkdir "$M/again"
    cli load -q "$M/again" "$F"
    assert_eq "$("$GMSFS" sum "$M/again")" "$("$GMSFS" sum "$W")" sums
    kill_worker
    cmp "$F" "$MODEL"
    hold open "$F" r read 100
    assert_state weights RO
}

@test "a store shows its GGUF file of any alignment, version, types and values" {
    start size=64M,granularity=4K
    make_gguf --alignment 4096 --tokens 3
    shows_gguf
    reads_alike "$MODEL"
    make_gguf --alignment 8 --tokens 3
    shows_gguf --immutable
    gguf_of '[]' 'make_gguf.TENSORS[:2]' version=2
    shows_gguf
    gguf_of '[("k", "u8", 1)]' '[("none", "Q4_0", [0, 3]), ("scalar", "I32", []), ("none.too", "F32", [0])]'
    shows_gguf
    gguf_of 'make_gguf.every_kind(9, 32)' '[(f"t{i}", "F32", [i % 70]) for i in range(3000)]'
    shows_gguf
    reads_alike "$MODEL"
}

@test "a store shows the GGUF file of a model of several files, and the file after a change" {
    requires python3
    start
    python3 "$ROOT/tests/tools/make_gguf.py" "$T/m" --split 3
    cli load -q "$W" "$T"/m-*.gguf
    F=$W/files/model.gguf
    assert_eq "$(reason)" model.gguf info
    same_as_saved
    exec 9<>"$W/lock"
    head -c 4000 /dev/urandom >"$W/allocations/more"
    put_tensor more more 100 '{"dtype":"torch.bfloat16","shape":[30,20]}'
    printf '\4\0\0\0\7\0\0\0' >"$W/metadata/gguf:a.u32"
    [[ ! -e $F ]] || fail "a file that a writer changes is shown"
    echo 1 >"$W/commit"
    exec 9>&-
    same_as_saved
    grep -q more "$F"
}

@test "a GGUF file has values of an allocation in any order of their offsets" {
    start
    F=$W/files/model.gguf
    exec 9<>"$W/lock"
    head -c 300000 /dev/urandom >"$W/allocations/a"
    put_tensor tensor a 0 '{"dtype":"torch.int8","shape":[10]}'
    local keys='"k0"'
    put_tensor gguf:k0 a 299000 '{"bytes":1000,"format":"gguf"}'
    for i in {1..60}; do
        keys+=",\"k$i\""
        put_tensor "gguf:k$i" a $((i % 3 ? 200000 - 100 * i : 4000 * i)) '{"bytes":70,"format":"gguf"}'
    done
    put_tensor __gguf__ - 0 "{\"alignment\":32,\"keys\":[$keys],\"version\":3}"
    echo 1 >"$W/commit"
    exec 9>&-
    assert_eq "$(reason)" model.gguf info
    same_as_saved
}

@test "a GGUF file of a store in GPU memory has the same bytes" {
    fake_gpus 'devices 1' 'memory 256' 'lazy 1'
    start size=256M
    make_gguf
    shows_gguf
    reads_alike "$MODEL"
}

# bats test_tags=quick
@test "where no GGUF file can be made, info and gmsfs save say why" {
    requires jq
    start
    F=$W/files/model.gguf
    local key value where why words
    while IFS='|' read -r key value where why words; do
        exec 9<>"$W/lock"
        find "$W/metadata" -type f -delete
        [[ -e $W/allocations/a ]] || head -c 100 /dev/zero >"$W/allocations/a"
        put_tensor good a 0 '{"dtype":"torch.int8","shape":[10]}'
        put_tensor __gguf__ - 0 '{"alignment":32,"keys":["k","k2"],"version":3}'
        put_tensor gguf:k - 0 'any bytes'
        put_tensor gguf:k2 - 0 ''
        put_tensor "$key" "$where" 90 "$value"
        echo 1 >"$W/commit"
        exec 9>&-
        assert_eq "$(reason)" "$why" "$key"
        if [[ $why == model.gguf ]]; then
            same_as_saved
        else
            [[ ! -e $W/files ]] || fail "$key: a file is there"
        fi
        if [[ $words ]]; then
            cli -1 save "$W" "$T/no.gguf"
            assert_match "$output" "$words"
        fi
    done <<'EOF'
other|words|-|model.gguf|
__gguf__|{"alignment":32,"keys":["k2"],"version":2}|-|model.gguf|
__gguf__|{"alignment":33,"keys":[],"version":3}|-|'__gguf__': it does not describe a GGUF file|nothing is understood of its entry
__gguf__|{"alignment":32,"keys":["k","x"],"version":3}|-|'__gguf__': it names a key-value that is not there|'gguf:x': the entry is not there
__gguf__|{"alignment":32,"keys":["k","k"],"version":3}|-|'__gguf__': it names a key-value twice|it names a key-value twice
__gguf__|{"alignment":32,"keys":["1","2","3","4","5","6","7"],"version":3}|-|'__gguf__': it names a key-value that is not there|'gguf:1': the entry is not there
gguf:k|{"bytes":10,"format":"gguf"}|a|model.gguf|
gguf:k|{"bytes":11,"format":"gguf"}|a|'gguf:k': it reaches beyond its allocation|
gguf:k|{"bytes":9,"format":"safetensors"}|a|'gguf:k': no value of a file of that format|'gguf:k': no value of a file of that format
tensor|{"dtype":"torch.uint8","shape":[4]}|a|'tensor': its dtype is none that GGUF has|'tensor': its dtype is none that GGUF has
tensor|{"dtype":"torch.int8","shape":[1,1,1,1,1]}|a|'tensor': it has more than four dimensions|it has more than four dimensions
tensor|{"dtype":"torch.uint8","shape":[9],"ggml_type":"Q4_0"}|a|'tensor': its dtype and shape are not those of its ggml_type|not those of its ggml_type
tensor|{"dtype":"torch.int16","shape":[6]}|a|'tensor': it reaches beyond its allocation's size|
EOF
    gguf_of '[("general.name", "string", "words")]' '[]'
    cli load -q "$W" "$MODEL"
    assert_eq "$(reason)" 'it has no tensors' 'a vocabulary alone, without an allocation'
    gguf_of '[("general.name", "string", "words" * 300000)]' '[]'
    cli load -q "$W" "$MODEL"
    assert_eq "$(reason)" model.gguf 'a vocabulary alone'
    same_as_saved
    cmp -n "$(stat -c %s "$F")" "$F" "$MODEL" # which has padding at its end
    reads_alike "$T/saved.gguf"
}
