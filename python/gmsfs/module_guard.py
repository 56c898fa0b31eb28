# SPDX-License-Identifier: Apache-2.0
"""Finds operations about to write to a shared parameter, before the process or its CUDA context is lost."""

from __future__ import annotations

import errno
import gc
from typing import Any, Dict, List, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from . import with_torch
from .errors import ReadOnly
from .module_parts import Part, addresses, some
from .publish import ALIGNMENT_BYTES


class Guard(TorchDispatchMode):  # type: ignore[misc] # torch is not typed
    """A context; see gmsfs.torch.Shared.guard."""

    def __init__(self, shared: Any, private: bool) -> None:
        super().__init__()
        self._shared = shared
        self._private = private
        self._copied: Dict[str, StorageWeakRef] = {}  # storages that parameters had, by name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._private and func is torch.ops.aten.copy_.default and _are_one(args[0], args[1]):
            return args[0]  # a copy of memory onto itself changes nothing
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                self._check(func, tensor)
        return func(*args, **kwargs)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        super().__exit__(kind, error, traceback)
        if kind is None:
            self._check_aliases()

    def _check(self, func: Any, tensor: Any) -> None:
        name = self._shared.name_at(tensor) if hasattr(tensor, "data_ptr") else None
        if name is None or (self._private and self._copy(tensor)):
            return
        raise ReadOnly(
            errno.EACCES,
            self._shared.store.path,
            f"{func} on {name!r}",
            "it is shared and read-only; clone() it first, or publish the result of the operation",
        )

    def _copy(self, tensor: Any) -> bool:
        """Gives the parameters that the tensor covers, and the tensor, a private copy of their memory. False
        if it covers none."""
        start, end = addresses(tensor)
        parts, start, end = self._covered(start, end)
        if not parts:
            return False
        buffer = self._shared.buffer_at(start)
        offset = (start - buffer.address) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        copy = with_torch.base(buffer)[offset : end - buffer.address].clone()
        for part in parts:
            self._copied[part.name] = StorageWeakRef(part.tensor.untyped_storage())
        for one in {id(one): one for one in [*(part.tensor for part in parts), tensor]}.values():
            within = one.data_ptr() - buffer.address - offset
            home = torch.empty(0, dtype=one.dtype, device=one.device)
            home.set_(copy.untyped_storage(), within // one.element_size(), one.shape, one.stride())
            one.data = home
        return True

    def _covered(self, start: int, end: int) -> Tuple[List[Part], int, int]:
        """The shared parameters with bytes between two addresses, and parameters that overlap them; and the
        first address and the end of all."""
        shared = self._shared.shared_parts()
        while True:
            parts = [part for part in shared if addresses(part.tensor)[0] < end]
            parts = [part for part in parts if start < addresses(part.tensor)[1]]
            spans = [(start, end), *(addresses(part.tensor) for part in parts)]
            widest = min(first for first, _ in spans), max(last for _, last in spans)
            if widest == (start, end):
                return parts, start, end
            start, end = widest

    def _check_aliases(self) -> None:
        """A tensor that was made from a parameter before the write still shows the store's bytes."""
        if all(storage.expired() for storage in self._copied.values()):
            return
        gc.collect()
        stale = [name for name, storage in self._copied.items() if not storage.expired()]
        if stale:
            raise ReadOnly(
                errno.EACCES,
                self._shared.store.path,
                f"guard on {some(stale)}",
                "a write gave the parameter a private copy, and a tensor that was made from the parameter "
                "before still shows the store's bytes; publish the result of the write",
            )


def _are_one(tensor: Any, other: Any) -> bool:
    """Whether both are the same elements of the same memory."""
    return isinstance(other, torch.Tensor) and (
        (tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        == (other.device, other.dtype, other.shape, other.stride())
        and not tensor.is_meta
        and tensor.data_ptr() == other.data_ptr()
    )
