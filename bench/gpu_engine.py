#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the start of a process to its first matrix product: safetensors' load_file against gmsfs.

    gpu_engine.py [--gmsfs FILE] [--rounds N] [--seconds N] [--device cuda|cpu] MODEL STORE

Each row is a fresh process, but for the `gmsfs load` before it where one is said; the times are from
the moment before it is started, medians of at most N rounds, in milliseconds; each row is printed when it
is measured, and has an equal share of the remaining seconds, with one round at least. The last rows begin
when a process that has the tensors, measured before, is killed with SIGKILL. The limit applies to our part of
the time from then to the first product of the next process: all but the start of Python, imports, the context
and the product. The model is in the page cache: it is read once before. All must see the same weights.
MODEL is a safetensors file. Needs torch, safetensors and NumPy; prints the table that is in
gmsfs-python(7).
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

HEADS = ("python", "imports", "context", "load/attach", "wrap", "product", "all")
LIMIT_MS = 10.0  # of load/attach and wrap, after a kill


# ---- the engine ------------------------------------------------------------------------------


def engine(way, source, device, started_ns, linger):
    """One engine's start, phase by phase; prints them as JSON."""
    times = [started_ns, time.monotonic_ns()]
    import torch

    if way == "load_file":
        from safetensors.torch import load_file
    else:
        import gmsfs
    times.append(time.monotonic_ns())
    if device == "cuda":
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
    times.append(time.monotonic_ns())
    store = None
    if way == "load_file":
        tensors = load_file(source, device=device)
        times += [time.monotonic_ns()] * 2
    else:
        store = gmsfs.open(source)
        store.buffers()
        times.append(time.monotonic_ns())
        tensors = store.tensors("torch")
        times.append(time.monotonic_ns())
    weight = largest(torch, tensors)
    product = torch.ones(16, weight.shape[1], dtype=weight.dtype, device=device) @ weight.t()
    if device == "cuda":
        torch.cuda.synchronize()
    times.append(time.monotonic_ns())
    spans = [(after - before) / 1e6 for before, after in zip(times, times[1:])]
    sum_of_bytes = weight.view(torch.uint8).sum(dtype=torch.int64).item()
    print(json.dumps({"spans": spans, "seen": [list(product.shape), sum_of_bytes]}), flush=True)
    if linger:
        signal.pause()


def largest(torch, tensors):
    """The largest matrix."""
    floats = (torch.bfloat16, torch.float16, torch.float32)
    name = max(
        (name for name, tensor in tensors.items() if tensor.dim() == 2 and tensor.dtype in floats),
        key=lambda name: (tensors[name].numel(), name),
    )
    return tensors[name]


# ---- the bench -------------------------------------------------------------------------------


class Bench:
    def __init__(self, options):
        self.options = options
        self.seen = set()
        self.lingering = None  # the engine that is killed next

    def start(self, way, linger=False):
        """Starts a fresh engine. Returns it, the time of its start, and its output."""
        source = self.options.model if way == "load_file" else self.options.store
        words = [sys.executable, __file__, "--engine", way, "--device", self.options.device]
        words += ["--linger"] * linger
        started_ns = time.monotonic_ns()
        process = subprocess.Popen(
            [*words, "--started", str(started_ns), source, "-"], stdout=subprocess.PIPE, text=True
        )
        line = process.stdout.readline()
        if not line:
            sys.exit(f"bench: {way}: exit status {process.wait()}")
        if not linger:
            process.communicate()
        said = json.loads(line)
        self.seen.add(str(said["seen"]))
        return process, said["spans"]

    def load(self):
        """`gmsfs load` to its end, in ms."""
        start = time.monotonic_ns()
        subprocess.run(
            [self.options.gmsfs, "load", "-q", self.options.store, self.options.model], check=True
        )
        return (time.monotonic_ns() - start) / 1e6

    def killed(self, way):
        """From the kill of an engine to the first product of the next, which lives on."""
        if self.lingering is None:
            self.lingering, _ = self.start(way, linger=True)
        start = time.monotonic_ns()
        self.end_lingering()
        died = (time.monotonic_ns() - start) / 1e6
        self.lingering, spans = self.start(way, linger=True)
        return [spans[0] + died, *spans[1:]]

    def end_lingering(self):
        process, self.lingering = self.lingering, None
        if process is not None:
            process.kill()
            process.communicate()

    def loaded(self):
        """The load command and the first engine after it."""
        took = self.load()
        _, spans = self.start("attach")
        return [*spans[:3], spans[3] + took, *spans[4:]]

    def row(self, label, once, until):
        """Rounds until that time; the medians, which it prints."""
        try:
            rounds = [once()]
            while len(rounds) < self.options.rounds and time.monotonic() < until:
                rounds.append(once())
        finally:
            self.end_lingering()
        medians = [statistics.median(spans) for spans in zip(*rounds)]
        medians.append(statistics.median(sum(spans) for spans in rounds))
        label = f"{label} ({len(rounds)})"
        print(f"{label:<44}" + "".join(f"{ms:>13.1f}" for ms in medians), flush=True)
        return medians

    def run(self):
        end = time.monotonic() + self.options.seconds
        with open(self.options.model, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        print(f"{'ms, medians (of rounds)':<44}" + "".join(f"{h:>13}" for h in HEADS), flush=True)
        rows = (
            ("load_file", lambda: self.start("load_file")[1]),
            ("gmsfs load, then the first attach", self.loaded),
            ("attach", lambda: self.start("attach")[1]),
            ("killed and started again: load_file", lambda: self.killed("load_file")),
            ("killed and started again: attach", lambda: self.killed("attach")),
        )
        for i, (label, once) in enumerate(rows):
            now = time.monotonic()
            medians = self.row(label, once, now + (end - now) / (len(rows) - i))
        if len(self.seen) != 1:
            sys.exit(f"bench: the engines saw different weights: {self.seen}")
        ours_ms = medians[HEADS.index("load/attach")] + medians[HEADS.index("wrap")]
        print(
            f"{'killed and started again: attach and wrap':<58} {ours_ms:7.2f} ms {'':>10} {'':>8} "
            f"{f'<={LIMIT_MS:.0f}ms':>8}  {'ok' if ours_ms <= LIMIT_MS else 'MISSED'}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--gmsfs", default="gmsfs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=65.0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--engine", choices=("load_file", "attach"), help=argparse.SUPPRESS)
    parser.add_argument("--started", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--linger", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("model")
    parser.add_argument("store")
    options = parser.parse_args()
    if options.engine:
        engine(options.engine, options.model, options.device, options.started, options.linger)
    else:
        Bench(options).run()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
