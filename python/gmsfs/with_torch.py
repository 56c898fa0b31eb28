# SPDX-License-Identifier: Apache-2.0
"""Host and GPU memory as torch tensors. Imported only where torch is wanted.

torch holds a Python object for each allocation, and the tensors are views of that: so wrapping costs
two calls of torch for a tensor.
"""

import importlib
import warnings

import torch

from . import dtypes
from .buffers import Writable
from .errors import BadMetadata


def base(buffer):
    """The whole allocation, as uint8."""
    if buffer.device is not None:
        _need_numpy()
        # The device is said, or torch would copy to the current one.
        return torch.as_tensor(Writable(buffer), device=torch.device("cuda", buffer.device))
    return torch.frombuffer(buffer.raw(), dtype=torch.uint8)


def _need_numpy():
    """torch reads __cuda_array_interface__ by NumPy's means."""
    try:
        importlib.import_module("numpy")
    except ImportError as error:
        raise ImportError(
            f"torch takes GPU memory by way of NumPy, which cannot be imported ({error}); install it",
            name="numpy",
        ) from error


class Bases:
    """An allocation's memory by type, each made once."""

    def __init__(self, store, buffers):
        self.store = store
        self.buffers = buffers
        self.made = {}

    def get(self, rank, dtype, key):
        found = self.made.get((rank, dtype))
        if found is None:
            found = self.made[rank, dtype] = self._make(rank, dtype, key)
        return found

    def _make(self, rank, dtype, key):
        if dtype == "uint8":
            return base(self.buffers[rank])
        torch_dtype = getattr(torch, dtype, None)
        if not isinstance(torch_dtype, torch.dtype):
            raise BadMetadata(
                self.store,
                key,
                f"torch {torch.__version__} has no torch.{dtype}; it needs a newer one",
            )
        whole = self.get(rank, "uint8", key)
        size = dtypes.item_bytes(dtype)
        return whole[: whole.numel() // size * size].view(torch_dtype)


def tensors(store, buffers, specs):
    bases = Bases(store, buffers)
    made = {}
    as_strided = torch.as_strided
    for name, dtype, shape, stride, rank, offset, _ in specs:
        size = dtypes.item_bytes(dtype)
        if offset % size:
            raise BadMetadata(
                store,
                name,
                f"it lies at offset {offset}, no multiple of the {size} bytes "
                "of its elements, and torch takes none such; load it anew "
                "with 'gmsfs load', or use NumPy",
            )
        typed = bases.get(rank, dtype, name)
        try:
            # A second check of the bounds, torch's own.
            made[name] = as_strided(typed, shape, stride, offset // size)
        except (RuntimeError, OverflowError, TypeError) as error:
            raise BadMetadata(store, name, f"torch makes no tensor of it: {error}") from error
    return made


def copy_in(buffer, offset, source):
    """A tensor, or bytes, into memory that is mapped for writing, on whatever devices they are."""
    if isinstance(source, torch.Tensor):
        source = source.detach()
        if source.numel() == 0:
            return
        there = base(buffer)[offset : offset + source.numel() * source.element_size()]
        if source.is_contiguous() and not source.is_conj() and not source.is_neg():
            there.copy_(source.reshape(-1).view(torch.uint8))  # whatever torch can do with the type
        else:
            there.view(source.dtype).view(source.shape).copy_(source)
    elif len(source):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the bytes are read-only: they are only read
            bytes_there = torch.frombuffer(source, dtype=torch.uint8)
        base(buffer)[offset : offset + len(source)].copy_(bytes_there)
