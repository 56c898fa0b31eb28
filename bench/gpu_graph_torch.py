#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory, capture and replay of many captured shapes: gmsfs.graphs against torch's own pools.

    gpu_graph_torch.py [--seconds N] STORE

STORE is a directory below a mount on device 0. First the rows of bench/run's table, each when it is
measured, then the table that is in gmsfs-graphs(7): MiB of graph memory by each way, as its allocator
counts them, for 24 and 64 shapes of a transformer of 4 layers; `keep` is with every graph's output held,
else it is copied into one buffer inside the graph. The output of each of our graphs is held against eager
work before a figure is printed; of torch's own pools the smallest and the largest. Rows of that table that
are not reached within the seconds read "not tried". Needs torch.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")
MIB = 1 << 20
ROUNDS = 5
REPLAYS_MS = 150.0  # of replays in a row
REPLAYS_MOST = 100
NOT_TRIED = "not tried"
TOKENS = (1, 128, 8192)
CAPTURE_LIMIT, REPLAY_LIMIT = 1.7, 1.01
CHUNK_MIB = 32
START_SECONDS = 15.0  # of a process with torch, until it measures
ORDERS = ("largest", "random", "smallest")
COUNTS = ((24, False), (24, True), (64, False), (64, True))


# ---- in a process with torch -------------------------------------------------------------------


class Bench:
    def __init__(self, store, until):
        import torch

        sys.path.insert(0, EXAMPLES)
        import graph_shapes
        import gmsfs.graphs

        self.torch, self.example, self.graphs = torch, graph_shapes, gmsfs.graphs
        self.store = store
        self.until = until  # no size of torch's pools is begun later than that
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

    def check(self, made, way, shapes=None):
        for tokens in random.sample(shapes or list(made), len(shapes or made)):
            graph, out = made[tokens]
            self.x[:tokens].normal_()
            graph.replay()
            got = self.y[:tokens] if out is None else out
            if not self.torch.equal(got, self.model(self.x[:tokens])):
                sys.exit(f"bench: {way}: {tokens} tokens: differs from eager work")

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
            self.check(made, f"torch, {order}", [min(made), max(made)])
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

    def size(self, way, count, keep):
        if way.startswith("gmsfs "):
            return self.our_mib(count, keep, way.split()[-1])
        if time.monotonic() > self.until:
            return NOT_TRIED
        if way == "separate":
            return self.torch_mib(count, keep, "smallest", False)
        return self.torch_mib(count, keep, way.split()[-1], True)

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

    def captures(self):
        """gmsfs: memory is made while shapes are captured, as torch's is; grown: it was before."""
        shapes, capture = self.ordered(24, "largest"), {"torch": [], "gmsfs": [], "grown": []}
        high_bytes = 0
        for turn in range(ROUNDS + 1):  # the first round warms up
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
        return {way: statistics.median(times) for way, times in capture.items()}

    def all_replays(self):
        """(tokens, by way the milliseconds of a replay) for each of TOKENS."""
        shapes = sorted(TOKENS, reverse=True)
        theirs = self.by_torch(shapes, False, True)
        pool = self.graphs.GraphPool(self.store)
        ours = self.by_ours(pool, shapes, False)
        for tokens in TOKENS:
            pairs = {
                "torch": theirs[tokens][0].replay,
                "gmsfs": lambda tokens=tokens: pool.replay(tokens),
            }
            yield tokens, self.replays(pairs)
        ours.clear()
        pool.close()
        self.clear(theirs)

    def replays(self, ways):
        """Milliseconds of a replay, by the device's clock over many in a row."""
        torch, found = self.torch, {way: [] for way in ways}
        count = 1  # of the first round, which tells how many are enough, and is not counted
        for turn in range(ROUNDS + 1):
            for way, replay in ways.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                replay()
                torch.cuda.synchronize()
                start.record()
                for _ in range(count):
                    replay()
                end.record()
                end.synchronize()
                found[way].append(start.elapsed_time(end) / count)
            if not turn:
                slowest = max(times.pop() for times in found.values())
                count = max(1, min(REPLAYS_MOST, int(REPLAYS_MS / max(slowest, 1e-3))))
        return {way: statistics.median(times) for way, times in found.items()}


def tell(label, *said):
    print(json.dumps([label, *said]), flush=True)


def child(store, ways, until):
    """A line of JSON for each thing that was measured, in the order of `ways`."""
    bench = Bench(store, until)
    with bench.torch.inference_mode():
        for way in ways:
            if way == "alone":
                tell(way, bench.alone_mib())
            elif way == "capture":
                tell(way, bench.captures())
            elif way == "replay":
                for tokens, times in bench.all_replays():
                    tell(way, tokens, times)
            else:
                for count, keep in COUNTS:
                    tell("size", way, count, keep, bench.size(way, count, keep))


# ---- the tables --------------------------------------------------------------------------------


def run(store, ways, until, **environment):
    """Yields the messages of a process with torch, one by one."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--until", str(until), store, *ways],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        yield json.loads(line)
    if process.wait():
        sys.exit(f"bench: {' '.join(ways)}: a process with torch ended with {process.returncode}")


def row(label, ours, floor, unit, shown, limit, good):
    print(
        f"{label:<58} {ours:7.2f} {unit:<2} {floor:7.2f} {unit:<2} {shown:>8} {limit:>8}  "
        f"{'ok' if good else 'MISSED'}",
        flush=True,
    )


def ratio_row(label, ours, floor, limit):
    row(label, ours, floor, "ms", f"{ours / floor:.2f}", f"<={limit:g}", ours <= limit * floor)


def size_row(way, count, keep, mib, alone):
    more = mib - alone
    label = f"graphs: {count} shapes, {way.split()[-1]} first{', kept' if keep else ''}: the largest alone"
    row(label, mib, alone, "M", f"{more:+.0f}", f"<=+{CHUNK_MIB}M", more <= CHUNK_MIB)


def capture_rows(captured):
    label = "graphs: capture 24 shapes, grown before: torch's shared pool"
    ratio_row(label, captured["grown"], captured["torch"], CAPTURE_LIMIT)
    label, ours, floor = "growing: torch's shared pool", captured["gmsfs"], captured["torch"]
    row(f"graphs: capture 24 shapes, {label}", ours, floor, "ms", f"{ours / floor:.2f}", "-", True)


def main(store, seconds):
    until = time.monotonic() + seconds
    ours, theirs = ([f"{pool} {order}" for order in ORDERS] for pool in ("gmsfs", "shared"))
    plain, expandable, alone = {}, {}, None
    ways = ["alone", "capture", "replay", *ours, *theirs, "separate"]
    for label, *said in run(store, ways, until, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"):
        if label == "alone":
            (alone,) = said
        elif label == "capture":
            capture_rows(*said)
        elif label == "replay":
            tokens, times = said
            label = f"graphs: replay {tokens} tokens: torch's shared pool"
            ratio_row(label, times["gmsfs"], times["torch"], REPLAY_LIMIT)
        else:
            way, count, keep, mib = said
            plain.setdefault(way, []).append(mib)
            if way in ours:
                size_row(way, count, keep, mib, alone)
    if time.monotonic() + START_SECONDS < until:
        for _, way, _, _, mib in run(
            store, theirs, until, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
        ):
            expandable.setdefault(way, []).append(mib)
    else:
        expandable = {way: [NOT_TRIED] * len(COUNTS) for way in theirs}
    print_sizes(plain, expandable, [f"shared, {order} first" for order in ORDERS])


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
        texts = (
            "no memory" if mib is None else mib if mib == NOT_TRIED else f"{mib:,.0f}" for mib in values
        )
        print(f"{title.replace('random first', 'random order'):<40}" + "".join(f"{t:>17}" for t in texts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("store")
    parser.add_argument("ways", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ways:
        child(options.store, options.ways, options.until)
    else:
        main(options.store, options.seconds)
