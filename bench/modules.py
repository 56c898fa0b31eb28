#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A transformers model put into a store and attached from it: two rows of the table of bench/run.

    modules.py STORE

Attach: gmsfs.torch.attach of a Llama with 291 tensors on the meta device, against gmsfs_open,
gmsfs_connect and gmsfs_attach_all of the same store, in turns. The limit is of the difference.
Publish: gmsfs.torch.publish of a module of 512 MiB, against torch's own copy of its tensors into new
shared memory of the same size, in turns. The limit is of the ratio of the two speeds.
Processor time of this process is told beside, for machines with other work. Needs torch and transformers.
"""
import os
import statistics
import sys
import time

import torch
import transformers

import gmsfs.torch
import gpu_python

ROUNDS = 11
LIMIT_MS = 5.0
PUBLISH_LIMIT = 0.9
PUBLISH_TENSORS, PUBLISH_BYTES = 32, 512 << 20
CONFIG = transformers.LlamaConfig(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=1000,
)


def measure(call):
    """(seconds, seconds of processor time)"""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def medians(rounds):
    return [statistics.median(column) for column in zip(*rounds)]


def make_llama():
    return transformers.LlamaForCausalLM._from_config(CONFIG, dtype=torch.bfloat16).eval()


def attach(path):
    with torch.device("meta"):
        model = make_llama()
    shared = []
    times = measure(lambda: shared.append(gmsfs.torch.attach(model, path, timeout=60)))
    shared[0].close()
    return times


def bench_attach(path):
    model = make_llama()
    count = sum(1 for _ in model.named_parameters(remove_duplicate=False))
    gmsfs.torch.publish(model, path, timeout=60).close()
    attach(path), gpu_python.attach_in_c(path)  # everything was called once
    ours, floor = [], []
    for _ in range(ROUNDS):
        floor.append(measure(lambda: gpu_python.attach_in_c(path)))
        ours.append(attach(path))
    (wall, cpu), (floor_wall, floor_cpu) = medians(ours), medians(floor)
    over_ms = 1e3 * (wall - floor_wall)
    gpu_python.print_row(
        f"modules: attach a transformers model of {count} tensors",
        1e3 * wall,
        1e3 * floor_wall,
        f"<=+{LIMIT_MS:.0f}ms",
        over_ms <= LIMIT_MS,
    )
    print(f"  processor time: {1e3 * cpu:.2f} ms, in C {1e3 * floor_cpu:.2f} ms", flush=True)


def make_module(device):
    module = torch.nn.Module()
    for number in range(PUBLISH_TENSORS):
        tensor = torch.ones(PUBLISH_BYTES // PUBLISH_TENSORS, dtype=torch.uint8, device=device)
        module.register_parameter(f"t{number}", torch.nn.Parameter(tensor, requires_grad=False))
    return module


def copy_bare(module):
    """Copies the parameters into shared memory like a host store's, or into new memory of the GPU."""
    tensors = list(module.parameters())
    if tensors[0].is_cuda:
        whole = torch.empty(PUBLISH_BYTES, dtype=torch.uint8, device=tensors[0].device)
    else:
        fd = os.memfd_create("bench")
        os.truncate(fd, PUBLISH_BYTES)
        name = f"/proc/self/fd/{fd}"
        whole = torch.from_file(name, shared=True, size=PUBLISH_BYTES, dtype=torch.uint8)
        os.close(fd)
    for tensor, there in zip(tensors, whole.split(PUBLISH_BYTES // PUBLISH_TENSORS)):
        there.copy_(tensor)
    if whole.is_cuda:
        torch.cuda.synchronize()


def publish(path, device):
    module = make_module(device)
    shared = []
    times = measure(lambda: shared.append(gmsfs.torch.publish(module, path, timeout=60)))
    shared[0].close()
    return times


def bare(device):
    module = make_module(device)
    return measure(lambda: copy_bare(module))


def bench_publish(path, device):
    ours, floor = [], []
    for number in range(ROUNDS // 2 + 1):
        times = bare(device), publish(path, device)
        with gmsfs.open(path, "rw", timeout=60) as store:
            store.publish({})  # the next one finds the memory free, as this one did
        if number:
            floor.append(times[0])
            ours.append(times[1])
    (wall, cpu), (floor_wall, floor_cpu) = medians(ours), medians(floor)
    ratio = floor_wall / wall
    label, limit = f"modules: publish {PUBLISH_BYTES >> 20} MiB", f">={PUBLISH_LIMIT}"
    print(
        f"{label:<58} {1e3 * wall:7.1f} ms {1e3 * floor_wall:7.1f} ms {ratio:8.2f} {limit:>8}  "
        f"{'ok' if ratio >= PUBLISH_LIMIT else 'MISSED'}",
        flush=True,
    )
    print(f"  processor time: {1e3 * cpu:.1f} ms, bare {1e3 * floor_cpu:.1f} ms", flush=True)


def main(path):
    with gmsfs.Store(path) as store:
        device = "cuda" if store.info.memory == "cuda" else "cpu"
    bench_attach(path)
    bench_publish(path, device)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: modules.py STORE")
    main(sys.argv[1])
