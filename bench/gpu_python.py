#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attach a store and wrap its 291 tensors in Python, over the same attach in C.

    gpu_python.py STORE

STORE is filled with the tensors of a Llama of 32 layers first. Both are timed from a path until all is
mapped: gmsfs_open, gmsfs_connect and gmsfs_attach_all; and gmsfs.open and Store.tensors(). torch on a
GPU, NumPy on host memory. One row of the table of bench/run: the limit is of the difference.
"""
import ctypes
import statistics
import sys
import time

import gmsfs
from gmsfs import abi, library

ROUNDS = 11
LIMIT_MS = 5.0
LAYERS, WIDTH, KEYS, INNER, WORDS = 32, 2048, 512, 5632, 32000


def shapes():
    yield "model.embed_tokens.weight", (WORDS, WIDTH)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "self_attn.q_proj.weight", (WIDTH, WIDTH)
        yield prefix + "self_attn.k_proj.weight", (KEYS, WIDTH)
        yield prefix + "self_attn.v_proj.weight", (KEYS, WIDTH)
        yield prefix + "self_attn.o_proj.weight", (WIDTH, WIDTH)
        yield prefix + "mlp.gate_proj.weight", (INNER, WIDTH)
        yield prefix + "mlp.up_proj.weight", (INNER, WIDTH)
        yield prefix + "mlp.down_proj.weight", (WIDTH, INNER)
        yield prefix + "input_layernorm.weight", (WIDTH,)
        yield prefix + "post_attention_layernorm.weight", (WIDTH,)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (WORDS, WIDTH)


def fill(path, on_gpu):
    if on_gpu:
        import torch

        gmsfs.publish(
            path,
            {
                name: torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
                for name, shape in shapes()
            },
        )
    else:
        import numpy

        gmsfs.publish(path, {name: numpy.zeros(shape, "f2") for name, shape in shapes()})


def attach_in_c(path):
    lib, handle, count = library.get(), ctypes.c_void_p(), ctypes.c_size_t()
    mappings = ctypes.POINTER(abi.Mapping)()
    start = time.perf_counter()
    results = [
        lib.gmsfs_open(path.encode(), ctypes.byref(handle)),
        lib.gmsfs_connect(handle, abi.MODE_RO, 5000),
        lib.gmsfs_attach_all(
            handle,
            abi.ACCESS_READ,
            ctypes.byref(mappings),
            ctypes.byref(count),
            ctypes.sizeof(abi.Mapping),
        ),
    ]
    took = time.perf_counter() - start
    if any(results) or count.value == 0:
        sys.exit(f"bench: {path}: {results}")
    library.libc.free(ctypes.cast(mappings, ctypes.c_void_p))
    lib.gmsfs_close(handle)
    return took


def attach_in_python(path):
    start = time.perf_counter()
    with gmsfs.open(path, timeout=5) as store:
        tensors = store.tensors()
        took = time.perf_counter() - start
        if len(tensors) != sum(1 for _ in shapes()):
            sys.exit(f"bench: {path}: {len(tensors)} tensors")
    return took


def main():
    path = sys.argv[1]
    with gmsfs.Store(path) as store:
        on_gpu = store.info.memory == "cuda"
    fill(path, on_gpu)
    for attach in (attach_in_c, attach_in_python):  # everything was called once
        attach(path)
    floor, ours = [], []
    for _ in range(ROUNDS):
        floor.append(attach_in_c(path))
        ours.append(attach_in_python(path))
    floor_ms, ours_ms = (1e3 * statistics.median(times) for times in (floor, ours))
    more_ms = ours_ms - floor_ms
    what = f"python: attach and wrap {sum(1 for _ in shapes())} tensors"
    print(
        f"{what:<58} {ours_ms:7.2f} ms {floor_ms:7.2f} ms {more_ms:+8.2f} {f'<=+{LIMIT_MS:.0f}ms':>8}  "
        f"{'ok' if more_ms <= LIMIT_MS else 'MISSED'}"
    )
    with gmsfs.open(path, "rw", timeout=5) as store:  # the memory goes back
        store.publish({})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_python.py STORE")
    main()
