# SPDX-License-Identifier: Apache-2.0
"""Tensors by a store's metadata. Pure but for read(), which asks the library.

Any writer may write the values. A value that is not JSON with a dtype and a shape is no tensor; an
invalid dtype or shape is an error. Every result lies within its allocation.
"""

import ctypes
import json
import struct
from typing import Any, Dict, Iterable, NamedTuple, Optional, Tuple

from . import abi, dtypes
from .errors import BadMetadata

DIMENSIONS_MAX = 64
BYTES_MAX = 2**63 - 1

_ENTRY = struct.Struct("@PNQQPN")
assert _ENTRY.size == ctypes.sizeof(abi.LayoutEntry)


class Entry(NamedTuple):
    key: str
    rank: int  # abi.SLOT_NONE: bound to no allocation
    offset: int
    value: bytes


class TensorSpec(NamedTuple):
    """The place and type of a tensor: torch's dtype name, shape and strides in elements."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    rank: int
    offset: int
    nbytes: int  # from the first byte of the first element to the last of the last


class Shape(NamedTuple):
    """A value, understood."""

    dtype: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    nbytes: int


def read(handle: Any) -> Any:
    """The committed layout's entries, in one read: tuples, as Entry has them."""
    layout = ctypes.POINTER(abi.Layout)()
    sizes = ctypes.sizeof(abi.LayoutAllocation), ctypes.sizeof(abi.LayoutEntry)
    handle.call("gmsfs_read_layout", ctypes.byref(layout), *sizes)
    try:
        count = layout.contents.entry_count
        if not count:
            return []
        rows = list(_ENTRY.iter_unpack(ctypes.string_at(layout.contents.entries, count * _ENTRY.size)))
        start, (*_, last, last_bytes) = rows[0][0], rows[-1]
        texts = ctypes.string_at(start, last + last_bytes - start)  # of all entries: they lie in order
        return [
            (
                texts[key - start : key - start + key_bytes].decode(),
                rank,
                offset,
                texts[value - start : value - start + value_bytes],
            )
            for key, key_bytes, rank, offset, value, value_bytes in rows
        ]
    finally:
        handle.lib.gmsfs_free_layout(layout)


def specs(store: str, entries: Any, aligned_bytes: Any, names: Optional[Iterable[str]] = None) -> Any:
    """TensorSpecs of the entries that are tensors, in the order of allocations and offsets.

    aligned_bytes: of each allocation, by rank. names: only these, which must be there.
    """
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{store}: names are several, as in a list, not {names!r}")
    wanted = None if names is None else set(names)
    found = []
    known: Dict[bytes, Any] = {}  # layers look alike: most values occur many times
    for key, rank, offset, value in entries:
        if (wanted is not None and key not in wanted) or rank >= len(aligned_bytes):
            continue
        try:
            shape = known[value]
        except KeyError:
            shape = known[value] = parse(value)
        if shape is None:
            continue
        if isinstance(shape, str):
            raise BadMetadata(store, key, shape)
        if offset > aligned_bytes[rank] or shape.nbytes > aligned_bytes[rank] - offset:
            raise BadMetadata(
                store,
                key,
                f"it reaches beyond its allocation: {shape.nbytes} bytes at "
                f"{offset} of {aligned_bytes[rank]}",
            )
        found.append((rank, offset, key, shape))
    if wanted is not None and len(found) < len(wanted):
        missing = sorted(wanted.difference(key for _, _, key, _ in found))
        raise KeyError(f"{store}: no tensor is called {missing[0]!r}")
    found.sort()  # no key is there twice, so the shapes are not compared
    return [
        TensorSpec(key, dtype, sizes, stride, rank, offset, nbytes)
        for rank, offset, key, (dtype, sizes, stride, nbytes) in found
    ]


def parse(value: Any) -> Any:
    """A Shape, None if the value describes no tensor, or a text: the error in it."""
    try:
        json_value = _decode_json(value.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(json_value, dict):
        return None
    dtype, shape = json_value.get("dtype"), json_value.get("shape")
    if not isinstance(dtype, str) or not isinstance(shape, list):
        return None
    dtype = dtypes.strip(dtype)
    size = dtypes.item_bytes(dtype)
    if size is None:
        return f"its dtype {dtype[:40]!r} is none that gmsfs knows"
    if len(shape) > DIMENSIONS_MAX:
        return f"it has {len(shape)} dimensions; a tensor has at most {DIMENSIONS_MAX}"
    if not _are_sizes(shape):
        return "its shape is not made of whole numbers from 0 up"
    if _product(shape) * size > BYTES_MAX:
        return "its shape has more elements than can be counted"
    stride = json_value.get("stride")
    if stride is None:
        stride = contiguous(shape)
    elif not isinstance(stride, list) or len(stride) != len(shape) or not _are_sizes(stride):
        return "its strides are not whole numbers from 0 up, one for each dimension"
    last = sum((count - 1) * step for count, step in zip(shape, stride)) if 0 not in shape else -1
    nbytes = (last + 1) * size
    if nbytes > BYTES_MAX or any(step * size > BYTES_MAX for step in stride):
        return "its strides reach further than can be counted"
    return Shape(dtype, tuple(shape), tuple(stride), nbytes)


def describe(dtype: Any, shape: Any, stride: Any = None, kind: str = "parameter", **more: Any) -> Any:
    """The value of a tensor as `gmsfs load` writes it. stride: None for one that lies in one piece.
    kind: "parameter" or "buffer". more: members that only this package reads."""
    return json.dumps(
        {
            "dtype": f"torch.{dtype}",
            "shape": list(shape),
            "stride": contiguous(shape) if stride is None else list(stride),
            "tensor_type": kind,
            **more,
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()


def contiguous(shape: Any) -> Any:
    """Row-major strides in elements, as torch counts them: a dimension of 0 counts as 1."""
    strides, step = [], 1
    for count in reversed(shape):
        strides.append(step)
        step *= count or 1
    return strides[::-1]


def _unique(pairs: Any) -> Any:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


_decode_json = json.JSONDecoder(object_pairs_hook=_unique).decode  # json.loads would make one for each value


def _are_sizes(numbers: Any) -> Any:
    return all(type(number) is int and 0 <= number <= BYTES_MAX for number in numbers)


def _product(shape: Any) -> Any:
    product = 1
    for count in shape:
        product *= count or 1
    return product
