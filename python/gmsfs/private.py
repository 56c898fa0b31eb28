# SPDX-License-Identifier: Apache-2.0
"""Private copies of tensors: memory of this process alone, which lives as long as it is referenced."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from . import abi
from .buffers import Buffer
from .layout import TensorSpec

if TYPE_CHECKING:
    from .handle import Handle


class Memory:
    """Memory of gmsfs_copy_private; a Buffer over it holds this in place of the Handle."""

    __slots__ = ("handle", "path", "pointer", "__weakref__")

    def __init__(self, handle: Handle, address: int, nbytes: int) -> None:
        copied = ctypes.c_void_p()
        self.pointer: Optional[int] = None
        self.handle, self.path = handle, handle.path
        handle.call("gmsfs_copy_private", address, nbytes, ctypes.byref(copied))
        self.pointer = copied.value

    def __del__(self) -> None:
        # In a reference cycle the handle may end first: it has freed all its copies then.
        handle = self.handle
        if self.pointer and not handle.is_exiting() and handle.pointer:
            handle.lib.gmsfs_free_private(handle.pointer, self.pointer)


def copy(
    handle: Handle, buffers: Sequence[Buffer], specs: Sequence[TensorSpec]
) -> Tuple[List[Buffer], List[TensorSpec]]:
    """Buffers and specs as those given, of copies: one for each place, so tied tensors stay tied. Tensors
    without bytes are not copied."""
    copies: List[Buffer] = list(buffers)
    moved: List[TensorSpec] = []
    ranks: Dict[Tuple[int, int, int], int] = {}
    for spec in specs:
        if spec.nbytes:
            place = (spec.rank, spec.offset, spec.nbytes)
            if place not in ranks:
                ranks[place] = len(copies)
                copies.append(_copy_one(handle, buffers[spec.rank], spec, len(copies)))
            spec = spec._replace(rank=ranks[place], offset=0)
        moved.append(spec)
    return copies, moved


def _copy_one(handle: Handle, buffer: Buffer, spec: TensorSpec, rank: int) -> Buffer:
    memory = Memory(handle, buffer.address + spec.offset, spec.nbytes)
    return Buffer(
        memory, memory.pointer or 0, spec.nbytes, rank, abi.SLOT_NONE, False, buffer.kind, buffer.device
    )
