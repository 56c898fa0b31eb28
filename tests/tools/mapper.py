#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Maps a file, closes it, and keeps the mapping until it is told to end.

  mapper.py FILE ORDERS

Reads orders, a word a line, from ORDERS (a FIFO), and prints an answer to each:
  sum     the SHA-256 of the mapped bytes
  pss     the mapping's Rss and Pss in kB
  page    the physical page of the first byte
  end     ends
The first line, `mapped`, says that the mapping is there and the file closed."""

import ctypes
import hashlib
import mmap
import os
import struct
import sys


def find_mapping(path):
    """The first address of the mapping, and its lines of smaps."""
    lines, start = [], None
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            if "-" in line.split(" ")[0]:
                start = int(line.split("-")[0], 16) if line.rstrip().endswith(path) else start
                if lines:
                    break
                if not line.rstrip().endswith(path):
                    continue
                lines = [line]
            elif lines:
                lines.append(line)
    return start, lines


def get_kb(lines, name):
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def get_page(address):
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(address // mmap.PAGESIZE * 8)
        return struct.unpack("Q", pages.read(8))[0] & ((1 << 55) - 1)


def map_file(path):
    """Its memory; Python's own mapping would keep a duplicate of the descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if at == ctypes.c_void_p(-1).value:
        sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")
    os.close(fd)
    return (ctypes.c_ubyte * size).from_address(at)


def main():
    path = os.path.realpath(sys.argv[1])
    memory = map_file(path)
    print("mapped", flush=True)
    with open(sys.argv[2], encoding="ascii") as orders:
        for order in orders:
            order = order.strip()
            if order == "sum":
                print(hashlib.sha256(memory).hexdigest(), flush=True)
            elif order == "pss":
                _, lines = find_mapping(path)
                print(get_kb(lines, "Rss"), get_kb(lines, "Pss"), flush=True)
            elif order == "page":
                print(get_page(find_mapping(path)[0]) if memory[0] >= 0 else 0, flush=True)
            elif order == "end":
                break


main()
