#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registering and inferring by NVIDIA's own client, over calls that need no region and no mount.

    triton.py HTTP GRPC TABLE_HTTP

The first two are those of `gmsfs triton` on a mount, the third that of the same server over a table in
its own memory (tests/tools/triton_table). A registration is held against a call of the same client to the
same server that answers a constant; an inference over regions of 1 MiB against the same one over the
table's, which asks no mount. Both alternate, so that a busy machine is busy for both. Rows of bench/run.
"""
import os
import statistics
import sys
import time

import numpy as np
import tritonclient.grpc
import tritonclient.http

PAIRS = 2000
INFERENCES = 300
WARM = 20
ROWS = 16384
SIZE = ROWS * 64
KEY = f"gmsfs-bench-{os.getpid()}"


def alternate(ours, floor, count):
    """The medians of both in microseconds."""
    times = ([], [])
    for at in range(count + WARM):
        for which, call in enumerate((ours, floor)):
            start = time.perf_counter()
            call()
            if at >= WARM:
                times[which].append(1e6 * (time.perf_counter() - start))
    return [statistics.median(each) for each in times]


def row(label, ours, floor, limit):
    ratio = ours / floor
    print(f"{label:<58} {f'{ours:.0f} us':>10} {f'{floor:.0f} us':>10} {ratio:8.2f} {f'<= {limit:g}':>8}  "
          f"{'ok' if ratio <= limit else 'MISSED'}", flush=True)


def register(client, name):
    def pair():
        client.register_system_shared_memory("r", KEY, 64)
        client.unregister_system_shared_memory("r")

    def constant():
        client.is_server_live()
        client.is_server_live()

    ours, floor = alternate(pair, constant, PAIRS)
    row(f"{name}: register + unregister / two constant answers", ours, floor, 2)


def infer(client):
    """A call that adds and subtracts two tensors of 1 MiB, all in one region."""
    client.register_system_shared_memory("r", KEY, 4 * SIZE)
    inputs, outputs = [], []
    for i in range(2):
        inputs.append(tritonclient.http.InferInput(f"INPUT{i}", [ROWS, 16], "INT32"))
        inputs[i].set_shared_memory("r", SIZE, offset=i * SIZE)
        outputs.append(tritonclient.http.InferRequestedOutput(f"OUTPUT{i}"))
        outputs[i].set_shared_memory("r", SIZE, offset=(2 + i) * SIZE)
    return lambda: client.infer("add_sub_large", inputs, outputs=outputs)


def main(http, grpc, table):
    path = f"/dev/shm/{KEY}"
    np.arange(SIZE, dtype=np.int32).tofile(path)
    try:
        with tritonclient.http.InferenceServerClient(http) as client, \
                tritonclient.grpc.InferenceServerClient(grpc) as other, \
                tritonclient.http.InferenceServerClient(table) as floor:
            register(client, "Triton, HTTP")
            register(other, "Triton, gRPC")
            row("Triton: add_sub of 2 x 1 MiB in regions / in own memory",
                *alternate(infer(client), infer(floor), INFERENCES), 1.2)
            client.unregister_system_shared_memory()
    finally:
        os.unlink(path)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
