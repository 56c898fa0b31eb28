#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""eat_memory.py CGROUP: has all memory of a memory cgroup but a little, until this process is killed.

The memory is a file's, which no process of the cgroup maps. The OOM killer can free none of it, and kills
another process of the cgroup once that asks for more than the little."""

import os
import sys
import time

LEFT_BYTES = 3 << 19
PAGE_BYTES = 4096


def read_number(*names):
    for name in names:
        path = os.path.join(sys.argv[1], name)
        if os.path.exists(path):
            with open(path) as file:
                return int(file.read())
    sys.exit(f"eat_memory.py: {sys.argv[1]} has none of {names}")


def eat(more):  # in a child that joins the cgroup, to which the pages are charged then
    child = os.fork()
    if child == 0:
        try:
            with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as procs:
                procs.write("0")
            os.posix_fallocate(memory, os.fstat(memory).st_size, more)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


limit = read_number("memory.limit_in_bytes", "memory.max")
memory = os.memfd_create("eaten")
while True:
    free = limit - read_number("memory.usage_in_bytes", "memory.current")
    if free > LEFT_BYTES + (LEFT_BYTES >> 2):
        eat((free - LEFT_BYTES) // PAGE_BYTES * PAGE_BYTES)
    time.sleep(0.005)
