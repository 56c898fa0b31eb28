#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""24 batch shapes of a small transformer as CUDA graphs over the memory of the largest.

    graph_shapes.py STORE

STORE is a directory directly below a mount on a GPU, and is made where it is missing. Captures in any
order, replays, gives all memory back, takes it again, and replays on: every output equals that of the
model without graphs. Needs torch.
"""
import random
import sys

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

import gmsfs.graphs

LARGEST = 8192


def shapes(count):
    """Numbers of tokens, up to 8,192: 24 that grow by about half each, or 64 with 128 between them."""
    if count == 64:
        return list(range(128, LARGEST + 1, 128))
    growth = (LARGEST ** (1 / (count - 1)) if count > 1 else 1) + 1e-9
    found = []
    for step in range(count):
        least = found[-1] + 1 if found else 1
        found.append(min(LARGEST, max(least, int(growth**step))))
    return found


class Model:
    """Attention and MLP, with weights that are always the same."""

    def __init__(self, layers=2, width=1024, inner=3584, heads=8, device="cuda"):
        draw = torch.Generator(device).manual_seed(1)

        def weight(rows, columns):
            values = torch.randn(rows, columns, generator=draw, device=device)
            return (values / rows**0.5).to(torch.bfloat16)

        self.width, self.heads = width, heads
        self.layers = [
            (
                weight(width, 3 * width),
                weight(width, width),
                weight(width, inner),
                weight(width, inner),
                weight(inner, width),
            )
            for _ in range(layers)
        ]

    def __call__(self, x):
        tokens, size = x.shape[0], (self.width,)
        for qkv, project, gate, up, down in self.layers:
            q, k, v = (
                part.view(tokens, self.heads, -1).transpose(0, 1).unsqueeze(0)
                for part in (rms_norm(x, size) @ qkv).chunk(3, dim=1)
            )
            seen = scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + seen.squeeze(0).transpose(0, 1).reshape(tokens, -1) @ project
            h = rms_norm(x, size)
            x = x + (silu(h @ gate) * (h @ up)) @ down
        return x


def capture(pool, model, x, y, tokens, **options):
    graph = torch.cuda.CUDAGraph()
    with pool.capture(graph, tokens, **options):
        y.first(tokens).copy_(model(x.first(tokens)))
    return graph


def check(pool, model, x, y):
    """Replays every shape, in any order, with other inputs each time."""
    for tokens in random.sample(pool.shapes, len(pool.shapes)):
        batch = torch.randn(tokens, model.width, device="cuda").to(torch.bfloat16)
        x.put(batch)
        pool.replay(tokens)
        if not torch.equal(y.first(tokens), model(batch)):
            sys.exit(f"graph_shapes.py: {tokens} tokens: differs from the model without graphs")


def main(path):
    model = Model()
    with torch.inference_mode(), gmsfs.graphs.GraphPool(path) as pool:
        x, y = (pool.rows(LARGEST, (model.width,), torch.bfloat16) for _ in "xy")
        model(x.first(LARGEST))  # libraries do their one-time work outside of captures
        for tokens in random.sample(shapes(24), 24):
            capture(pool, model, x, y, tokens)
        check(pool, model, x, y)
        stats = pool.stats
        print(
            f"{stats.shapes} shapes: {stats.mapped_bytes >> 20} MiB of addresses are mapped over "
            f"{stats.physical_bytes >> 20} MiB of memory, of which buffers have {stats.eager_bytes >> 20}"
        )
        pool.sleep()
        print(f"asleep: {pool.stats.physical_bytes} bytes of memory")
        pool.wake()
        check(pool, model, x, y)
        print("awake: all shapes give the same as the model")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: graph_shapes.py STORE")
    main(sys.argv[1])
