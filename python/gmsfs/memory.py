# SPDX-License-Identifier: Apache-2.0
"""The kinds of memory that a store may lie in. In Python they differ by a row of KINDS,
and, for a GPU, by a module that finds it among those of this process."""

import errno
from typing import Callable, NamedTuple, Optional

from . import cuda, errors


class Kind(NamedTuple):
    name: str  # Info.memory
    framework: str  # default for tensors()
    torch_type: str  # of torch's devices
    dlpack_type: int  # DLDeviceType
    # (store, uuid) -> the ordinal of the store's device in this process. None: the processor's own
    # memory.
    find_ordinal: Optional[Callable[[str, bytes], int]]


# By number: enum gmsfs_memory of gmsfs_abi.h.
KINDS = (
    Kind("host", "numpy", "cpu", 1, None),
    Kind("cuda", "torch", "cuda", 2, cuda.find_ordinal),
)


def name_of(number: int) -> str:
    return KINDS[number].name if number < len(KINDS) else str(number)


def find(store: str, name: str) -> Kind:
    """The Kind that Info.memory names."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    known = ", ".join(kind.name for kind in KINDS)
    raise errors.make(
        errno.EOPNOTSUPP,
        store,
        "memory",
        f"its memory is of kind {name}, and this package knows {known}; update it",
    )
