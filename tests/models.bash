# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Files of models, and entries of files. helpers.bash reads this file.

# write_tensors PATH BYTES...: a safetensors file of zeros, one tensor of each size: t0, t1, ...
write_tensors() {
    write_tensors_of bytes "$@"
}

write_random_tensors() { # PATH BYTES...: the same of random bytes
    write_tensors_of random.randbytes "$@"
}

write_tensors_of() { # FUNCTION PATH BYTES...
    python3 - "$@" <<'END'
import json, random, struct, sys
at, tensors = 0, {}
for number, size in enumerate(map(int, sys.argv[3:])):
    tensors[f"t{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
    at += size
header = json.dumps(tensors).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(header)) + header + eval(sys.argv[1])(at))
END
}

# write_file PATH HEADER DATA_BYTES: a safetensors file, valid or not, whose bytes are all different.
write_file() {
    python3 - "$@" <<'END'
import struct, sys
path, header, size = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
data = bytes(i * 7 % 251 for i in range(size))
open(path, "wb").write(struct.pack("<Q", len(header)) + header + data)
END
}

make_model() { # SIZE [SHARDS [SEED]]: a model of real names and shapes; sets MODEL, its file or index
    requires python3 || return 1
    MODEL=$("$ROOT/scripts/make-model" --out "$T/model-$1-${2:-2}-${3:-0}" --size "$1" \
        --shards "${2:-2}" --seed "${3:-0}" | tail -n 1)
    [[ -e $MODEL ]]
}

# put_file PATH ALLOCATION OFFSET VALUE: an entry of a file; the caller has the writer's lock.
put_file() {
    local name="$W/metadata/gmsfs:file:${1//\//%2F}"
    printf %s "$4" >"$name"
    setfattr -n user.gmsfs.allocation -v "$2" "$name"
    setfattr -n user.gmsfs.offset -v "$3" "$name"
}
