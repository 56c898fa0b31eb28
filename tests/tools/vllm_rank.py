# SPDX-License-Identifier: Apache-2.0
"""vllm_rank.py MEETING PATH... WAY...: the ranks of an engine, without an engine, each in a child:
it takes its store as gmsfs.vllm does and publishes or attaches a module of its own. Each prints a line of
JSON, and stays until the standard input ends. WAY: "", "fail" in the load, or "die" before the commit."""

import json
import os
import signal
import sys

import torch
from torch import nn

from gmsfs.vllm import ranks

TIMEOUT = 60 * int(os.environ.get("GMSFS_TEST_SLOW", "1"))


def gather(value):
    found = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, value)
    return found


def made(rank):
    torch.manual_seed(rank)
    return nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8))


def load(place, rank, way):
    if not place.writable:
        with torch.device("meta"):
            module = made(rank)
        return module, place.attach(module, {"rank": rank})
    if way == "fail":
        raise ValueError("its file is broken")
    if way == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    module = made(rank)
    return module, place.publish(module, {"rank": rank})


def run(rank, meeting, paths, way):
    """In the child."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=len(paths)
    )
    place = ranks.Rank(paths, rank, gather, TIMEOUT)
    role = "wrote" if place.writable else "attached"
    try:
        with place.together():
            module, shared = load(place, rank, way)
    except BaseException:
        place.close()
        raise
    report, x = shared.report(), torch.ones(64)
    shared.sleep()
    shared.wake(TIMEOUT)
    seen = {
        "rank": rank,
        "role": role,
        "same": torch.equal(module(x), made(rank)(x)),
        "private": report.private_bytes,
        "left": list(report.left),
        "load": shared.store.info.group,
    }
    tell(seen)
    sys.stdin.read()


def tell(seen):
    """A line in one piece: all children write to one pipe."""
    os.write(1, json.dumps(seen).encode() + b"\n")


def start(rank, *arguments):
    child = os.fork()
    if not child:
        try:
            run(rank, *arguments)
        except BaseException as error:
            tell({"rank": rank, "error": f"{type(error).__name__}: {error}"})
        os._exit(0)
    return child


if __name__ == "__main__":
    _, meeting, *rest = sys.argv
    count = len(rest) // 2
    children = [start(rank, meeting, rest[:count], way) for rank, way in enumerate(rest[count:])]
    for child in children:
        os.waitpid(child, 0)
