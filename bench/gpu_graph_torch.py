#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory, capture and replay of many captured shapes: gmsfs.graphs against torch's own pools.

    gpu_graph_torch.py STORE

STORE is a directory below a mount on device 0. First the rows of bench/run's table, then the table that
is in gmsfs-graphs(7): MiB of graph memory by each way, as its allocator counts them, for 24 and 64 shapes
of a transformer of 4 layers; `keep` is with every graph's output held, else it is copied into one buffer
inside the graph. Every graph's output is held against eager work before a figure is printed. Needs torch.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")
MIB = 1 << 20
ROUNDS = 7
REPLAYS = 100
TOKENS = (1, 128, 8192)
CAPTURE_LIMIT, REPLAY_LIMIT = 1.7, 1.01
ORDERS = ("largest", "random", "smallest")
COUNTS = ((24, False), (24, True), (64, False), (64, True))


# ---- in a process with torch -------------------------------------------------------------------


class Bench:
    def __init__(self, store):
        import torch

        sys.path.insert(0, EXAMPLES)
        import graph_shapes
        import gmsfs.graphs

        self.torch, self.example, self.graphs = torch, graph_shapes, gmsfs.graphs
        self.store = store
        self.model = graph_shapes.Model(layers=4, width=4096, inner=14336, heads=32)
        self.x, self.y = (
            torch.zeros(graph_shapes.LARGEST, 4096, dtype=torch.bfloat16, device="cuda") for _ in "xy"
        )
        self.model(self.x)
        torch.cuda.synchronize()

    def body(self, tokens, keep):
        out = self.model(self.x[:tokens])
        if keep:
            return out
        self.y[:tokens].copy_(out)
        return None

    def by_torch(self, shapes, keep, shared):
        """{tokens: (graph, its output if it is kept)}"""
        torch, made = self.torch, {}
        pool = torch.cuda.graph_pool_handle() if shared else None
        for tokens in shapes:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                out = self.body(tokens, keep)
            made[tokens] = (graph, out)
        return made

    def by_ours(self, pool, shapes, keep):
        made = {}
        for tokens in shapes:
            graph = self.torch.cuda.CUDAGraph()
            with pool.capture(graph, tokens) as capture:
                out = self.body(tokens, keep)
                if keep:
                    capture.keep(out)
            made[tokens] = (graph, out)
        return made

    def check(self, made, way):
        for tokens in random.sample(list(made), len(made)):
            graph, out = made[tokens]
            self.x[:tokens].normal_()
            graph.replay()
            got = self.y[:tokens] if out is None else out
            if not self.torch.equal(got, self.model(self.x[:tokens])):
                sys.exit(f"bench: {way}: {tokens} tokens: not what eager work gives")

    def torch_bytes(self):
        """Of all pools of graphs."""
        return sum(
            segment["total_size"]
            for segment in self.torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) != (0, 0)
        )

    def clear(self, made):
        for graph, _ in made.values():
            graph.reset()
        made.clear()
        self.torch._C._cuda_clearCublasWorkspaces()
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def ordered(self, count, order):
        shapes = self.example.shapes(count)
        if order == "random":
            random.Random(7).shuffle(shapes)
        return shapes[::-1] if order == "largest" else shapes

    def torch_mib(self, count, keep, order, shared):
        made = {}
        try:
            made = self.by_torch(self.ordered(count, order), keep, shared)
            self.check(made, f"torch, {order}")
            return self.torch_bytes() / MIB
        except self.torch.cuda.OutOfMemoryError:
            return None
        finally:
            self.clear(made)

    def our_mib(self, count, keep, order):
        with self.graphs.GraphPool(self.store) as pool:
            made = self.by_ours(pool, self.ordered(count, order), keep)
            self.check(made, f"gmsfs, {order}")
            stats = pool.stats
            made.clear()
            return (stats.physical_bytes - stats.eager_bytes) / MIB

    def sizes(self, ways):
        found = {}
        for way in ways:
            for count, keep in COUNTS:
                if way == "separate":
                    mib = self.torch_mib(count, keep, "smallest", False)
                elif way.startswith("gmsfs "):
                    mib = self.our_mib(count, keep, way.split()[-1])
                else:
                    mib = self.torch_mib(count, keep, way.split()[-1], True)
                found.setdefault(way, []).append(mib)
        return found

    def alone_mib(self):
        made = self.by_torch([self.example.LARGEST], False, False)
        mib = self.torch_bytes() / MIB
        self.clear(made)
        return mib

    # ---- times: both ways in turn --------------------------------------------------------------

    def timed(self, work):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        made = work()
        self.torch.cuda.synchronize()
        return made, 1e3 * (time.perf_counter() - start)

    def times(self):
        """gmsfs: memory is made while shapes are captured, as torch's is; grown: it was before."""
        shapes, capture = self.ordered(24, "largest"), {"torch": [], "gmsfs": [], "grown": []}
        high_bytes = 0
        replayed = sorted({*shapes, *TOKENS}, reverse=True)
        for turn in range(ROUNDS + 1):  # what is done once is done in the first
            theirs, theirs_ms = self.timed(lambda: self.by_torch(shapes, False, True))
            if turn:
                capture["torch"].append(theirs_ms)
            for way, grown_bytes in (("gmsfs", 0), ("grown", high_bytes)):
                pool = self.graphs.GraphPool(self.store)
                pool.grow(grown_bytes)
                ours, ours_ms = self.timed(lambda pool=pool: self.by_ours(pool, shapes, False))
                if turn:
                    capture[way].append(ours_ms)
                high_bytes = pool.stats.high_bytes
                ours.clear()
                pool.close()
            self.clear(theirs)
        theirs = self.by_torch(replayed, False, True)
        pool = self.graphs.GraphPool(self.store)
        ours = self.by_ours(pool, replayed, False)
        replay = {}
        for tokens in TOKENS:
            pairs = {"torch": theirs[tokens][0].replay, "gmsfs": lambda: pool.replay(tokens)}
            replay[tokens] = self.replays(pairs)
        ours.clear()
        pool.close()
        self.clear(theirs)
        return {
            "capture": {way: statistics.median(times) for way, times in capture.items()},
            "replay": replay,
        }

    def replays(self, ways):
        """Milliseconds of a replay, by the device's clock over many in a row."""
        torch, found = self.torch, {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, replay in ways.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                replay()
                torch.cuda.synchronize()
                start.record()
                for _ in range(REPLAYS):
                    replay()
                end.record()
                end.synchronize()
                found[way].append(start.elapsed_time(end) / REPLAYS)
        return {way: statistics.median(times) for way, times in found.items()}


def child(store, ways):
    bench = Bench(store)
    with bench.torch.inference_mode():
        found = {"sizes": bench.sizes(ways)}
        if "separate" in ways:
            found.update(bench.times(), alone=bench.alone_mib())
    print(json.dumps(found))


# ---- the tables --------------------------------------------------------------------------------


def run(store, ways, **environment):
    done = subprocess.run(
        [sys.executable, __file__, store, *ways],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"bench: {' '.join(ways)}: a process with torch ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def row(what, ours, floor, unit, shown, limit, good):
    print(
        f"{what:<58} {ours:7.2f} {unit:<2} {floor:7.2f} {unit:<2} {shown:>8} {limit:>8}  "
        f"{'ok' if good else 'MISSED'}"
    )


def ratio_row(what, ours, floor, limit):
    row(what, ours, floor, "ms", f"{ours / floor:.2f}", f"<={limit:g}", ours <= limit * floor)


def main(store):
    shared = [f"shared, {order} first" for order in ORDERS]
    plain = run(
        store,
        ["separate", *(f"shared {order}" for order in ORDERS), *(f"gmsfs {order}" for order in ORDERS)],
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False",
    )
    expandable = run(
        store,
        [f"shared {order}" for order in ORDERS],
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )
    chunk_mib = 32
    for order in ORDERS:
        for (count, keep), mib in zip(COUNTS, plain["sizes"][f"gmsfs {order}"]):
            more = mib - plain["alone"]
            what = f"graphs: {count} shapes, {order} first{', kept' if keep else ''}: the largest alone"
            row(what, mib, plain["alone"], "M", f"{more:+.0f}", f"<=+{chunk_mib}M", more <= chunk_mib)
    captured = plain["capture"]
    ratio_row(
        "graphs: capture 24 shapes, grown before: torch's shared pool",
        captured["grown"],
        captured["torch"],
        CAPTURE_LIMIT,
    )
    ratio = captured["gmsfs"] / captured["torch"]
    row(
        "graphs: capture 24 shapes, growing: torch's shared pool",
        captured["gmsfs"],
        captured["torch"],
        "ms",
        f"{ratio:.2f}",
        "-",
        True,
    )
    for tokens, times in plain["replay"].items():
        what = f"graphs: replay {tokens} tokens: torch's shared pool"
        ratio_row(what, times["gmsfs"], times["torch"], REPLAY_LIMIT)
    print_sizes(plain["sizes"], expandable["sizes"], shared)


def print_sizes(plain, expandable, titles):
    heads = [f"{count} shapes{', keep' if keep else ''}" for count, keep in COUNTS]
    print(f"\n{'graph memory, MiB':<40}" + "".join(f"{head:>17}" for head in heads))
    rows = [("one pool a graph", plain["separate"])]
    rows += [(title, plain[f"shared {order}"]) for title, order in zip(titles, ORDERS)]
    rows += [
        (f"{title}, expandable", expandable[f"shared {order}"]) for title, order in zip(titles, ORDERS)
    ]
    rows += [(f"gmsfs, {order} first", plain[f"gmsfs {order}"]) for order in ORDERS]
    for title, values in rows:
        texts = ("no memory" if mib is None else f"{mib:,.0f}" for mib in values)
        print(f"{title.replace('random first', 'random order'):<40}" + "".join(f"{t:>17}" for t in texts))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: gpu_graph_torch.py STORE")
    elif len(sys.argv) > 2:
        child(sys.argv[1], sys.argv[2:])
    else:
        main(sys.argv[1])
