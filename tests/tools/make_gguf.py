#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a small GGUF model: key-values of every type and tensors of several, by the format's words.

Only Python's standard library is used, and nothing of gmsfs. The same arguments write the same
bytes.
"""

import argparse
import random
import struct

FORMATS = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"),
           "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"),
           "i64": (11, "<q"), "f64": (12, "<d")}
STRING, ARRAY = 8, 9
# Name: number, elements of a block, bytes of a block.
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34),
         "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "I32": (26, 1, 4), "BF16": (30, 1, 2)}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def plain(kind, value):
    return text(value) if kind == "string" else struct.pack(FORMATS[kind][1], value)


def number(kind):
    return STRING if kind == "string" else FORMATS[kind][0]


def value(kind, content):
    if kind.startswith("array of "):
        of = kind[len("array of "):]
        return (struct.pack("<IIQ", ARRAY, number(of), len(content))
                + b"".join(plain(of, item) for item in content))
    return struct.pack("<I", number(kind)) + plain(kind, content)


def align(count, to):
    return -count % to


def tensor_bytes(kind, dims):
    _, elements, size = TYPES[kind]
    count = 1
    for dim in dims:
        count *= dim
    return count // elements * size


def model(values, tensors, alignment=32, version=3, seed=0, chance=None):
    """The bytes of a file: values are (key, kind, content), tensors (name, type, dims). chance.randbytes()
    gives the tensors' bytes."""
    chance = chance or random.Random(seed)
    infos, data = b"", b""
    for name, kind, dims in tensors:
        data += bytes(align(len(data), alignment))
        infos += (text(name) + struct.pack("<I", len(dims))
                  + b"".join(struct.pack("<Q", dim) for dim in dims)
                  + struct.pack("<IQ", TYPES[kind][0], len(data)))
        data += chance.randbytes(tensor_bytes(kind, dims))
    header = (b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
              + b"".join(text(key) + value(kind, content) for key, kind, content in values) + infos)
    header += bytes(align(len(header), alignment))
    return header + data + bytes(align(len(data), alignment))


def every_kind(tokens, alignment):
    return [
        ("general.architecture", "string", "llama"),
        ("general.alignment", "u32", alignment),
        ("z.first", "u8", 200), ("a.i8", "i8", -3), ("a.u16", "u16", 40000), ("a.i16", "i16", -9),
        ("a.u32", "u32", 1 << 31), ("a.i32", "i32", -1), ("a.f32", "f32", 1e-5),
        ("a.bool", "bool", True), ("a.u64", "u64", 1 << 63), ("a.i64", "i64", -(1 << 62)),
        ("a.f64", "f64", 0.1), ("a.empty", "string", ""),
        ("tokenizer.ggml.tokens", "array of string", [f"token number {i}" for i in range(tokens)]),
        ("tokenizer.ggml.scores", "array of f32", [i / 7 for i in range(100)]),
        ("tokenizer.raw", "string", b"\xff\xfe no UTF-8"),
        ("none", "array of i32", []),
    ]


TENSORS = [
    ("token_embd.weight", "Q4_K", [256, 40]), ("blk.0.attn_q.weight", "Q4_0", [64, 64]),
    ("blk.0.attn_norm.weight", "F32", [64]), ("blk.0.ffn_up.weight", "Q8_0", [96, 3, 5]),
    ("blk.0.bf", "BF16", [7, 3]), ("blk.0.ids", "I32", [5]), ("output.weight", "Q6_K", [512, 9]),
    ("blk.0.half", "F16", [3, 1, 2, 2]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--tokens", type=int, default=100000)
    parser.add_argument("--alignment", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", type=int, default=1, help="as so many files, PATH-0000N-of-...")
    asked = parser.parse_args()
    values = every_kind(asked.tokens, asked.alignment)
    if asked.split == 1:
        with open(asked.path, "wb") as file:
            file.write(model(values, TENSORS, asked.alignment, seed=asked.seed))
        return
    for part in range(asked.split):
        own = [("split.no", "u16", part), ("split.count", "u16", asked.split),
               ("split.tensors.count", "i32", len(TENSORS))]
        name = f"{asked.path}-{part + 1:05}-of-{asked.split:05}.gguf"
        with open(name, "wb") as file:
            file.write(model((values if part == 0 else []) + own, TENSORS[part::asked.split],
                             asked.alignment if part == 0 else 32, seed=part))


if __name__ == "__main__":
    main()
