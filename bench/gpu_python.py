#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of attaching in Python, over the same attach in C: two rows of the table of bench/run.

    gpu_python.py STORE

A fresh process: gmsfs.open and Store.buffers() of 5 allocations (8 GiB of a GPU, 320 MiB of host memory),
the library's opening included; against the same calls of the library in a process as fresh. Apart, and
said in the line of parts: the imports, and on a GPU cuInit and the device's context, which a program with
a GPU has made before. The limit is of the whole.

A warm process: from a path to the 291 tensors of a Llama of 32 layers; against gmsfs_open, gmsfs_connect
and gmsfs_attach_all. torch on a GPU, NumPy on host memory. The limit is of the difference.
"""
import ctypes
import json
import statistics
import subprocess
import sys
import time

STARTED = time.perf_counter()

import gmsfs
from gmsfs import abi, library

ROUNDS = 11
LIMIT_MS = 5.0
FRESH_LIMIT_MS = 5.0
ALLOCATIONS = 5
GPU_BYTES, HOST_BYTES = 8 << 30, 320 << 20
IMPORTED = time.perf_counter()
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
    return sum(time_in_c(path))


def time_in_c(path):
    """Seconds of each of the three calls."""
    lib, handle, count = library.get(), ctypes.c_void_p(), ctypes.c_size_t()
    mappings = ctypes.POINTER(abi.Mapping)()
    calls = (
        lambda: lib.gmsfs_open(path.encode(), ctypes.byref(handle)),
        lambda: lib.gmsfs_connect(handle, abi.MODE_RO, 5000),
        lambda: lib.gmsfs_attach_all(
            handle,
            abi.ACCESS_READ,
            ctypes.byref(mappings),
            ctypes.byref(count),
            ctypes.sizeof(abi.Mapping),
        ),
    )
    times = [time.perf_counter()]
    for call in calls:
        if call():
            sys.exit(f"bench: {path}: a call failed")
        times.append(time.perf_counter())
    if count.value == 0:
        sys.exit(f"bench: {path}: nothing was mapped")
    library.libc.free(ctypes.cast(mappings, ctypes.c_void_p))
    lib.gmsfs_close(handle)
    return [after - before for before, after in zip(times, times[1:])]


def attach_in_python(path):
    start = time.perf_counter()
    with gmsfs.open(path, timeout=5) as store:
        tensors = store.tensors()
        took = time.perf_counter() - start
        if len(tensors) != sum(1 for _ in shapes()):
            sys.exit(f"bench: {path}: {len(tensors)} tensors")
    return took


# ---- a fresh process -------------------------------------------------------------------------


def make_allocations(path, total):
    """ALLOCATIONS of equal size, committed."""
    with gmsfs.open(path, "rw", timeout=60, reserve_bytes=total) as store:
        handle, slot = store._live(), ctypes.c_uint64()
        handle.call("gmsfs_clear_all_handles")
        for _ in range(ALLOCATIONS):
            size = total // ALLOCATIONS
            handle.call("gmsfs_allocate_handle", size, b"weights", None, ctypes.byref(slot))
        store.commit()


def make_context():
    """Calls cuInit and makes the first device's primary context, as a GPU program has done before."""
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        sys.exit("bench: no context")
    driver.cuCtxSetCurrent(context)


def fresh(way, memory, path):
    """In a process of its own; prints milliseconds by part."""
    times = {"imports": IMPORTED - STARTED}
    start = time.perf_counter()
    if memory == "cuda":
        make_context()
    times["context"], start = time.perf_counter() - start, time.perf_counter()
    library.get()
    times["libgmsfs"], start = time.perf_counter() - start, time.perf_counter()
    if way == "c":
        times["open"], times["lock"], times["attach"] = time_in_c(path)
    else:
        with gmsfs.open(path, timeout=5) as store:
            times["open + lock"], start = time.perf_counter() - start, time.perf_counter()
            if len(store.buffers()) != ALLOCATIONS:
                sys.exit(f"bench: {path}: other allocations")
            times["buffers"] = time.perf_counter() - start
    print(json.dumps({part: 1e3 * seconds for part, seconds in times.items()}))


def run_fresh(way, memory, path):
    """Medians by part, of ROUNDS processes."""
    command = [sys.executable, __file__, "--fresh", way, memory, path]
    rounds = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(ROUNDS)
    ]
    return {part: statistics.median(one[part] for one in rounds) for part in rounds[0]}


def whole(parts):
    return sum(ms for part, ms in parts.items() if part not in ("imports", "context"))


def bench_fresh(path, memory):
    total = GPU_BYTES if memory == "cuda" else HOST_BYTES
    make_allocations(path, total)
    floor, ours = run_fresh("c", memory, path), run_fresh("python", memory, path)
    print_row(
        f"python: open, buffers {ALLOCATIONS} x {total // ALLOCATIONS >> 20} MiB, "
        + ("no cuInit nor context" if memory == "cuda" else "no imports"),
        whole(ours),
        whole(floor),
        f"<={FRESH_LIMIT_MS:.0f}ms",
        whole(ours) <= FRESH_LIMIT_MS,
    )
    for language, parts in (("Python", ours), ("C", floor)):
        parts_ms = "  ".join(f"{part} {ms:.2f}" for part, ms in parts.items())
        print(f"  parts, {language}, ms: {parts_ms}", flush=True)


# ---- the table -------------------------------------------------------------------------------


def print_row(label, ours_ms, floor_ms, limit, ok):
    print(
        f"{label:<58} {ours_ms:7.2f} ms {floor_ms:7.2f} ms {ours_ms - floor_ms:+8.2f} {limit:>8}  "
        f"{'ok' if ok else 'MISSED'}",
        flush=True,
    )


def bench_warm(path, on_gpu):
    fill(path, on_gpu)
    for attach in (attach_in_c, attach_in_python):  # everything was called once
        attach(path)
    floor, ours = [], []
    for _ in range(ROUNDS):
        floor.append(attach_in_c(path))
        ours.append(attach_in_python(path))
    floor_ms, ours_ms = (1e3 * statistics.median(times) for times in (floor, ours))
    print_row(
        f"python: attach and wrap {sum(1 for _ in shapes())} tensors",
        ours_ms,
        floor_ms,
        f"<=+{LIMIT_MS:.0f}ms",
        ours_ms - floor_ms <= LIMIT_MS,
    )


def main(path):
    with gmsfs.Store(path) as store:
        memory = store.info.memory
    bench_fresh(path, memory)
    bench_warm(path, memory == "cuda")
    with gmsfs.open(path, "rw", timeout=5) as store:  # the memory goes back
        store.publish({})


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--fresh":
        fresh(*sys.argv[2:])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit("usage: gpu_python.py STORE")
