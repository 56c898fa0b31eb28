# SPDX-License-Identifier: Apache-2.0
"""Tensors into a store, placed and described as `gmsfs load` does it."""

import ctypes
import errno
import json
import os
import sys
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import abi, dtypes, layout, memory, metadata as metadata_module
from .arguments import whole_number
from .buffers import Buffer
from .errors import BadArgument, NoMemory, make
from .opening import find_or_make
from .store import Store

METADATA_KEY = "__metadata__"  # of a safetensors file; `gmsfs save` looks for it
METADATA_MAX = 100_000_000  # bytes of JSON; a safetensors file's header has no more
ALIGNMENT_BYTES = 512
LEAST_CHUNK_BYTES = 64 << 20
MOST_CHUNK_BYTES = 2 << 30
CHUNKS = 64
CHUNKS_BEFORE_LARGE = 16  # chunks, before an allocation larger than one
DEFAULT_TAG = b"weights"


def publish(
    target: Any,
    tensors: Dict[str, Any],
    metadata: Optional[Dict[str, str]] = None,
    *,
    timeout: Optional[float] = None,
    tag: Union[str, Mapping[str, str]] = "weights",
    chunk_bytes: Optional[int] = None,
    immutable: bool = False,
) -> None:
    """Replaces the contents of a store by these tensors, and commits them.

    target: a path: takes its lock together with all the memory, waiting for at most `timeout`
    seconds and for ever with None; or a Store that is the writer.
    tensors: a dict (a state_dict) of torch tensors, on any device, NumPy arrays, or objects with the
    buffer protocol. One memory under several names is stored once.
    tag: tensors with one tag sleep and wake together (Store.sleep): one for all, or a dict with the tags of
    some tensors by name, while the others have "weights". Tensors with different tags share no allocation.
    immutable: no process can ever change these tensors; the next writer begins with an empty store.
    metadata: a dict of str to str, kept as safetensors keeps it, in the entry __metadata__.
    The same tensors in the same order give the same layout_hash, that of `gmsfs load` for a file with
    them. After any failure nothing is committed.
    """
    if isinstance(target, Store):
        target.publish(tensors, metadata, tag=tag, chunk_bytes=chunk_bytes, immutable=immutable)
        return
    store = find_or_make(target)
    with store:
        plan = Plan(store.path, tensors, metadata, tag, chunk_bytes)
        plan.place(store.info, chunk_bytes)
        store._handle.call("gmsfs_set_connect_flags", abi.CONNECT_REPLACE)
        try:
            store._handle.connect(abi.MODE_RW, timeout, plan.aligned_bytes)
        except NoMemory as error:
            raise _full(error, plan.aligned_bytes) from None
        write(store, plan, chunk_bytes, lambda: store.commit(immutable=immutable))


def _address_of(tensor: Any) -> int:
    """0 of a tensor that stands for others, such as a DTensor or a MaskedTensor."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        return 0


def choose_chunk(model_bytes: Any) -> Any:
    """As `gmsfs load` does for host memory; on a GPU, where few allocations are better, it is the most."""
    chunk_bytes = LEAST_CHUNK_BYTES
    while chunk_bytes < MOST_CHUNK_BYTES and chunk_bytes < model_bytes // CHUNKS:
        chunk_bytes *= 2
    return chunk_bytes


class Item(NamedTuple):
    """One piece of memory to be copied in, and the names that it has."""

    source: object
    given: object  # as it came: while this lives, nothing else has its address or id
    kind: str  # "torch", "numpy" or "bytes"
    nbytes: int
    names: List[Any]  # of (name, value, offset of the tensor within the piece)
    tag: bytes  # the first name's


class Places:
    """Pieces of memory, and the allocations and offsets where a store keeps them."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self.items: List[Item] = []
        self.unbound: List[Tuple[str, bytes]] = []  # entries of no allocation: (key, value)
        self.places: List[Tuple[int, int]] = []  # of items: (allocation, offset)
        self.allocations: List[int] = []  # sizes
        self.tags: List[bytes] = []  # of allocations
        self.aligned_bytes = 0

    def place(self, info: Any, chunk_bytes: Optional[int]) -> None:
        """Places them side by side in as few allocations as chunks allow; larger ones get their own."""
        if chunk_bytes is None:
            total = sum(item.nbytes for item in self.items)
            on_gpu = memory.find(self.path, info.memory).find_ordinal is not None
            chunk_bytes = MOST_CHUNK_BYTES if on_gpu else choose_chunk(total)
        self.places, self.allocations, self.tags = [], [], []
        currents: Dict[bytes, int] = {}  # by tag: the allocation for the next small one
        for item in self.items:
            nbytes = item.nbytes or 1  # so that its offset lies in memory, too
            start = 0
            if nbytes > chunk_bytes:
                allocation = self._new_allocation(item.tag)
            else:
                current = currents.get(item.tag)
                if current is not None:
                    start = -(-self.allocations[current] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
                if current is None or start + nbytes > chunk_bytes:
                    current, start = self._new_allocation(item.tag), 0
                    currents[item.tag] = current
                allocation = current
            self.places.append((allocation, start))
            self.allocations[allocation] = start + nbytes
        self._put_large_behind(chunk_bytes)
        granularity = info.granularity_bytes
        self.aligned_bytes = sum(-(-size // granularity) * granularity for size in self.allocations)

    def _put_large_behind(self, chunk_bytes: int) -> None:
        """The order that `gmsfs load` has them in: ranks, and so the hash, come of it."""
        ranks = range(len(self.allocations))
        chunks = [rank for rank in ranks if self.allocations[rank] <= chunk_bytes]
        large = [rank for rank in ranks if self.allocations[rank] > chunk_bytes]
        order = chunks[:CHUNKS_BEFORE_LARGE] + large + chunks[CHUNKS_BEFORE_LARGE:]
        moved = {rank: at for at, rank in enumerate(order)}
        self.places = [(moved[allocation], offset) for allocation, offset in self.places]
        self.allocations = [self.allocations[rank] for rank in order]
        self.tags = [self.tags[rank] for rank in order]

    def _new_allocation(self, tag: bytes) -> int:
        self.allocations.append(0)
        self.tags.append(tag)
        return len(self.allocations) - 1


class Plan(Places):
    """A plan to publish, checked in full before anything is written."""

    def __init__(
        self, path: Any, tensors: Any, metadata: Any, tag: Any, chunk_bytes: Optional[int]
    ) -> None:
        super().__init__(path)
        if chunk_bytes is not None:
            whole_number("chunk_bytes", chunk_bytes, 1, 2**63 - 1)
        self._tag_of = self._choose_tags(tag)
        encoded = self._metadata(metadata)
        seen: Dict[Any, Item] = {}
        if not callable(getattr(tensors, "items", None)):
            raise TypeError(
                f"{path}: tensors are a dict by name, such as model.state_dict(), not a "
                f"{type(tensors).__name__}"
            )
        for name, source in tensors.items():
            self._add(name, source, seen)
        if encoded is not None:
            self._place_metadata(encoded)
        for name in tag if callable(getattr(tag, "items", None)) else ():
            if name not in tensors:
                raise ValueError(f"{path}: tag: no tensor is called {name!r}")

    def _fail(self, name: Any, why: str) -> Any:
        return BadArgument(self.path, f"tensor {name!r}", why)

    def _fail_type(self, name: Any, why: str) -> Any:
        return TypeError(f"{self.path}: tensor {name!r}: {why}")

    def _choose_tags(self, tag: Any) -> Any:
        """A function of a tensor's name."""
        if not callable(getattr(tag, "items", None)):
            encoded = metadata_module.encode_tag(self.path, tag)
            return lambda name: encoded
        tags = {name: metadata_module.encode_tag(self.path, one) for name, one in tag.items()}
        return lambda name: tags.get(name, DEFAULT_TAG)

    def _metadata(self, metadata: Any) -> Any:
        if not metadata:
            return None
        if not callable(getattr(metadata, "items", None)):
            raise TypeError(
                f"{self.path}: metadata is a dict of strings, not a {type(metadata).__name__}"
            )
        for key, value in metadata.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TypeError(
                    f"{self.path}: {METADATA_KEY}: {key!r}: keys and values are strings"
                )
        text = json.dumps(
            dict(metadata), separators=(",", ":"), sort_keys=True, ensure_ascii=False
        )
        encoded = metadata_module.encode_text(text, METADATA_MAX)
        if encoded is None:
            raise BadArgument(
                self.path,
                METADATA_KEY,
                f"it is JSON of at most {METADATA_MAX} bytes of UTF-8",
            )
        return encoded

    def _place_metadata(self, encoded: bytes) -> None:
        """Puts metadata that is too long for an entry in memory, behind all tensors."""
        if len(encoded) <= abi.VALUE_MAX:
            self.unbound.append((METADATA_KEY, encoded))
            return
        data, nbytes = memoryview(encoded), len(encoded)
        value = json.dumps(
            {"bytes": nbytes, "format": metadata_module.LONG_FORMAT}, separators=(",", ":")
        ).encode()
        names = [(METADATA_KEY, value, 0)]
        self.items.append(Item(data, data, "bytes", nbytes, names, self._tag_of(METADATA_KEY)))

    def _add(self, name: Any, source: Any, seen: Any) -> None:
        if not isinstance(name, str):
            raise self._fail_type(name, "a name is a string")
        if not metadata_module.encode_name(name):
            raise self._fail(name, f"a name is {metadata_module.A_NAME}")
        if name == METADATA_KEY:
            raise self._fail(name, "that name means something else; rename the tensor")
        given = source
        kind, source, dtype, shape, nbytes, identity = self._look(name, source)
        value = layout.describe(dtype, shape)
        known = seen.get(identity) if nbytes else None
        if known is not None:
            known.names.append((name, value, 0))
            return
        item = Item(source, given, kind, nbytes, [(name, value, 0)], self._tag_of(name))
        self.items.append(item)
        seen[identity] = item

    def _look(self, name: Any, source: Any) -> Any:
        """Returns (kind, source, dtype, shape, bytes, key that is equal for the same memory)."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(source, torch.Tensor):
            return self._look_torch(torch, name, source)
        if numpy is not None and isinstance(source, (numpy.ndarray, numpy.generic)):
            return self._look_numpy(numpy, name, source)
        try:
            view = memoryview(source)
        except TypeError:
            raise self._fail_type(
                name,
                f"a {type(source).__name__} is neither a torch tensor, nor a NumPy "
                "array, nor a buffer",
            ) from None
        dtype = dtypes.from_format(view.format, view.itemsize)
        if dtype is None or not view.c_contiguous:
            raise self._fail(
                name,
                f"a buffer of format {view.format!r} is none that can be stored, or it "
                "does not lie in one piece",
            )
        data = view.cast("B") if view.nbytes else memoryview(b"")
        return "bytes", data, dtype, view.shape, view.nbytes, id(source)

    def _look_numpy(self, numpy: Any, name: Any, source: Any) -> Any:
        masked = sys.modules.get("numpy.ma")  # where it was never imported there is no such array
        if masked is not None and isinstance(source, masked.MaskedArray):
            raise self._fail(
                name,
                "it is a masked array, and a store has no masks; publish its filled(), or its data "
                "and its mask under two names",
            )
        source = numpy.asarray(source)
        dtype = dtypes.from_numpy(source.dtype)
        if dtype is None:
            raise self._fail(
                name,
                f"no tensor has elements of NumPy's type {source.dtype} ({source.dtype.str!r})",
            )
        # NumPy's own name of the type has the byte order, which torch's has not.
        where = (
            source.__array_interface__["data"][0],
            dtype,
            source.dtype.str,
            source.shape,
            source.strides,
        )
        return "numpy", source, dtype, source.shape, source.nbytes, where

    def _look_torch(self, torch: Any, name: Any, source: Any) -> Any:
        dtype = dtypes.strip(str(source.dtype))
        if getattr(source, "is_nested", False):
            raise self._fail(name, "a nested tensor has no one shape; publish its parts, of unbind()")
        if source.layout != torch.strided or source.is_meta or dtypes.item_bytes(dtype) is None:
            raise self._fail(
                name,
                f"a tensor of {source.dtype}, {source.layout}, on {source.device} cannot "
                "be stored; make it dense and materialise it",
            )
        shape, nbytes = tuple(source.shape), source.numel() * source.element_size()
        address = _address_of(source)
        if nbytes and not address:
            raise self._fail(
                name,
                f"a {type(source).__name__} has no memory of its own to be read; publish the "
                "plain tensors that it is made of",
            )
        where = (
            source.device,
            address,
            dtype,
            shape,
            source.stride(),
            source.is_conj(),
            source.is_neg(),
        )
        return "torch", source, dtype, shape, nbytes, where


def write(
    store: Any, plan: Any, chunk_bytes: Optional[int], end: Any, adopt: Optional[Callable[..., None]] = None
) -> None:
    """The writer's part, to the commit, which `end` does. Aborts on any exception.

    adopt: called with the Buffer and the [(item, offset)] of each allocation once its bytes are there.
    The allocation stays mapped then, and the item's source is dropped after the call.
    """
    handle = store._live()
    if store.mode != "rw":
        raise make(
            errno.ENOLCK,
            store.path,
            "publish",
            'the store was not opened as the writer; open it with mode="rw"',
        )
    try:
        plan.place(store.info, chunk_bytes)
        handle.call("gmsfs_clear_all_handles")
        store._buffers = {}
        slots = _copy(store, plan, adopt)
        _describe(handle, plan, slots)
        end()
    except BaseException:
        handle.lib.gmsfs_abort(handle.pointer, None)
        raise


def _copy(store: Any, plan: Any, adopt: Optional[Callable[..., None]]) -> Any:
    """Fills one allocation after the other."""
    handle = store._live()
    of: List[List[int]] = [[] for _ in plan.allocations]
    for number, (allocation, _) in enumerate(plan.places):
        of[allocation].append(number)
    slots: List[int] = []
    for size, tag, numbers in zip(plan.allocations, plan.tags, of):
        slot = ctypes.c_uint64()
        try:
            handle.call_long("gmsfs_allocate_handle", size, tag, None, ctypes.byref(slot))
        except NoMemory as error:
            raise _full(error, size) from None
        address = store._map(slot.value, abi.ACCESS_WRITE)
        buffer = store._buffer(address, size, len(slots), slot.value, False)
        for number in numbers:
            _copy_item(store.path, buffer, plan.items[number], plan.places[number][1])
        if adopt is None:  # only one is mapped at a time
            handle.call("gmsfs_destroy_mapping", address)
        else:
            store._buffers[slot.value] = buffer
            adopt(buffer, [(plan.items[number], plan.places[number][1]) for number in numbers])
            for number in numbers:
                plan.items[number] = plan.items[number]._replace(source=None, given=None)
        slots.append(slot.value)
    return slots


def _full(error: Any, needed_bytes: int) -> Any:
    """The same with numbers, where the mount tells them."""
    try:
        with open(os.path.join(error.filename, "..", "device"), encoding="utf-8") as file:
            facts = json.load(file)
        total = facts["total_bytes"]
        free = max(0, total - facts["used_bytes"] - facts["reserved_bytes"])
    except (OSError, ValueError, KeyError):
        return error
    why = (
        f"{needed_bytes} bytes needed, {free} free of {total}; remove another store's layout ('gmsfs "
        "status' shows the holders), or mount with a larger size="
    )
    return make(errno.ENOMEM, error.filename, error.call, why, error.device_error)


def _copy_item(path: Any, buffer: Buffer, item: Any, offset: int) -> None:
    if item.kind == "torch" or buffer.device is not None:
        _need_torch(path).copy_in(buffer, offset, _bytes_of(item))
    elif item.kind == "numpy":
        from . import with_numpy

        with_numpy.copy_in(buffer, offset, item.source)
    else:
        buffer.view()[offset : offset + item.nbytes] = item.source


def _need_torch(path: Any) -> Any:
    try:
        from . import with_torch
    except ImportError:
        raise make(
            errno.EOPNOTSUPP,
            path,
            "publish",
            "it is GPU memory, and needs torch to be written; or use 'gmsfs load'",
        ) from None
    return with_torch


def _bytes_of(item: Any) -> Any:
    if item.kind != "numpy":
        return item.source
    return item.source.astype(item.source.dtype.newbyteorder("="), copy=False).tobytes()


def _describe(handle: Any, plan: Any, slots: Any) -> None:
    rows = []
    for item, (allocation, offset) in zip(plan.items, plan.places):
        for name, value, within in item.names:
            rows.append((name, value, slots[allocation], offset + within))
    for key, value in plan.unbound:
        rows.append((key, value, abi.SLOT_NONE, 0))
    entries = (abi.Metadata * len(rows))()
    for i, (name, value, slot, offset) in enumerate(rows):
        key = metadata_module.encode_key(plan.path, name)
        entries[i] = abi.Metadata(key, value, len(value), slot, offset)
    culprit = ctypes.c_size_t()
    if rows:
        result = handle.lib.gmsfs_metadata_put_many(
            handle.pointer, entries, len(rows), ctypes.byref(culprit)
        )
        why = ""
        if result < 0 and culprit.value < len(rows):
            why = f"the store does not take the entry of {rows[culprit.value][0]!r}; rename it"
        handle.check("gmsfs_metadata_put_many", result, why)
