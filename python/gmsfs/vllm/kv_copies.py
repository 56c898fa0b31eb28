# SPDX-License-Identifier: Apache-2.0
"""Copies between an engine's own pool of KV blocks and its tier, gmsfs.kv.Blocks. This file does not know
vLLM. Needs torch."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch

from ..engine import wait_told
from ..kv import Blocks, as_words
from .kv_plan import Copy, Step, Tier

AT_ONCE = 64 << 20  # bytes of whole blocks: each copy goes by way of temporary tensors
logger = logging.getLogger("vllm.gmsfs")


class Pool:
    """Tensors of an engine's layers, of which each has the same number of blocks.

    layout: the settings that decide the bytes of a block. A block is stored as its tensors are indexed, so
    two engines with different strides have the same bytes.
    """

    def __init__(self, caches: Mapping[str, Any], count: int) -> None:
        self._layers: List[Any] = []
        seen: Set[Any] = set()
        digest = hashlib.sha256()
        for name, cache in caches.items():
            if not isinstance(cache, torch.Tensor) or cache.shape[0] % count:
                raise ValueError(
                    f"gmsfs: the KV cache of layer {name} is not made of {count} blocks; leave "
                    "--kv-transfer-config out"
                )
            place = (cache.data_ptr(), cache.shape, cache.stride())
            if place in seen:  # layers that share one cache
                continue
            seen.add(place)
            rows = cache.unflatten(0, (count, -1))
            digest.update(f"{name} {rows.dtype} {tuple(rows.shape[1:])};".encode())
            self._layers += as_words(rows.view(torch.uint8) if rows.element_size() == 1 else rows)
        self.widths = [rows[0].numel() * rows.element_size() for rows in self._layers]
        self.block_bytes = sum(self.widths)
        self.layout = f"{len(self._layers)} tensors, {digest.hexdigest()[:16]}"

    def read(self, blocks: Sequence[int]) -> List[Any]:
        """Copies of blocks: for each layer a tensor of uint8 with a row for each block."""
        at = self._at(blocks)
        return [rows.index_select(0, at).flatten(1).view(torch.uint8) for rows in self._layers]

    def write(self, blocks: Sequence[int], parts: Iterator[Any]) -> None:
        at = self._at(blocks)
        for rows, part in zip(self._layers, parts):
            values = part.to(rows.device).view(rows.dtype)
            rows.index_copy_(0, at, values.view(len(blocks), *rows.shape[1:]))

    def _at(self, blocks: Sequence[int]) -> Any:
        return torch.tensor(blocks, dtype=torch.int64, device=self._layers[0].device)


class Copies:
    """Pool and tier of one rank. When a copy fails, the engine goes on without the tier."""

    def __init__(
        self, pool: Pool, path: str, nbytes: int, timeout: float, fingerprint: Dict[str, str]
    ) -> None:
        count = nbytes // pool.block_bytes
        if not count:
            raise ValueError(
                f'{path}: "bytes" is {nbytes}, and one block of this engine has {pool.block_bytes}; give more'
            )
        fields = {**fingerprint, "layout": pool.layout}
        self.path = path
        self._pool = pool
        with wait_told(logger, [path], timeout):
            self._tier: Optional[Blocks] = Blocks(
                path, pool.block_bytes, count, fingerprint=fields, timeout=timeout
            )
        self.found = Tier(self._tier.keys(), count)
        logger.info(
            "gmsfs: KV cache %s: %d of %d blocks of %d bytes found",
            path,
            len(self.found.keys),
            count,
            pool.block_bytes,
        )

    def load(self, step: Step) -> Set[int]:
        """Numbers of the blocks in the pool that could not be loaded."""
        loaded = not step.loads or self._attempt(self._load, step)
        return set() if loaded else {block for _, block in step.loads}

    def save(self, step: Step) -> None:
        if step.drops or step.saves:
            self._attempt(self._save, step)

    def _load(self, tier: Blocks, step: Step) -> None:
        for keys, blocks in batches(step.loads, self._pool.block_bytes):
            self._pool.write(blocks, tier.get_many(keys, self._pool.widths))

    def _save(self, tier: Blocks, step: Step) -> None:
        tier.drop(*step.drops)
        for keys, blocks in batches(step.saves, self._pool.block_bytes):
            tier.put_many(keys, self._pool.read(blocks))

    def _attempt(self, copy: Callable[[Blocks, Step], None], step: Step) -> bool:
        if self._tier is None:
            return False
        try:
            copy(self._tier, step)
        except Exception as error:  # of the store or of torch; no request fails for it
            logger.error(
                "gmsfs: KV cache %s: %s: %s; this engine goes on without it until it is started again",
                self.path,
                type(error).__name__,
                error,
            )
            self.close()
            return False
        return True

    def close(self) -> None:
        """Gives the lock back; the blocks stay in the store."""
        tier, self._tier = self._tier, None
        if tier is not None:
            with contextlib.suppress(Exception):  # the device may have failed
                tier.close()


def batches(copies: Sequence[Copy], block_bytes: int) -> Iterator[Tuple[List[bytes], List[int]]]:
    count = max(1, AT_ONCE // block_bytes)
    for at in range(0, len(copies), count):
        part = copies[at : at + count]
        yield [key for key, _ in part], [block for _, block in part]
