# SPDX-License-Identifier: Apache-2.0
"""Host memory as NumPy arrays. Imported only where arrays are wanted."""

import errno
from typing import Any, Dict

import numpy

from . import dtypes, errors
from .errors import BadMetadata


def tensors(store: str, buffers: Any, specs: Any) -> Any:
    if buffers and buffers[0].device is not None:
        raise errors.Error(
            errno.EOPNOTSUPP,
            store,
            "tensors",
            'it is GPU memory, which NumPy cannot read; use framework="torch"',
        )
    whole = [numpy.asarray(buffer) for buffer in buffers]
    types: Dict[str, Any] = {}
    made = {}
    for spec in specs:
        dtype = types.get(spec.dtype)
        if dtype is None:
            dtype = types[spec.dtype] = dtypes.to_numpy(numpy, spec.dtype)
        try:
            # A second check of the bounds, NumPy's own.
            made[spec.name] = numpy.ndarray(
                spec.shape,
                dtype,
                whole[spec.rank],
                spec.offset,
                tuple(step * dtype.itemsize for step in spec.stride),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise BadMetadata(store, spec.name, f"NumPy makes no array of it: {error}") from error
    return made


def copy_in(buffer: Any, offset: int, array: Any) -> None:
    """A NumPy array into host memory that is mapped for writing."""
    if array.nbytes:
        there = numpy.ndarray(
            array.shape, array.dtype.newbyteorder("="), numpy.asarray(buffer), offset
        )
        numpy.copyto(there, array)
