# SPDX-License-Identifier: Apache-2.0
"""Buffers of graph pools that outlive captures: one of the largest shape, of which each shape has the
first rows."""

import errno
import math
from typing import Any, Optional

from . import dtypes, errors


class Rows:
    """all: the whole buffer, a torch tensor (NumPy array of host memory). It lies in memory that nothing else
    shares, as long as it is referenced; sleep loses the contents."""

    def __init__(self, whole: Any, pool: Any) -> None:
        self.all = whole
        self._pool = pool

    def __len__(self) -> int:
        return len(self.all)

    def _check(self, count: int) -> None:
        if not 0 <= count <= len(self):
            raise ValueError(f"{count} rows of a buffer that has {len(self)}")

    def first(self, count: int) -> Any:
        """The first rows, for a capture to read or write, at the same place each time."""
        self._check(count)
        return self.all[:count]

    def put(self, source: Any, count: Optional[int] = None) -> Any:
        """Copies the rows of `source` to the beginning, and clears those behind them up to `count`, which
        would still hold old rows. Returns first(count)."""
        rows = len(source)
        count = rows if count is None else count
        if rows > count:
            raise ValueError(f"{rows} rows do not go into {count}")
        self._check(count)
        self._pool._check_awake("put")
        self.all[:rows] = source
        self.all[rows:count] = 0
        return self.all[:count]


def make(space: Any, count: int, shape: Any, dtype: Any, framework: Optional[str]) -> Any:
    """The buffer, cleared."""
    name = dtypes.strip(getattr(dtype, "name", None) or str(dtype))
    item_bytes = dtypes.item_bytes(name)
    if item_bytes is None:
        raise ValueError(f"no type of torch's is called {name!r}")
    whole = (count, *shape)
    nbytes = math.prod(whole) * item_bytes
    if nbytes <= 0:
        raise ValueError(f"rows of shape {whole} are no memory")
    framework = framework or space.pool.kind.framework
    if framework == "torch":
        made = _by_torch(space.alloc(nbytes), name, whole)
    elif framework == "numpy":
        made = _by_numpy(space.alloc(nbytes), name, whole)
    else:
        raise ValueError(f'framework is "torch" or "numpy", not {framework!r}')
    made[...] = 0
    return made


def _by_torch(segment: Any, name: str, shape: Any) -> Any:
    import torch

    from . import with_torch

    return with_torch.base(segment).view(getattr(torch, name)).view(shape)


def _by_numpy(segment: Any, name: str, shape: Any) -> Any:
    import numpy

    if segment.device is not None:
        raise errors.make(
            errno.EOPNOTSUPP,
            segment.path,
            "rows",
            'it is GPU memory, which NumPy cannot read; use framework="torch"',
        )
    return numpy.asarray(segment).view(dtypes.to_numpy(numpy, name)).reshape(shape)
