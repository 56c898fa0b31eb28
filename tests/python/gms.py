#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of the GMS sockets for bats, as gmsctl is one of the tree.

  gms.py v0|v1 SOCKET OP [ARGUMENT...] OP [ARGUMENT...] ...

Does one operation after the other on one connection and prints a line for each operation that has an answer.
At the first failure it prints the cause (`refused: TEXT`, `closed`, `timeout`, `not granted`) on a line of
its own and exits with 1. The ID `last` is that of the newest allocation. Memory is host memory; with
GMSFS_TEST_DEVICE=cuda it is memory of device 0, mapped as clients map it. Operations:

  both    lock TYPE [MS]        `granted TYPE`; V0 waits at most MS ms, without a limit if -; V1 has no limit
          allocate SIZE [TAG] | allocate ID SIZE     (V0 | V1) `allocation ID SIZE ALIGNED SLOT` | -
          export ID             keeps the descriptor for write and read, `exported BYTES`
          write OFFSET TEXT     into the newest exported memory
          read OFFSET COUNT     from the same memory, as text
          fill SEED             exports all allocations and writes a pattern into them, `filled COUNT`
          check SEED            exports all and compares, `equal COUNT`, or `differs in RANK`
          unmap                 unmaps and closes all exported memory
          list, free ID, commit, state (probe: a connection of its own; V1: of the checkpoint)
          say WORD, pause, until FILE, sleep-ms N, close, half-close, expect-closed
          connect               anew
  V0      get ID, put KEY ID OFFSET VALUE, entry KEY, delete KEY, keys [PREFIX], seal, hash, count,
          lock-state, events, clear-all
  V1      identity, abort, prepare, abort-checkpoint TOKEN, complete-restore TOKEN

An optional argument is given as - where another operation follows: `lock rw -`, `keys -`.
"""

import functools
import os
import random
import signal
import struct
import sys
import time

import gms_cuda
import gms_client
from gms_client import TIMEOUT, V0, V1


class NotGranted(Exception):
    """The time was over."""


class Differs(Exception):
    """An allocation does not hold the expected bytes; str() is its rank."""


# ---- memory ----------------------------------------------------------------------------------


class HostMemory:
    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.bytes = os.fstat(descriptor).st_size

    def write(self, offset, data):
        os.pwrite(self.descriptor, data, offset)

    def read(self, offset, count):
        return os.pread(self.descriptor, count, offset)

    def close(self):
        os.close(self.descriptor)


@functools.cache
def cuda():
    return gms_cuda.Driver()


def map_memory(descriptor, aligned_bytes, writes):
    """Takes the descriptor."""
    if os.environ.get("GMSFS_TEST_DEVICE") != "cuda":
        return HostMemory(descriptor)
    try:
        access = gms_cuda.READ_WRITE if writes else gms_cuda.READ
        return gms_cuda.Mapping(cuda(), descriptor, aligned_bytes, access)
    finally:
        os.close(descriptor)


BLOCK = 1 << 20  # bytes of a pattern block; each block differs from the others in its first bytes
PART = 64 * BLOCK  # bytes copied at a time


def pattern(seed, rank, count):
    """(offset, bytes) of parts of an allocation's bytes."""
    block = random.Random(seed).randbytes(BLOCK)
    for offset in range(0, count, PART):
        end = min(offset + PART, count)
        heads = (struct.pack("<QQ", rank, at) for at in range(offset, end, BLOCK))
        yield offset, b"".join(head + block[len(head) :] for head in heads)[: end - offset]


# ---- operations ------------------------------------------------------------------------------


class Tool:
    def __init__(self, version, path):
        self.version = version
        self.path = path
        self.last = ""
        self.memory = None  # the newest of the mapped ones
        self.mapped = []
        self.writes = False
        self.aligned = {}  # V1 says an allocation's size once
        self.connect()

    def connect(self):
        kind = V0 if self.version == "v0" else V1
        self.connection = kind(self.path, retry=TIMEOUT)

    def id_of(self, text):
        return self.last if text == "last" else text

    # -- both --

    def op_lock(self, lock_type, time_ms):
        if self.version == "v0":
            # A wait without end is the test's, which kills this process.
            self.connection.timeout = 3600 if time_ms == "-" else TIMEOUT + int(time_ms) / 1000
            granted = self.connection.lock(lock_type, None if time_ms == "-" else int(time_ms))
        else:
            self.connection.timeout = 3600
            granted = self.connection.lock(lock_type)
        self.connection.timeout = TIMEOUT
        if granted is None:
            raise NotGranted
        self.writes = granted != "ro"
        print("granted", granted)

    def op_allocate(self, first, second):
        if self.version == "v0":
            made = self.connection.allocate(int(first), "default" if second == "-" else second)
            self.last = made["allocation_id"]
            print("allocation", self.last, made["size"], made["aligned_size"], made["layout_slot"])
        else:
            self.connection.allocate(first, int(second))
            self.last = first
            self.aligned[first] = int(second)

    def export(self, name):
        if self.version == "v0":
            answer, descriptor = self.connection.export(name)
            aligned_bytes = answer["aligned_size"]
        else:
            descriptor = self.connection.export(name)
            if name not in self.aligned:
                self.list()
            aligned_bytes = self.aligned[name]
        self.memory = map_memory(descriptor, aligned_bytes, self.writes)
        self.mapped.append(self.memory)

    def op_export(self, name):
        self.export(self.id_of(name))
        print("exported", self.memory.bytes)

    def op_write(self, offset, text):
        self.memory.write(int(offset), text.encode())

    def op_read(self, offset, count):
        print(self.memory.read(int(offset), int(count)).decode(errors="backslashreplace"))

    def list(self):
        """The ids, in order."""
        found = self.connection.list()
        if self.version == "v0":
            return [item["allocation_id"] for item in found]
        self.aligned.update(found)
        return [name for name, _ in found]

    def op_fill(self, seed):
        names = self.list()
        for rank, name in enumerate(names):
            self.export(name)
            for offset, data in pattern(int(seed), rank, self.memory.bytes):
                self.memory.write(offset, data)
        print("filled", len(names))

    def op_check(self, seed):
        names = self.list()
        for rank, name in enumerate(names):
            self.export(name)
            for offset, data in pattern(int(seed), rank, self.memory.bytes):
                if self.memory.read(offset, len(data)) != data:
                    raise Differs(rank)
        print("equal", len(names))

    def op_unmap(self):
        while self.mapped:
            self.mapped.pop().close()

    def op_list(self):
        for item in self.connection.list():
            if self.version == "v0":
                print("allocation", item["allocation_id"], item["size"], item["aligned_size"],
                      item["layout_slot"], item["tag"])
                self.last = item["allocation_id"]
            else:
                print("allocation", *item)
                self.last = item[0]
                self.aligned[item[0]] = item[1]

    def op_free(self, name):
        freed = self.connection.free(self.id_of(name))
        if self.version == "v0":
            print("freed" if freed else "unknown")

    def op_commit(self):
        self.connection.commit()

    def op_state(self):
        if self.version == "v0":
            with V0(self.path) as probe:
                print_fields(probe.runtime_state())
        else:
            with V1(self.path) as probe:
                print("checkpoint", *probe.checkpoint_state())

    def op_say(self, word):
        print(word)

    def op_pause(self):
        while True:
            signal.pause()

    def op_until(self, file):
        end = time.monotonic() + 6 * TIMEOUT
        while not os.path.exists(file):
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.01)

    def op_sleep_ms(self, ms):
        time.sleep(int(ms) / 1000)

    def op_close(self):
        self.connection.close()

    def op_half_close(self):
        self.connection.half_close()

    def op_expect_closed(self):
        self.connection.expect_closed()

    def op_connect(self):
        self.connection.close()
        self.connect()

    # -- V0 --

    def op_get(self, name):
        print_fields(self.connection.get(self.id_of(name)))

    def op_put(self, key, name, offset, value):
        self.connection.put(key, self.id_of(name), int(offset), value.encode())

    def op_entry(self, key):
        found = self.connection.get_entry(key)
        if found is None:
            print("no entry")
        else:
            print("entry", found[0], found[1], found[2].decode(errors="backslashreplace"))

    def op_delete(self, key):
        print("deleted" if self.connection.delete(key) else "no entry")

    def op_keys(self, prefix):
        for key in self.connection.keys("" if prefix == "-" else prefix):
            print("key", key)

    def op_seal(self):
        print("hash", self.connection.commit_layout()["memory_layout_hash"])

    def op_hash(self):
        print("hash", self.connection.layout_hash())

    def op_count(self):
        print_fields(self.connection.allocation_state())

    def op_lock_state(self):
        print_fields(self.connection.lock_state())

    def op_events(self):
        with V0(self.path) as probe:
            for event in probe.events():
                print("event", *event)

    def op_clear_all(self):
        print("cleared", self.connection.clear_all())

    # -- V1 --

    def op_identity(self):
        """Takes the place of `lock rw`."""
        self.connection.ask("rw")
        message = self.connection.granted()
        self.writes = True
        print("identity", message["server_nonce"], message["gpu_uuid"])

    def op_abort(self):
        self.connection.abort()

    def checkpoint(self, method, *arguments):
        with V1(self.path) as connection:
            print("checkpoint", *getattr(connection, method)(*arguments))

    def op_prepare(self):
        self.checkpoint("prepare_checkpoint")

    def op_abort_checkpoint(self, token):
        self.checkpoint("abort_checkpoint", token)

    def op_complete_restore(self, token):
        self.checkpoint("complete_restore", token)


OPTIONAL = {"lock": 2, "allocate": 2, "keys": 1}


def print_fields(message):
    print(*(f"{name}={value}" for name, value in message.items() if name != "type"))


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in ("v0", "v1"):
        print(__doc__, file=sys.stderr)
        return 2
    tool = Tool(*arguments[:2])
    rest = arguments[2:]
    while rest:
        name = rest.pop(0)
        function = getattr(tool, "op_" + name.replace("-", "_"), None)
        if function is None:
            print(f"gms.py: no operation {name}", file=sys.stderr)
            return 2
        count = function.__func__.__code__.co_argcount - 1
        taken, rest = rest[:count], rest[count:]
        taken += ["-"] * (OPTIONAL.get(name, 0) - len(taken))
        try:
            function(*taken)
        except gms_client.Refused as error:
            print("refused:", error)
            return 1
        except gms_client.Closed:
            print("closed")
            return 1
        except NotGranted:
            print("not granted")
            return 1
        except Differs as error:
            print("differs in", error)
            return 1
        except TimeoutError:
            print("timeout")
            return 1
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    status = 1
    try:
        status = main(sys.argv[1:])
    finally:
        sys.stdout.flush()
    sys.exit(status)
