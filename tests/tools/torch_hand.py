#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a store in GPU memory, over libgmsfs by ctypes.

    torch_hand.py LIBRARY STORE

One process loads (a writer), another computes over the mapped tensors (a reader), replays a captured
CUDA graph after the memory was unmapped, exchanged by the writer and mapped again, also after it was
demoted to the host and promoted, and is refused while a stream is capturing. The mount has a
host_size=. Prints "ok" and ends with 0, or prints the difference.
"""
import ctypes
import errno
import json
import os
import subprocess
import sys
import time

import torch

RO, RW, READ = 1, 2, 1
ROWS = 1024
BYTES = ROWS * ROWS * 4
FOREVER = ctypes.c_uint64(2**64 - 1)
STRICT = 1
MOVE_S = 60


class Mapped:
    """Memory at an address, as other libraries ask for it. PyTorch knows no read-only tensors."""

    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "shape": (ROWS, ROWS), "typestr": "<f4", "data": (address, False), "version": 3}


class Store:
    def __init__(self, library, path):
        self.lib = ctypes.CDLL(library)
        self.handle = ctypes.c_void_p()
        self.check("open", self.lib.gmsfs_open(path.encode(), ctypes.byref(self.handle)))

    def check(self, label, result):
        if result < 0:
            sys.exit(f"{label}: {os.strerror(-result)}")

    def call(self, name, *arguments):
        self.check(name, getattr(self.lib, name)(self.handle, *arguments))

    def create(self):
        address = ctypes.c_void_p()
        self.call("gmsfs_create_mapping", ctypes.c_uint64(BYTES), b"weights", None,
                  ctypes.byref(address))
        return address.value

    def attach(self, slot):
        address = ctypes.c_void_p()
        self.call("gmsfs_attach_mapping", ctypes.c_uint64(slot), READ, ctypes.byref(address))
        return address.value


def values(seed):
    return torch.rand(ROWS, ROWS, generator=torch.Generator().manual_seed(seed))


def write(store, seed):
    store.call("gmsfs_connect", RW, FOREVER)
    store.call("gmsfs_clear_all_handles")
    store.call("gmsfs_set_slab_bytes", ctypes.c_uint64(0))
    tensor = torch.as_tensor(Mapped(store.create()), device="cuda")
    tensor.copy_(values(seed))
    store.call("gmsfs_commit", 0, None)


def load_elsewhere(seed):
    subprocess.run([sys.executable, __file__, sys.argv[1], sys.argv[2], str(seed)], check=True)


def slot_of(store):
    names = os.listdir(os.path.join(sys.argv[2], "allocations"))
    return int(os.getxattr(os.path.join(sys.argv[2], "allocations", names[0]), "user.gmsfs.slot"))


def read_file(name):
    with open(os.path.join(sys.argv[2], name), encoding="utf-8") as file:
        return file.read()


def moves():
    return json.loads(read_file("info"))["moves"]


def move_to(place):
    until = time.monotonic() + MOVE_S
    with open(os.path.join(sys.argv[2], "residency"), "w", encoding="ascii") as file:
        file.write(place)
    while read_file("residency") != place + "\n":
        if time.monotonic() > until:
            sys.exit(f"it is not at {place}: {read_file('residency')}")
        time.sleep(0.01)


def same(label, got, want):
    if not torch.allclose(got.cpu(), want, rtol=1e-3, atol=1e-3):
        sys.exit(f"{label}: another product than from the values that were loaded")


def capture(weights, x):
    """A graph of one product, and its result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x @ weights
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = x @ weights
    return graph, out


def refused_while_capturing(store, x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        store.call("gmsfs_set_streams", ctypes.byref(stream), ctypes.c_size_t(1))
        result = store.lib.gmsfs_unmap_all_vas(store.handle, 0)
        twice = x + x
    store.call("gmsfs_set_streams", None, ctypes.c_size_t(0))
    if result != -errno.EBUSY:
        sys.exit(f"unmapping while a stream captures gave {result}, not -EBUSY")
    graph.replay()  # the capture was left whole
    torch.cuda.synchronize()
    same("a graph captured beside a refusal", twice, 2 * x.cpu())


def replay(label, graph, out, want):
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    same(label, out, want)


def sleep_and_wake_elsewhere(store, label):
    """Its memory leaves the device while no process uses it, and the wake brings other memory."""
    before = moves()
    store.call("gmsfs_unmap_all_vas", 0)
    move_to("host")
    store.call("gmsfs_remap_all_vas", FOREVER, STRICT)
    if read_file("residency") != "device host\n":
        sys.exit(f"{label}: it woke at {read_file('residency')}")
    if moves() != before + 2:
        sys.exit(f"{label}: {moves() - before} moves were counted, not there and back")


def read(store):
    load_elsewhere(1)
    store.call("gmsfs_connect", RO, FOREVER)
    address = store.attach(slot_of(store))
    weights = torch.as_tensor(Mapped(address), device="cuda")
    x = torch.eye(ROWS, device="cuda") * 2
    same("a product", x @ weights, 2 * values(1))

    graph, out = capture(weights, x)
    replay("a graph", graph, out, 2 * values(1))

    refused_while_capturing(store, x)
    store.call("gmsfs_unmap_all_vas", 0)
    load_elsewhere(2)
    store.call("gmsfs_remap_all_vas", FOREVER, 0)
    replay("the graph after sleep, over new bytes", graph, out, 2 * values(2))
    for label in ("the graph after a demotion that copied", "the graph after one that had a spare"):
        sleep_and_wake_elsewhere(store, label)
        replay(label, graph, out, 2 * values(2))
    store.lib.gmsfs_close(store.handle)
    print("ok")


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    store = Store(sys.argv[1], sys.argv[2])
    if len(sys.argv) > 3:
        write(store, int(sys.argv[3]))
    else:
        read(store)


if __name__ == "__main__":
    main()
