#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that has CUDA memory and shares it by handles, as Triton's clients do, for a shell or a test.

  cuda_sharer.py ORDINAL [FILE [UID]]

Reads commands from its input or the file, one a line, and answers each by one line; as that user:
  new BYTES [FIRST]   allocates memory, of 32-bit integers FIRST, FIRST + 1, … where it is given, else of
                      zeros; answers its number
  handle NUMBER       the 64 bytes of its handle, in base64
  read NUMBER         its integers
  free NUMBER         gives it back
"""

import base64
import ctypes
import os
import struct
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 64)]


class Memory:
    """The driver, with the primary context of one device current in this thread."""

    def __init__(self, ordinal):
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context = c_int(), c_void_p()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(device), c_int(ordinal))
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.all = {}

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: CUDA error {result}")

    def new(self, size, first=None):
        address = c_uint64()
        count = size // 4
        values = range(int(first), int(first) + count) if first is not None else [0] * count
        self.call("cuMemAlloc_v2", byref(address), c_size_t(int(size)))
        self.call("cuMemcpyHtoD_v2", address, struct.pack(f"<{count}i", *values), c_size_t(4 * count))
        number = len(self.all)
        self.all[number] = (address, size)
        return number

    def handle(self, number):
        handle = Handle()
        self.call("cuIpcGetMemHandle", byref(handle), self.all[number][0])
        return base64.b64encode(bytes(handle.bytes)).decode()

    def read(self, number):
        address, size = self.all[number]
        to = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", to, address, c_size_t(size))
        return " ".join(str(value) for value, in struct.iter_unpack("<i", to.raw[:size // 4 * 4]))

    def free(self, number):
        self.call("cuMemFree_v2", self.all.pop(number)[0])
        return "freed"


class Sharer:
    """A test's handle of such a process."""

    def __init__(self, ordinal=0):
        self.process = subprocess.Popen([sys.executable, __file__, str(ordinal)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the sharer has ended: {self.process.wait()}")
        return answer.strip()

    def share(self, size, *first):
        """Memory: its number and its handle as the client sends it."""
        number = self.ask("new", size, *first)
        return number, self.ask("handle", number).encode()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def become(uid):
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: the driver reads its own /proc


def main(ordinal, commands):
    memory = Memory(ordinal)
    for line in commands:
        command, *numbers = line.split()
        print(getattr(memory, command)(*map(int, numbers)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__)
    source = open(sys.argv[2], encoding="ascii") if len(sys.argv) > 2 else sys.stdin
    if len(sys.argv) > 3:
        become(int(sys.argv[3]))
    main(int(sys.argv[1]), source)
