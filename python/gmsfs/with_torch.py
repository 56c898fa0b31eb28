# SPDX-License-Identifier: Apache-2.0
"""Host and GPU memory as torch tensors. Imported only where torch is wanted.

torch holds a Python object for each allocation. A tensor has a storage of its own, as each of
load_file has, that covers just its bytes: a slice of the allocation's storage, which it keeps by torch's
own counts. So torch's operations on whole storages (save, pickle, deepcopy, send) work on that one
tensor.
"""

import importlib
import operator
import warnings
from typing import Any, Dict, Tuple

import torch

from . import dtypes
from .buffers import Writable
from .errors import BadMetadata


def base(buffer: Any) -> Any:
    """The whole allocation, as uint8."""
    if buffer.device is not None:
        _need_numpy()
        # The device is said, or torch would copy to the current one.
        return torch.as_tensor(Writable(buffer), device=torch.device(buffer.kind.torch_type, buffer.device))
    return torch.frombuffer(buffer.raw(), dtype=torch.uint8)


def _need_numpy() -> None:
    """torch reads __cuda_array_interface__ by NumPy's means."""
    try:
        importlib.import_module("numpy")
    except ImportError as error:
        raise ImportError(
            f"torch takes GPU memory by way of NumPy, which cannot be imported ({error}); install it",
            name="numpy",
        ) from error


def _storage(tensor: Any) -> Any:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()  # torch 1


# storage[slice], without a frame of Python around it where torch has one.
_part = getattr(getattr(torch._C, "StorageBase", None), "__getitem__", operator.getitem)


class Maker:
    """Makes the tensors of one store, by its metadata. Every tensor costs three calls of torch
    and little besides: a model has thousands."""

    def __init__(self, store: str, buffers: Any) -> None:
        self.store = store
        self.buffers = buffers
        self.wholes: Dict[int, Any] = {}  # storages of allocations, by rank
        self.kinds: Dict[str, Tuple[Any, Any, int]] = {}  # by name: see _find_kind
        self.first: Dict[Any, Any] = {}  # of each place the tensor that was made first
        self.copied: Dict[Any, str] = {}  # of each place that was copied the first name

    def make(self, spec: Any) -> Any:
        name, dtype, shape, stride, rank, offset, nbytes = spec
        whole = self.wholes.get(rank)
        if whole is None:
            whole = self._open(rank)
        kind, empty, size = self.kinds.get(dtype) or self._find_kind(dtype, name, whole.device)
        place = (rank, offset, nbytes)
        twin = self.first.get(place)
        if twin is None:
            part = _part(whole, slice(offset, offset + nbytes))
            if offset % size:
                part = self._copy(name, place, part, size)
            twin = self.first[place] = empty(0).set_(part, 0, shape, stride)
            return twin
        if (twin.dtype, twin.shape, twin.stride()) == (kind, shape, stride):
            return twin.detach()  # one count of changes, too, which autograd looks at
        return empty(0).set_(_storage(twin), 0, shape, stride)

    def _copy(self, name: str, place: Any, part: Any, size: int) -> Any:
        """torch needs an alignment that the bytes of a file may not give. A writer's bytes are not copied:
        what it wrote to the copy would not be in the store."""
        rank, offset, nbytes = place
        if not self.buffers[rank].readonly:
            raise BadMetadata(
                self.store,
                name,
                f"it lies at offset {offset}, no multiple of the {size} bytes of its elements, and torch "
                "takes none such for writing; load it anew with 'gmsfs load', or use NumPy",
            )
        self.copied[place] = name
        return part.clone()

    def tell_copied(self) -> None:
        if self.copied:
            count, nbytes = len(self.copied), sum(place[2] for place in self.copied)
            warnings.warn(
                f"{self.store}: tensors are copies of this process: {count}, {nbytes} bytes, the first is "
                f"{next(iter(self.copied.values()))!r}; their files do not align them as torch needs "
                "('gmsfs load' without --files does)",
                stacklevel=4,
            )

    def _open(self, rank: int) -> Any:
        whole = self.wholes[rank] = _storage(base(self.buffers[rank]))
        return whole

    def _find_kind(self, name: str, key: str, device: Any) -> Tuple[Any, Any, int]:
        """torch's type, the function that makes an empty tensor of it (set_ checks the bounds a second time,
        because no slice of a storage grows), and the bytes of an element."""
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype):
            raise BadMetadata(
                self.store,
                key,
                f"torch {torch.__version__} has no torch.{name}; it needs a newer one",
            )
        empty = torch.empty(0, dtype=dtype, device=device).new_empty
        kind = self.kinds[name] = (dtype, empty, dtypes.item_bytes(name))
        return kind


def tensors(store: str, buffers: Any, specs: Any) -> Any:
    maker = Maker(store, buffers)
    make = maker.make
    made = {}
    for spec in specs:
        try:
            made[spec[0]] = make(spec)
        except (RuntimeError, OverflowError, TypeError) as error:
            raise BadMetadata(store, spec.name, f"torch makes no tensor of it: {error}") from error
    maker.tell_copied()
    return made


def copy_in(buffer: Any, offset: int, source: Any) -> None:
    """Copies a tensor, or bytes, into memory that is mapped for writing, on any devices."""
    if isinstance(source, torch.Tensor):
        source = source.detach()
        if source.numel() == 0:
            return
        there = base(buffer)[offset : offset + source.numel() * source.element_size()]
        if source.is_contiguous() and not source.is_conj() and not source.is_neg():
            there.copy_(source.reshape(-1).view(torch.uint8))  # for every type of torch
        else:
            there.view(source.dtype).view(source.shape).copy_(source)
    elif len(source):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the bytes are read-only: they are only read
            bytes_there = torch.frombuffer(source, dtype=torch.uint8)
        base(buffer)[offset : offset + len(source)].copy_(bytes_there)
