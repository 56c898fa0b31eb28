# SPDX-License-Identifier: Apache-2.0
"""Blocks of a KV cache that outlive their engine, in a store with a sealed layout. Needs torch.

    import gmsfs.kv

    tier = gmsfs.kv.Blocks("/mnt/gms/gpu0/kv", block_bytes=1 << 20, count=512)
    tier.put(block_hash, block)            # while the engine computes
    block = tier.get(block_hash)           # in the next engine: a tensor over the memory, or None

The store has two tensors: `blocks`, and `index`, a row for each of them. A row is marked complete after its
block and its key are written, and unmarked before they change. The next engine reads marked rows alone, so a
block that was half written when its engine died is in no row.
"""

from __future__ import annotations

import ctypes
import struct
from collections import OrderedDict
from typing import Any, Iterator, List, Mapping, Optional, Sequence

import torch

from . import layout
from .arguments import whole_number
from .errors import BadArgument, Mismatch
from .module_parts import FINGERPRINT_KEY
from .opening import open as open_store
from .torch import check_fingerprint, encode_fingerprint

KEY_MAX = 32  # bytes
_WORDS = 8  # of a row: the key in four, its length, a number that grows with each write, 0, the mark
_LENGTH, _SEQUENCE, _MARK = 4, 5, 7
_KEY = struct.Struct("<4q")  # as the words of a row
_COMPLETE = 0x67_6D_73_66_73_6B_76_31  # of no row of new memory, which is zero


def as_words(*tensors: Any) -> Sequence[Any]:
    """The same bytes as the largest words that all of these tensors can be viewed as: index_copy_() on a
    processor copies element by element."""
    for words in (torch.int64, torch.int32, torch.int16):
        try:
            return [tensor.view(words) for tensor in tensors]
        except RuntimeError:  # of their shapes, strides and places
            continue
    return tensors


class Blocks:
    """An open tier; the lock of its store is held until close(), or the end of the process.

    path: of the store, made if it is missing. A sealed layout is adopted, which waits until every
    other process that can write it has exited. fingerprint: of the model and all other settings that decide
    the bytes of a block; a store with another one raises gmsfs.Mismatch.
    timeout: seconds to wait for the lock. adopted: whether the layout was there.
    To be used by one thread; on a GPU all copies are on the current stream, which has to be one and the same.
    """

    def __init__(
        self,
        path: Any,
        block_bytes: int,
        count: int,
        *,
        fingerprint: Optional[Mapping[str, Any]] = None,
        timeout: Optional[float] = None,
    ) -> None:
        whole_number("block_bytes", block_bytes, 1, 2**40)
        whole_number("count", count, 1, 2**32)
        fields = {**(fingerprint or {}), "block_bytes": block_bytes, "blocks": count}
        self.store = open_store(path, "rw_data_or_rw", timeout)
        self._slots: OrderedDict[bytes, int] = OrderedDict()  # by last use, the newest at the end
        try:
            self.adopted = self.store.mode == "rw_data"
            if self.adopted:
                check_fingerprint(self.store, fields)
            else:
                self._refuse_another_layout()
                self._make(block_bytes, count, encode_fingerprint(self.store.path, fields))
            tensors = self.store.tensors("torch", ["blocks", "index"])
            self._blocks, self._index = tensors["blocks"], tensors["index"]
            self._read()
        except BaseException:
            self.store.close()
            raise

    def _refuse_another_layout(self) -> None:
        """The weights of a model, under a path that was mistaken for that of the cache."""
        info = self.store.info
        if info.committed and not info.sealed:
            raise Mismatch(
                self.store.path,
                "Blocks",
                "something else than blocks of a KV cache is committed there; name an empty store, or one "
                "that is not there",
            )

    def _make(self, block_bytes: int, count: int, fingerprint: bytes) -> None:
        """New memory is zero, so no row is marked."""
        handle, metadata = self.store._live(), self.store.metadata
        handle.call("gmsfs_clear_all_handles")
        slot = ctypes.c_uint64()
        for name, dtype, shape, nbytes in (
            ("blocks", "uint8", (count, block_bytes), count * block_bytes),
            ("index", "int64", (count, _WORDS), count * _WORDS * 8),
        ):
            handle.call("gmsfs_allocate_handle", nbytes, b"kv_cache", None, ctypes.byref(slot))
            metadata.put(name, layout.describe(dtype, shape, kind="buffer"), slot.value)
        metadata.put(FINGERPRINT_KEY, fingerprint)
        self.store.commit_layout()

    def _read(self) -> None:
        """The rows that are marked, in the order of their writes."""
        found: List[Any] = []
        for slot, row in enumerate(self._index.cpu().tolist()):
            if row[_MARK] == _COMPLETE and 0 < row[_LENGTH] <= KEY_MAX:
                key = _KEY.pack(*row[:_LENGTH])[: row[_LENGTH]]
                found.append((row[_SEQUENCE], slot, key))
        found.sort()
        self._sequence = found[-1][0] if found else 0
        for _, slot, key in found:
            self._slots.pop(key, None)  # an older write of the same key
            self._slots[key] = slot
        taken = set(self._slots.values())
        self._free = [slot for slot in range(len(self._index)) if slot not in taken]

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def keys(self) -> List[bytes]:
        """Keys of the complete blocks by last use, the newest at the end."""
        return list(self._slots)

    def get(self, key: bytes) -> Optional[Any]:
        """The block as uint8, over the memory of the store: copy it before the next put(). None: not here."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        self._slots.move_to_end(key)
        return self._blocks[slot]

    def get_many(self, keys: Sequence[bytes], widths: Sequence[int]) -> Iterator[Any]:
        """Copies of several blocks in parts, as put_many() takes them: for each width a tensor of uint8 with
        a row of so many bytes for each key. KeyError where a block is not here."""
        self.store._touch()  # Stale where the lock was taken away
        slots = self._at([self._slots[key] for key in keys])
        for key in keys:
            self._slots.move_to_end(key)
        begin = 0
        for width in widths:
            yield self._blocks[:, begin : begin + width].index_select(0, slots)
            begin += width

    def put(self, key: bytes, source: Any) -> None:
        """Keeps a block, a tensor of block_bytes bytes in one piece, on any device. A full store drops the
        least recently used block."""
        self.put_many([key], [source.detach().contiguous().view(-1).view(torch.uint8)[None]])

    def put_many(self, keys: Sequence[bytes], parts: Sequence[Any]) -> None:
        """Keeps several blocks of different keys. parts: tensors of uint8 with a row for each key, on any
        device; a block is its rows of all parts, one behind the other."""
        self._check(keys, sum(part.shape[1] for part in parts))
        self.store._touch()  # Stale where the lock was taken away
        slots = [self._take(key) for key in keys]
        try:
            self._write(slots, keys, parts)
        except Exception:  # before the marks, such as of a device without memory
            self._free += slots
            raise
        self._slots.update(zip(keys, slots))

    def _check(self, keys: Sequence[bytes], nbytes: int) -> None:
        for key in keys:
            if not isinstance(key, bytes) or not 0 < len(key) <= KEY_MAX:
                raise BadArgument(self.store.path, f"key {key!r}", f"a key is 1 to {KEY_MAX} bytes")
        if not 0 < len(set(keys)) == len(keys) <= len(self._index):
            why = f"from 1 to {len(self._index)} blocks of different keys can be put at once"
            raise BadArgument(self.store.path, f"{len(keys)} keys", why)
        if nbytes != self._blocks.shape[1]:
            why = f"it has {nbytes} bytes, and a block of this store has {self._blocks.shape[1]}"
            raise BadArgument(self.store.path, f"block {keys[0].hex()}", why)

    def _take(self, key: bytes) -> int:
        """Takes a slot with an unmarked row."""
        slot = self._slots.pop(key, None)
        if slot is None and self._free:
            return self._free.pop()
        if slot is None:
            _, slot = self._slots.popitem(last=False)
        self._mark(self._at([slot]), 0)
        return slot

    def _write(self, slots: Sequence[int], keys: Sequence[bytes], parts: Sequence[Any]) -> None:
        """The process may die between any two of these: the marks come last."""
        at, begin, rows = self._at(slots), 0, []
        for part in parts:
            end = begin + part.shape[1]
            place, values = as_words(self._blocks[:, begin:end], part.to(self._blocks.device))
            place.index_copy_(0, at, values)
            begin = end
        for key in keys:
            self._sequence += 1
            rows.append([*_KEY.unpack(key.ljust(KEY_MAX, b"\0")), len(key), self._sequence, 0])
        self._index[:, :_MARK].index_copy_(0, at, torch.tensor(rows, device=at.device))
        self._mark(at, _COMPLETE)

    def _at(self, slots: Sequence[int]) -> Any:
        return torch.tensor(slots, dtype=torch.int64, device=self._blocks.device)

    def _mark(self, slots: Any, mark: int) -> None:
        self._index[:, _MARK].index_fill_(0, slots, mark)  # of each one word: it is there or it is not

    def drop(self, *keys: bytes) -> None:
        """Forgets blocks; a key without a block is passed over."""
        self.store._touch()  # Stale where the lock was taken away
        slots = [self._slots.pop(key) for key in dict.fromkeys(keys) if key in self._slots]
        if slots:
            self._mark(self._at(slots), 0)
            self._free += slots

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives the lock back. The blocks stay in the store."""
        try:
            if self._blocks.is_cuda and self.store._handle is not None:
                torch.cuda.current_stream(self._blocks.device).synchronize()
        finally:
            self.store.close()
