# SPDX-License-Identifier: Apache-2.0
"""Which blocks an engine takes from its tier, and which it keeps there: decided by the scheduler alone. Every
rank does the same copies in the same order, so their tiers stay equal. This file knows neither
vLLM nor torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

Copy = Tuple[bytes, int]  # the key of a block, and its number in the engine's own pool


class Step(NamedTuple):
    """The copies of one step of the engine: loads, drops and saves, in this order."""

    loads: List[Copy]  # before the model runs
    drops: List[bytes]
    saves: List[Copy]  # after it


class Tier(NamedTuple):
    """The tier of a rank at the start of the engine."""

    keys: List[bytes]  # the least recently used first
    most: int  # blocks that it can have


class Running:
    """A request that has blocks in the pool."""

    def __init__(self, request: Any, blocks: List[int]) -> None:
        self.request = request
        self.blocks = blocks
        self.keys: List[bytes] = []  # of its first blocks, which the tier has


class Plan:
    """block_tokens: tokens of a block. A request is vLLM's: request_id, num_tokens, num_computed_tokens and
    block_hashes are read."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._count = 0
        self._used: Dict[bytes, int] = {}  # how many running requests have the block
        self._idle: OrderedDict[bytes, None] = OrderedDict()  # all others, the least recently used first
        self._running: Dict[str, Running] = {}
        self._first: Dict[str, int] = {}  # by request: the first block that find() looked for
        self._loads: List[Copy] = []
        self._drops: List[bytes] = []

    def adopt(self, tiers: Sequence[Tier]) -> None:
        """Blocks that every rank has; the others are dropped."""
        common = set(tiers[0].keys).intersection(*(tier.keys for tier in tiers[1:]))
        self._count = min(tier.most for tier in tiers)
        self._idle = OrderedDict.fromkeys(key for key in tiers[0].keys if key in common)
        self._drops = sorted(set().union(*(tier.keys for tier in tiers)) - common)

    def __contains__(self, key: bytes) -> bool:
        return key in self._used or key in self._idle

    def find(self, request: Any, computed_tokens: int) -> int:
        """Number of tokens, after the computed ones, with blocks in the tier. The last token of a request is
        always left to the model, which has to compute something."""
        first = end = computed_tokens // self._block_tokens
        hashes = request.block_hashes
        most = min((request.num_tokens - 1) // self._block_tokens, len(hashes))
        while end < most and hashes[end] in self:
            end += 1
        self._first[request.request_id] = first
        return (end - first) * self._block_tokens

    def start(self, request: Any, blocks: Sequence[int], tokens: int) -> None:
        """A request has its blocks, and will be given so many of the tokens that find() said."""
        first = self._first.pop(request.request_id, 0)
        self.finish(request.request_id)  # it may have been preempted
        running = self._running[request.request_id] = Running(request, list(blocks))
        end = first + tokens // self._block_tokens
        self._loads += zip(request.block_hashes[first:end], running.blocks[first:end])

    def step(self, scheduled: Mapping[str, int], added: Iterable[Tuple[str, Sequence[int]]]) -> Step:
        """The copies of a step that computes so many tokens of each request; added: blocks that requests
        got besides those of start()."""
        for name, blocks in added:
            if name in self._running:
                self._running[name].blocks.extend(blocks)
        saves: List[Copy] = []
        for name, tokens in scheduled.items():
            if name in self._running:
                self._keep(self._running[name], tokens, saves)
        done = Step(self._loads, self._drops, saves)
        self._loads, self._drops = [], []
        return done

    def _keep(self, running: Running, tokens: int, saves: List[Copy]) -> None:
        """Every block that is full after the step. Stops at the first block without room: later blocks are
        useless without it."""
        hashes = running.request.block_hashes
        full = (running.request.num_computed_tokens + tokens) // self._block_tokens
        for at in range(len(running.keys), min(full, len(hashes), len(running.blocks))):
            key = hashes[at]
            if key not in self:
                if not self._make_room():
                    return
                saves.append((key, running.blocks[at]))
            self._idle.pop(key, None)
            self._used[key] = self._used.get(key, 0) + 1
            running.keys.append(key)

    def _make_room(self) -> bool:
        """Drops the least recently used block of no running request."""
        if len(self._used) + len(self._idle) < self._count:
            return True
        if not self._idle:
            return False
        self._drops.append(self._idle.popitem(last=False)[0])
        return True

    def finish(self, name: str) -> None:
        """Of its blocks the last one is dropped first: without those before it, it is of no use."""
        self._first.pop(name, None)
        running = self._running.pop(name, None)
        for key in reversed(running.keys if running else ()):
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
                self._idle[key] = None

    def has_drops(self) -> bool:
        """Whether blocks are still to be dropped by the next step."""
        return bool(self._drops)

    def forget(self) -> None:
        """Drops everything; nothing is loaded or saved from now on."""
        self._drops += [*self._idle, *self._used]
        self._count = 0
        self._idle.clear()
        self._used.clear()
        self._running.clear()
