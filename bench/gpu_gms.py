#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attach a layout that a GMS client committed in GPU memory, over the bare calls of the driver in Python.

    gpu_gms.py WEIGHTS_V0 WEIGHTS_V1 [COUNT BYTES]...

The sockets are those of an unused store. It is filled with COUNT allocations of BYTES over V0.
Ours is timed from the connect until all is mapped, as GMS clients do it: handshake, list, and then for
each allocation one export and its answer, import, a reservation, map and set access. The floor is these
driver calls alone, for descriptors that this process holds already. Rows of the table of bench/run.
"""
import os
import resource
import socket
import statistics
import struct
import sys
import time

import msgpack

from gms_cuda import READ, Driver

ROUNDS = 5
LIMIT = 2.5
LAYOUTS = ((512, 8 << 20), (3435, 2 << 20))
HEADER = struct.Struct(">I")
DESCRIPTOR = struct.Struct("i")
RECEIVE_BYTES = 64 << 10


class Connection:
    """As engines' clients: one request, one answer, which a descriptor may come with."""

    def __init__(self, path, handshake):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.ask("handshake_request", **handshake)

    def ask(self, kind, **fields):
        """(answer, descriptor or None)"""
        request = msgpack.packb({"type": kind, **fields})
        self.socket.sendall(HEADER.pack(len(request)) + request)
        data, ancillary, _, _ = self.socket.recvmsg(
            RECEIVE_BYTES, socket.CMSG_LEN(DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
        )
        descriptor = DESCRIPTOR.unpack(ancillary[0][2])[0] if ancillary else None
        whole = HEADER.size + HEADER.unpack_from(data)[0] if len(data) >= HEADER.size else 0
        while data and len(data) < whole:
            more = self.socket.recv(whole - len(data))
            if not more:
                break
            data += more
        if not data or len(data) != whole:
            sys.exit(f"bench: {kind}: the server closed the connection")
        answer = msgpack.unpackb(data[HEADER.size :])
        if answer["type"] == "error_response":
            sys.exit(f"bench: {kind}: {answer}")
        return answer, descriptor

    def list(self):
        """(id, bytes) of all."""
        found = self.ask("list_allocations_request", **self.list_fields)[0]["allocations"]
        return [(item["allocation_id"], item["aligned_size"]) for item in found]

    def close(self):
        self.socket.close()


class V0(Connection):
    export_request = "export_allocation_request"
    list_fields = {"tag": None}

    def __init__(self, path, lock_type):
        super().__init__(path, {"lock_type": lock_type, "timeout_ms": 60000})


class V1(Connection):
    export_request = "export_request"
    list_fields = {}

    def __init__(self, path, lock_type):
        super().__init__(path, {"lock_type": lock_type, "expected_identity": None})


def fill(path, count, size):
    """With so many allocations; 0: the memory goes back."""
    writer = V0(path, "rw")
    for _ in range(count):
        writer.ask("allocate_request", size=size, tag="weights")
    if count:
        writer.ask("commit_request")
    writer.close()


def import_and_map(driver, descriptor, size):
    """(address, bytes, handle)"""
    handle = driver.import_memory(descriptor)
    address = driver.reserve(size)
    driver.map(address, size, handle)
    driver.set_access(address, size, READ)
    return address, size, handle


def unmap(driver, mappings):
    for address, size, handle in mappings:
        driver.unmap(address, size)
        driver.free_address(address, size)
        driver.release(handle)


def time_floor(driver, descriptors, size):
    start = time.perf_counter()
    mappings = [import_and_map(driver, descriptor, size) for descriptor in descriptors]
    took = time.perf_counter() - start
    unmap(driver, mappings)
    return took


def time_ours(driver, version, path):
    mappings = []
    start = time.perf_counter()
    reader = version(path, "ro")
    for name, size in reader.list():
        _, descriptor = reader.ask(version.export_request, allocation_id=name)
        mappings.append(import_and_map(driver, descriptor, size))
        os.close(descriptor)
    took = time.perf_counter() - start
    unmap(driver, mappings)
    reader.close()
    return took, len(mappings)


def export_all(path):
    reader = V0(path, "ro")
    descriptors = [
        reader.ask(V0.export_request, allocation_id=name)[1] for name, _ in reader.list()
    ]
    reader.close()
    return descriptors


def row(version, count, size, ours, floor):
    label = f"GMS {version.__name__}: attach {count} x {size >> 20} MiB / bare calls, in Python"
    ours_ms, floor_ms = (1e3 * statistics.median(times) for times in (ours, floor))
    ratio = ours_ms / floor_ms
    print(
        f"{label:<58} {f'{ours_ms:.2f} ms':>10} {f'{floor_ms:.2f} ms':>10} {ratio:8.2f} "
        f"{f'<= {LIMIT:g}':>8}  {'ok' if ratio <= LIMIT else 'MISSED'}",
        flush=True,
    )


def measure(driver, sockets, count, size):
    fill(sockets[V0], count, size)
    descriptors = export_all(sockets[V0])
    times = {version: [] for version in sockets}
    floor = []
    for at in range(ROUNDS + 1):  # everything was called once
        took = time_floor(driver, descriptors, size)
        if at:
            floor.append(took)
        for version, path in sockets.items():
            took, mapped = time_ours(driver, version, path)
            if mapped != count:
                sys.exit(f"bench: {path}: {mapped} allocations, expected {count}")
            if at:
                times[version].append(took)
    for descriptor in descriptors:
        os.close(descriptor)
    fill(sockets[V0], 0, 0)
    for version, ours in times.items():
        row(version, count, size, ours, floor)


def main(arguments):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sockets = dict(zip((V0, V1), arguments[:2]))
    numbers = [int(word) for word in arguments[2:]]
    driver = Driver()
    for count, size in list(zip(numbers[::2], numbers[1::2])) or LAYOUTS:
        measure(driver, sockets, count, size)


if __name__ == "__main__":
    if len(sys.argv) < 3 or len(sys.argv) % 2 == 0:
        sys.exit("usage: gpu_gms.py WEIGHTS_V0 WEIGHTS_V1 [COUNT BYTES]...")
    main(sys.argv[1:])
