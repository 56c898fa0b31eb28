# SPDX-License-Identifier: Apache-2.0
"""The memory of one mapped allocation, as other libraries ask for memory.

Each way returns an object that holds the Buffer's Handle, so the mapping stays as long as the object
lives.
"""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from . import errors

if TYPE_CHECKING:
    from .memory import Kind


class Buffer:
    """One allocation, mapped: address, nbytes, rank, slot, readonly, kind (of memory.KINDS), and device, the
    ordinal of its GPU in this process, or None for host memory.

    Host memory: memoryview by view(), __array_interface__. GPU memory: __cuda_array_interface__.
    Either: from_dlpack of any library with DLPack, through torch or NumPy.
    """

    __slots__ = (
        "_handle",
        "address",
        "nbytes",
        "rank",
        "slot",
        "readonly",
        "kind",
        "device",
        "__weakref__",
    )

    def __init__(
        self,
        handle: Any,
        address: int,
        nbytes: int,
        rank: int,
        slot: int,
        readonly: bool,
        kind: Kind,
        device: Optional[int],
    ) -> None:
        self._handle = handle
        self.address = address
        self.nbytes = nbytes
        self.rank = rank
        self.slot = slot
        self.readonly = readonly
        self.kind = kind
        self.device = device

    def __repr__(self) -> str:
        where = self.kind.name if self.device is None else f"{self.kind.name}:{self.device}"
        return (
            f"<gmsfs.Buffer rank {self.rank} of {self._handle.path}: {self.nbytes} bytes, {where}>"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self._handle.path}: a Buffer is neither copied nor sent to another process, for it is a "
            "mapping of this one; open the store there"
        )

    def raw(self) -> Any:
        """Host memory as a ctypes array, writable as far as Python knows."""
        if self.device is not None:
            raise errors.Error(
                errno.EOPNOTSUPP,
                self._handle.path,
                "view",
                "it is GPU memory, which Python cannot read; use tensors() with torch",
            )
        array: Any = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        array.owner = self._handle
        return array

    def view(self) -> memoryview:
        """Host memory as a memoryview of bytes."""
        view = memoryview(self.raw()).cast("B")
        return view.toreadonly() if self.readonly else view

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """For numpy.asarray. No caller can make an array writable that is read-only here; of a memoryview
        NumPy would ask the object behind it."""
        if self.device is not None:
            raise AttributeError("it is GPU memory")
        return self.interface(self.readonly)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self.device is None:
            raise AttributeError("it is host memory")
        return self.interface(self.readonly)

    def interface(self, readonly: bool) -> Dict[str, Any]:
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, readonly),
            "strides": None,
            "version": 3,
        }

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (self.kind.dlpack_type, self.device or 0)

    def __dlpack__(self, **options: Any) -> Any:
        if self.device is not None:
            from . import with_torch

            return with_torch.base(self).__dlpack__(**options)
        import numpy

        return numpy.asarray(self).__dlpack__(**options)


class Writable:
    """Read-only memory as torch takes it, which knows no read-only tensors and refuses to be told."""

    __slots__ = ("buffer", "__cuda_array_interface__")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = buffer.interface(False)
